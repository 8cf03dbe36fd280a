//! The idle sessions of advisory locks.
//!
//! - Invariant L1: an idle session holds no lock, waits for none, and has no statement without an
//!   answer. It is put back only after the server has confirmed the unlocking in it, or has
//!   reported that it took nothing.
//! - Invariant L2: a session belongs to the pool, to one attempt or to one guard.
//! - Invariant L3: at most [`MAX_IDLE`] are kept, none for much longer than [`IDLE_LIMIT`], and
//!   none that is older than [`MAX_AGE`].
//! - Invariant L4: a session is used again only in the runtime that drives it: another one may
//!   stand still while this one runs.
//! - Invariant L5: a forked process neither uses nor ends the sessions of its parent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Clock, LockError, LockName, Moment};
use parking_lot::Mutex;

use super::session::{Session, current_runtime};
use super::{AdvisoryKey, AdvisoryLock};
use crate::error::ENGINE;
use crate::options::PostgresOptions;

/// How many idle sessions are kept: each is a process of the server.
const MAX_IDLE: usize = 16;
/// How long a session may be idle.
const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// How old a session may be when it is used again. The server checks a password, a certificate and
/// the right to log in only when a session is made, and a name is resolved only then.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// Sessions for the advisory locks of one database, so that not each lock needs a connection of its
/// own.
///
/// A lock that is released leaves its session here, and the next attempt uses it: one round trip to
/// lock, one to release. A session still holds at most one lock. Attempts that find no idle session
/// open one, so the number of sessions in use is that of holders and waiters.
///
/// At most 16 idle sessions are kept, each for about 30 s and until it is 5 minutes old. A session
/// is closed if a guard, a release or an attempt is dropped, and after any error. A process that
/// was copied by `fork` opens sessions of its own, and keeps none.
///
/// If an idle session turns out to be closed, the attempt is made once more in a new session. That
/// is safe, since a session's lock ends with it. The lock is reported as busy if the request
/// reached the old session and the server has not noticed yet that it is closed. An idle session
/// whose network has failed silently costs one attempt its limit.
///
/// Clones, and the locks made of them, share the sessions; the last one closes them.
#[derive(Clone)]
pub struct AdvisoryPool(Arc<Pool>);

pub(super) struct Pool {
    pub(super) options: PostgresOptions,
    pub(super) clock: Arc<dyn Clock>,
    process: u32,
    /// The one that was used last is the last one.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    session: Session,
    since: Moment,
}

impl AdvisoryPool {
    /// Makes an empty pool; nothing is connected yet. `clock` measures limits.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong.
    pub fn new(
        options: &PostgresOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<AdvisoryPool, LockError> {
        options.validate()?;
        let (options, process) = (options.clone(), std::process::id());
        Ok(AdvisoryPool(Arc::new(Pool { options, clock, process, idle: Mutex::default() })))
    }

    /// Describes a lock that takes its sessions from this pool.
    ///
    /// # Errors
    /// `Invalid`: the key has no name. Each of today's has one.
    pub fn advisory_lock(&self, key: impl Into<AdvisoryKey>) -> Result<AdvisoryLock, LockError> {
        let key = key.into();
        let name = LockName::new(key.to_string());
        let name = name.map_err(|error| LockError::invalid(ENGINE, "key", error))?;
        Ok(AdvisoryLock::of(self.0.clone(), key, name))
    }
}

impl Pool {
    /// Takes the idle session that was used last, if one can be used here and now.
    pub(super) fn take(&self) -> Option<Session> {
        if !self.is_ours() {
            // Its mutex may have been locked when the process was copied.
            return None;
        }
        let (now, runtime) = (self.clock.now(), current_runtime());
        // Sessions are closed after the mutex is free again.
        let mut over = Vec::new();
        let mut idle = self.idle.lock();
        while let Some(at) = idle.iter().rposition(|one| one.session.runtime() == runtime) {
            let one = idle.remove(at);
            if one.is_usable(now) {
                return Some(one.session);
            }
            over.push(one);
        }
        None
    }

    /// Keeps a session that holds nothing, or closes it.
    pub(super) fn put_back(&self, session: Session) {
        let one = Idle { session, since: self.clock.now() };
        if !self.is_ours() || !one.is_usable(one.since) {
            return;
        }
        let surplus = {
            let mut idle = self.idle.lock();
            idle.push(one);
            (idle.len() > MAX_IDLE).then(|| idle.remove(0))
        };
        drop(surplus);
    }

    /// Opens a session.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was begun.
    pub(super) async fn open(self: &Arc<Self>) -> Result<Session, LockError> {
        let pool = Arc::downgrade(self);
        let look = move || {
            if let Some(pool) = pool.upgrade() {
                pool.close_unused();
            }
        };
        // The tasks of the sessions do it: no other task is needed.
        Session::open(&self.options, &self.clock, IDLE_LIMIT / 2, look).await
    }

    fn close_unused(&self) {
        let now = self.clock.now();
        let over: Vec<Idle> = {
            let mut idle = self.idle.lock();
            let all = std::mem::take(&mut *idle).into_iter();
            let (kept, over) = all.partition(|one| one.is_usable(now));
            *idle = kept;
            over
        };
        drop(over);
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Idle {
    fn is_usable(&self, now: Moment) -> bool {
        self.session.is_connected()
            && self.since.until(now) < IDLE_LIMIT
            && self.session.opened().until(now) < MAX_AGE
    }
}

impl fmt::Debug for AdvisoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0.options;
        f.debug_struct("AdvisoryPool")
            .field("server", &options.place())
            .field("database", &options.database())
            .finish_non_exhaustive()
    }
}
