//! What the API shows of locks, beside `holdline_core::json`. Fencing tokens are numbers: they are
//! below 2^53, so every language reads them exactly.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use holdline_core::json::{LockJson, ModeJson};
pub(crate) use holdline_core::moment::whole_millis as millis;
use holdline_core::{FencingToken, HolderFields, ListPage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How long an answer may take to arrive, unless the lease is short.
const LONGEST_WAY: Duration = Duration::from_secs(1);

/// What a holder or a waiter reports about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AboutBody {
    /// The machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// The process id on that machine.
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::maybe")]
    pub(crate) pid: Option<u32>,
    /// The user's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<String>,
    /// Why the lock is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Free labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    /// The value that observers of an election see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
}

impl AboutBody {
    /// Returns the fields for the store.
    pub(crate) fn into_fields(self) -> HolderFields {
        HolderFields {
            host: self.host.unwrap_or_default(),
            pid: self.pid,
            user: self.user.unwrap_or_default(),
            program: self.program.unwrap_or_default(),
            reason: self.reason.unwrap_or_default(),
            labels: self.labels,
            traceparent: self.traceparent.unwrap_or_default(),
            ..HolderFields::default()
        }
    }
}

/// How long a page is at most, in bytes of JSON.
const MOST_BYTES: usize = 1_000_000;

/// One page of names, of 1 MB at most.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PageBody {
    /// The locks, by name.
    pub(crate) locks: Vec<LockJson>,
    /// Where the next page begins; `null` after the last one.
    pub(crate) cursor: Option<String>,
}

impl PageBody {
    /// Makes the page. It ends early if it would be too long. Of one lock that alone is too long it
    /// shows the first holders and waiters; the counts are those of all.
    pub(crate) fn of(page: &ListPage) -> PageBody {
        let mut locks = Vec::with_capacity(page.names.len());
        let mut left = MOST_BYTES;
        for snapshot in &page.names {
            let mut lock = LockJson::from(snapshot);
            let mut length = length_of(&lock);
            while length > MOST_BYTES {
                lock.holders.truncate(lock.holders.len() / 2);
                lock.queue.truncate(lock.queue.len() / 2);
                length = length_of(&lock);
            }
            if length > left {
                let cursor = locks.last().map(|last: &LockJson| last.name.as_str().to_owned());
                return PageBody { locks, cursor };
            }
            left -= length;
            locks.push(lock);
        }
        PageBody { locks, cursor: page.after.as_ref().map(|name| name.as_str().to_owned()) }
    }
}

/// How long a lock is as JSON, with the comma behind it.
fn length_of(lock: &LockJson) -> usize {
    struct Length(usize);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(1);
    // Strings and numbers always encode, and counting never fails.
    let _ = serde_json::to_writer(&mut length, lock);
    length.0
}

/// A granted lease.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct LeaseBody {
    /// The lock name.
    pub(crate) name: String,
    /// The proof of the grant: keep it secret. Anybody who has it can renew and release.
    pub(crate) lease_id: String,
    /// The fencing token, for the resource to compare.
    #[schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub(crate) fencing_token: FencingToken,
    pub(crate) mode: ModeJson,
    /// How long the store keeps the lease after each renewal.
    pub(crate) lease_duration_ms: u64,
    /// How long the holder may believe the lease, counted from when this answer *arrives*. Renew
    /// after a third of it: a long lease is granted for a short time at first.
    pub(crate) valid_for_ms: u64,
    /// How long the request waited.
    pub(crate) waited_ms: u64,
    /// The session that keeps the lease.
    pub(crate) session: Option<String>,
}

/// A renewed lease.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RenewedBody {
    /// How long the holder may believe the lease, counted from when this answer *arrives*.
    pub(crate) valid_for_ms: u64,
}

/// A released lease.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ReleasedBody {
    /// `released`.
    pub(crate) outcome: &'static str,
}

/// Returns how long a client may believe a lease from when the answer arrives, if it is valid for
/// so long when the answer is written. The answer may take a tenth of it, or a second, to arrive.
pub(crate) fn valid_from_arrival(remaining: Duration) -> Duration {
    remaining.saturating_sub((remaining / 10).min(LONGEST_WAY))
}
