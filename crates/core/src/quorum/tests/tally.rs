//! Tables of renewals and what they come to.

use std::time::Duration;

use crate::Moment;
use crate::quorum::{Kept, Tally};
use crate::validity::believed;

const LEASE: Duration = Duration::from_secs(10);

fn at(ms: u64) -> Moment {
    Moment::ORIGIN.after(Duration::from_millis(ms))
}

/// A renewal whose nodes are asked a millisecond after each other.
fn asked(nodes: usize) -> Tally {
    let mut tally = Tally::new(nodes, LEASE, 0);
    for (node, ms) in (0..nodes).zip(0..) {
        tally.asked(node, at(ms));
    }
    tally
}

fn heal(tally: &Tally) -> Vec<usize> {
    tally.to_heal().collect()
}

#[test]
fn a_majority_keeps_it_and_the_rest_is_healed() {
    let mut tally = asked(5);
    tally.gone(0, true);
    tally.gone(1, false);
    assert_eq!((tally.decide(at(9)), heal(&tally)), (Kept::Open, vec![]));
    tally.kept(2);
    tally.kept(4);
    assert_eq!(tally.decide(at(9)), Kept::Open);
    tally.kept(3);
    let valid_until = at(2).after(believed(LEASE, 0));
    assert_eq!(tally.decide(at(9)), Kept::Yes { valid_until });
    assert_eq!(heal(&tally), [0], "another has the name at node 1");
}

#[test]
fn it_is_gone_only_when_no_majority_can_have_it() {
    let mut tally = asked(5);
    tally.kept(0);
    tally.gone(1, true);
    tally.gone(2, true);
    tally.unanswered(3);
    assert_eq!(tally.decide(at(9)), Kept::Open);
    tally.unanswered(4);
    assert_eq!((tally.decide(at(9)), heal(&tally)), (Kept::Unclear, vec![]));
    let mut tally = asked(3);
    tally.gone(0, true);
    assert_eq!(tally.decide(at(9)), Kept::Open);
    tally.gone(2, true);
    assert_eq!((tally.decide(at(9)), heal(&tally)), (Kept::No, vec![]));
    tally.kept(1);
    assert_eq!(tally.decide(at(9)), Kept::No, "a decision stays");
    // Of an even number, half is enough to say no.
    let mut tally = asked(4);
    tally.gone(0, true);
    tally.gone(1, true);
    assert_eq!(tally.decide(at(9)), Kept::No);
}

#[test]
fn nodes_that_are_spared_and_answers_too_late_keep_nothing() {
    let mut tally = Tally::new(3, LEASE, 0);
    tally.asked(0, at(0));
    tally.kept(0);
    tally.kept(1);
    assert_eq!(tally.decide(at(1)), Kept::Unclear);
    assert!(heal(&tally).is_empty());
    let mut tally = asked(3);
    (0..3).for_each(|node| tally.kept(node));
    assert_eq!(tally.decide(at(20_000)), Kept::Unclear);
    let mut tally = asked(3);
    assert_eq!(tally.awaited().collect::<Vec<_>>(), [0, 1, 2]);
    tally.unanswered(1);
    tally.kept(1);
    tally.gone(1, true);
    tally.kept(7);
    assert_eq!(tally.awaited().collect::<Vec<_>>(), [0, 2]);
}
