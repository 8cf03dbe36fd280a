//! The keys and arguments of each script, as the head of the script lists them, and the bare
//! commands of `fencing=off`.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{AcquireRequest, FencingToken, Hold, LeaseId, LockName, Purpose, RenewRequest};

use super::keys::Keys;
use super::{ACQUIRE, FORCE, INSPECT, RAISE, RELEASE, RENEW, REVOKE, SET_NX};
use crate::args::Args;
use crate::link::{Call, RoutingPolicy, Script, ServerFacts};
use crate::native::requests::{kind_of, millis};

/// What all requests share: how keys and values are made, and the deadline.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) keys: Keys,
    /// Grants have tokens, and lease ids that may not return are marked on the server.
    pub(crate) fencing: bool,
    pub(crate) deadline: Duration,
}

/// The usual size of the keys, or the arguments, of one name.
const ROOM: usize = 256;

impl RequestContext {
    fn call(&self, script: &'static Script, keys: impl Into<Args>, args: impl Into<Args>) -> Call {
        let keys = keys.into();
        let arguments = args.into();
        Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: self.deadline }
    }

    pub(super) fn acquire(&self, request: &AcquireRequest) -> Call {
        let AcquireRequest { name, lease_id, .. } = request;
        let keys = [self.keys.counter(), self.keys.lock(name), self.keys.mark(name, *lease_id)];
        let ms = lease_millis(request.hold);
        let metadata = request.metadata.as_encoded();
        let mut args = Args::with_capacity(ROOM + metadata.len());
        args.push(lease_id.to_hex());
        args.push_number(ms);
        args.push(format!("{}{ms}", kind_of(request.hold)));
        args.push(if request.known { "k" } else { "-" });
        args.push(metadata);
        let routing = RoutingPolicy::Retry(*lease_id.as_bytes());
        Call { routing, ..self.call(&ACQUIRE, keys, args) }
    }

    /// Returns `SET key value NX PX …`, and nothing else.
    pub(crate) fn set_nx(&self, request: &AcquireRequest) -> Args {
        let mut args = Args::with_capacity(ROOM);
        args.push("SET");
        args.push_concat(&self.keys.lock_parts(&request.name));
        args.push(request.lease_id.to_hex());
        args.push("NX");
        args.push("PX");
        args.push_number(lease_millis(request.hold));
        args
    }

    /// Returns the same as a script, which replies `granted` or `held`.
    pub(super) fn set_nx_by_script(&self, request: &AcquireRequest) -> Call {
        let AcquireRequest { name, lease_id, .. } = request;
        let mut args = Args::with_capacity(ROOM);
        args.push(lease_id.to_hex());
        args.push_number(lease_millis(request.hold));
        let routing = RoutingPolicy::Behind(*lease_id.as_bytes());
        Call { routing, ..self.call(&SET_NX, [self.keys.lock(name)], args) }
    }

    /// `tombstone` is for how long a mark says that the id was given up; `None` leaves no mark.
    pub(crate) fn release(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        tombstone: Option<Duration>,
    ) -> Call {
        let mut keys = Args::with_capacity(ROOM);
        keys.push_concat(&self.keys.lock_parts(name));
        if self.fencing {
            keys.push(self.keys.mark(name, lease_id));
        }
        let signal = self.keys.signal(name);
        let which = match (self.fencing, signal.is_some()) {
            (false, false) => "-",
            (false, true) => "-s",
            (true, false) => "-m",
            (true, true) => "-ms",
        };
        signal.into_iter().for_each(|signal| keys.push(signal));
        let mut args = Args::with_capacity(ROOM);
        args.push(lease_id.to_hex());
        args.push_number(tombstone.map(millis).unwrap_or_default());
        args.push(which);
        // With a mark it is correct in any order; without one, its copies undo unanswered requests.
        let routing = RoutingPolicy::Undo(*lease_id.as_bytes());
        Call { routing, ..self.call(&RELEASE, keys, args) }
    }

    /// Returns the server's own compare-and-delete, if it has one and that is enough.
    pub(crate) fn compare_and_delete(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        server: &ServerFacts,
    ) -> Option<Args> {
        if self.fencing || self.keys.signal(name).is_some() {
            return None;
        }
        let (verb, condition) = match server {
            ServerFacts { delex: true, .. } => ("DELEX", Some("IFEQ")),
            ServerFacts { delifeq: true, .. } => ("DELIFEQ", None),
            _ => return None,
        };
        let mut args = Args::with_capacity(ROOM);
        args.push(verb);
        args.push_concat(&self.keys.lock_parts(name));
        condition.into_iter().for_each(|condition| args.push(condition));
        args.push(lease_id.to_hex());
        Some(args)
    }

    /// Makes one call that renews many grants.
    pub(crate) fn renew(&self, renewals: &[&RenewRequest]) -> Call {
        let width = if self.fencing { 2 } else { 1 };
        let mut keys = Args::with_capacity(ROOM * renewals.len());
        let mut args = Args::with_capacity(ROOM / 2 * renewals.len());
        args.push_number(width);
        for renewal in renewals {
            keys.push_concat(&self.keys.lock_parts(&renewal.name));
            if self.fencing {
                keys.push(self.keys.mark(&renewal.name, renewal.lease_id));
            }
            let (kind, ms) = match renewal.purpose {
                Purpose::Keep(hold) => (kind_of(hold), lease_millis(hold)),
                Purpose::Wait => ("w", 0),
            };
            args.push(renewal.lease_id.to_hex());
            args.push(kind);
            args.push_number(ms);
        }
        self.call(&RENEW, keys, args)
    }

    pub(crate) fn inspect(&self, name: &LockName) -> Call {
        self.call(&INSPECT, [self.keys.lock(name)], Args::default())
    }

    pub(super) fn revoke(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        token: FencingToken,
        left: Option<Duration>,
        reason: &str,
    ) -> Call {
        let mut keys = vec![self.keys.lock(name), self.keys.mark(name, lease_id)];
        keys.extend(self.keys.signal(name));
        let tombstone_of = millis(left.unwrap_or_default().max(MIN_TOMBSTONE));
        let tombstone_of = tombstone_of.to_string();
        let args = [lease_id.to_hex(), token_digits(token), tombstone_of, reason.to_owned()];
        self.call(&REVOKE, keys, args)
    }

    /// Ends the hold of the client that has this value.
    pub(crate) fn force(&self, name: &LockName, value: &[u8]) -> Call {
        let mut keys = vec![self.keys.lock(name)];
        keys.extend(self.keys.signal(name));
        self.call(&FORCE, keys, [value.to_vec()])
    }

    pub(super) fn raise(&self, to: FencingToken) -> Call {
        self.call(&RAISE, [self.keys.counter()], [token_digits(to)])
    }
}

fn token_digits(token: FencingToken) -> String {
    format!("{:016}", token.get())
}

fn lease_millis(hold: Hold) -> u64 {
    hold.duration().map(millis).unwrap_or_default()
}
