//! Encodes requests as the functions of `sql/verbs.sql` take them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{AcquireRequest, Ending, FencingToken, Hold, Mode, Purpose, RenewRequest};

/// A mode as three columns: its letter, how many permits, and of how many.
pub(crate) fn mode(mode: Mode) -> (&'static str, i32, i32) {
    let number = |permits: u32| i32::try_from(permits).unwrap_or(i32::MAX);
    match mode {
        Mode::Exclusive => ("x", 0, 0),
        Mode::Shared => ("s", 0, 0),
        Mode::Permits { count, of } => ("p", number(count), number(of)),
    }
}

/// A hold as two columns: its letter, and how long.
pub(crate) fn hold(hold: Hold) -> (&'static str, i64) {
    match hold {
        Hold::Leased(duration) => ("l", micros(duration)),
        Hold::Detached(duration) => ("d", micros(duration)),
        // The capabilities exclude it.
        Hold::Live => ("l", 0),
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

/// Converts an unsigned number to the server's signed one.
pub(crate) fn bits(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

pub(crate) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Rounds up to whole microseconds, the unit of the stored times.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// The parameters of an acquire, converted for the server.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) lease_id: &'a [u8],
    pub(crate) client: i64,
    pub(crate) mode: &'static str,
    pub(crate) permits: i32,
    pub(crate) total: i32,
    pub(crate) kind: &'static str,
    pub(crate) lease: i64,
    pub(crate) window: i64,
    pub(crate) metadata: &'a [u8],
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(request: &'a AcquireRequest) -> Wanted<'a> {
        let (mode, permits, total) = mode(request.mode);
        let (kind, lease) = hold(request.hold);
        Wanted {
            name: request.name.as_str().as_bytes(),
            lease_id: request.lease_id.as_bytes(),
            client: bits(request.client.as_u64()),
            mode,
            permits,
            total,
            kind,
            lease,
            window: micros(request.claim_window),
            metadata: request.metadata.as_encoded().as_bytes(),
        }
    }
}

/// The items of a batch, column by column.
#[derive(Default)]
pub(crate) struct BatchColumns<'a> {
    pub(crate) names: Vec<&'a [u8]>,
    pub(crate) ids: Vec<&'a [u8]>,
    pub(crate) clients: Vec<i64>,
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) leases: Vec<i64>,
}

impl<'a> BatchColumns<'a> {
    pub(crate) fn of(batch: &[&'a RenewRequest]) -> BatchColumns<'a> {
        let mut columns = BatchColumns::default();
        for item in batch {
            let (kind, lease) = match item.purpose {
                Purpose::Keep(asked) => hold(asked),
                Purpose::Wait => ("w", 0),
            };
            columns.names.push(item.name.as_str().as_bytes());
            columns.ids.push(item.lease_id.as_bytes());
            columns.clients.push(bits(item.client.as_u64()));
            columns.kinds.push(kind);
            columns.leases.push(lease);
        }
        columns
    }
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
}
