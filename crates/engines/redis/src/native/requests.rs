//! The keys and arguments of each script, as the head of the script lists them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::operation::removal_reason;
use holdline_core::{
    AcquireRequest, Ending, FencingToken, Hold, LatchCommand, LockName, Mode, Operation, Purpose,
    ReleaseRequest, RenewRequest,
};

use super::RequestContext;
use super::record::mode_text;
use crate::args::{Args, digits};
use crate::link::{Call, RoutingPolicy};

/// The inbox of a process that is not subscribed.
const NO_INBOX: &str = "0000000000000000";

/// The most common form of an acquire, which is the script's default: an exclusive lock, with a new
/// lease id, and a queue of the usual length.
const USUAL_REQUEST: &[u8] = b"x-q 10000";

/// The usual size of the keys, or the arguments, of one name.
pub(crate) const ROOM: usize = 256;

pub(crate) fn acquire(
    context: &RequestContext,
    request: &AcquireRequest,
    subscribed: bool,
    max_waiters: usize,
) -> Call {
    let id = request.lease_id.hex_digits();
    let inbox = if subscribed { context.inbox.as_str() } else { NO_INBOX };
    let kind = kind_of(request.hold);
    let lease = request.hold.duration().map(millis).unwrap_or_default();
    let client = hex_digits(request.client.as_u64());
    let metadata = request.metadata.as_encoded();
    let mode = mode_text(request.mode);
    let mut arguments = Args::with_capacity(ROOM + metadata.len());
    arguments.push_concat(&[&id, b"g-", kind.as_bytes(), &client, inbox.as_bytes()]);
    let mut room = [0; 20];
    let lease_text = digits(lease, &mut room);
    let metadata = metadata.as_bytes();
    let hand_off_ms = five_digits(millis(request.hand_off_lease));
    let parts = [&hand_off_ms, mode.as_bytes(), b" ", kind.as_bytes(), lease_text, b";", metadata];
    arguments.push_concat(&parts);
    arguments.push_number(lease);
    let flag_if = |set: bool, flag: u8| if set { flag } else { b'-' };
    let flags =
        [mode.as_bytes()[0], flag_if(request.known, b'k'), flag_if(request.queue, b'q'), b' '];
    let permits = match request.mode {
        Mode::Permits { count, of } => format!(" {count} {of}"),
        Mode::Exclusive | Mode::Shared => String::new(),
    };
    let longest = digits(max_waiters as u64, &mut room);
    let form = [&flags, longest, permits.as_bytes()];
    if !form.iter().copied().flatten().eq(USUAL_REQUEST) {
        arguments.push_concat(&form);
    }
    Call {
        script: &context.scripts.acquire,
        keys: keys_of(context, &request.name),
        arguments,
        routing: RoutingPolicy::Retry(*request.lease_id.as_bytes()),
        deadline: context.deadline,
    }
}

pub(crate) fn release(context: &RequestContext, request: &ReleaseRequest) -> Call {
    let id = request.lease_id;
    let tombstone = tombstone_of(request.ending);
    let mut arguments = Args::with_capacity(ROOM);
    arguments.push_concat(&[&id.hex_digits(), b"g-"]);
    tombstone.into_iter().for_each(|tombstone| arguments.push_number(millis(tombstone)));
    Call {
        script: &context.scripts.release,
        keys: keys_of(context, &request.name),
        arguments,
        routing: RoutingPolicy::Undo(*id.as_bytes()),
        deadline: context.deadline,
    }
}

/// Returns how long the tombstone of an ending lasts; `None` when it leaves none.
pub(crate) fn tombstone_of(ending: Ending) -> Option<Duration> {
    let lease = ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    ending.for_good.then(|| lease.max(MIN_TOMBSTONE))
}

/// Makes one call that renews many grants; in a cluster all are of one name.
pub(crate) fn renew(
    context: &RequestContext,
    renewals: &[&RenewRequest],
    subscribed: bool,
) -> Call {
    let inbox = if subscribed { context.inbox.as_str() } else { NO_INBOX };
    let mut keys = Args::with_capacity(ROOM * renewals.len());
    let mut arguments = Args::with_capacity(ROOM / 2 * renewals.len());
    match renewals {
        [first, ..] => context.layout.push_counter_of(&mut keys, &first.name),
        [] => context.layout.push_counter(&mut keys),
    }
    for renewal in renewals {
        context.layout.push_lock(&mut keys, &renewal.name);
        let (kind, lease) = match renewal.purpose {
            Purpose::Keep(hold) => (kind_of(hold), hold.duration()),
            Purpose::Wait => ("w", None),
        };
        let client = hex_digits(renewal.client.as_u64());
        arguments.push_concat(&[&renewal.lease_id.hex_digits(), b"g"]);
        arguments.push_concat(&[kind.as_bytes(), &client, inbox.as_bytes()]);
        arguments.push_number(lease.map(millis).unwrap_or_default());
    }
    renewals.first().iter().for_each(|renewal| context.layout.push_guard(&mut keys, &renewal.name));
    let script = &context.scripts.renew;
    Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: context.deadline }
}

/// Makes one call that inspects many names, or in a cluster one. It shows at most `max_shown`
/// holders and waiters of each.
pub(crate) fn inspect(context: &RequestContext, names: &[LockName], max_shown: usize) -> Call {
    let mut keys = Args::with_capacity(ROOM * names.len());
    match names {
        [name] => context.layout.push_counter_of(&mut keys, name),
        _ => context.layout.push_counter(&mut keys),
    }
    names.iter().for_each(|name| context.layout.push_lock(&mut keys, name));
    names.iter().for_each(|name| context.layout.push_guard(&mut keys, name));
    let arguments = Args::from([max_shown.to_string()]);
    let script = &context.scripts.inspect;
    Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: context.deadline }
}

pub(crate) fn operate(context: &RequestContext, operation: &Operation) -> Call {
    let (name, arguments) = match operation {
        Operation::Revoke { name, token, reason, now } => {
            let when = if *now { "now" } else { "polite" };
            let args = ["revoke".into(), token_digits(*token), when.into(), reason.clone()];
            (name, args.to_vec())
        }
        Operation::RemoveWaiter { name, waiter, reason } => {
            let args = ["remove_waiter".into(), waiter.to_string(), removal_reason(reason)];
            (name, args.to_vec())
        }
        Operation::Freeze { name, duration, reason } => {
            let args = ["freeze".into(), millis(*duration).to_string(), reason.clone()];
            (name, args.to_vec())
        }
        Operation::Unfreeze { name } => (name, vec!["unfreeze".into()]),
        Operation::RaiseFence { to } => return raise(context, *to),
        Operation::RevokeHolder { .. } => {
            unreachable!("the capabilities of this dialect refuse it")
        }
    };
    Call {
        script: &context.scripts.operate,
        keys: keys_of(context, name),
        arguments: arguments.into(),
        routing: RoutingPolicy::Any,
        deadline: context.deadline,
    }
}

fn raise(context: &RequestContext, to: FencingToken) -> Call {
    Call {
        script: &context.scripts.raise,
        keys: Args::from([context.layout.counter()]),
        arguments: Args::from([token_digits(to)]),
        routing: RoutingPolicy::Any,
        deadline: context.deadline,
    }
}

pub(crate) fn latch(context: &RequestContext, name: &LockName, command: LatchCommand) -> Call {
    let (verb, by) = match command {
        LatchCommand::Set(count) => ("set", count),
        LatchCommand::CountDown(by) => ("down", by),
        LatchCommand::Count => ("count", 0),
    };
    Call {
        script: &context.scripts.latch,
        keys: Args::from([context.layout.latch_of(name)]),
        arguments: Args::from([verb.to_owned(), by.to_string()]),
        routing: RoutingPolicy::Any,
        deadline: context.deadline,
    }
}

/// Returns the lock key of a name, and the counter's key where it is not the scripts' default.
fn keys_of(context: &RequestContext, name: &LockName) -> Args {
    let mut keys = Args::with_capacity(ROOM);
    context.layout.push_lock(&mut keys, name);
    if !context.layout.has_default_counter() {
        context.layout.push_counter_of(&mut keys, name);
    }
    context.layout.push_guard(&mut keys, name);
    keys
}

/// Calls that need a name's lock key only: while its slot migrates, the other keys may be on
/// another node.
pub(crate) mod lock_key_only {
    use super::*;

    /// Ends a grant that nobody waits for.
    pub(crate) fn release(context: &RequestContext, request: &ReleaseRequest) -> Option<Call> {
        if tombstone_of(request.ending).is_some() {
            return None;
        }
        let full = super::release(context, request);
        let mut keys = Args::with_capacity(ROOM);
        context.layout.push_lock(&mut keys, &request.name);
        Some(Call { script: &context.scripts.lock_key_only.release, keys, ..full })
    }

    /// Renews what one holder has alone.
    pub(crate) fn renew(
        context: &RequestContext,
        renewals: &[&RenewRequest],
        subscribed: bool,
    ) -> Option<Call> {
        let [renewal] = renewals else { return None };
        if matches!(renewal.purpose, Purpose::Wait) {
            return None;
        }
        let full = super::renew(context, renewals, subscribed);
        let mut keys = Args::with_capacity(ROOM);
        // In place of the counter, which the script does not use.
        context.layout.push_lock(&mut keys, &renewal.name);
        context.layout.push_lock(&mut keys, &renewal.name);
        Some(Call { script: &context.scripts.lock_key_only.renew, keys, ..full })
    }
}

pub(crate) fn token_digits(token: FencingToken) -> String {
    format!("{:016}", token.get())
}

/// Formats a client's number in 16 hex digits.
pub(crate) fn hex_digits(number: u64) -> [u8; 16] {
    std::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15])
}

/// Formats a number of at most five digits in five digits.
pub(crate) fn five_digits(number: u64) -> [u8; 5] {
    debug_assert!(number < 100_000, "the lease of a hand-off is shorter");
    std::array::from_fn(|at| b'0' + (number / 10_u64.pow(4 - at as u32) % 10) as u8)
}

pub(crate) fn kind_of(hold: Hold) -> &'static str {
    if matches!(hold, Hold::Detached(_)) { "d" } else { "l" }
}

/// Rounds up to whole milliseconds, the server's unit of time.
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
    fn numbers_are_padded_to_the_width_of_their_field() {
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
