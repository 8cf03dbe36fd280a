//! What is sent: the keys and arguments of each script, as its head lists them, and the bare
//! commands of `fencing=off`.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    AcquireRequest, Ending, FencingToken, Hold, LeaseId, LockName, Purpose, ReleaseRequest,
    RenewRequest,
};

use super::keys::Keys;
use super::{ACQUIRE, INSPECT, LeaseFormat, RAISE, RELEASE, RENEW, REVOKE};
use crate::node::{Call, Script, ServerFacts, Tie, Words};

/// How keys and values are made, and how long an answer may take.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) keys: Keys,
    pub(super) format: LeaseFormat,
    /// Tokens are given, and lease ids that may not come back are marked on the server.
    pub(super) fencing: bool,
    pub(super) deadline: Duration,
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
    pub(super) fn take(&self, request: &AcquireRequest) -> Words {
        let mut words = Words::with_room(ROOM);
        words.push("SET");
        words.push_parts(&self.keys.lock_parts(&request.name));
        words.push(self.lease(request.lease_id));
        words.push("NX");
        words.push("PX");
        words.push_number(lease_millis(request.hold));
        words
    }

    pub(super) fn release(&self, request: &ReleaseRequest) -> Call {
        let ReleaseRequest { name, lease_id, ending } = request;
        let mut keys = Words::with_room(ROOM);
        keys.push_parts(&self.keys.lock_parts(name));
        if self.fencing {
            keys.push(self.keys.mark(name, *lease_id));
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
        words.push(self.lease(*lease_id));
        words.push_number(remembered(*ending).map(millis).unwrap_or_default());
        words.push(which);
        // By the mark it is right in any order; without one, its copy undoes a request that hangs.
        let tie = Tie::Undo(*lease_id.as_bytes());
        Call { tie, ..self.call(&RELEASE, keys, words) }
    }

    /// The server's own compare-and-delete, where it has one and nothing else is to be done.
    pub(super) fn delete(&self, request: &ReleaseRequest, server: &ServerFacts) -> Option<Words> {
        let alone = !self.fencing && self.keys.signal(&request.name).is_none();
        let words = || (self.keys.lock(&request.name), self.lease(request.lease_id).into());
        match server {
            _ if !alone || request.ending.for_good => None,
            ServerFacts { delex: true, .. } => {
                let (lock, lease) = words();
                Some(Words::from([b"DELEX".to_vec(), lock, b"IFEQ".to_vec(), lease]))
            }
            ServerFacts { delifeq: true, .. } => {
                let (lock, lease) = words();
                Some(Words::from([b"DELIFEQ".to_vec(), lock, lease]))
            }
            _ => None,
        }
    }

    /// Makes one call of many lines.
    pub(super) fn renew(&self, lines: &[&RenewRequest]) -> Call {
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

    pub(super) fn inspect(&self, name: &LockName) -> Call {
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
