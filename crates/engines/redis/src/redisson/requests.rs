//! The keys and arguments of each script, as the head of the script lists them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    AcquireRequest, FencingToken, LatchCommand, LeaseId, LockError, LockKind, LockName, Mode,
    Purpose, ReleaseRequest, RenewRequest,
};

use super::names::{Mapped, Names};
use super::owner::owner_of;
use super::{
    FORCE, INSPECT, LATCH, LOCK, PERMITS, READ_WRITE, RELEASE, RELEASE_LOCK, RENEW, REVOKE,
};
use crate::args::Args;
use crate::error::ENGINE;
use crate::limits::MAX_SHOWN;
use crate::link::{Call, RoutingPolicy, Script};
use crate::native::record::mode_text;
use crate::native::requests::{kind_of, millis, token_digits, tombstone_of};
use crate::route::PublishVerbs;

/// The usual size of the keys, or the arguments, of one name.
const ROOM: usize = 256;
/// The most permits of one grant: each is an entry of its own in Redisson's set.
pub(super) const MAX_COUNT: u32 = 1_000;

/// What all requests share: how keys are made, how messages are published, and the deadline.
#[derive(Debug)]
pub(super) struct RequestContext {
    pub(super) names: Names,
    pub(super) fencing: bool,
    pub(super) deadline: Duration,
}

impl RequestContext {
    pub(super) fn call(&self, script: &'static Script, keys: Args, arguments: Args) -> Call {
        Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: self.deadline }
    }

    /// Checks what this dialect cannot do and the capabilities cannot say.
    pub(super) fn check(&self, request: &AcquireRequest) -> Result<(), LockError> {
        match request.mode {
            Mode::Permits { count, .. } if count > MAX_COUNT => {
                let message = format!("may be {MAX_COUNT} at most in one request, not {count}");
                Err(LockError::invalid(ENGINE, "permits", message))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn acquire(&self, request: &AcquireRequest, verbs: PublishVerbs) -> Call {
        let AcquireRequest { lease_id, mode, .. } = request;
        let mapped = self.names.map(&request.name);
        let is_mutex = *mode == Mode::Exclusive && request.kind == LockKind::Mutex;
        let (script, which) = match mode {
            Mode::Permits { .. } => (&PERMITS, ""),
            Mode::Shared => (&READ_WRITE, "r"),
            Mode::Exclusive if is_mutex => (&LOCK, ""),
            Mode::Exclusive => (&READ_WRITE, "w"),
        };
        let mut keys = Args::with_capacity(ROOM);
        keys.push(&mapped.key);
        keys.push(self.names.mark(&mapped, *lease_id));
        if is_mutex {
            self.names.push_fair_queue(&mut keys, &mapped);
        } else {
            keys.push(self.names.records(&mapped));
            keys.push(match mode {
                Mode::Permits { .. } => self.names.permits(&mapped),
                _ => self.names.read_hold(&mapped, *lease_id),
            });
        }
        if self.fencing {
            keys.push(self.names.counter(&mapped));
        }
        let ms = request.hold.duration().map(millis).unwrap_or_default();
        let metadata = request.metadata.as_encoded();
        let mut args = Args::with_capacity(ROOM + metadata.len());
        match mode {
            Mode::Permits { .. } => args.push(lease_id.as_bytes()),
            _ => args.push(owner_of(*lease_id)),
        }
        args.push_number(ms);
        let kind = kind_of(request.hold);
        args.push(format!("{kind}{}{kind}{ms}", terms_of(*mode, which)));
        args.push(metadata);
        args.push(if request.known { "k" } else { "-" });
        if let Mode::Permits { count, of } = mode {
            args.push_number(u64::from(*count));
            args.push_number(u64::from(*of));
            args.push(verbs);
            args.push(&mapped.tag);
        } else if !is_mutex {
            args.push(which);
            args.push(&mapped.tag);
        }
        let routing = RoutingPolicy::Retry(*lease_id.as_bytes());
        Call { routing, ..self.call(script, keys, args) }
    }

    pub(super) fn release(&self, request: &ReleaseRequest, verbs: PublishVerbs) -> Call {
        let ReleaseRequest { name, lease_id, ending } = request;
        let mapped = self.names.map(name);
        let mut args = self.grant_args(*lease_id);
        args.push_number(tombstone_of(*ending).map(millis).unwrap_or_default());
        args.push(verbs);
        args.push(&mapped.tag);
        // With a mark it is correct in any order; without one, its copies undo unanswered requests.
        let routing = RoutingPolicy::Undo(*lease_id.as_bytes());
        Call { routing, ..self.call(&RELEASE, self.grant_keys(&mapped, *lease_id), args) }
    }

    /// Releases a mutex by its own key; `None` for a request that needs more keys.
    pub(super) fn release_lock(
        &self,
        request: &ReleaseRequest,
        verbs: PublishVerbs,
    ) -> Option<Call> {
        if tombstone_of(request.ending).is_some() {
            return None;
        }
        let full = self.release(request, verbs);
        let keys = Args::from([self.names.map(&request.name).key]);
        Some(Call { script: &RELEASE_LOCK, keys, ..full })
    }

    /// Makes one call that renews many grants; in a cluster all are of one name.
    pub(super) fn renew(&self, renewals: &[&RenewRequest]) -> Call {
        let mut keys = Args::with_capacity(2 * ROOM * renewals.len());
        let mut args = Args::with_capacity(ROOM / 2 * renewals.len());
        for renewal in renewals {
            let mapped = self.names.map(&renewal.name);
            self.names.push_grant(&mut keys, &mapped, renewal.lease_id);
            let (purpose, ms) = match renewal.purpose {
                Purpose::Keep(hold) => {
                    (kind_of(hold), hold.duration().map(millis).unwrap_or_default())
                }
                Purpose::Wait => ("w", 0),
            };
            args.push(owner_of(renewal.lease_id));
            args.push(renewal.lease_id.as_bytes());
            args.push(purpose);
            args.push_number(ms);
        }
        self.call(&RENEW, keys, args)
    }

    pub(super) fn inspect(&self, name: &LockName) -> Call {
        let mapped = self.names.map(name);
        let mut keys = Args::with_capacity(ROOM);
        keys.push(&mapped.key);
        keys.push(self.names.records(&mapped));
        keys.push(self.names.permits(&mapped));
        keys.push(self.names.fair_queue(&mapped));
        if self.fencing {
            keys.push(self.names.counter(&mapped));
        }
        let mut args = Args::default();
        args.push_number(MAX_SHOWN as u64);
        args.push(&mapped.tag);
        self.call(&INSPECT, keys, args)
    }

    pub(super) fn revoke(
        &self,
        name: &LockName,
        found: &Revocation<'_>,
        verbs: PublishVerbs,
    ) -> Call {
        let mapped = self.names.map(name);
        let mut args = self.grant_args(found.lease_id);
        args.push(found.token.map(token_digits).unwrap_or_default());
        args.push_number(millis(found.left.unwrap_or_default().max(MIN_TOMBSTONE)));
        args.push(found.reason);
        args.push(verbs);
        args.push(&mapped.tag);
        self.call(&REVOKE, self.grant_keys(&mapped, found.lease_id), args)
    }

    /// Ends the hold of a Redisson client; if a token is given, only if the client has drawn it.
    pub(super) fn force(
        &self,
        name: &LockName,
        owner: &str,
        token: Option<FencingToken>,
        verbs: PublishVerbs,
    ) -> Call {
        let mapped = self.names.map(name);
        let mut keys = Args::with_capacity(ROOM);
        keys.push(&mapped.key);
        keys.push(self.names.counter(&mapped));
        self.names.push_fair_queue(&mut keys, &mapped);
        let mut args = Args::with_capacity(ROOM);
        args.push(owner);
        args.push(token.map(|token| token.to_string()).unwrap_or_default());
        args.push(verbs);
        args.push(&mapped.tag);
        self.call(&FORCE, keys, args)
    }

    pub(super) fn latch(
        &self,
        name: &LockName,
        command: LatchCommand,
        verbs: PublishVerbs,
    ) -> Call {
        let key = self.names.map(name).key;
        let (verb, by) = match command {
            LatchCommand::Set(count) => ("set", count),
            LatchCommand::CountDown(by) => ("down", by),
            LatchCommand::Count => ("count", 0),
        };
        let channel = format!("redisson_countdownlatch__channel__{{{key}}}");
        let mut args = Args::with_capacity(ROOM);
        args.push(verb);
        args.push_number(by);
        args.push(channel);
        args.push(verbs);
        self.call(&LATCH, Args::from([key]), args)
    }

    fn grant_keys(&self, mapped: &Mapped, lease_id: LeaseId) -> Args {
        let mut keys = Args::with_capacity(2 * ROOM);
        self.names.push_grant(&mut keys, mapped, lease_id);
        self.names.push_fair_queue(&mut keys, mapped);
        keys
    }

    fn grant_args(&self, lease_id: LeaseId) -> Args {
        let mut args = Args::with_capacity(ROOM);
        args.push(owner_of(lease_id));
        args.push(lease_id.as_bytes());
        args
    }
}

/// A grant that an operator ends.
pub(super) struct Revocation<'a> {
    pub(super) lease_id: LeaseId,
    /// `None`: the lease id is enough.
    pub(super) token: Option<FencingToken>,
    pub(super) left: Option<Duration>,
    pub(super) reason: &'a str,
}

/// Writes a mode as a record has it: the writer of a read/write lock is no holder of a mutex.
fn terms_of(mode: Mode, which: &str) -> String {
    match mode {
        Mode::Exclusive if which == "w" => "w".to_owned(),
        _ => mode_text(mode).into_owned(),
    }
}
