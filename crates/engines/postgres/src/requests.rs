//! Encodes requests as the functions of `sql/verbs.sql` take them.

use holdline_core::{AcquireRequest, Purpose, RenewRequest};
use holdline_net::sql::requests::{ModeColumns, hold, mode};
pub(crate) use holdline_net::sql::requests::{count, micros, remembered, token};

/// Converts an unsigned number to the server's signed one.
pub(crate) fn bits(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
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
        let ModeColumns { letter, permits, total } = mode(request.mode);
        let (kind, lease) = hold(request.hold);
        Wanted {
            name: request.name.as_str().as_bytes(),
            lease_id: request.lease_id.as_bytes(),
            client: bits(request.client.as_u64()),
            mode: letter,
            permits,
            total,
            kind,
            lease,
            window: micros(request.hand_off_lease),
            metadata: request.metadata.as_encoded().as_bytes(),
        }
    }
}

/// The renewals of a batch, column by column.
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
        for renewal in batch {
            let (kind, lease) = match renewal.purpose {
                Purpose::Keep(asked) => hold(asked),
                Purpose::Wait => ("w", 0),
            };
            columns.names.push(renewal.name.as_str().as_bytes());
            columns.ids.push(renewal.lease_id.as_bytes());
            columns.clients.push(bits(renewal.client.as_u64()));
            columns.kinds.push(kind);
            columns.leases.push(lease);
        }
        columns
    }
}
