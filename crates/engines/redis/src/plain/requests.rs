//! What is sent: the keys and arguments of each script, as its head lists them, and the bare
//! commands of `fencing=off`.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    AcquireRequest, Ending, FencingToken, Hold, LeaseId, LockName, Purpose, RenewRequest,
};

use super::keys::Keys;
use super::{ACQUIRE, INSPECT, LeaseFormat, RAISE, RELEASE, RENEW, REVOKE};
use crate::node::{Call, Script, ServerFacts, Tie, Words};

/// How keys and values are made, and how long an answer may take.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) keys: Keys,
    pub(crate) format: LeaseFormat,
    /// Tokens are given, and lease ids that may not come back are marked on the server.
    pub(crate) fencing: bool,
    pub(crate) deadline: Duration,
}

/// Room for the keys, or the arguments, that one name commonly takes.
const ROOM: usize = 256;
/// How long a revoked lease id is remembered at least.
const MEMORY: Duration = Duration::from_secs(30);

impl Asker {
    fn call(
        &self,
        script: &'static Script,
        keys: impl Into<Words>,
        words: impl Into<Words>,
    ) -> Call {
        let (keys, arguments) = (keys.into(), words.into());
        Call { script, keys, arguments, tie: Tie::Free, deadline: self.deadline }
    }

    fn lease(&self, id: LeaseId) -> String {
        self.format.write(id)
    }

    pub(super) fn acquire(&self, request: &AcquireRequest) -> Call {
        let AcquireRequest { name, lease_id, .. } = request;
        let keys = [self.keys.counter(), self.keys.lock(name), self.keys.mark(name, *lease_id)];
        let ms = lease_millis(request.hold);
        let metadata = request.metadata.as_encoded();
        let mut words = Words::with_room(ROOM + metadata.len());
        words.push(self.lease(*lease_id));
        words.push_number(ms);
        words.push(format!("{}{ms}", kind_of(request.hold)));
        words.push(if request.known { "k" } else { "-" });
        words.push(metadata);
        let tie = Tie::Again(*lease_id.as_bytes());
        Call { tie, ..self.call(&ACQUIRE, keys, words) }
    }

    /// `SET key value NX PX …`, and nothing besides.
    pub(crate) fn take(&self, request: &AcquireRequest) -> Words {
        let mut words = Words::with_room(ROOM);
        words.push("SET");
        words.push_parts(&self.keys.lock_parts(&request.name));
        words.push(self.lease(request.lease_id));
        words.push("NX");
        words.push("PX");
        words.push_number(lease_millis(request.hold));
        words
    }

    /// `memory`: for how long a mark says that the id was given up; `None` leaves none.
    pub(crate) fn release(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        memory: Option<Duration>,
    ) -> Call {
        let mut keys = Words::with_room(ROOM);
        keys.push_parts(&self.keys.lock_parts(name));
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
        let mut words = Words::with_room(ROOM);
        words.push(self.lease(lease_id));
        words.push_number(memory.map(millis).unwrap_or_default());
        words.push(which);
        // By the mark it is right in any order; without one, its copy undoes a request that hangs.
        let tie = Tie::Undo(*lease_id.as_bytes());
        Call { tie, ..self.call(&RELEASE, keys, words) }
    }

    /// The server's own compare-and-delete, where it has one and nothing else is to be done.
    pub(crate) fn delete(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        server: &ServerFacts,
    ) -> Option<Words> {
        if self.fencing || self.keys.signal(name).is_some() {
            return None;
        }
        let (verb, condition) = match server {
            ServerFacts { delex: true, .. } => ("DELEX", Some("IFEQ")),
            ServerFacts { delifeq: true, .. } => ("DELIFEQ", None),
            _ => return None,
        };
        let mut words = Words::with_room(ROOM);
        words.push(verb);
        words.push_parts(&self.keys.lock_parts(name));
        condition.into_iter().for_each(|condition| words.push(condition));
        words.push(self.lease(lease_id));
        Some(words)
    }

    /// Makes one call of many lines.
    pub(crate) fn renew(&self, lines: &[&RenewRequest]) -> Call {
        let width = if self.fencing { 2 } else { 1 };
        let mut keys = Words::with_room(ROOM * lines.len());
        let mut words = Words::with_room(ROOM / 2 * lines.len());
        words.push_number(width);
        for line in lines {
            keys.push_parts(&self.keys.lock_parts(&line.name));
            if self.fencing {
                keys.push(self.keys.mark(&line.name, line.lease_id));
            }
            let (kind, ms) = match line.purpose {
                Purpose::Keep(hold) => (kind_of(hold), lease_millis(hold)),
                Purpose::Wait => ("w", 0),
            };
            words.push(self.lease(line.lease_id));
            words.push(kind);
            words.push_number(ms);
        }
        self.call(&RENEW, keys, words)
    }

    pub(crate) fn inspect(&self, name: &LockName) -> Call {
        self.call(&INSPECT, [self.keys.lock(name)], Words::default())
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
        let remembered = millis(left.unwrap_or_default().max(MEMORY));
        let remembered = remembered.to_string();
        let words = [self.lease(lease_id), sixteen(token), remembered, reason.to_owned()];
        self.call(&REVOKE, keys, words)
    }

    pub(super) fn raise(&self, to: FencingToken) -> Call {
        self.call(&RAISE, [self.keys.counter()], [sixteen(to)])
    }
}

/// Returns for how long an ending is remembered; `None` when it is not.
pub(super) fn remembered(ending: Ending) -> Option<Duration> {
    let lease = ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    ending.for_good.then(|| lease.max(MIN_TOMBSTONE))
}

fn sixteen(token: FencingToken) -> String {
    format!("{:016}", token.get())
}

fn kind_of(hold: Hold) -> &'static str {
    if matches!(hold, Hold::Detached(_)) { "d" } else { "l" }
}

fn lease_millis(hold: Hold) -> u64 {
    hold.duration().map(millis).unwrap_or_default()
}

/// Rounds up to whole milliseconds: what the server keeps time in.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_is_remembered_as_long_as_the_lease_and_half_a_minute_at_least() {
        let of = |for_good, secs| {
            remembered(Ending { for_good, hold: Hold::Leased(Duration::from_secs(secs)) })
        };
        assert_eq!(of(false, 60), None);
        assert_eq!(of(true, 60), Some(Duration::from_secs(60)));
        assert_eq!(of(true, 1), Some(MIN_TOMBSTONE));
    }
}
