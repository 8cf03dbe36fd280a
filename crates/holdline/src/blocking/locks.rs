//! The locks without async.

use std::time::Duration;

use holdline_core::{LockError, LockName};

use super::guard::Guard;
use crate::guard::held::Held;
use crate::parker::block_on;
use crate::primitives::mutex::Ran;
use crate::primitives::owner::Owner;
use crate::release_outcome::ReleaseOutcome;

/// As [`crate::Mutex`], without async.
#[derive(Clone, Debug)]
pub struct Mutex(pub(super) crate::Mutex);

impl Mutex {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`crate::Mutex::lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`].
    pub fn lock(&self) -> Result<Guard, LockError> {
        block_on(self.0.lock()).map(Guard)
    }

    /// As [`crate::Mutex::lock_within`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`].
    pub fn lock_within(&self, limit: Duration) -> Result<Guard, LockError> {
        block_on(self.0.lock_within(limit)).map(Guard)
    }

    /// As [`crate::Mutex::try_lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`].
    pub fn try_lock(&self) -> Result<Guard, LockError> {
        block_on(self.0.try_lock()).map(Guard)
    }

    /// As [`crate::Mutex::lock_as`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_as`].
    pub fn lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        block_on(self.0.lock_as(owner)).map(Guard)
    }

    /// As [`crate::Mutex::try_lock_as`].
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock_as`].
    pub fn try_lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        block_on(self.0.try_lock_as(owner)).map(Guard)
    }

    /// Acquires the lock, runs `body` under it, and releases it. Nothing can stop a body that
    /// blocks: check [`Held::is_valid`] before each step that must not run twice, and
    /// [`Ran::outcome`] afterwards.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`].
    pub fn run<T>(&self, body: impl FnOnce(Held) -> T) -> Result<Ran<T>, LockError> {
        let guard = self.lock()?;
        let output = body(guard.held());
        let outcome: ReleaseOutcome = guard.release();
        Ok(Ran::new(output, outcome))
    }
}

/// As [`crate::RwLock`], without async.
#[derive(Clone, Debug)]
pub struct RwLock(pub(super) crate::RwLock);

impl RwLock {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// As [`crate::RwLock::read`].
    ///
    /// # Errors
    /// As [`crate::RwLock::read`].
    pub fn read(&self) -> Result<Guard, LockError> {
        block_on(self.0.read()).map(Guard)
    }

    /// As [`crate::RwLock::read_within`].
    ///
    /// # Errors
    /// As [`crate::RwLock::read_within`].
    pub fn read_within(&self, limit: Duration) -> Result<Guard, LockError> {
        block_on(self.0.read_within(limit)).map(Guard)
    }

    /// As [`crate::RwLock::try_read`].
    ///
    /// # Errors
    /// As [`crate::RwLock::try_read`].
    pub fn try_read(&self) -> Result<Guard, LockError> {
        block_on(self.0.try_read()).map(Guard)
    }

    /// As [`crate::RwLock::write`].
    ///
    /// # Errors
    /// As [`crate::RwLock::write`].
    pub fn write(&self) -> Result<Guard, LockError> {
        block_on(self.0.write()).map(Guard)
    }

    /// As [`crate::RwLock::write_within`].
    ///
    /// # Errors
    /// As [`crate::RwLock::write_within`].
    pub fn write_within(&self, limit: Duration) -> Result<Guard, LockError> {
        block_on(self.0.write_within(limit)).map(Guard)
    }

    /// As [`crate::RwLock::try_write`].
    ///
    /// # Errors
    /// As [`crate::RwLock::try_write`].
    pub fn try_write(&self) -> Result<Guard, LockError> {
        block_on(self.0.try_write()).map(Guard)
    }
}

/// As [`crate::Semaphore`], without async.
#[derive(Clone, Debug)]
pub struct Semaphore(pub(super) crate::Semaphore);

impl Semaphore {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// Returns how many permits there are.
    pub fn permits(&self) -> u32 {
        self.0.permits()
    }

    /// As [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<Guard, LockError> {
        block_on(self.0.acquire()).map(Guard)
    }

    /// As [`crate::Semaphore::acquire_within`].
    ///
    /// # Errors
    /// As [`crate::Semaphore::acquire_within`].
    pub fn acquire_within(&self, limit: Duration) -> Result<Guard, LockError> {
        block_on(self.0.acquire_within(limit)).map(Guard)
    }

    /// As [`crate::Semaphore::acquire_many`].
    ///
    /// # Errors
    /// As [`crate::Semaphore::acquire_many`].
    pub fn acquire_many(&self, count: u32) -> Result<Guard, LockError> {
        block_on(self.0.acquire_many(count)).map(Guard)
    }

    /// As [`crate::Semaphore::acquire_many_within`].
    ///
    /// # Errors
    /// As [`crate::Semaphore::acquire_many_within`].
    pub fn acquire_many_within(&self, count: u32, limit: Duration) -> Result<Guard, LockError> {
        block_on(self.0.acquire_many_within(count, limit)).map(Guard)
    }

    /// As [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// As [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self) -> Result<Guard, LockError> {
        block_on(self.0.try_acquire()).map(Guard)
    }

    /// As [`crate::Semaphore::try_acquire_many`].
    ///
    /// # Errors
    /// As [`crate::Semaphore::try_acquire_many`].
    pub fn try_acquire_many(&self, count: u32) -> Result<Guard, LockError> {
        block_on(self.0.try_acquire_many(count)).map(Guard)
    }
}
