//! The client without async.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Engine, LockError};

use super::admin::{Admin, Leases};
use super::guard::Guards;
use super::layers::{AnyOf, CountingSemaphore, Election, Latch, Once};
use super::locks::{Mutex, RwLock, Semaphore};
use crate::client::options::ClientOptions;
use crate::client::{ShutdownReport, url_of_environment};
use crate::once::{OnceOptions, Slot};
use crate::parker::block_on;
use crate::plan::options::LockOptions;

/// As [`crate::Client`], without async. Its background work has a thread of its own.
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

impl Client {
    /// As [`crate::Client::connect`].
    ///
    /// # Errors
    /// As [`crate::Client::connect`].
    pub fn connect(url: &str) -> Result<Client, LockError> {
        Client::connect_with(url, ClientOptions::default())
    }

    /// As [`crate::Client::connect_with`].
    ///
    /// # Errors
    /// As [`crate::Client::connect_with`].
    pub fn connect_with(url: &str, options: ClientOptions) -> Result<Client, LockError> {
        let options = options.with_own_thread(true);
        block_on(crate::Client::connect_with(url, options)).map(Client)
    }

    /// As [`crate::Client::from_env`].
    ///
    /// # Errors
    /// As [`crate::Client::from_env`].
    pub fn from_env() -> Result<Client, LockError> {
        Client::connect(&url_of_environment()?)
    }

    /// As [`crate::Client::with_options`].
    ///
    /// # Errors
    /// As [`crate::Client::with_options`].
    pub fn with_options(
        engine: Arc<dyn Engine>,
        options: ClientOptions,
    ) -> Result<Client, LockError> {
        crate::Client::with_options(engine, options.with_own_thread(true)).map(Client)
    }

    /// Returns the async client, which shares everything with this one.
    pub fn as_async(&self) -> &crate::Client {
        &self.0
    }

    /// As [`crate::Client::mutex`].
    ///
    /// # Errors
    /// As [`crate::Client::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex, LockError> {
        self.0.mutex(name).map(Mutex)
    }

    /// As [`crate::Client::mutex_with`].
    ///
    /// # Errors
    /// As [`crate::Client::mutex_with`].
    pub fn mutex_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<Mutex, LockError> {
        self.0.mutex_with(name, options).map(Mutex)
    }

    /// As [`crate::Client::rwlock`].
    ///
    /// # Errors
    /// As [`crate::Client::rwlock`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock, LockError> {
        self.0.rwlock(name).map(RwLock)
    }

    /// As [`crate::Client::rwlock_with`].
    ///
    /// # Errors
    /// As [`crate::Client::rwlock_with`].
    pub fn rwlock_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<RwLock, LockError> {
        self.0.rwlock_with(name, options).map(RwLock)
    }

    /// As [`crate::Client::semaphore`].
    ///
    /// # Errors
    /// As [`crate::Client::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore, LockError> {
        self.0.semaphore(name, permits).map(Semaphore)
    }

    /// As [`crate::Client::semaphore_with`].
    ///
    /// # Errors
    /// As [`crate::Client::semaphore_with`].
    pub fn semaphore_with(
        &self,
        name: impl AsRef<str>,
        permits: u32,
        options: &LockOptions,
    ) -> Result<Semaphore, LockError> {
        self.0.semaphore_with(name, permits, options).map(Semaphore)
    }

    /// As [`crate::Client::election`].
    ///
    /// # Errors
    /// As [`crate::Client::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election, LockError> {
        self.0.election(name).map(Election)
    }

    /// As [`crate::Client::election_with`].
    ///
    /// # Errors
    /// As [`crate::Client::election_with`].
    pub fn election_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<Election, LockError> {
        self.0.election_with(name, options).map(Election)
    }

    /// As [`crate::Client::once`].
    ///
    /// # Errors
    /// As [`crate::Client::once`].
    pub fn once(&self, name: impl AsRef<str>, slot: Slot) -> Result<Once, LockError> {
        self.0.once(name, slot).map(Once)
    }

    /// As [`crate::Client::once_with`].
    ///
    /// # Errors
    /// As [`crate::Client::once_with`].
    pub fn once_with(
        &self,
        name: impl AsRef<str>,
        slot: Slot,
        options: OnceOptions,
    ) -> Result<Once, LockError> {
        self.0.once_with(name, slot, options).map(Once)
    }

    /// As [`crate::Client::any_of`].
    ///
    /// # Errors
    /// As [`crate::Client::any_of`].
    pub fn any_of<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<AnyOf, LockError> {
        self.0.any_of(names).map(AnyOf)
    }

    /// As [`crate::Client::any_of_with`].
    ///
    /// # Errors
    /// As [`crate::Client::any_of_with`].
    pub fn any_of_with<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        options: &LockOptions,
    ) -> Result<AnyOf, LockError> {
        self.0.any_of_with(names, options).map(AnyOf)
    }

    /// As [`crate::Client::latch`].
    ///
    /// # Errors
    /// As [`crate::Client::latch`].
    pub fn latch(&self, name: impl AsRef<str>) -> Result<Latch, LockError> {
        self.0.latch(name).map(Latch)
    }

    /// As [`crate::Client::counting_semaphore`].
    ///
    /// # Errors
    /// As [`crate::Client::counting_semaphore`].
    pub fn counting_semaphore(
        &self,
        name: impl AsRef<str>,
    ) -> Result<CountingSemaphore, LockError> {
        self.0.counting_semaphore(name).map(CountingSemaphore)
    }

    /// As [`crate::Client::lock_all`].
    ///
    /// # Errors
    /// As [`crate::Client::lock_all`].
    pub fn lock_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Guards, LockError> {
        block_on(self.0.lock_all(names)).map(Guards)
    }

    /// As [`crate::Client::lock_all_with`].
    ///
    /// # Errors
    /// As [`crate::Client::lock_all_with`].
    pub fn lock_all_with<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        options: &LockOptions,
    ) -> Result<Guards, LockError> {
        block_on(self.0.lock_all_with(names, options)).map(Guards)
    }

    /// As [`crate::Client::admin`].
    pub fn admin(&self) -> Admin<'_> {
        Admin(self.0.admin())
    }

    /// As [`crate::Client::leases`].
    pub fn leases(&self) -> Leases<'_> {
        Leases(self.0.leases())
    }

    /// As [`crate::Client::shutdown`].
    pub fn shutdown(&self, limit: Duration) -> ShutdownReport {
        block_on(self.0.shutdown(limit))
    }
}
