//! What the engine behind a server can do, as JSON.

use std::time::Duration;

use holdline_core::{AuditTrail, Capabilities, ClockKind, Expiry, HandOff, LeaseRange};
use serde::{Deserialize, Serialize};

use crate::error::ENGINE;
use crate::keys::PROTOCOL;

/// What a server says about itself to an engine that connects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The version of the messages.
    pub protocol: u32,
    identity: String,
    fair: bool,
    shared: bool,
    permits: bool,
    fencing: bool,
    queue: bool,
    revoke: bool,
    polite_revoke: bool,
    freeze: bool,
    list: bool,
    detach: bool,
    metadata: bool,
    expiry: String,
    lease_min: Duration,
    lease_max: Duration,
    lease_step: Duration,
    hand_off: String,
    lag: Duration,
    max_waiters: usize,
    repeat: bool,
    splits: bool,
    latch: bool,
    /// Servers of earlier versions have none.
    #[serde(default)]
    counting: bool,
    #[serde(default)]
    fair_on_request: bool,
    #[serde(default)]
    revoke_holder: bool,
    #[serde(default)]
    remove_waiter: bool,
    max_batch: usize,
}

impl Description {
    /// Describes an engine. `identity` stands for its store and says nothing about it.
    pub fn of(capabilities: &Capabilities, identity: String) -> Description {
        let expiry = match capabilities.expiry {
            Expiry::Lease => "lease",
            Expiry::Session => "session",
            Expiry::Live => "live",
        };
        let hand_off = match capabilities.hand_off {
            HandOff::Claim => "claim",
            HandOff::Direct => "direct",
            HandOff::None => "none",
        };
        Description {
            protocol: PROTOCOL,
            identity,
            fair: capabilities.fair,
            shared: capabilities.shared,
            permits: capabilities.permits,
            fencing: capabilities.fencing,
            queue: capabilities.queue,
            revoke: capabilities.revoke,
            polite_revoke: capabilities.polite_revoke,
            freeze: capabilities.freeze,
            list: capabilities.list,
            detach: capabilities.detach,
            metadata: capabilities.metadata,
            expiry: expiry.to_owned(),
            lease_min: capabilities.lease.min,
            lease_max: capabilities.lease.max,
            lease_step: capabilities.lease.step,
            hand_off: hand_off.to_owned(),
            lag: capabilities.lag,
            max_waiters: capabilities.max_waiters,
            repeat: capabilities.repeat,
            splits: capabilities.splits,
            latch: capabilities.latch,
            counting: capabilities.counting,
            fair_on_request: capabilities.fair_on_request,
            revoke_holder: capabilities.revoke_holder,
            remove_waiter: capabilities.remove_waiter,
            max_batch: capabilities.max_batch,
        }
    }
}

/// Reads the capabilities that the engine has through the server. `None`: a word is unknown.
///
/// The holder must read a clock that counts suspended time: the store's timer runs on another
/// machine, which does not sleep with the holder's.
pub fn capabilities_of(description: Description) -> Option<Capabilities> {
    let expiry = match description.expiry.as_str() {
        "lease" => Expiry::Lease,
        "session" => Expiry::Session,
        "live" => Expiry::Live,
        _ => return None,
    };
    let hand_off = match description.hand_off.as_str() {
        "claim" => HandOff::Claim,
        "direct" => HandOff::Direct,
        "none" => HandOff::None,
        _ => return None,
    };
    let lease = LeaseRange {
        min: description.lease_min,
        max: description.lease_max,
        step: description.lease_step,
    };
    Some(Capabilities {
        engine: ENGINE,
        identity: description.identity,
        fair: description.fair,
        shared: description.shared,
        permits: description.permits,
        fencing: description.fencing,
        queue: description.queue,
        revoke: description.revoke,
        polite_revoke: description.polite_revoke,
        freeze: description.freeze,
        list: description.list,
        live: false,
        detach: description.detach,
        metadata: description.metadata,
        expiry,
        lease,
        hand_off,
        lag: description.lag,
        clock: ClockKind::Boottime,
        max_waiters: description.max_waiters,
        repeat: description.repeat,
        splits: description.splits,
        // Each request has a connection of its own.
        in_order: false,
        latch: description.latch,
        counting: description.counting,
        fair_on_request: description.fair_on_request,
        revoke_holder: description.revoke_holder,
        remove_waiter: description.remove_waiter,
        // The server records what it is asked to do, where its store or its file keeps that.
        audit: AuditTrail::Server,
        max_batch: description.max_batch.clamp(1, 128),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_name_identity_clock_audit_order_and_live_grants_cross_the_network() {
        let mut inner = Capabilities::reference("local", "/a/path");
        inner.live = true;
        inner.repeat = false;
        inner.expiry = Expiry::Session;
        inner.counting = true;
        inner.fair_on_request = true;
        inner.revoke_holder = true;
        let text = serde_json::to_string(&Description::of(&inner, "id".to_owned())).expect("JSON");
        assert!(!text.contains("path"), "{text}");
        let outer = capabilities_of(serde_json::from_str(&text).expect("read")).expect("known");
        let identity = "id".to_owned();
        let clock = ClockKind::Boottime;
        let audit = AuditTrail::Server;
        let live = false;
        let in_order = false;
        let same = Capabilities { engine: "http", identity, live, clock, audit, in_order, ..inner };
        assert_eq!(outer, same);
    }
}
