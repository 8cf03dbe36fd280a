//! What masters report, and what follows from it.

use holdline_core::Health;

use super::*;

fn report(lines: &str, timeout: u64, full_coverage: &str) -> MasterReport {
    MasterReport {
        info: Some(Info::parse(lines)),
        timeout: Some(timeout),
        full_coverage: Some(full_coverage.to_owned()),
        moving: Some(BTreeSet::new()),
        known: Known::default(),
    }
}

#[test]
fn the_reports_of_the_masters_are_judged() {
    let well = || report("cluster_state:ok\r\ncluster_slots_fail:0\r\n", 5_000, "no");
    let ill = report("cluster_state:fail\r\ncluster_slots_pfail:7\r\n", 5_000, "yes");
    let both = [well(), ill];
    for (judge, expected) in [
        (state as fn(&[MasterReport]) -> Finding, Health::Error),
        (coverage, Health::Warning),
        (moving, Health::Ok),
        (timeout, Health::Ok),
    ] {
        assert_eq!(judge(&[well()]).health(), Health::Ok);
        assert_eq!(judge(&both).health(), expected, "{:?}", judge(&both));
    }
    for (expected, timeouts) in [
        (Health::Ok, [15_000, 15_000]),
        (Health::Warning, [15_001, 15_001]),
        (Health::Warning, [499, 499]),
        (Health::Warning, [5_000, 6_000]),
    ] {
        let reports = timeouts.map(|timeout| report("", timeout, "no"));
        assert_eq!(timeout(&reports).health(), expected, "{timeouts:?}");
    }
    assert_eq!(timeout(&[MasterReport::default()]).health(), Health::Warning);
    assert_eq!(coverage(&[MasterReport::default()]).health(), Health::Warning);
    assert_eq!(state(&[MasterReport::default()]).health(), Health::Warning, "unknown is not well");
    assert_eq!(moving(&[MasterReport::default()]).health(), Health::Warning);
    assert_eq!(masters(&SlotTable::default()).health(), Health::Warning);
    assert_eq!(covered(&SlotTable::default(), &both).health(), Health::Error);
}

#[test]
fn replicas_are_read_from_the_lines_of_all_nodes() {
    let nodes = "ab 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-99\n\
                 cd 127.0.0.1:3@4 slave ab 0 0 2 connected\n\
                 ef ::1:5@6,host master,fail - 0 0 2 disconnected\n\
                 01 ::1:7@8,host slave,fail ab 0 0 2 disconnected\n\
                 23 :0@0 slave,fail?,noaddr ab 0 0 2 disconnected\n\
                 45 127.0.0.1:9@10 master - 0 0 3 connected\n\
                 67 127.0.0.1:11@12 slave,fail 45 0 0 3 connected\n";
    let dead = BTreeSet::from(["::1:7".to_owned()]);
    assert_eq!(known_replicas(nodes), Known { count: 3, dead });
    assert_eq!(known_replicas("\n-\n"), Known::default());
}

#[test]
fn slots_that_move_are_read_from_the_nodes_own_line() {
    let nodes = "ab 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-99 [7->-cd] [9-<-ef]\n\
                 cd 127.0.0.1:3@4 master - 0 0 2 connected 100-16383 [5->-ab]\n";
    let slots: Vec<String> = moving_slots(nodes).into_iter().collect();
    assert_eq!(slots, ["7", "9"]);
    assert!(moving_slots("").is_empty());
}
