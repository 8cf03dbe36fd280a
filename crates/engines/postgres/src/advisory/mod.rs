//! PostgreSQL's own advisory locks, under their own name, since they promise less.
//!
//! - Invariant A1: a session holds at most one lock. A held lock has its session for itself, and
//!   ends with it at the latest.
//! - Invariant A2: an attempt without a guard ends its session, unless the server has reported that
//!   the session took nothing. A guard ends its session, unless the server has confirmed the
//!   unlocking in it.
//! - Invariant A3: a guard's fencing token is drawn while the lock is held.
//!
//! Read next: `key` for which lock it is, `session` for the connection, `pool` for what becomes of
//! it afterwards.

mod guard;
mod key;
mod pool;
mod session;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, FencingToken, LockError, LockName};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

pub use guard::AdvisoryGuard;
pub use key::AdvisoryKey;
pub use pool::AdvisoryPool;
use pool::Pool;
use session::{Session, token_wait, within};

use crate::error::{ENGINE, protocol, unavailable};
use crate::keys::quoted;
use crate::options::PostgresOptions;

/// The longest wait: as much as the server can count.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 24 * 60 * 60);
/// Returns whether the session holds an advisory lock.
const HOLDS: &str = "select exists (select from pg_catalog.pg_locks \
    where locktype = 'advisory' and pid = pg_catalog.pg_backend_pid())";

/// An advisory lock of PostgreSQL: held by a connection, at most for as long as that stands.
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
/// - A child by `fork` alone has the sockets of the connections that were open then, those of idle
///   sessions too. Dropping or releasing the guard here frees the lock all the same; but if this
///   process dies, a lock that it holds by such a connection, also one taken later, is held for as
///   long as the child lives. A program that is executed has nothing of it.
/// - Behind a pooler it is refused: the pooler would give the session, with its lock, to other
///   clients. A pooler is recognised because it reports another process id than the server; a
///   pooler that passed the server's id on would not be noticed.
///
/// The fencing token comes from the sequence of the lease table, so it orders our own holders, of
/// these locks and of those. Other programs that take the key draw none.
///
/// Each attempt has a session for itself, so two guards of one process exclude each other. A lock
/// that is released keeps its session for the next attempt: see [`AdvisoryPool`], by which locks of
/// several keys share their sessions. Clones of a lock share them too.
#[derive(Clone)]
pub struct AdvisoryLock(Arc<Inner>);

struct Inner {
    pool: Arc<Pool>,
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
    /// Describes a lock with a pool of its own; nothing is connected yet. `clock` measures limits.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong.
    pub fn new(
        options: &PostgresOptions,
        key: impl Into<AdvisoryKey>,
        clock: Arc<dyn Clock>,
    ) -> Result<AdvisoryLock, LockError> {
        AdvisoryPool::new(options, clock)?.advisory_lock(key)
    }

    fn of(pool: Arc<Pool>, key: AdvisoryKey, name: LockName) -> AdvisoryLock {
        AdvisoryLock(Arc::new(Inner { pool, key, name }))
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
    /// Dropping the future closes the session: nothing is held and no waiter is left.
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
    /// Dropping the future closes the session. The server notices within a second.
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
        if wait.is_some_and(|wait| wait > LONGEST_WAIT) {
            let message = format!("must be at most {LONGEST_WAIT:?}");
            return Err(LockError::invalid(ENGINE, "wait", message));
        }
        let Pool { options, clock, .. } = &*self.0.pool;
        let began = clock.now();
        let mut idle = self.0.pool.take();
        // Twice at most: the second session is a new one.
        loop {
            let is_new = idle.is_none();
            let session = match idle.take() {
                Some(session) => session,
                None => self.0.pool.open().await?,
            };
            let left = wait.map(|wait| wait.saturating_sub(began.until(clock.now())));
            let limit = left.unwrap_or_default().saturating_add(options.command_timeout());
            let answered = async { Ok(self.ask_for(&session, sharing, left).await) };
            match within(limit, &**clock, answered).await? {
                Ok(Answer::Held(token)) => {
                    return Ok(AdvisoryGuard::new(self.clone(), sharing, session, token));
                }
                Ok(Answer::Busy) => {
                    self.0.pool.put_back(session);
                    let waited = began.until(clock.now());
                    let kind = match wait {
                        None => ErrorKind::Busy { holder: None },
                        Some(_) => ErrorKind::TimedOut { waited, holder: None },
                    };
                    return Err(LockError::new(ENGINE, kind, Certainty::NotApplied));
                }
                Ok(Answer::WithoutToken) => return Err(without_token(token_wait(options))),
                Err(error) if is_new => return Err(error),
                // It may have ended while it was idle, or its role or schema may have changed. What
                // it took ends with it, here, so a new session may ask again.
                Err(error) => tracing::debug!(%error, "an idle session could not be used again"),
            }
        }
    }

    /// Requests the lock and its fencing token: in one round trip, unless a block of tokens ends. A
    /// token is drawn only behind the lock: a `case` has that order by definition.
    async fn ask_for(
        &self,
        session: &Session,
        sharing: Sharing,
        wait: Option<Duration>,
    ) -> Result<Answer, LockError> {
        let options = &self.0.pool.options;
        let attempt = sharing.pick("pg_try_advisory_lock", "pg_try_advisory_lock_shared");
        let (attempt, mut parameters) = self.0.key.call(attempt);
        let draw = session.draw(options.schema());
        let millis = wait.map(|wait| wait.as_millis().clamp(1, i32::MAX as u128).to_string());
        let is_held = match &millis {
            None => attempt,
            Some(millis) => {
                let call = sharing.pick("pg_advisory_lock", "pg_advisory_lock_shared");
                let (call, _) = self.0.key.call(call);
                parameters.push((millis, Type::TEXT));
                // Each timeout is of this statement alone.
                let limit = |wait: String| {
                    format!("pg_catalog.set_config('lock_timeout', {wait}, true) is not null")
                };
                let for_lock = limit(format!("${}", parameters.len()));
                let for_token = limit(format!("'{}'", token_wait(options).as_millis()));
                // A free lock needs no limit, and an attempt goes past nobody who waits.
                format!(
                    "case when {attempt} then true when {for_lock} then case when \
                     {call}::pg_catalog.text is not null then {for_token} end end"
                )
            }
        };
        let number = format!("case when {is_held} then {} end", draw.number);
        let ask = format!(
            "select d.number, {} from (select {number} as number{}) d",
            draw.counts, draw.from
        );
        if let Some(rows) = session.ask(&ask, &parameters).await? {
            return match answer(&rows)? {
                Answer::WithoutToken => self.draw(session).await,
                answer => Ok(answer),
            };
        }
        if wait.is_none() {
            return Ok(Answer::WithoutToken);
        }
        // A timeout in front of the lock, or of the token. A session keeps its lock over an error.
        match session.ask(HOLDS, &[]).await?.and_then(|rows| rows.first()?.try_get(0).ok()) {
            Some(true) => Ok(Answer::WithoutToken),
            Some(false) => Ok(Answer::Busy),
            None => Err(protocol("no answer about what the session holds")),
        }
    }

    /// Draws a token for a session that holds the lock.
    async fn draw(&self, session: &Session) -> Result<Answer, LockError> {
        let schema = quoted(self.0.pool.options.schema());
        match session.ask(&format!("select {schema}.draw_block_1(), true"), &[]).await? {
            Some(rows) => answer(&rows),
            None => Ok(Answer::WithoutToken),
        }
    }
}

/// What a session answered to an attempt.
enum Answer {
    Held(FencingToken),
    /// The session holds nothing.
    Busy,
    /// The session holds the lock, but no token could be drawn.
    WithoutToken,
}

/// Reads a number, and whether it is a token.
fn answer(rows: &[Row]) -> Result<Answer, LockError> {
    let row = rows.first().ok_or_else(|| protocol("no answer about the lock"))?;
    let odd = |_| protocol("the answer about the lock");
    let number: Option<i64> = row.try_get(0).map_err(odd)?;
    let counts: Option<bool> = row.try_get(1).map_err(odd)?;
    match (number, counts) {
        (Some(number), Some(true)) => as_token(number).map(Answer::Held),
        (Some(_), _) => Ok(Answer::WithoutToken),
        (None, _) => Ok(Answer::Busy),
    }
}

fn without_token(limit: Duration) -> LockError {
    let message = format!(
        "the lock was free, but no fencing token could be drawn within {limit:?}: another session \
         raises the fence, or alters its sequence"
    );
    unavailable(message, Certainty::NotApplied)
}

fn as_token(number: i64) -> Result<FencingToken, LockError> {
    let token = u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok());
    token.ok_or_else(|| protocol(format!("{number} is no fencing token")))
}

impl fmt::Debug for AdvisoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0.pool.options;
        f.debug_struct("AdvisoryLock")
            .field("key", &self.0.key)
            .field("server", &options.place())
            .field("database", &options.database())
            .finish_non_exhaustive()
    }
}
