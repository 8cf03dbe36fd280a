//! The fixed cases, one file for each promise.
//!
//! A case makes its own names, so that cases can run in parallel. It asserts one outcome, and lets
//! time pass only through its bench.

mod certainty;
mod exclusion;
mod fencing;
mod foreign;
mod freedom;
mod hang;
mod lost;
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
        hang::cases(),
        order::cases(),
        certainty::cases(),
        foreign::cases(),
        operator::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
