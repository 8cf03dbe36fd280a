//! What the engine behind a server can do, as JSON.

use holdline_core::{AuditTrail, Capabilities, ClockKind, HandOff};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ENGINE;
use crate::keys::PROTOCOL;

/// What a server says about itself to an engine that connects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The version of the messages.
    pub protocol: u32,
    /// The [`Capabilities`], to be read once the version is known to be ours.
    #[serde(default)]
    capabilities: Value,
}

impl Description {
    /// Describes an engine. `identity` stands for its store and says nothing about it.
    pub fn of(capabilities: &Capabilities, identity: String) -> Description {
        let mut capabilities = Capabilities { identity, ..capabilities.clone() };
        if capabilities.hand_off == HandOff::Message {
            // The server counts the leases of each client by its replies, so a contender asks.
            capabilities.hand_off = HandOff::Direct;
        }
        // Strings and numbers always encode.
        let capabilities = serde_json::to_value(capabilities).unwrap_or_default();
        Description { protocol: PROTOCOL, capabilities }
    }

    /// Reads the capabilities that the engine has through the server. `None`: they are those of
    /// another version.
    ///
    /// The holder must read a clock that counts suspended time: the store's timer runs on another
    /// machine, which does not sleep with the holder's.
    pub fn into_capabilities(self) -> Option<Capabilities> {
        let theirs: Capabilities = serde_json::from_value(self.capabilities).ok()?;
        Some(Capabilities {
            engine: ENGINE,
            live: false,
            clock: ClockKind::Boottime,
            // Each request has a connection of its own.
            in_order: false,
            // The server records what it is asked to do, where its store or its file keeps that.
            audit: AuditTrail::Server,
            max_batch: theirs.max_batch.clamp(1, 128),
            ..theirs
        })
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Expiry;

    use super::*;

    #[test]
    fn all_but_what_the_way_changes_crosses_the_network() {
        let mut inner = Capabilities::reference("local", "/a/path");
        inner.live = true;
        inner.repeat = false;
        inner.expiry = Expiry::Session;
        inner.counting = true;
        inner.fair_on_request = true;
        inner.revoke_holder = true;
        inner.quarantine = Some(std::time::Duration::from_secs(73));
        let text = serde_json::to_string(&Description::of(&inner, "id".to_owned())).expect("JSON");
        assert!(!text.contains("path"), "{text}");
        let outer = serde_json::from_str::<Description>(&text).expect("read");
        let outer = outer.into_capabilities().expect("known");
        let identity = "id".to_owned();
        let clock = ClockKind::Boottime;
        let audit = AuditTrail::Server;
        let live = false;
        let in_order = false;
        let http = "http";
        let mut same =
            Capabilities { engine: http, identity, live, clock, audit, in_order, ..inner };
        same.hand_off = HandOff::Direct;
        assert_eq!(outer, same);
    }
}
