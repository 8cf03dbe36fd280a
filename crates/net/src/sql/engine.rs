//! What an engine does besides its statements.
//!
//! - Invariant E1: a watch that an acquire expects is forgotten once no hint can come any more.
//! - Invariant E2: no lock depends on a sweep. It removes rows of names that were not used for a
//!   while, a few at a time.
//! - Invariant E3: sweeps keep up with acquires, however few of them each process makes. So a sweep
//!   is drawn by chance, and the store keeps the place where the next one continues.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, AuditTrail, Capabilities, ClockKind, ListPage, ListRequest,
    LockError, LockName, RenewReply, RenewRequest,
};

use crate::fast_path::FastPath;

/// How many renewals one call renews.
const BATCH: usize = 128;
/// How much later than its lease a dead holder's name may become free.
const LAG: Duration = Duration::from_millis(5);
/// How many names of a listing one call reads.
pub const SHOWN_AT_ONCE: usize = 100;
/// How many holders and waiters of each of them it returns.
pub const SHOWN_OF_EACH: usize = 100;
/// After how many acquires, on average, a sweep looks for unused rows.
const SWEEP_EVERY: u32 = 128;
/// At how many rows it looks: at more than are added, on average, since the last one.
pub const SWEPT_AT_ONCE: usize = 256;

/// What an engine remembers between its commands.
pub struct EngineState {
    /// What the engine can do.
    pub capabilities: Capabilities,
    /// The waiters and holders to notify.
    pub watches: Arc<Watches>,
    /// Which commands begin with a short request.
    pub fast: FastPath,
}

impl EngineState {
    /// Returns the state of a new engine. `identity` distinguishes its store from others.
    pub fn new(
        engine: &'static str,
        identity: String,
        max_waiters: usize,
        watches: Arc<Watches>,
    ) -> EngineState {
        let mut capabilities = Capabilities::reference(engine, identity);
        capabilities.lag = LAG;
        capabilities.clock = ClockKind::Boottime;
        capabilities.max_waiters = max_waiters;
        capabilities.max_batch = BATCH;
        capabilities.audit = AuditTrail::Store;
        EngineState { capabilities, watches, fast: FastPath::default() }
    }

    /// Requests a name: by the short request if it may grant it, and by the general one if that
    /// grants nothing. Call [`Watches::expect`] before, for a request that may be queued.
    ///
    /// # Errors
    /// Those of the two requests.
    pub async fn acquire<S, G>(
        &self,
        request: &AcquireRequest,
        short: impl FnOnce() -> S,
        general: impl FnOnce() -> G,
    ) -> Result<AcquireReply, LockError>
    where
        S: Future<Output = Result<Option<AcquireReply>, LockError>>,
        G: Future<Output = Result<AcquireReply, LockError>>,
    {
        let granted = if self.fast.may_grant(request) { short().await } else { Ok(None) };
        let reply = match granted {
            Ok(None) => {
                let reply = general().await;
                self.fast.note(request, &reply);
                reply
            }
            Ok(Some(reply)) => {
                self.fast.granted(request.lease_id);
                Ok(reply)
            }
            Err(error) => Err(error),
        };
        self.watches.acquired(request.lease_id, &reply);
        reply
    }

    /// Forgets the watches of leases that are over by these replies to a batch.
    pub fn renewed(&self, batch: &[&RenewRequest], replies: &[Result<RenewReply, LockError>]) {
        self.watches.renewed(batch.iter().copied(), replies);
    }
}

/// Returns whether a sweep is due after an acquire.
pub fn is_sweep_due() -> bool {
    rand::random_ratio(1, SWEEP_EVERY)
}

/// Waits for a sweep.
pub async fn sweep<T>(sweep: impl Future<Output = Result<T, LockError>>) {
    if let Err(error) = sweep.await {
        // A later sweep starts at the same place.
        tracing::debug!(%error, "old rows were not swept");
    }
}

/// The names of one page of a listing, and one more.
pub struct NameRange<'a> {
    /// What they begin with.
    pub prefix: &'a [u8],
    /// They come after this name.
    pub after: Option<&'a [u8]>,
    /// They come before the first text that does not begin with the prefix; `None`: there is none.
    pub before: Option<Vec<u8>>,
    /// How many to return at most.
    pub limit: usize,
}

impl<'a> NameRange<'a> {
    /// Returns the range that a listing needs.
    pub fn of(request: &'a ListRequest) -> NameRange<'a> {
        let prefix = request.prefix.as_bytes();
        NameRange {
            prefix,
            after: request.after.as_ref().map(|name| name.as_str().as_bytes()),
            before: behind(prefix),
            limit: request.limit() + 1,
        }
    }

    /// Returns an empty page for these names, and leaves in `names` those that belong on it.
    pub fn page(&self, names: &mut Vec<LockName>) -> ListPage {
        let more = names.len() >= self.limit;
        names.truncate(self.limit - 1);
        let after = names.last().filter(|_| more).cloned();
        ListPage { names: Vec::with_capacity(names.len()), after }
    }
}

/// The first text behind all that begin with a prefix; `None` when there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut text = prefix[..=at].to_vec();
    text[at] += 1;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        assert_eq!(behind(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind(b""), None);
    }
}
