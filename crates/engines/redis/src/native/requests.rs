//! What is sent: the keys and arguments of each script, as its head lists them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    AcquireRequest, Ending, FencingToken, Hold, LatchCommand, LockName, Mode, Operation, Purpose,
    ReleaseRequest, RenewRequest,
};

use super::Scripts;
use super::record::mode_text;
use crate::keys::Layout;
use crate::node::{Call, Tie, Words, digits};

/// Who asks: how keys are made, the inbox that hears, and how long an answer may take.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) layout: Layout,
    pub(crate) scripts: &'static Scripts,
    /// Sixteen hex digits; zeros for a process that hears nothing.
    pub(crate) inbox: String,
    pub(crate) deadline: Duration,
}

/// The inbox of a process that hears nothing.
const DEAF: &str = "0000000000000000";
/// How much longer than its claim window a hand-over is kept, in ms: the sum has five digits.
pub(crate) const LATE: u64 = 9_000;

/// How the commonest acquire is asked for, which the script knows: an exclusive lock, for the first
/// time, with a queue of the usual length.
const USUAL: &[u8] = b"x-q 10000";

/// Room for the keys, or the arguments, that one name commonly takes.
pub(crate) const ROOM: usize = 256;

pub(crate) fn acquire(
    asker: &Asker,
    request: &AcquireRequest,
    hears: bool,
    max_waiters: usize,
) -> Call {
    let id = request.lease_id.hex_digits();
    let inbox = if hears { asker.inbox.as_str() } else { DEAF };
    let kind = kind_of(request.hold);
    let lease = request.hold.duration().map(millis).unwrap_or_default();
    let client = hex_digits(request.client.as_u64());
    let metadata = request.metadata.as_encoded();
    let mode = mode_text(request.mode);
    let mut arguments = Words::with_room(ROOM + metadata.len());
    arguments.push_parts(&[&id, b"g-", kind.as_bytes(), &client, inbox.as_bytes()]);
    let mut room = [0; 20];
    let (lease_text, metadata) = (digits(lease, &mut room), metadata.as_bytes());
    let kept = five_digits(millis(request.claim_window) + LATE);
    let parts = [&kept, mode.as_bytes(), b" ", kind.as_bytes(), lease_text, b";", metadata];
    arguments.push_parts(&parts);
    arguments.push_number(lease);
    let yes = |set: bool, word: u8| if set { word } else { b'-' };
    let flags = [mode.as_bytes()[0], yes(request.known, b'k'), yes(request.queue, b'q'), b' '];
    let permits = match request.mode {
        Mode::Permits { count, of } => format!(" {count} {of}"),
        Mode::Exclusive | Mode::Shared => String::new(),
    };
    let longest = digits(max_waiters as u64, &mut room);
    let asked = [&flags, longest, permits.as_bytes()];
    if !asked.iter().copied().flatten().eq(USUAL) {
        arguments.push_parts(&asked);
    }
    Call {
        script: &asker.scripts.acquire,
        keys: keys_of(asker, &request.name),
        arguments,
        tie: Tie::Again(*request.lease_id.as_bytes()),
        deadline: asker.deadline,
    }
}

pub(crate) fn release(asker: &Asker, request: &ReleaseRequest) -> Call {
    let id = request.lease_id;
    let remembered = tombstone_of(request.ending);
    let mut arguments = Words::with_room(ROOM);
    arguments.push_parts(&[&id.hex_digits(), b"g-"]);
    remembered.into_iter().for_each(|remembered| arguments.push_number(millis(remembered)));
    Call {
        script: &asker.scripts.release,
        keys: keys_of(asker, &request.name),
        arguments,
        tie: Tie::Undo(*id.as_bytes()),
        deadline: asker.deadline,
    }
}

/// Returns how long the tombstone of an ending lasts; `None` when it leaves none.
pub(crate) fn tombstone_of(ending: Ending) -> Option<Duration> {
    let lease = ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    ending.for_good.then(|| lease.max(MIN_TOMBSTONE))
}

/// Makes one call of many lines; in a cluster they are of one name.
pub(crate) fn renew(asker: &Asker, lines: &[&RenewRequest], hears: bool) -> Call {
    let inbox = if hears { asker.inbox.as_str() } else { DEAF };
    let mut keys = Words::with_room(ROOM * lines.len());
    let mut arguments = Words::with_room(ROOM / 2 * lines.len());
    match lines {
        [first, ..] => asker.layout.push_counter_of(&mut keys, &first.name),
        [] => asker.layout.push_counter(&mut keys),
    }
    for line in lines {
        asker.layout.push_lock(&mut keys, &line.name);
        let (kind, lease) = match line.purpose {
            Purpose::Keep(hold) => (kind_of(hold), hold.duration()),
            Purpose::Wait => ("w", None),
        };
        let client = hex_digits(line.client.as_u64());
        arguments.push_parts(&[&line.lease_id.hex_digits(), b"g"]);
        arguments.push_parts(&[kind.as_bytes(), &client, inbox.as_bytes()]);
        arguments.push_number(lease.map(millis).unwrap_or_default());
    }
    lines.first().iter().for_each(|line| asker.layout.push_never(&mut keys, &line.name));
    let script = &asker.scripts.renew;
    Call { script, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
}

/// Makes one call about many names, in a cluster about one, which shows at most so many holders and
/// waiters of each.
pub(crate) fn inspect(asker: &Asker, names: &[LockName], most: usize) -> Call {
    let mut keys = Words::with_room(ROOM * names.len());
    match names {
        [name] => asker.layout.push_counter_of(&mut keys, name),
        _ => asker.layout.push_counter(&mut keys),
    }
    names.iter().for_each(|name| asker.layout.push_lock(&mut keys, name));
    names.iter().for_each(|name| asker.layout.push_never(&mut keys, name));
    let arguments = Words::from([most.to_string()]);
    let script = &asker.scripts.inspect;
    Call { script, keys, arguments, tie: Tie::Free, deadline: asker.deadline }
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
        Operation::Latch { name, command } => return latch(asker, name, *command),
    };
    Call {
        script: &asker.scripts.operate,
        keys: keys_of(asker, name),
        arguments: arguments.into(),
        tie: Tie::Free,
        deadline: asker.deadline,
    }
}

fn raise(asker: &Asker, to: FencingToken) -> Call {
    Call {
        script: &asker.scripts.raise,
        keys: Words::from([asker.layout.counter()]),
        arguments: Words::from([sixteen(to)]),
        tie: Tie::Free,
        deadline: asker.deadline,
    }
}

/// A latch has the key and the channel of Redisson's RCountDownLatch: it is the same object.
fn latch(asker: &Asker, name: &LockName, command: LatchCommand) -> Call {
    let (verb, by) = match command {
        LatchCommand::Set(count) => ("set", count),
        LatchCommand::CountDown(by) => ("down", by),
        LatchCommand::Count => ("count", 0),
    };
    let channel = format!("redisson_countdownlatch__channel__{{{}}}", name.as_str());
    Call {
        script: &asker.scripts.latch,
        keys: Words::from([name.as_str()]),
        arguments: Words::from([verb.to_owned(), by.to_string(), channel]),
        tie: Tie::Free,
        deadline: asker.deadline,
    }
}

/// The lock key of a name, and the counter's key where the scripts do not know it.
fn keys_of(asker: &Asker, name: &LockName) -> Words {
    let mut keys = Words::with_room(ROOM);
    asker.layout.push_lock(&mut keys, name);
    if !asker.layout.has_usual_counter() {
        asker.layout.push_counter_of(&mut keys, name);
    }
    asker.layout.push_never(&mut keys, name);
    keys
}

/// What is asked of a name's lock key alone, while the slot of the name moves: the other keys may
/// lie on another node then.
pub(crate) mod alone {
    use super::*;

    /// Claims what was handed over to who asks; `None` for what needs more keys.
    pub(crate) fn acquire(asker: &Asker, request: &AcquireRequest) -> Option<Call> {
        if request.mode != Mode::Exclusive || !request.known {
            return None;
        }
        let whole = super::acquire(asker, request, false, 0);
        Some(Call { script: &asker.scripts.alone.acquire, keys: keys(asker, request), ..whole })
    }

    /// Ends a grant that nobody waits for.
    pub(crate) fn release(asker: &Asker, request: &ReleaseRequest) -> Option<Call> {
        if tombstone_of(request.ending).is_some() {
            return None;
        }
        let whole = super::release(asker, request);
        let mut keys = Words::with_room(ROOM);
        asker.layout.push_lock(&mut keys, &request.name);
        Some(Call { script: &asker.scripts.alone.release, keys, ..whole })
    }

    /// Renews what one holder has alone.
    pub(crate) fn renew(asker: &Asker, lines: &[&RenewRequest], hears: bool) -> Option<Call> {
        let [line] = lines else { return None };
        if matches!(line.purpose, Purpose::Wait) {
            return None;
        }
        let whole = super::renew(asker, lines, hears);
        let mut keys = Words::with_room(ROOM);
        // In the place of the counter, which the script does not touch.
        asker.layout.push_lock(&mut keys, &line.name);
        asker.layout.push_lock(&mut keys, &line.name);
        Some(Call { script: &asker.scripts.alone.renew, keys, ..whole })
    }

    fn keys(asker: &Asker, request: &AcquireRequest) -> Words {
        let mut keys = Words::with_room(ROOM);
        asker.layout.push_lock(&mut keys, &request.name);
        keys
    }
}

pub(crate) fn sixteen(token: FencingToken) -> String {
    format!("{:016}", token.get())
}

/// Writes a client's number in 16 hex digits.
pub(crate) fn hex_digits(number: u64) -> [u8; 16] {
    std::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15])
}

/// Writes a number in five digits, which is as many as it has.
pub(crate) fn five_digits(number: u64) -> [u8; 5] {
    debug_assert!(number < 100_000, "a claim window is shorter");
    std::array::from_fn(|at| b'0' + (number / 10_u64.pow(4 - at as u32) % 10) as u8)
}

pub(crate) fn kind_of(hold: Hold) -> &'static str {
    if matches!(hold, Hold::Detached(_)) { "d" } else { "l" }
}

/// Rounds up to whole milliseconds: what the server keeps time in.
pub(crate) fn millis(duration: Duration) -> u64 {
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
    fn numbers_are_written_in_as_many_digits_as_their_place_has() {
        for number in [0, 1, 0xab, 1 << 60, u64::MAX - 1] {
            assert_eq!(hex_digits(number), *format!("{number:016x}").as_bytes());
        }
        for number in [0, 7, 9_000, 69_000, 99_999] {
            assert_eq!(five_digits(number), *format!("{number:05}").as_bytes());
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
