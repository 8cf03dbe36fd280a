//! What is sent: the keys and arguments of each script, as its head lists them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    AcquireRequest, Ending, FencingToken, Hold, LockName, Mode, Operation, Purpose, ReleaseRequest,
    RenewRequest,
};

use super::record::mode_text;
use super::{ACQUIRE, INSPECT, OPERATE, RAISE, RELEASE, RENEW};
use crate::keys::{Layout, NameKeys};
use crate::node::{Call, Tie};

/// Who asks: how keys are made, the inbox that hears, and how long an answer may take.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) layout: Layout,
    /// Sixteen hex digits; zeros for a process that hears nothing.
    pub(crate) inbox: String,
    pub(crate) deadline: Duration,
}

/// The inbox of a process that hears nothing.
const DEAF: &str = "0000000000000000";
/// How much longer than its claim window a hand-over is kept, in ms: the sum has five digits.
const LATE: u64 = 9_000;

pub(crate) fn acquire(
    asker: &Asker,
    request: &AcquireRequest,
    hears: bool,
    max_waiters: usize,
) -> Call {
    let keys = asker.layout.of(&request.name);
    let tombstone = Layout::tombstone(&keys, request.lease_id);
    let id = request.lease_id.to_hex();
    let inbox = if hears { asker.inbox.as_str() } else { DEAF };
    let kind = kind_of(request.hold);
    let lease = request.hold.duration().map(millis).unwrap_or_default();
    let client = request.client.as_u64();
    let metadata = request.metadata.as_encoded();
    let mode = mode_text(request.mode);
    let kept = millis(request.claim_window) + LATE;
    let yes = |set: bool, word: char| if set { word } else { '-' };
    let mut line = format!(
        "{}{}{} {max_waiters}",
        &mode[..1],
        yes(request.known, 'k'),
        yes(request.queue, 'q'),
    );
    if let Mode::Permits { count, of } = request.mode {
        line.push_str(&format!(" {count} {of}"));
    }
    let arguments = vec![
        format!("{id}g-{kind}{client:016x}{inbox}").into_bytes(),
        format!("{kept:05}{mode} {kind}{lease};{metadata}").into_bytes(),
        lease.to_string().into_bytes(),
        line.into_bytes(),
    ];
    Call {
        script: &ACQUIRE,
        keys: with_counter(asker, keys, Some(tombstone)),
        arguments,
        tie: Tie::Again(*request.lease_id.as_bytes()),
        deadline: asker.deadline,
    }
}

pub(crate) fn release(asker: &Asker, request: &ReleaseRequest) -> Call {
    let keys = asker.layout.of(&request.name);
    let mut arguments = vec![format!("{}g-", request.lease_id.to_hex()).into_bytes()];
    let mut tombstone = None;
    if let Some(remembered) = tombstone_of(request.ending) {
        tombstone = Some(Layout::tombstone(&keys, request.lease_id));
        arguments.push(millis(remembered).to_string().into());
    }
    Call {
        script: &RELEASE,
        keys: with_counter(asker, keys, tombstone),
        arguments,
        tie: Tie::Undo(*request.lease_id.as_bytes()),
        deadline: asker.deadline,
    }
}

/// Returns how long the tombstone of an ending lasts; `None` when it leaves none.
fn tombstone_of(ending: Ending) -> Option<Duration> {
    let lease = ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    ending.for_good.then(|| lease.max(MIN_TOMBSTONE))
}

/// Makes one call of many lines.
pub(crate) fn renew(asker: &Asker, lines: &[&RenewRequest], hears: bool) -> Call {
    let inbox = if hears { asker.inbox.as_str() } else { DEAF };
    let mut keys = Vec::with_capacity(1 + 3 * lines.len());
    let mut arguments = Vec::with_capacity(3 * lines.len());
    keys.push(asker.layout.counter());
    for line in lines {
        let NameKeys { lock, line: queue, data } = asker.layout.of(&line.name);
        keys.extend([lock, queue, data]);
        let (kind, lease) = match line.purpose {
            Purpose::Keep(hold) => (kind_of(hold), hold.duration()),
            Purpose::Wait => ('w', None),
        };
        let client = line.client.as_u64();
        arguments.push(format!("{}g", line.lease_id.to_hex()).into_bytes());
        arguments.push(format!("{kind}{client:016x}{inbox}").into_bytes());
        arguments.push(lease.map(millis).unwrap_or_default().to_string().into_bytes());
    }
    Call { script: &RENEW, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

/// Makes one call about many names, which shows at most so many holders and waiters of each.
pub(crate) fn inspect(asker: &Asker, names: &[LockName], most: usize) -> Call {
    let mut keys = vec![asker.layout.counter()];
    for name in names {
        let NameKeys { lock, line, data } = asker.layout.of(name);
        keys.extend([lock, line, data]);
    }
    let arguments = vec![most.to_string().into_bytes()];
    Call { script: &INSPECT, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

pub(crate) fn operate(asker: &Asker, operation: &Operation) -> Call {
    let (name, arguments) = match operation {
        Operation::Revoke { name, token, reason, now } => {
            let when = if *now { "now" } else { "polite" };
            let words = ["revoke".into(), sixteen(*token), when.into(), reason.clone()];
            (name, words.to_vec())
        }
        Operation::Freeze { name, duration, reason } => {
            let words = ["freeze".into(), millis(*duration).to_string(), reason.clone()];
            (name, words.to_vec())
        }
        Operation::Unfreeze { name } => (name, vec!["unfreeze".into()]),
        Operation::RaiseFence { to } => return raise(asker, *to),
    };
    Call {
        script: &OPERATE,
        keys: with_counter(asker, asker.layout.of(name), None),
        arguments: arguments.into_iter().map(String::into_bytes).collect(),
        tie: Tie::Free,
        deadline: asker.deadline,
    }
}

fn raise(asker: &Asker, to: FencingToken) -> Call {
    Call {
        script: &RAISE,
        keys: vec![asker.layout.counter()],
        arguments: vec![sixteen(to).into_bytes()],
        tie: Tie::Free,
        deadline: asker.deadline,
    }
}

fn with_counter(
    asker: &Asker,
    NameKeys { lock, line, data }: NameKeys,
    more: Option<Vec<u8>>,
) -> Vec<Vec<u8>> {
    [asker.layout.counter(), lock, line, data].into_iter().chain(more).collect()
}

fn sixteen(token: FencingToken) -> String {
    format!("{:016}", token.get())
}

fn kind_of(hold: Hold) -> char {
    if matches!(hold, Hold::Detached(_)) { 'd' } else { 'l' }
}

/// Rounds up to whole milliseconds: what the server keeps time in.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up() {
        for (nanos, expected) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(millis(Duration::from_nanos(nanos)), expected);
        }
    }

    #[test]
    fn a_tombstone_lasts_as_long_as_the_lease_and_half_a_minute_at_least() {
        let of = |for_good, secs| {
            tombstone_of(Ending { for_good, hold: Hold::Leased(Duration::from_secs(secs)) })
        };
        assert_eq!(of(false, 60), None);
        assert_eq!(of(true, 60), Some(Duration::from_secs(60)));
        assert_eq!(of(true, 1), Some(MIN_TOMBSTONE));
    }
}
