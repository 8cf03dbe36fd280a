//! The two locks of a transaction: this process's mutex, then the short lock.
//!
//! Both are almost always free, so a command tries them on the caller's own thread, and moves to
//! the waiting thread only if they are not.
//!
//! Invariant R1: nothing waits on a caller's thread, not even for another program with an open
//! transaction. The caller may have deadlines on that thread.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::database::OTHER_PROGRAMS_TIMEOUT;
use crate::error::Fault;
use crate::short_lock::{LONGEST_PAUSE, SHORTEST_PAUSE, ShortLock, ShortLockGuard};
use crate::step::StoreState;

/// How often a command tries on its caller's own thread: about the duration of a transaction.
const SOON_TRIES: u32 = 24;
/// How many tries have no pause between them: about 100 µs.
const CLOSE_TRIES: u32 = 200;

/// Admits one command at a time, of all commands of all processes.
#[derive(Debug)]
pub(crate) struct TransactionLock {
    /// The process that opened it. A forked process shares locks and descriptors with it, and must
    /// not use them.
    pid: AtomicU32,
    short_lock: ShortLock,
    inside: Mutex<StoreState>,
    limit: Duration,
}

/// The guard of a transaction. Field order matters: the short lock is released before the mutex.
#[derive(Debug)]
pub(crate) struct TransactionGuard<'a> {
    _kept: ShortLockGuard<'a>,
    inside: MutexGuard<'a, StoreState>,
}

impl TransactionLock {
    pub(crate) fn new(
        short_lock: ShortLock,
        inside: StoreState,
        limit: Duration,
    ) -> TransactionLock {
        TransactionLock {
            pid: AtomicU32::new(std::process::id()),
            short_lock,
            inside: Mutex::new(inside),
            limit,
        }
    }

    /// How long a command waits for the locks.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns whether this process was forked from the one that opened the engine.
    pub(crate) fn is_forked(&self) -> bool {
        self.pid.load(Ordering::Relaxed) != std::process::id()
    }

    /// Makes this process look forked, for tests.
    #[cfg(test)]
    pub(crate) fn pretend_forked(&self) {
        self.pid.store(0, Ordering::Relaxed);
    }

    /// Enters if nobody is inside.
    pub(crate) fn enter_now(&self) -> Result<Option<TransactionGuard<'_>>, Fault> {
        if self.is_forked() {
            return Err(Fault::Forked);
        }
        let Some(inside) = self.inside.try_lock() else { return Ok(None) };
        let Some(kept) = self.short_lock.lock_now()? else { return Ok(None) };
        inside.database.set_other_programs_timeout(Duration::ZERO)?;
        Ok(Some(TransactionGuard { _kept: kept, inside }))
    }

    /// Enters if nobody is inside, or if the present command ends soon: that wait costs less than a
    /// switch to the waiting thread.
    pub(crate) fn enter_soon(&self) -> Result<Option<TransactionGuard<'_>>, Fault> {
        for _ in 0..SOON_TRIES {
            if let Some(entered) = self.enter_now()? {
                return Ok(Some(entered));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Enters, waiting until `deadline`. Neither lock is kept while waiting for the other. Inside,
    /// statements wait for other programs, so do not call it on a caller's thread.
    pub(crate) fn enter_by(&self, deadline: Instant) -> Result<TransactionGuard<'_>, Fault> {
        let mut tries = 0;
        let mut pause = SHORTEST_PAUSE;
        loop {
            if let Some(entered) = self.enter_now()? {
                entered.database.set_other_programs_timeout(OTHER_PROGRAMS_TIMEOUT)?;
                return Ok(entered);
            }
            // A transaction almost always ends in microseconds. If a process runs one command after
            // the other, only tries in close succession hit the gap between two of them.
            if tries < CLOSE_TRIES {
                tries += 1;
                std::thread::yield_now();
                continue;
            }
            if Instant::now() >= deadline {
                return Err(self.short_lock.waited_too_long(self.limit));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Enters on the caller's thread, waiting up to the limit.
    pub(crate) fn enter(&self) -> Result<TransactionGuard<'_>, Fault> {
        self.enter_by(Instant::now() + self.limit)
    }

    /// Keeps this process outside every transaction while `work` runs.
    pub(crate) fn exclude<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.inside.lock();
        work()
    }
}

impl Deref for TransactionGuard<'_> {
    type Target = StoreState;

    fn deref(&self) -> &StoreState {
        &self.inside
    }
}

impl DerefMut for TransactionGuard<'_> {
    fn deref_mut(&mut self) -> &mut StoreState {
        &mut self.inside
    }
}
