//! The fixed cases, one file for each promise.
//!
//! A case makes its own names, so that cases can run in parallel. It asserts one outcome, and lets
//! time pass only through its bench.

mod any_of;
mod audit;
mod certainty;
mod counting;
mod election;
mod exclusion;
mod fair;
mod fencing;
mod foreign;
mod freedom;
mod hang;
mod latch;
mod lost;
mod once;
mod operator;
mod order;
mod orphan;
mod ownership;

use crate::case::Case;

/// All fixed cases.
pub(crate) fn all() -> Vec<Case> {
    [
        exclusion::cases(),
        fencing::cases(),
        freedom::cases(),
        ownership::cases(),
        orphan::cases(),
        lost::cases(),
        once::cases(),
        any_of::cases(),
        hang::cases(),
        order::cases(),
        certainty::cases(),
        foreign::cases(),
        latch::cases(),
        audit::cases(),
        counting::cases(),
        fair::cases(),
        operator::cases(),
        election::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
