//! PostgreSQL's own advisory locks, under their own name, since they promise less.
//!
//! - Invariant A1: a held lock is a connection of its own, and lives exactly as long.
//! - Invariant A2: whatever ends an attempt without a guard ends its connection.
//! - Invariant A3: a guard's fencing token is drawn while the lock is held.
//!
//! Read next: `key` for which lock it is, `session` for the connection.

mod guard;
mod key;
mod session;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, FencingToken, LockError, LockName};
use tokio_postgres::types::Type;

pub use guard::AdvisoryGuard;
pub use key::AdvisoryKey;
use session::Session;

use crate::error::{ENGINE, protocol, unavailable};
use crate::keys::quoted;
use crate::options::PostgresOptions;

/// The longest wait: as much as the server can count.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 24 * 60 * 60);

/// An advisory lock of PostgreSQL: held by a connection, for as long as that stands.
///
/// It excludes all programs, in any language, that take the same [`AdvisoryKey`] in the same
/// database. It promises less than a lock of the lock table:
///
/// - There is no lease. A holder that hangs holds on; one that dies frees the lock when the server
///   notices: at once if its kernel still lives, else after 10 s.
/// - If the connection breaks, the lock is lost, and the next contender gets it at once. The holder
///   is notified when its kernel detects that, at most 5 s later; the next holder does not wait for
///   it.
/// - A restart or a failover of the server ends all of them.
/// - The server decides the order of waiters; none is promised.
/// - A child by `fork` alone has the connection's socket too. Dropping or releasing the guard here
///   ends the connection for both; but if this process dies, the lock is held for as long as the
///   child lives. A program that is executed has nothing of it.
/// - Behind a pooler it is refused: the pooler would give the session, with its lock, to other
///   clients. A pooler is recognised because it reports another process id than the server; a
///   pooler that passed the server's id on would not be noticed.
///
/// The fencing token comes from the sequence of the lease table, so it orders our own holders, of
/// these locks and of those. Other programs that take the key draw none.
///
/// Each attempt makes a connection of its own, so two guards of one process exclude each other.
#[derive(Clone)]
pub struct AdvisoryLock(Arc<Inner>);

struct Inner {
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
    key: AdvisoryKey,
    /// What errors call it.
    name: LockName,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Exclusive,
    Shared,
}

impl Sharing {
    fn pick(self, exclusive: &'static str, shared: &'static str) -> &'static str {
        match self {
            Sharing::Exclusive => exclusive,
            Sharing::Shared => shared,
        }
    }
}

impl AdvisoryLock {
    /// Describes a lock; nothing is connected yet. `clock` measures limits.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong.
    pub fn new(
        options: &PostgresOptions,
        key: impl Into<AdvisoryKey>,
        clock: Arc<dyn Clock>,
    ) -> Result<AdvisoryLock, LockError> {
        options.validate()?;
        let key = key.into();
        let name = LockName::new(key.to_string());
        let name = name.map_err(|error| LockError::invalid(ENGINE, "key", error))?;
        Ok(AdvisoryLock(Arc::new(Inner { options: options.clone(), clock, key, name })))
    }

    /// Returns the key of the lock.
    pub fn key(&self) -> AdvisoryKey {
        self.0.key
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// - `Busy`: another session holds it. The attempt leaves nothing behind.
    /// - `Refused`: the server does not let us in, a pooler is in between, or the schema with the
    ///   fencing tokens is missing and this role may not make it. Nothing is left.
    /// - `Unavailable`: no answer, or no fencing token while an operator raises the fence. The
    ///   connection is closed, and what it may hold ends with it.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection: nothing is held and no waiter is left.
    pub async fn try_lock(&self) -> Result<AdvisoryGuard, LockError> {
        self.acquire(Sharing::Exclusive, None).await
    }

    /// Waits until this client holds the lock, or until `wait` from now has passed. The waiter is
    /// in the server's own queue; there is no polling.
    ///
    /// # Errors
    /// As [`AdvisoryLock::try_lock`], but `TimedOut` for `Busy`; `Invalid` for a `wait` beyond 24
    /// days.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. The server notices within a second.
    pub async fn lock(&self, wait: Duration) -> Result<AdvisoryGuard, LockError> {
        self.acquire(Sharing::Exclusive, Some(wait)).await
    }

    /// As [`AdvisoryLock::try_lock`], beside others that hold it shared.
    ///
    /// # Errors
    /// As [`AdvisoryLock::try_lock`].
    pub async fn try_lock_shared(&self) -> Result<AdvisoryGuard, LockError> {
        self.acquire(Sharing::Shared, None).await
    }

    /// As [`AdvisoryLock::lock`], beside others that hold it shared. Tokens of shared holders are
    /// larger than those of the exclusive ones before them, and in no order among each other.
    ///
    /// # Errors
    /// As [`AdvisoryLock::lock`].
    pub async fn lock_shared(&self, wait: Duration) -> Result<AdvisoryGuard, LockError> {
        self.acquire(Sharing::Shared, Some(wait)).await
    }

    async fn acquire(
        &self,
        sharing: Sharing,
        wait: Option<Duration>,
    ) -> Result<AdvisoryGuard, LockError> {
        let taken = self.take(sharing, wait).await;
        taken.map_err(|error| error.with_name(&self.0.name))
    }

    async fn take(
        &self,
        sharing: Sharing,
        wait: Option<Duration>,
    ) -> Result<AdvisoryGuard, LockError> {
        let Inner { options, clock, .. } = &*self.0;
        if wait.is_some_and(|wait| wait > LONGEST_WAIT) {
            let message = format!("must be at most {LONGEST_WAIT:?}");
            return Err(LockError::invalid(ENGINE, "wait", message));
        }
        let began = clock.now();
        let session = Session::open(options, clock).await?;
        let answer = options.command_timeout();
        let left = wait.map(|wait| wait.saturating_sub(began.until(clock.now())));
        if self.ask_for(&session, sharing, left).await? {
            let left = wait.map(|wait| wait.saturating_sub(began.until(clock.now())));
            let token = self.draw(&session, left.unwrap_or_default().max(answer)).await?;
            return Ok(AdvisoryGuard::new(self.clone(), sharing, session, token));
        }
        let waited = began.until(clock.now());
        let kind = match wait {
            None => ErrorKind::Busy { holder: None },
            Some(_) => ErrorKind::TimedOut { waited, holder: None },
        };
        Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
    }

    /// Requests the lock; `false` if another session held it throughout.
    async fn ask_for(
        &self,
        session: &Session,
        sharing: Sharing,
        wait: Option<Duration>,
    ) -> Result<bool, LockError> {
        let Inner { options, clock, .. } = &*self.0;
        let answer = options.command_timeout();
        let (function, got) = match wait {
            None => (sharing.pick("pg_try_advisory_lock", "pg_try_advisory_lock_shared"), ""),
            Some(wait) => {
                session.limit_waits(wait, answer, &**clock).await?;
                let call = sharing.pick("pg_advisory_lock", "pg_advisory_lock_shared");
                (call, "::pg_catalog.text is not null")
            }
        };
        let (call, parameters) = self.0.key.call(function);
        let ask = format!("select {call}{got}");
        let limit = wait.unwrap_or_default().saturating_add(answer);
        let Some(rows) = session.ask(&ask, &parameters, limit, &**clock).await? else {
            return Ok(false);
        };
        match rows.first().map(|row| row.try_get(0)) {
            Some(Ok(got)) => Ok(got),
            _ => Err(protocol("no answer about the lock")),
        }
    }

    /// Draws the fencing token of a held lock. While an operator raises the fence, no token can be
    /// drawn.
    async fn draw(&self, session: &Session, limit: Duration) -> Result<FencingToken, LockError> {
        let Inner { options, clock, .. } = &*self.0;
        // The server's timeout is shorter than ours.
        let millis = (limit * 8 / 10).as_millis().clamp(1, i32::MAX as u128).to_string();
        let schema = quoted(options.schema());
        let ask = format!(
            "select case when pg_catalog.set_config('lock_timeout', $1, false) is not null \
             then {schema}.draw_1() end"
        );
        let asked = session.ask(&ask, &[(&millis, Type::TEXT)], limit, &**clock).await?;
        let rows = asked.ok_or_else(|| {
            let message = format!(
                "the lock was free, but no fencing token could be drawn within {limit:?}: another \
                 session raises the fence, or alters its sequence"
            );
            unavailable(message, Certainty::NotApplied)
        })?;
        let drawn = rows.first().map(|row| row.try_get(0));
        as_token(drawn.and_then(Result::ok).ok_or_else(|| protocol("no token"))?)
    }
}

fn as_token(number: i64) -> Result<FencingToken, LockError> {
    let token = u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok());
    token.ok_or_else(|| protocol(format!("{number} is no fencing token")))
}

impl fmt::Debug for AdvisoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0.options;
        f.debug_struct("AdvisoryLock")
            .field("key", &self.0.key)
            .field("server", &options.address().to_string())
            .field("database", &options.database())
            .finish_non_exhaustive()
    }
}
