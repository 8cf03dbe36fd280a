//! What sentinels report, and what follows from it.

use holdline_core::{Certainty, Health};

use super::*;

fn report(sentinels: u64, quorum: u64, replicas: u64, well: u16) -> SentinelReport {
    let host = "h".to_owned();
    let seen = MasterView { host, port: 1, sentinels, quorum, replicas, ..MasterView::default() };
    let there = (0..well).map(|port| ("h".to_owned(), port)).collect();
    let (living, well) = (sentinels, u64::from(well));
    let listed = Ok(Listed { living, there, well });
    SentinelReport { seen, down_after: 5_000, listed, lacks: Ok(Vec::new()) }
}

fn group(sentinels: u64, quorum: u64, replicas: u64, well: u16, silent: usize) -> Sentinels {
    let one = || report(sentinels, quorum, replicas, well);
    let error = || crate::error::unavailable("away", Certainty::NotApplied);
    let each = (0..3).map(|at| if at < silent { Err(error()) } else { Ok(one()) });
    Sentinels { each: each.collect(), old_master: 12_000, quarantine: Duration::ZERO }
}

#[test]
fn a_sentinel_that_differs_is_reported() {
    let changed = |change: fn(&mut SentinelReport)| {
        let mut group = group(3, 2, 2, 2, 0);
        group.each.last_mut().and_then(|one| one.as_mut().ok()).map(change).expect("one");
        group
    };
    let other = changed(|report| report.seen.port = 2).sentinels();
    assert_eq!(other.health(), Health::Warning, "{other:?}");
    for (expected, millis) in [
        (Health::Ok, 1_000),
        (Health::Ok, 60_000),
        (Health::Warning, 999),
        (Health::Warning, 60_001),
    ] {
        let mut group = group(3, 2, 2, 2, 0);
        let Some(Ok(report)) = group.each.first_mut() else { panic!("one") };
        report.down_after = millis;
        assert_eq!(group.down_after().health(), expected, "{millis}");
    }
    let lacking = changed(|report| report.lacks = Ok(vec![NEEDED[1]])).rights();
    assert_eq!(lacking.health(), Health::Warning, "{lacking:?}");
    assert!(lacking.found().contains("SUBSCRIBE"), "{lacking:?}");
    let no = || crate::error::unavailable("no", Certainty::NotApplied);
    let mut mute = group(3, 2, 2, 2, 0);
    mute.each[0] = Ok(SentinelReport { lacks: Err(no()), ..report(3, 2, 2, 2) });
    assert_eq!(mute.rights().health(), Health::Warning);
    let away = changed(|report| {
        report.listed.iter_mut().for_each(|listed| listed.there.truncate(1));
    });
    assert_eq!(away.replicas_there(), [("h".to_owned(), 0)]);
    // Other sentinels supply what one does not report.
    let unasked = |report: &mut SentinelReport| {
        report.listed = Err(crate::error::unavailable("no", Certainty::NotApplied));
    };
    let some = changed(unasked);
    assert_eq!(some.replicas_there().len(), 2);
    assert_eq!(some.replicas().health(), Health::Ok);
    let mut all = group(3, 2, 2, 2, 0);
    all.each.iter_mut().flatten().for_each(unasked);
    for group in [all, group(3, 2, 2, 2, 3)] {
        let config = Ok(Config::of(&[("min-replicas-to-write", "1")]));
        let isolation = group.isolation(&Ok(Info::parse("redis_version:7.0.15")), &config);
        assert_ne!(group.sentinels().health(), Health::Ok);
        assert_eq!(group.replicas().health(), Health::Warning);
        assert!(isolation.fix().is_none_or(|fix| !fix.contains("write 0")), "{isolation:?}");
    }
}

#[test]
fn sentinels_and_replicas_are_judged() {
    for (expected, sentinels, quorum, silent) in [
        (Health::Ok, 3, 2, 0),
        (Health::Ok, 5, 3, 0),
        (Health::Warning, 3, 2, 1),
        (Health::Error, 3, 2, 3),
        (Health::Error, 3, 4, 0),
        (Health::Warning, 3, 1, 0),
        (Health::Warning, 2, 2, 0),
    ] {
        let found = group(sentinels, quorum, 2, 2, silent).sentinels();
        assert_eq!(found.health(), expected, "{found:?}");
    }
    for (expected, known, quorum, living) in [
        (Health::Ok, 3, 2, 3),
        (Health::Warning, 3, 2, 2),
        (Health::Error, 3, 2, 1),
        (Health::Warning, 5, 2, 3),
        (Health::Error, 5, 2, 2),
        (Health::Error, 5, 4, 3),
    ] {
        let mut group = group(known, quorum, 2, 2, 0);
        let listed = |report: &mut SentinelReport| {
            report.listed.iter_mut().for_each(|listed| listed.living = living);
        };
        group.each.iter_mut().flatten().for_each(listed);
        let found = group.sentinels();
        assert_eq!(found.health(), expected, "{found:?}");
    }
    for (expected, known, well) in
        [(Health::Ok, 2, 2), (Health::Warning, 2, 1), (Health::Error, 2, 0), (Health::Error, 0, 0)]
    {
        let found = group(3, 2, known, well, 0).replicas();
        assert_eq!(found.health(), expected, "{found:?}");
    }
}

#[test]
fn a_master_must_stop_when_it_is_cut_off() {
    let of = |known: u64, set: &str, lag: &str| {
        let config =
            Ok(Config::of(&[("min-replicas-to-write", set), ("min-replicas-max-lag", lag)]));
        group(3, 2, known, 2, 0).isolation(&Ok(Info::parse("redis_version:7.0.15")), &config)
    };
    for (expected, known, set, lag) in [
        (Health::Warning, 2, "0", "10"),
        (Health::Ok, 2, "1", "10"),
        (Health::Warning, 2, "1", "11"),
        (Health::Warning, 2, "2", "10"),
        (Health::Error, 2, "3", "10"),
        (Health::Warning, 4, "1", "10"),
        (Health::Ok, 4, "2", "10"),
        (Health::Ok, 4, "3", "10"),
        (Health::Warning, 1, "1", "10"),
    ] {
        assert_eq!(of(known, set, lag).health(), expected, "{set} of {known}, {lag} s");
    }
    let (good, old) = (Info::parse("redis_version:7.0.0"), Info::parse("redis_version:6.2.14"));
    let mute = Err(crate::error::unavailable("no", Certainty::NotApplied));
    assert_eq!(group(3, 2, 2, 2, 0).isolation(&Ok(good), &mute).health(), Health::Warning);
    // It would be well, if the server kept to it in scripts.
    let set = Config::of(&[("min-replicas-to-write", "1"), ("min-replicas-max-lag", "10")]);
    let found = group(3, 2, 2, 2, 0).isolation(&Ok(old), &Ok(set));
    assert_eq!(found.health(), Health::Warning, "{found:?}");
}
