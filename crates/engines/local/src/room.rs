//! The way into a transaction: this process's mutex, then the short lock.
//!
//! Both are free nearly always, so a command tries them at once, on the caller's own thread, and
//! goes to the waiting thread only when they are not.
//!
//! Invariant R1: on a caller's thread nothing waits, not even for another program that keeps the
//! database in a transaction. The caller may have deadlines to keep on that thread.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::database::OTHER_PROGRAMS;
use crate::error::Fault;
use crate::short_lock::{Kept, LONGEST_PAUSE, SHORTEST_PAUSE, ShortLock};
use crate::step::Inside;

/// How many tries a command makes on its caller's own thread: about as long as a transaction.
const SOON_TRIES: u32 = 24;
/// How many tries follow each other without a pause: about 100 µs.
const CLOSE_TRIES: u32 = 200;

/// What one command at a time may use, of all commands of all processes.
#[derive(Debug)]
pub(crate) struct Room {
    /// The process that opened it. A copy made by fork shares locks and descriptors with it, and
    /// must not touch them.
    pid: AtomicU32,
    short_lock: ShortLock,
    inside: Mutex<Inside>,
    limit: Duration,
}

/// Being inside. Field order matters: the short lock is given back before the mutex.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    _kept: Kept<'a>,
    inside: MutexGuard<'a, Inside>,
}

impl Room {
    pub(crate) fn new(short_lock: ShortLock, inside: Inside, limit: Duration) -> Room {
        Room {
            pid: AtomicU32::new(std::process::id()),
            short_lock,
            inside: Mutex::new(inside),
            limit,
        }
    }

    /// How long a command waits at the door.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Tells whether this process is a forked copy of the one that opened the room.
    pub(crate) fn is_forked(&self) -> bool {
        self.pid.load(Ordering::Relaxed) != std::process::id()
    }

    /// Makes this room one that was copied by fork.
    #[cfg(test)]
    pub(crate) fn pretend_forked(&self) {
        self.pid.store(0, Ordering::Relaxed);
    }

    /// Enters if nobody is inside.
    pub(crate) fn enter_now(&self) -> Result<Option<Entered<'_>>, Fault> {
        if self.is_forked() {
            return Err(Fault::Forked);
        }
        let Some(inside) = self.inside.try_lock() else { return Ok(None) };
        let Some(kept) = self.short_lock.lock_now()? else { return Ok(None) };
        inside.database.wait_for_other_programs(Duration::ZERO)?;
        Ok(Some(Entered { _kept: kept, inside }))
    }

    /// Enters if nobody is inside, or whoever is comes out at once: most commands meet only the
    /// end of another one, and going to the waiting thread costs more than that.
    pub(crate) fn enter_soon(&self) -> Result<Option<Entered<'_>>, Fault> {
        for _ in 0..SOON_TRIES {
            if let Some(entered) = self.enter_now()? {
                return Ok(Some(entered));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Enters, waiting no longer than `deadline`. Neither lock is kept while waiting for the other.
    /// Inside, statements wait for other programs: not for a caller's thread.
    pub(crate) fn enter_by(&self, deadline: Instant) -> Result<Entered<'_>, Fault> {
        let (mut tries, mut pause) = (0, SHORTEST_PAUSE);
        loop {
            if let Some(entered) = self.enter_now()? {
                entered.database.wait_for_other_programs(OTHER_PROGRAMS)?;
                return Ok(entered);
            }
            // Whoever is inside is out in microseconds, nearly always. Against a process that
            // does one command after the other, only tries that follow each other closely hit
            // the gap between two of them.
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

    /// Enters on the caller's thread, waiting as long as the limit allows.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, Fault> {
        self.enter_by(Instant::now() + self.limit)
    }

    /// Keeps this process outside every transaction while `work` runs.
    pub(crate) fn keep_out<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.inside.lock();
        work()
    }
}

impl Deref for Entered<'_> {
    type Target = Inside;

    fn deref(&self) -> &Inside {
        &self.inside
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Inside {
        &mut self.inside
    }
}
