//! Locks that are fair if their options ask for it: they queue as the locks of a fair engine do.
//!
//! The cases are those of an engine whose locks always queue; only the capability is another.

use super::{freedom, hang, lost, order, orphan, ownership};
use crate::case::{Case, case};

pub(super) fn cases() -> Vec<Case> {
    [order_and_wake_up(), leaving()].into_iter().flatten().collect()
}

fn order_and_wake_up() -> Vec<Case> {
    vec![
        case!(P8, "of a fair lock, first queued, first granted", [FairOnRequest], order::fifo),
        case!(
            P8,
            "a newcomer never passes the queue of a fair lock",
            [FairOnRequest],
            order::newcomer
        ),
        case!(P8, "asking a fair lock again keeps the place", [FairOnRequest], order::asking_again),
        case!(
            P7,
            "a release of a fair lock notifies the next",
            [FairOnRequest],
            hang::release_notifies
        ),
        case!(
            P7,
            "a watch of a fair lock reports an earlier hand-off",
            [FairOnRequest],
            hang::reported_late
        ),
        case!(
            P7,
            "heartbeats alone find a fair lock that was released",
            [FairOnRequest],
            hang::heartbeat_finds
        ),
        case!(
            P7,
            "heartbeats alone find a fair lock whose lease ran out",
            [FairOnRequest],
            hang::heartbeat_outlives
        ),
        case!(
            P7,
            "the next look at a fair lock is no later than the next heartbeat",
            [FairOnRequest],
            hang::bounded_look
        ),
        case!(
            P7,
            "many watches on one fair lock do not disturb each other",
            [FairOnRequest],
            hang::many_watches
        ),
    ]
}

fn leaving() -> Vec<Case> {
    vec![
        case!(
            P3,
            "a silent contender leaves the queue of a fair lock",
            [FairOnRequest],
            freedom::silent_leaves
        ),
        case!(
            P5,
            "giving up a place in the queue of a fair lock leaves nothing",
            [FairOnRequest],
            orphan::given_up_queued
        ),
        case!(
            P5,
            "giving up a hand-off of a fair lock hands it on",
            [FairOnRequest],
            orphan::given_up_handed
        ),
        case!(
            P4,
            "a lease id in the queue of a fair lock releases its place only",
            [FairOnRequest],
            ownership::queued_release
        ),
        case!(
            P6,
            "an id that left the queue of a fair lock is not queued anew unseen",
            [FairOnRequest],
            lost::not_queued_anew
        ),
    ]
}
