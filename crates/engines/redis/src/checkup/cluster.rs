//! What `doctor` looks at on a cluster: how the masters stand together, their replicas, then each
//! master by itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Checkup, Clock, Finding, LockError};

use super::info::{Config, Info};
use super::merge::merge;
use super::replicas::{Replica, Shard};
use super::{Probe, REACHABLE, inventory, machine, replicas, rights, settings};
use crate::cluster::{ClusterRouter, SLOTS, SlotTable};
use crate::error::ENGINE;
use crate::node::Node;
use crate::options::RedisOptions;

const STATE: &str = "a cluster that is down grants, renews and releases nothing";
const COVERED: &str = "a name lives in a slot, and in a slot that nobody serves nothing is locked";
const MASTERS: &str = "a majority of the masters decides who takes over when one is lost";
const REPLICAS: &str = "one takes over when its master is lost; it may lack the newest grants, so \
                        let resources check fencing tokens";
const TIMEOUT: &str = "for so long and a second or two the names of a lost master are out, and a \
                       master that is cut off goes on granting";
const COVERAGE: &str = "whether a lost slot stops the names of all others too";
const MOVING: &str = "while a slot moves, its names are neither granted nor handed on";

/// The node timeout that is right for leases of half a minute, and the one that a busy machine
/// does not miss, in ms.
const LONGEST_TIMEOUT: u64 = 15_000;
const SHORTEST_TIMEOUT: u64 = 500;
/// A majority of fewer loses none.
const FEWEST_MASTERS: usize = 3;

/// What one master says about the cluster; `None` for what it may not be asked.
#[derive(Default)]
struct MasterReport {
    info: Option<Info>,
    timeout: Option<u64>,
    full_coverage: Option<String>,
    moving: Option<BTreeSet<String>>,
    known: Known,
}

/// Which word of a node's line is its first slot.
const SLOT: usize = 8;

/// The replicas that a node has heard of, also those that are away.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    count: usize,
    /// Where those are that it finds dead.
    dead: BTreeSet<String>,
}

/// The replicas of one master.
struct Standing {
    master: String,
    shard: Shard,
}

/// Looks how a cluster stands, together and master by master.
pub(super) async fn checkup(
    options: &RedisOptions,
    clock: Arc<dyn Clock>,
) -> Result<Checkup, LockError> {
    let mut checkup = Checkup::new(ENGINE);
    let router = ClusterRouter::new(options, clock.clone())?;
    let table = match router.ready().await {
        Ok(table) => table,
        Err(error) => {
            let finding = Finding::ok("reachable", REACHABLE, error.to_string());
            checkup.add(finding.fail("do what the error says; until then nothing can be locked"));
            return Ok(checkup);
        }
    };
    let (mut told, mut each, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    let (mut standing, mut slowest) = (Vec::new(), Duration::ZERO);
    for known in table.shards() {
        let (host, port) = &known.master;
        let master = options.at(host, *port);
        let node = Node::new(&master, clock.clone())?;
        let probe = Probe { node, limit: options.command_timeout() };
        let address = master.address().to_string();
        let (info, config, offset) = match machine::round_trip(&probe, clock.as_ref()).await {
            Ok(trip) => {
                slowest = slowest.max(trip);
                told.push(about_cluster(&probe).await);
                let info = probe.text(&["INFO"]).await.map(|text| Info::parse(&text));
                let config = Config::ask(&probe).await;
                each.push((address.clone(), alone(&probe, options, &info, &config).await));
                (info, config, machine::offset(&probe).await)
            }
            Err(error) => {
                silent.push(error.to_string());
                (Err(error.clone()), Err(error.clone()), Err(error))
            }
        };
        let replicas = replicas::ask(options, &known.replicas, &clock).await?;
        let shard = Shard { info, config, offset, replicas };
        standing.push(Standing { master: address, shard });
    }
    let mut findings = vec![reachable(table.masters().count(), &silent, slowest)];
    findings.extend(together(&table, &told, standing));
    findings.extend(merge(&each));
    findings.into_iter().for_each(|finding| checkup.add(finding));
    Ok(checkup)
}

fn reachable(masters: usize, silent: &[String], slowest: Duration) -> Finding {
    let found = format!("{} of {masters} masters answer in {slowest:?}", masters - silent.len());
    let finding = Finding::ok("reachable", REACHABLE, found);
    match silent.first() {
        Some(error) => finding.fail(format!("see to the one that does not answer: {error}")),
        None => finding,
    }
}

/// Asks a master about the cluster.
async fn about_cluster(probe: &Probe) -> MasterReport {
    let setting = async |name: &str| {
        let value = probe.ask(&["CONFIG", "GET", name]).await.ok()?;
        value.as_array()?.get(1)?.as_text().map(str::to_owned)
    };
    let nodes = probe.text(&["CLUSTER", "NODES"]).await.ok();
    MasterReport {
        info: probe.text(&["CLUSTER", "INFO"]).await.ok().map(|text| Info::parse(&text)),
        timeout: setting("cluster-node-timeout").await.and_then(|value| value.parse().ok()),
        full_coverage: setting("cluster-require-full-coverage").await,
        moving: nodes.as_deref().map(moving_slots),
        known: nodes.as_deref().map(known_replicas).unwrap_or_default(),
    }
}

/// Reads the replicas of masters that serve slots: `id host:port@bus flag,flag master ping pong
/// epoch link slot…`.
fn known_replicas(nodes: &str) -> Known {
    let words = |line: &'_ str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let nodes: Vec<Vec<String>> = nodes.lines().map(words).collect();
    let serves = |id: &String| nodes.iter().any(|words| words.len() > SLOT && words[0] == *id);
    let mut known = Known::default();
    for words in &nodes {
        let [_, place, flags, master, ..] = words.as_slice() else { continue };
        let mut flags = flags.split(',');
        if flags.clone().any(|flag| flag == "slave") && serves(master) {
            known.count += 1;
            if flags.any(|flag| flag == "fail") {
                let place = place.split_once('@').map_or(place.as_str(), |(place, _)| place);
                known.dead.insert(place.to_owned());
            }
        }
    }
    known
}

/// Reads the slots that move from the line of the node itself: `[93->-id]` and `[93-<-id]`.
fn moving_slots(nodes: &str) -> BTreeSet<String> {
    let own = nodes.lines().filter(|line| line.contains("myself"));
    let marks = own.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix('['));
    marks.filter_map(|mark| mark.split_once('-').map(|(slot, _)| slot.to_owned())).collect()
}

/// What is to be said of one master.
async fn alone(
    probe: &Probe,
    options: &RedisOptions,
    info: &Result<Info, LockError>,
    config: &Result<Config, LockError>,
) -> Vec<Finding> {
    let mut findings = settings::of_master(info, config);
    findings.push(machine::clock(probe).await);
    findings.extend(rights::findings(probe, options).await);
    findings.push(inventory::finding(probe, options).await);
    findings
}

/// What is to be said of the masters as a cluster, and of their replicas.
fn together(table: &SlotTable, told: &[MasterReport], standing: Vec<Standing>) -> Vec<Finding> {
    let replicas = replicas(&standing, told);
    let shards: Vec<Shard> = standing.into_iter().map(|one| one.shard).collect();
    vec![
        state(told),
        covered(table, told),
        masters(table),
        replicas,
        replicas::links(&shards),
        replicas::alike(&shards),
        replicas::clocks(&shards, fastest_failover(told)),
        timeout(told),
        coverage(told),
        moving(told),
    ]
}

/// A replica that is not asked to takes over no sooner.
fn fastest_failover(told: &[MasterReport]) -> Duration {
    let least = told.iter().filter_map(|one| one.timeout).min();
    least.map_or(Duration::MAX, Duration::from_millis)
}

fn state(told: &[MasterReport]) -> Finding {
    let known = told.iter().filter_map(|one| one.info.as_ref());
    let down = known.clone().filter(|info| info.text("cluster_state") != "ok").count();
    if known.count() < told.len() {
        let finding = Finding::ok("state", STATE, "may not be asked");
        return finding.warn("allow CLUSTER INFO to this user");
    }
    let found = match down {
        0 => "ok".to_owned(),
        down => format!("{down} of {} masters find it down", told.len()),
    };
    let finding = Finding::ok("state", STATE, found);
    match down {
        0 => finding,
        _ => finding.fail(
            "see to slots that nobody serves and to masters that are gone (redis-cli --cluster \
             check)",
        ),
    }
}

fn covered(table: &SlotTable, told: &[MasterReport]) -> Finding {
    let ill = |info: &Info| info.number("cluster_slots_fail") + info.number("cluster_slots_pfail");
    let failing = told.iter().filter_map(|one| one.info.as_ref()).map(ill).max().unwrap_or(0);
    let found =
        format!("{} of {SLOTS} served, {failing} by a node that is failing", table.covered());
    let finding = Finding::ok("slots", COVERED, found);
    match (table.covered() < SLOTS, failing) {
        (true, _) => finding.fail("give each slot to a master (redis-cli --cluster fix)"),
        (false, 0) => finding,
        (false, _) => finding.warn("see to the node that is failing, or wait for its replica"),
    }
}

fn masters(table: &SlotTable) -> Finding {
    let count = table.masters().count();
    let finding = Finding::ok("masters", MASTERS, count.to_string());
    match count < FEWEST_MASTERS {
        true => finding.warn("spread the slots over three masters: of fewer no majority is left"),
        false => finding,
    }
}

fn replicas(standing: &[Standing], told: &[MasterReport]) -> Finding {
    let living = |one: &Standing| {
        let there = |replica: &&Replica| replica.silence().is_none();
        one.shard.replicas.iter().filter(there).count()
    };
    let counts: Vec<String> = standing.iter().map(|one| living(one).to_string()).collect();
    let finding = Finding::ok("replicas", REPLICAS, counts.join(", "));
    let bare = standing.iter().filter(|one| living(one) == 0);
    let bare: Vec<&str> = bare.map(|one| one.master.as_str()).collect();
    if !bare.is_empty() {
        let bare = bare.join(", ");
        return finding
            .warn(format!("give {bare} a replica that is well: without one nothing takes over"));
    }
    let all = || standing.iter().flat_map(|one| &one.shard.replicas);
    let silent = all().filter(|replica| replica.silence().is_some()).map(Replica::place);
    let dead = told.iter().flat_map(|one| &one.known.dead).map(String::as_str);
    let away: BTreeSet<&str> = silent.chain(dead).collect();
    let known = told.iter().map(|one| one.known.count).max().unwrap_or(0);
    let away = match away.is_empty() {
        false => away.into_iter().collect::<Vec<_>>().join(", "),
        // Those that have never followed are known, and shown nowhere.
        true if all().count() < known => format!("{} of {known}", known - all().count()),
        true => return finding,
    };
    finding.warn(format!(
        "see to replicas that are away, or have all nodes forget them (CLUSTER FORGET): {away}"
    ))
}

fn timeout(told: &[MasterReport]) -> Finding {
    let known: BTreeSet<u64> = told.iter().filter_map(|one| one.timeout).collect();
    let (Some(least), Some(most)) = (known.first(), known.last()) else {
        let finding = Finding::ok("node-timeout", TIMEOUT, "may not be asked");
        return finding.warn("allow CONFIG GET to this user");
    };
    let found = if least == most { format!("{most} ms") } else { format!("{least} to {most} ms") };
    let finding = Finding::ok("node-timeout", TIMEOUT, found);
    match (*least, *most) {
        (least, most) if least != most => {
            finding.warn("set the same cluster-node-timeout on all nodes")
        }
        (_, most) if most > LONGEST_TIMEOUT => finding.warn(format!(
            "set cluster-node-timeout {LONGEST_TIMEOUT} or less: leases run out before a replica \
             has taken over"
        )),
        (..SHORTEST_TIMEOUT, _) => finding.warn(format!(
            "set cluster-node-timeout {SHORTEST_TIMEOUT} or more: a busy machine is taken for \
             dead, and each failover may lose the newest grants"
        )),
        _ => finding,
    }
}

fn coverage(told: &[MasterReport]) -> Finding {
    let known: BTreeSet<&str> =
        told.iter().filter_map(|one| one.full_coverage.as_deref()).collect();
    let found: Vec<&str> = known.iter().copied().collect();
    let finding = Finding::ok("full-coverage", COVERAGE, found.join(" and "));
    if known.contains("yes") {
        return finding.warn(
            "set cluster-require-full-coverage no: a lost master then stops its own names only, \
             and those of a minority stop all the same",
        );
    }
    match known.is_empty() {
        true => finding.warn("allow CONFIG GET to this user"),
        false => finding,
    }
}

fn moving(told: &[MasterReport]) -> Finding {
    if told.iter().any(|one| one.moving.is_none()) {
        let finding = Finding::ok("moving", MOVING, "may not be asked");
        return finding.warn("allow CLUSTER NODES to this user");
    }
    let slots: BTreeSet<&str> =
        told.iter().flat_map(|one| &one.moving).flatten().map(String::as_str).collect();
    let found = match slots.len() {
        0 => "no slot".to_owned(),
        count => format!("{count}, as {}", slots.first().unwrap_or(&"none")),
    };
    let finding = Finding::ok("moving", MOVING, found);
    match slots.is_empty() {
        true => finding,
        false => finding.warn("let the move end, or end it: redis-cli --cluster fix"),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    fn told(lines: &str, timeout: u64, full_coverage: &str) -> MasterReport {
        MasterReport {
            info: Some(Info::parse(lines)),
            timeout: Some(timeout),
            full_coverage: Some(full_coverage.to_owned()),
            moving: Some(BTreeSet::new()),
            known: Known::default(),
        }
    }

    #[test]
    fn what_the_masters_say_is_judged() {
        let well = || told("cluster_state:ok\r\ncluster_slots_fail:0\r\n", 5_000, "no");
        let ill = told("cluster_state:fail\r\ncluster_slots_pfail:7\r\n", 5_000, "yes");
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
            let told = timeouts.map(|timeout| told("", timeout, "no"));
            assert_eq!(timeout(&told).health(), expected, "{timeouts:?}");
        }
        assert_eq!(timeout(&[MasterReport::default()]).health(), Health::Warning);
        assert_eq!(coverage(&[MasterReport::default()]).health(), Health::Warning);
        assert_eq!(
            state(&[MasterReport::default()]).health(),
            Health::Warning,
            "unknown is not well"
        );
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
}
