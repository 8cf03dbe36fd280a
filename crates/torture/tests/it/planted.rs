//! A run can fail: planted bugs are found, each by its own column and witness.

use std::time::Duration;

use holdline_services::{RedisConfig, RedisServer};
use holdline_torture::{Fault, Plan, Plant, Report, Verdict};

use crate::{Scratch, alone, plan};

fn with(plant: Plant, url: String) -> Plan {
    let mut plan = plan(url);
    plan.plant = Some(plant);
    plan.faults = vec![Fault::PauseHolder];
    plan.lasting = Duration::from_secs(2);
    plan
}

#[track_caller]
fn broken(report: &Report, witness: &str) {
    broken_by(report, &[witness]);
}

/// Asserts that the run found the bug, by one of these witnesses.
#[track_caller]
fn broken_by(report: &Report, witnesses: &[&str]) {
    assert_eq!(report.verdict, Verdict::Broken, "{report}");
    let shown = |reply: &String| witnesses.iter().any(|witness| reply.contains(witness));
    assert!(report.witnesses.iter().any(shown), "{report}");
}

#[test]
fn a_resource_that_checks_no_token_is_found() {
    let scratch = Scratch::new("accepts");
    let report = alone(&with(Plant::AcceptStale, scratch.url()));
    // Which of the two it is depends on whether the late writer had asked before the other's grant.
    broken_by(&report, &["a late write was accepted", "accepted an older token (C3)"]);
    assert!(report.stale_accepted > 0 && report.fenced_lost > 0, "{report}");
    broken(&report, "wrote over it unseen");
}

#[test]
fn a_worker_that_ignores_the_end_of_its_lease_is_found() {
    let scratch = Scratch::new("believes");
    let report = alone(&with(Plant::BelieveForEver, scratch.url()));
    broken(&report, "two holders at once (C1)");
    assert!(report.valid_overlaps > 0, "{report}");
    // The resource refuses it all the same.
    assert_eq!((report.stale_accepted, report.fenced_lost), (0, 0), "{report}");
}

#[test]
fn workers_that_share_nothing_are_found() {
    let scratch = Scratch::new("split");
    let report = alone(&with(Plant::SplitBrain, scratch.url()));
    broken(&report, "two holders at once (C1)");
    broken(&report, "two grants with one token (C2)");
    assert!(report.token_regressions > 0 && report.fenced_lost > 0, "{report}");
}

#[test]
fn a_call_that_does_not_come_back_is_found() {
    let scratch = Scratch::new("hangs");
    let mut plan = with(Plant::Hang, scratch.url());
    plan.slack = Duration::from_secs(1);
    plan.faults = vec![Fault::Pause];
    let report = alone(&plan);
    broken(&report, "lock did not come back");
    assert!(report.hung > 0, "{report}");
}

#[test]
fn a_grant_that_is_never_released_is_found() {
    let server = RedisServer::start(RedisConfig::default());
    let report = alone(&with(Plant::Orphan, server.url()));
    broken(&report, "1 holders");
    assert_eq!(report.orphans, 1, "{report}");
}

/// The shortest run goes on stopping holders until a late write has hurt the control.
#[test]
fn a_run_without_time_still_hurts_its_control() {
    let scratch = Scratch::new("short");
    let mut plan = plan(scratch.url());
    plan.faults = vec![Fault::PauseHolder];
    plan.lasting = Duration::ZERO;
    plan.workers = 2;
    let report = alone(&plan);
    assert_eq!(report.verdict, Verdict::Kept, "{report}");
    assert!(report.unfenced_lost > 0, "{report}");
}
