//! The names of the metrics, which dashboards and alerts rely on, and what they mean.

use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const ACQUIRE_TOTAL: &str = "holdline_acquire_total";
pub(super) const WAIT_SECONDS: &str = "holdline_wait_seconds";
pub(super) const HOLD_SECONDS: &str = "holdline_hold_seconds";
pub(super) const LOST_TOTAL: &str = "holdline_lost_total";
pub(super) const LEASE_SLACK_SECONDS: &str = "holdline_lease_slack_seconds";
pub(super) const HELD: &str = "holdline_held";
pub(super) const WAITING: &str = "holdline_waiting";
pub(super) const STORE_OP_SECONDS: &str = "holdline_store_op_seconds";
pub(super) const NODE_UP: &str = "holdline_node_up";
pub(super) const NODE_VOTES: &str = "holdline_node_votes";
pub(super) const NODE_QUARANTINE_SECONDS: &str = "holdline_node_quarantine_seconds";
pub(super) const CLOCK_DRIFT_SECONDS: &str = "holdline_clock_drift_seconds";
pub(super) const QUORUM_MARGIN: &str = "holdline_quorum_margin";
pub(super) const FENCED_REJECTS_TOTAL: &str = "holdline_fenced_rejects_total";
pub(super) const BUILD_INFO: &str = "holdline_build_info";

/// Describes the metrics to the recorder.
pub(super) fn describe() {
    describe_counter!(ACQUIRE_TOTAL, "Attempts to acquire a lock, by outcome");
    describe_histogram!(WAIT_SECONDS, Unit::Seconds, "How long attempts took, by outcome");
    describe_histogram!(HOLD_SECONDS, Unit::Seconds, "How long locks were held, by how it ended");
    describe_counter!(LOST_TOTAL, "Locks that were lost while they were held, by reason");
    describe_histogram!(
        LEASE_SLACK_SECONDS,
        Unit::Seconds,
        "How long a lease was still valid when it was renewed"
    );
    describe_gauge!(HELD, "Locks that this process holds");
    describe_gauge!(WAITING, "Attempts of this process that wait for a lock");
    describe_histogram!(STORE_OP_SECONDS, Unit::Seconds, "How long the store took to answer");
    describe_gauge!(NODE_UP, "Whether a node of the quorum answers");
    describe_gauge!(NODE_VOTES, "Whether a node of the quorum votes");
    describe_gauge!(
        NODE_QUARANTINE_SECONDS,
        Unit::Seconds,
        "How long a node that lost its data gives no vote yet"
    );
    describe_gauge!(
        CLOCK_DRIFT_SECONDS,
        Unit::Seconds,
        "How far a node's clock is ahead of the median of the nodes' clocks"
    );
    describe_gauge!(QUORUM_MARGIN, "How many nodes more than a majority vote");
    describe_counter!(FENCED_REJECTS_TOTAL, "Writes that a fence has rejected, by reason");
    describe_gauge!(BUILD_INFO, "The version of the library; always 1");
}
