//! What is sent: the keys and arguments of each script, as its head lists them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    AcquireRequest, Ending, FencingToken, Hold, LeaseId, LockName, Mode, Operation, Purpose,
    ReleaseRequest, RenewRequest,
};

use super::record::mode_text;
use super::{ACQUIRE, INSPECT, OPERATE, RAISE, RELEASE, RENEW};
use crate::keys::Layout;
use crate::node::{Call, Tie, Words, digits};

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

/// Room for the keys, or the arguments, that one name commonly takes.
const ROOM: usize = 256;

pub(crate) fn acquire(
    asker: &Asker,
    request: &AcquireRequest,
    hears: bool,
    max_waiters: usize,
) -> Call {
    let id = request.lease_id.to_hex();
    let inbox = if hears { asker.inbox.as_str() } else { DEAF };
    let kind = kind_of(request.hold);
    let lease = request.hold.duration().map(millis).unwrap_or_default();
    let client = format!("{:016x}", request.client.as_u64());
    let metadata = request.metadata.as_encoded();
    let mode = mode_text(request.mode);
    let kept = format!("{:05}", millis(request.claim_window) + LATE);
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
    let mut arguments = Words::with_room(ROOM + metadata.len());
    let head = [&id, "g-", kind, &client, inbox];
    arguments.push_parts(&head.map(str::as_bytes));
    let mut room = [0; 20];
    let (lease_text, metadata) = (digits(lease, &mut room), metadata.as_bytes());
    let (kept, mode, kind) = (kept.as_bytes(), mode.as_bytes(), kind.as_bytes());
    arguments.push_parts(&[kept, mode, b" ", kind, lease_text, b";", metadata]);
    arguments.push_number(lease);
    arguments.push(line);
    Call {
        script: &ACQUIRE,
        keys: keys_of(asker, &request.name, Some(request.lease_id)),
        arguments,
        tie: Tie::Again(*request.lease_id.as_bytes()),
        deadline: asker.deadline,
    }
}

pub(crate) fn release(asker: &Asker, request: &ReleaseRequest) -> Call {
    let id = request.lease_id;
    let remembered = tombstone_of(request.ending);
    let mut arguments = Words::with_room(ROOM);
    arguments.push_parts(&[id.to_hex().as_bytes(), b"g-"]);
    remembered.into_iter().for_each(|remembered| arguments.push_number(millis(remembered)));
    Call {
        script: &RELEASE,
        keys: keys_of(asker, &request.name, remembered.map(|_| id)),
        arguments,
        tie: Tie::Undo(*id.as_bytes()),
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
    let mut keys = Words::with_room(ROOM * lines.len());
    let mut arguments = Words::with_room(ROOM / 2 * lines.len());
    asker.layout.push_counter(&mut keys);
    for line in lines {
        asker.layout.push_name(&mut keys, &line.name, None);
        let (kind, lease) = match line.purpose {
            Purpose::Keep(hold) => (kind_of(hold), hold.duration()),
            Purpose::Wait => ("w", None),
        };
        let client = format!("{:016x}", line.client.as_u64());
        arguments.push_parts(&[line.lease_id.to_hex().as_bytes(), b"g"]);
        arguments.push_parts(&[kind, &client, inbox].map(str::as_bytes));
        arguments.push_number(lease.map(millis).unwrap_or_default());
    }
    Call { script: &RENEW, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

/// Makes one call about many names, which shows at most so many holders and waiters of each.
pub(crate) fn inspect(asker: &Asker, names: &[LockName], most: usize) -> Call {
    let mut keys = Words::with_room(ROOM * names.len());
    asker.layout.push_counter(&mut keys);
    names.iter().for_each(|name| asker.layout.push_name(&mut keys, name, None));
    let arguments = Words::from([most.to_string()]);
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
        keys: keys_of(asker, name, None),
        arguments: arguments.into(),
        tie: Tie::Free,
        deadline: asker.deadline,
    }
}

fn raise(asker: &Asker, to: FencingToken) -> Call {
    Call {
        script: &RAISE,
        keys: Words::from([asker.layout.counter()]),
        arguments: Words::from([sixteen(to)]),
        tie: Tie::Free,
        deadline: asker.deadline,
    }
}

/// The counter's key, those of a name, and where it is wanted that of a tombstone.
fn keys_of(asker: &Asker, name: &LockName, tombstone: Option<LeaseId>) -> Words {
    let mut keys = Words::with_room(ROOM);
    asker.layout.push_counter(&mut keys);
    asker.layout.push_name(&mut keys, name, tombstone);
    keys
}

fn sixteen(token: FencingToken) -> String {
    format!("{:016}", token.get())
}

fn kind_of(hold: Hold) -> &'static str {
    if matches!(hold, Hold::Detached(_)) { "d" } else { "l" }
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
