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
use crate::node::{Call, Script, ServerFacts, Tie};

/// How keys and values are made, and how long an answer may take.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) keys: Keys,
    pub(super) format: LeaseFormat,
    /// Tokens are given, and lease ids that may not come back are marked on the server.
    pub(super) fencing: bool,
    pub(super) deadline: Duration,
}

/// How long a revoked lease id is remembered at least.
const MEMORY: Duration = Duration::from_secs(30);

impl Asker {
    fn call(&self, script: &'static Script, keys: Vec<Vec<u8>>, words: Vec<Vec<u8>>) -> Call {
        Call { script, keys, arguments: words, tie: Tie::Free, deadline: self.deadline }
    }

    fn lease(&self, id: LeaseId) -> Vec<u8> {
        self.format.write(id).into_bytes()
    }

    pub(super) fn acquire(&self, request: &AcquireRequest) -> Call {
        let AcquireRequest { name, lease_id, .. } = request;
        let keys = vec![self.keys.counter(), self.keys.lock(name), self.keys.mark(name, *lease_id)];
        let ms = lease_millis(request.hold);
        let words = vec![
            self.lease(*lease_id),
            ms.to_string().into(),
            format!("{}{ms}", kind_of(request.hold)).into(),
            if request.known { "k" } else { "-" }.into(),
            request.metadata.as_encoded().into(),
        ];
        let tie = Tie::Again(*lease_id.as_bytes());
        Call { tie, ..self.call(&ACQUIRE, keys, words) }
    }

    /// `SET key value NX PX …`, and nothing besides.
    pub(super) fn take(&self, request: &AcquireRequest) -> Vec<Vec<u8>> {
        let ms = lease_millis(request.hold).to_string();
        let (lock, lease) = (self.keys.lock(&request.name), self.lease(request.lease_id));
        vec![b"SET".to_vec(), lock, lease, b"NX".to_vec(), b"PX".to_vec(), ms.into()]
    }

    pub(super) fn release(&self, request: &ReleaseRequest) -> Call {
        let ReleaseRequest { name, lease_id, ending } = request;
        let mut keys = vec![self.keys.lock(name)];
        let mut which = String::from("-");
        if self.fencing {
            keys.push(self.keys.mark(name, *lease_id));
            which.push('m');
        }
        if let Some(signal) = self.keys.signal(name) {
            keys.push(signal);
            which.push('s');
        }
        let remembered = remembered(*ending).map(millis).unwrap_or_default();
        let words = vec![self.lease(*lease_id), remembered.to_string().into(), which.into()];
        // By the mark it is right in any order; without one, its copy undoes a request that hangs.
        let tie = Tie::Undo(*lease_id.as_bytes());
        Call { tie, ..self.call(&RELEASE, keys, words) }
    }

    /// The server's own compare-and-delete, where it has one and nothing else is to be done.
    pub(super) fn delete(
        &self,
        request: &ReleaseRequest,
        server: &ServerFacts,
    ) -> Option<Vec<Vec<u8>>> {
        let alone = !self.fencing && self.keys.signal(&request.name).is_none();
        let (lock, lease) = (self.keys.lock(&request.name), self.lease(request.lease_id));
        match server {
            _ if !alone || request.ending.for_good => None,
            ServerFacts { delex: true, .. } => {
                Some(vec![b"DELEX".to_vec(), lock, b"IFEQ".to_vec(), lease])
            }
            ServerFacts { delifeq: true, .. } => Some(vec![b"DELIFEQ".to_vec(), lock, lease]),
            _ => None,
        }
    }

    /// Makes one call of many lines.
    pub(super) fn renew(&self, lines: &[&RenewRequest]) -> Call {
        let width = if self.fencing { 2 } else { 1 };
        let mut keys = Vec::with_capacity(width * lines.len());
        let mut words = Vec::with_capacity(1 + 3 * lines.len());
        words.push(width.to_string().into());
        for line in lines {
            keys.push(self.keys.lock(&line.name));
            if self.fencing {
                keys.push(self.keys.mark(&line.name, line.lease_id));
            }
            let (kind, ms) = match line.purpose {
                Purpose::Keep(hold) => (kind_of(hold), lease_millis(hold)),
                Purpose::Wait => ('w', 0),
            };
            words.extend([self.lease(line.lease_id), kind.to_string().into()]);
            words.push(ms.to_string().into());
        }
        self.call(&RENEW, keys, words)
    }

    pub(super) fn inspect(&self, name: &LockName) -> Call {
        self.call(&INSPECT, vec![self.keys.lock(name)], Vec::new())
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
        let words = vec![
            self.lease(lease_id),
            sixteen(token).into(),
            remembered.to_string().into(),
            reason.into(),
        ];
        self.call(&REVOKE, keys, words)
    }

    pub(super) fn raise(&self, to: FencingToken) -> Call {
        self.call(&RAISE, vec![self.keys.counter()], vec![sixteen(to).into()])
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

fn kind_of(hold: Hold) -> char {
    if matches!(hold, Hold::Detached(_)) { 'd' } else { 'l' }
}

fn lease_millis(hold: Hold) -> u64 {
    hold.duration().map(millis).unwrap_or_default()
}

/// Rounds up to whole milliseconds: what the server keeps time in.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
