//! Elections, jobs once per slot, any of several, latches and counting semaphores, without async.

use std::time::{Duration, SystemTime};

use holdline_core::{FencingToken, LockError, LockName, LostReason};

use super::guard::{Guard, Guards};
use crate::election::Leader;
use crate::guard::held::Held;
use crate::once::{self, OnceOutcome, Taken};
use crate::parker::block_on;
use crate::release_outcome::ReleaseOutcome;

/// As [`crate::Election`], without async.
#[derive(Clone, Debug)]
pub struct Election(pub(super) crate::Election);

impl Election {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`crate::Election::campaign`].
    ///
    /// # Errors
    /// As [`crate::Election::campaign`].
    pub fn campaign(&self, value: impl Into<String>) -> Result<Leadership, LockError> {
        block_on(self.0.campaign(value)).map(Leadership)
    }

    /// As [`crate::Election::campaign_within`].
    ///
    /// # Errors
    /// As [`crate::Election::campaign_within`].
    pub fn campaign_within(
        &self,
        value: impl Into<String>,
        limit: Duration,
    ) -> Result<Leadership, LockError> {
        block_on(self.0.campaign_within(value, limit)).map(Leadership)
    }

    /// As [`crate::Election::leader`].
    ///
    /// # Errors
    /// As [`crate::Election::leader`].
    pub fn leader(&self) -> Result<Option<Leader>, LockError> {
        block_on(self.0.leader())
    }

    /// As [`crate::Election::observe`], as an iterator. It blocks until the next leader is seen,
    /// and ends after an error.
    pub fn observe(&self) -> impl Iterator<Item = Result<Leader, LockError>> + Send {
        let mut leaders = self.0.observe();
        std::iter::from_fn(move || block_on(leaders.next()))
    }
}

/// As [`crate::Leadership`], without async.
#[derive(Debug)]
#[must_use = "a leadership that is not kept is resigned at once"]
pub struct Leadership(crate::Leadership);

impl Leadership {
    /// As [`crate::Leadership::term`].
    pub fn term(&self) -> FencingToken {
        self.0.term()
    }

    /// As [`crate::Leadership::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// As [`crate::Leadership::held`].
    pub fn held(&self) -> Held {
        self.0.held()
    }

    /// As [`crate::Leadership::lost`]; it blocks until then.
    pub fn wait_lost(&self) -> LostReason {
        block_on(self.0.lost())
    }

    /// As [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    /// As [`crate::Leadership::proclaim`].
    pub fn proclaim(&self, value: impl Into<String>) -> Result<(), LockError> {
        block_on(self.0.proclaim(value))
    }

    /// As [`crate::Leadership::resign`].
    pub fn resign(self) -> ReleaseOutcome {
        block_on(self.0.resign())
    }
}

/// As [`crate::Once`], without async.
#[derive(Clone, Debug)]
pub struct Once(pub(super) crate::Once);

impl Once {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`crate::Once::run`]. Nothing can stop a job that blocks: check [`Held::is_valid`] before
    /// each step that must not run twice. If the lease was lost meanwhile the outcome is
    /// [`OnceOutcome::Unmarked`].
    ///
    /// # Errors
    /// As [`crate::Once::run`].
    pub fn run<T, E>(
        &self,
        mut job: impl FnMut(Held) -> Result<T, E>,
    ) -> Result<OnceOutcome<T, E>, LockError> {
        block_on(self.0.run(async |held| job(held)))
    }

    /// As [`crate::Once::begin`].
    ///
    /// # Errors
    /// As [`crate::Once::begin`].
    pub fn begin(&self) -> Result<Begun, LockError> {
        Ok(match block_on(self.0.begin())? {
            once::Begun::Run(run) => Begun::Run(OnceRun(run)),
            once::Begun::AlreadyRan(taken) => Begun::AlreadyRan(taken),
            once::Begun::RunningElsewhere(taken) => Begun::RunningElsewhere(taken),
        })
    }
}

/// As [`crate::once::Begun`], without async.
#[derive(Debug)]
#[non_exhaustive]
pub enum Begun {
    /// As [`crate::once::Begun::Run`].
    Run(OnceRun),
    /// As [`crate::once::Begun::AlreadyRan`].
    AlreadyRan(Taken),
    /// As [`crate::once::Begun::RunningElsewhere`].
    RunningElsewhere(Taken),
}

/// As [`crate::once::OnceRun`], without async.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free again"]
pub struct OnceRun(Box<crate::once::OnceRun>);

impl OnceRun {
    /// As [`crate::once::OnceRun::guard`], as a handle.
    pub fn held(&self) -> Held {
        self.0.guard().held()
    }

    /// As [`crate::once::OnceRun::slot_start`].
    pub fn slot_start(&self) -> SystemTime {
        self.0.slot_start()
    }

    /// As [`crate::once::OnceRun::finish`].
    ///
    /// # Errors
    /// As [`crate::once::OnceRun::finish`].
    pub fn finish(self) -> Result<(), LockError> {
        block_on(self.0.finish())
    }

    /// As [`crate::once::OnceRun::give_back`].
    pub fn give_back(self) -> Option<ReleaseOutcome> {
        block_on(self.0.give_back())
    }

    /// As [`crate::once::OnceRun::fail`].
    pub fn fail(self) -> bool {
        block_on(self.0.fail())
    }
}

/// As [`crate::AnyOf`], without async.
#[derive(Clone, Debug)]
pub struct AnyOf(pub(super) crate::AnyOf);

impl AnyOf {
    /// Returns the lock names, in the caller's order.
    pub fn names(&self) -> &[LockName] {
        self.0.names()
    }

    /// As [`crate::AnyOf::lock`].
    ///
    /// # Errors
    /// As [`crate::AnyOf::lock`].
    pub fn lock(&self) -> Result<Guard, LockError> {
        block_on(self.0.lock()).map(Guard)
    }

    /// As [`crate::AnyOf::lock_within`].
    ///
    /// # Errors
    /// As [`crate::AnyOf::lock_within`].
    pub fn lock_within(&self, limit: Duration) -> Result<Guard, LockError> {
        block_on(self.0.lock_within(limit)).map(Guard)
    }

    /// As [`crate::AnyOf::try_lock`].
    ///
    /// # Errors
    /// As [`crate::AnyOf::try_lock`].
    pub fn try_lock(&self) -> Result<Guard, LockError> {
        block_on(self.0.try_lock()).map(Guard)
    }

    /// As [`crate::AnyOf::lock_many`].
    ///
    /// # Errors
    /// As [`crate::AnyOf::lock_many`].
    pub fn lock_many(&self, count: usize) -> Result<Guards, LockError> {
        block_on(self.0.lock_many(count)).map(Guards)
    }

    /// As [`crate::AnyOf::try_lock_many`].
    ///
    /// # Errors
    /// As [`crate::AnyOf::try_lock_many`].
    pub fn try_lock_many(&self, count: usize) -> Result<Guards, LockError> {
        block_on(self.0.try_lock_many(count)).map(Guards)
    }
}

/// As [`crate::Latch`], without async.
#[derive(Clone, Debug)]
pub struct Latch(pub(super) crate::Latch);

impl Latch {
    /// Returns the name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`crate::Latch::try_set`].
    ///
    /// # Errors
    /// As [`crate::Latch::try_set`].
    pub fn try_set(&self, count: u64) -> Result<bool, LockError> {
        block_on(self.0.try_set(count))
    }

    /// As [`crate::Latch::count_down`].
    ///
    /// # Errors
    /// As [`crate::Latch::count_down`].
    pub fn count_down(&self, by: u64) -> Result<u64, LockError> {
        block_on(self.0.count_down(by))
    }

    /// As [`crate::Latch::count`].
    ///
    /// # Errors
    /// As [`crate::Latch::count`].
    pub fn count(&self) -> Result<u64, LockError> {
        block_on(self.0.count())
    }

    /// As [`crate::Latch::wait`].
    ///
    /// # Errors
    /// As [`crate::Latch::wait`].
    pub fn wait(&self) -> Result<(), LockError> {
        block_on(self.0.wait())
    }

    /// As [`crate::Latch::wait_for`].
    ///
    /// # Errors
    /// As [`crate::Latch::wait_for`].
    pub fn wait_for(&self, limit: Duration) -> Result<bool, LockError> {
        block_on(self.0.wait_for(limit))
    }
}

/// As [`crate::CountingSemaphore`], without async.
#[derive(Clone, Debug)]
pub struct CountingSemaphore(pub(super) crate::CountingSemaphore);

impl CountingSemaphore {
    /// Returns the name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`crate::CountingSemaphore::try_set_permits`].
    ///
    /// # Errors
    /// As [`crate::CountingSemaphore::try_set_permits`].
    pub fn try_set_permits(&self, permits: u64) -> Result<bool, LockError> {
        block_on(self.0.try_set_permits(permits))
    }

    /// As [`crate::CountingSemaphore::try_acquire`].
    ///
    /// # Errors
    /// As [`crate::CountingSemaphore::try_acquire`].
    pub fn try_acquire(&self, permits: u64) -> Result<bool, LockError> {
        block_on(self.0.try_acquire(permits))
    }

    /// As [`crate::CountingSemaphore::acquire`].
    ///
    /// # Errors
    /// As [`crate::CountingSemaphore::acquire`].
    pub fn acquire(&self, permits: u64) -> Result<(), LockError> {
        block_on(self.0.acquire(permits))
    }

    /// As [`crate::CountingSemaphore::acquire_for`].
    ///
    /// # Errors
    /// As [`crate::CountingSemaphore::acquire_for`].
    pub fn acquire_for(&self, permits: u64, limit: Duration) -> Result<bool, LockError> {
        block_on(self.0.acquire_for(permits, limit))
    }

    /// As [`crate::CountingSemaphore::release`].
    ///
    /// # Errors
    /// As [`crate::CountingSemaphore::release`].
    pub fn release(&self, permits: u64) -> Result<i64, LockError> {
        block_on(self.0.release(permits))
    }

    /// As [`crate::CountingSemaphore::available`].
    ///
    /// # Errors
    /// As [`crate::CountingSemaphore::available`].
    pub fn available(&self) -> Result<i64, LockError> {
        block_on(self.0.available())
    }

    /// As [`crate::CountingSemaphore::drain`].
    ///
    /// # Errors
    /// As [`crate::CountingSemaphore::drain`].
    pub fn drain(&self) -> Result<u64, LockError> {
        block_on(self.0.drain())
    }
}
