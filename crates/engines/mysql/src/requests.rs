//! Encodes requests as the procedures of `sql/verbs.sql` take them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    AcquireRequest, Ending, FencingToken, Hold, LockName, Mode, Purpose, RenewRequest,
};

use crate::keys::{Names, Value};

/// A mode as three values: its letter, how many permits, and of how many.
fn mode(mode: Mode) -> (&'static [u8], i64, i64) {
    match mode {
        Mode::Exclusive => (b"x", 0, 0),
        Mode::Shared => (b"s", 0, 0),
        Mode::Permits { count, of } => (b"p", i64::from(count), i64::from(of)),
    }
}

/// A hold as two values: its letter, and how long.
pub(crate) fn hold(hold: Hold) -> (&'static [u8], i64) {
    match hold {
        Hold::Leased(duration) => (b"l", micros(duration)),
        Hold::Detached(duration) => (b"d", micros(duration)),
        // The capabilities exclude it.
        Hold::Live => (b"l", 0),
    }
}

/// Returns how long the tombstone of an ending lasts; 0 if it leaves none.
pub(crate) fn remembered(ending: Ending) -> i64 {
    let lease = ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    if ending.for_good { micros(lease.max(MIN_TOMBSTONE)) } else { 0 }
}

pub(crate) fn token(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

pub(crate) fn count(number: usize) -> i64 {
    i64::from(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Rounds up to whole microseconds, the unit of the stored times.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// Encodes an acquire; `most` is how many contenders may wait.
pub(crate) fn acquire(names: &Names, request: &AcquireRequest, inbox: u64, most: usize) -> String {
    let (letter, permits, total) = mode(request.mode);
    let (kind, lease) = hold(request.hold);
    let number = Value::Number;
    names.call(
        "acquire",
        &[
            Value::Bytes(request.name.as_str().as_bytes()),
            Value::Bytes(request.lease_id.as_bytes()),
            Value::Bytes(&request.client.as_u64().to_be_bytes()),
            Value::Bytes(&inbox.to_be_bytes()),
            Value::Bytes(letter),
            number(permits),
            number(total),
            Value::Bytes(kind),
            number(lease),
            number(micros(request.claim_window)),
            Value::Bytes(request.metadata.as_encoded().as_bytes()),
            number(i64::from(request.queue)),
            number(i64::from(request.known)),
            number(count(most)),
        ],
    )
}

/// Encodes the items of a batch in the order of their names, as `renew` in `verbs.sql` needs them,
/// and returns that order.
pub(crate) fn packed_batch(batch: &[&RenewRequest]) -> (Vec<u8>, Vec<usize>) {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    order.sort_by_key(|at| batch[*at].name.as_str());
    let mut packed = Vec::with_capacity(batch.len() * 64);
    for at in &order {
        let item = batch[*at];
        let (kind, lease) = match item.purpose {
            Purpose::Keep(asked) => hold(asked),
            Purpose::Wait => (&b"w"[..], 0),
        };
        push_name(&mut packed, &item.name);
        packed.extend_from_slice(item.lease_id.as_bytes());
        packed.extend_from_slice(&item.client.as_u64().to_be_bytes());
        packed.extend_from_slice(kind);
        packed.extend_from_slice(format!("{lease:016x}").as_bytes());
    }
    (packed, order)
}

/// Packs names, in their order.
pub(crate) fn packed(names: &[LockName]) -> Vec<u8> {
    let mut sorted: Vec<&LockName> = names.iter().collect();
    sorted.sort_by_key(|name| name.as_str());
    let mut packed = Vec::new();
    for name in sorted {
        push_name(&mut packed, name);
    }
    packed
}

fn push_name(packed: &mut Vec<u8>, name: &LockName) {
    let bytes = name.as_str().as_bytes();
    // A lock name is short enough.
    let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    packed.extend_from_slice(&size.to_be_bytes());
    packed.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up() {
        for (nanos, expected) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(micros(Duration::from_nanos(nanos)), expected);
        }
    }

    #[test]
    fn a_tombstone_lasts_as_long_as_the_lease_and_half_a_minute_at_least() {
        let of = |for_good, secs| {
            remembered(Ending { for_good, hold: Hold::Leased(Duration::from_secs(secs)) })
        };
        assert_eq!((of(false, 60), of(true, 60), of(true, 1)), (0, 60_000_000, 30_000_000));
    }

    #[test]
    fn names_are_packed_in_order_and_with_their_length() {
        let names = ["b", "aé"].map(|name| LockName::new(name).expect("a good name"));
        assert_eq!(packed(&names), b"\x00\x03a\xc3\xa9\x00\x01b");
    }
}
