//! Whatever can be acquired, under one name: its kind decides what is asked.

use std::time::Duration;

use holdline::{AnyOf, Client, Election, LockError, LockOptions, Mutex, Owner, RwLock, Semaphore};

use crate::grant::Acquired;

/// What is described.
#[derive(Clone)]
pub enum Kind {
    /// A mutex.
    Mutex(Mutex),
    /// A mutex for an owner, who may acquire it again.
    Owned(Mutex, Owner),
    /// The read side of a lock.
    Read(RwLock),
    /// The write side of a lock.
    Write(RwLock),
    /// So many permits of a semaphore.
    Semaphore(Semaphore, u32),
    /// One of several names.
    AnyOf(AnyOf),
    /// Several of several names.
    Many(AnyOf, usize),
    /// All of several names.
    All(Client, Vec<String>, LockOptions),
    /// A candidacy, with the value that its leader proclaims.
    Campaign(Election, String),
}

impl Kind {
    /// Acquires it; waits as its options say.
    ///
    /// # Errors
    /// Those of the library for this kind.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub async fn acquire(self) -> Result<Acquired, LockError> {
        Ok(match self {
            Kind::Mutex(mutex) => mutex.lock().await?.into(),
            Kind::Owned(mutex, owner) => mutex.lock_as(&owner).await?.into(),
            Kind::Read(rwlock) => rwlock.read().await?.into(),
            Kind::Write(rwlock) => rwlock.write().await?.into(),
            Kind::Semaphore(semaphore, count) => semaphore.acquire_many(count).await?.into(),
            Kind::AnyOf(any_of) => any_of.lock().await?.into(),
            Kind::Many(any_of, count) => any_of.lock_many(count).await?.into(),
            Kind::All(client, names, options) => {
                client.lock_all_with(names, &options).await?.into()
            }
            Kind::Campaign(election, value) => election.campaign(value).await?.into(),
        })
    }

    /// Acquires it without waiting.
    ///
    /// # Errors
    /// Those of the library for this kind; `Unsupported` for a candidacy.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub async fn try_acquire(self) -> Result<Acquired, LockError> {
        Ok(match self {
            Kind::Mutex(mutex) => mutex.try_lock().await?.into(),
            Kind::Owned(mutex, owner) => mutex.try_lock_as(&owner).await?.into(),
            Kind::Read(rwlock) => rwlock.try_read().await?.into(),
            Kind::Write(rwlock) => rwlock.try_write().await?.into(),
            Kind::Semaphore(semaphore, count) => semaphore.try_acquire_many(count).await?.into(),
            Kind::AnyOf(any_of) => any_of.try_lock().await?.into(),
            Kind::Many(any_of, count) => any_of.try_lock_many(count).await?.into(),
            // There is no other way to ask without waiting.
            Kind::All(client, names, options) => {
                let options = options.with_wait(Duration::ZERO);
                client.lock_all_with(names, &options).await?.into()
            }
            Kind::Campaign(..) => {
                return Err(LockError::unsupported("holdline", "a campaign that does not wait"));
            }
        })
    }
}
