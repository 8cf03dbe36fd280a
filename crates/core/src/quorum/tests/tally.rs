//! Tables of renewals and their outcomes.

use std::time::Duration;

use crate::Moment;
use crate::quorum::{RenewalOutcome, Tally};
use crate::validity::validity_time;

const LEASE: Duration = Duration::from_secs(10);

fn at(ms: u64) -> Moment {
    Moment::ORIGIN.after(Duration::from_millis(ms))
}

/// A renewal whose nodes are asked a millisecond after each other.
fn asked(nodes: usize) -> Tally {
    let mut tally = Tally::new(nodes, LEASE);
    for (node, ms) in (0..nodes).zip(0..) {
        tally.asked(node, at(ms));
    }
    tally
}

fn heal(tally: &Tally) -> Vec<usize> {
    tally.to_heal().collect()
}

#[test]
fn a_majority_keeps_the_lease_and_the_rest_is_healed() {
    let mut tally = asked(5);
    tally.gone(0, true);
    tally.gone(1, false);
    assert_eq!((tally.decide(at(9)), heal(&tally)), (RenewalOutcome::Pending, vec![]));
    tally.kept(2);
    tally.kept(4);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Pending);
    tally.kept(3);
    let valid_until = at(2).after(validity_time(LEASE, 0));
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Renewed { valid_until });
    assert_eq!(heal(&tally), [0], "another lease has the name at node 1");
}

#[test]
fn a_lease_is_lost_only_when_no_majority_can_hold_it() {
    let mut tally = asked(5);
    tally.kept(0);
    tally.gone(1, true);
    tally.gone(2, true);
    tally.unanswered(3);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Pending);
    tally.unanswered(4);
    assert_eq!((tally.decide(at(9)), heal(&tally)), (RenewalOutcome::Unknown, vec![]));
    let mut tally = asked(3);
    tally.gone(0, true);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Pending);
    tally.gone(2, true);
    assert_eq!((tally.decide(at(9)), heal(&tally)), (RenewalOutcome::Lost, vec![]));
    tally.kept(1);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Lost, "a decision is final");
    // Of an even number, half is enough to say no.
    let mut tally = asked(4);
    tally.gone(0, true);
    tally.gone(1, true);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Lost);
}

#[test]
fn a_pending_answer_may_complete_a_majority() {
    let mut tally = asked(3);
    tally.kept(0);
    tally.unanswered(1);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Pending, "of those that keep it");
    let mut tally = asked(3);
    tally.gone(0, true);
    tally.unanswered(1);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Pending, "of those that lack it");
    tally.unanswered(2);
    assert_eq!(tally.decide(at(9)), RenewalOutcome::Unknown);
}

#[test]
fn an_answer_whose_lease_ends_now_does_not_count() {
    let mut tally = asked(1);
    tally.kept(0);
    let valid_until = Moment::ORIGIN.after(validity_time(LEASE, 0));
    let mut late = tally.clone();
    assert_eq!(late.decide(valid_until), RenewalOutcome::Unknown);
    assert_eq!(tally.decide(at(9_997)), RenewalOutcome::Renewed { valid_until });
}

#[test]
fn skipped_nodes_and_late_answers_keep_nothing() {
    let mut tally = Tally::new(3, LEASE);
    tally.asked(0, at(0));
    tally.kept(0);
    tally.kept(1);
    assert_eq!(tally.decide(at(1)), RenewalOutcome::Unknown);
    assert!(heal(&tally).is_empty());
    let mut tally = asked(3);
    (0..3).for_each(|node| tally.kept(node));
    assert_eq!(tally.decide(at(20_000)), RenewalOutcome::Unknown);
    let mut tally = asked(3);
    assert_eq!(tally.awaited().collect::<Vec<_>>(), [0, 1, 2]);
    tally.unanswered(1);
    tally.kept(1);
    tally.gone(1, true);
    tally.kept(7);
    assert_eq!(tally.awaited().collect::<Vec<_>>(), [0, 2]);
}
