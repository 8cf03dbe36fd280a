//! The guard of a held advisory lock.

use std::fmt;

use holdline_core::{Certainty, FencingToken, LockError, LostReason};

use super::session::{Session, lost, within};
use super::{AdvisoryKey, AdvisoryLock, Sharing};
use crate::error::{protocol, unavailable};

/// A held [`AdvisoryLock`].
///
/// Dropping it closes its connection at once, from any thread, with or without a runtime; the
/// server then frees the lock, as soon as it sees that. [`AdvisoryGuard::release`] waits for the
/// server, and keeps the connection for the next lock.
#[must_use = "the lock is freed when its guard is dropped"]
pub struct AdvisoryGuard {
    lock: AdvisoryLock,
    sharing: Sharing,
    session: Session,
    token: FencingToken,
}

impl AdvisoryGuard {
    pub(super) fn new(
        lock: AdvisoryLock,
        sharing: Sharing,
        session: Session,
        token: FencingToken,
    ) -> AdvisoryGuard {
        AdvisoryGuard { lock, sharing, session, token }
    }

    /// Returns the fencing token: larger than that of every holder that this one had to wait for.
    ///
    /// It orders only tokens of this database and schema. If a late write would do harm, hand it to
    /// the resource: the holder may learn only seconds later that it has lost this lock.
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Returns the key of the lock.
    pub fn key(&self) -> AdvisoryKey {
        self.lock.key()
    }

    /// Returns whether the connection is open, as far as this process knows. No clock is involved:
    /// the server may have ended the connection some seconds ago.
    pub fn is_valid(&self) -> bool {
        self.session.is_connected()
    }

    /// Waits until the connection has ended, and the lock with it.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.session.ended().await
    }

    /// Releases the lock, and waits until the server has confirmed it.
    ///
    /// # Errors
    /// - `Lost`: the connection had ended before, and the lock with it.
    /// - `Unavailable`: no answer. The connection is closed; the lock ends when the server sees it.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, which gives the lock up too.
    pub async fn release(self) -> Result<(), LockError> {
        self.unlock().await.map_err(|error| error.with_name(&self.lock.0.name))?;
        self.lock.0.pool.put_back(self.session);
        Ok(())
    }

    async fn unlock(&self) -> Result<(), LockError> {
        if !self.is_valid() {
            let ended = "the connection ended, in this process or in that which it was copied from";
            return Err(lost(LostReason::StoreGone(ended.to_owned())));
        }
        let pool = &self.lock.0.pool;
        let function = self.sharing.pick("pg_advisory_unlock", "pg_advisory_unlock_shared");
        let key = self.key();
        let (call, parameters) = key.call(function);
        let ask = format!("select {call}");
        let asked = self.session.ask(&ask, &parameters);
        let asked = within(pool.options.command_timeout(), &*pool.clock, asked).await?;
        let rows = asked.ok_or_else(|| unavailable("no answer in time", Certainty::Unknown))?;
        match rows.first().map(|row| row.try_get(0)) {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(lost(LostReason::Released)),
            _ => Err(protocol("no answer about the unlocking")),
        }
    }
}

impl fmt::Debug for AdvisoryGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryGuard")
            .field("key", &self.key())
            .field("token", &self.token)
            .field("is_valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
