//! Whatever can be acquired, under one name in Python: its kind decides what is asked.

use holdline::{
    AnyOf, Client, Election, Guards, Leadership, LockError, LockOptions, Mutex, RwLock, Semaphore,
};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::grant::{Grant, Held};
use crate::operation::Operation;
use crate::own::Own;

/// What is described.
#[derive(Clone)]
pub(crate) enum Kind {
    Mutex(Mutex),
    /// A mutex for an owner, who may acquire it again.
    Owned(Mutex, holdline::Owner),
    Read(RwLock),
    Write(RwLock),
    Semaphore(Semaphore, u32),
    AnyOf(AnyOf),
    /// Several of several names.
    Many(AnyOf, usize),
    All(Client, Vec<String>, LockOptions),
    Campaign(Election, String),
}

/// What was acquired.
enum Acquired {
    One(Held),
    Many(Guards),
}

impl From<holdline::Guard> for Acquired {
    fn from(guard: holdline::Guard) -> Acquired {
        Acquired::One(Held::Guard(guard))
    }
}

impl From<Guards> for Acquired {
    fn from(guards: Guards) -> Acquired {
        Acquired::Many(guards)
    }
}

impl From<Leadership> for Acquired {
    fn from(leadership: Leadership) -> Acquired {
        Acquired::One(Held::Leadership(Box::new(leadership)))
    }
}

impl Kind {
    async fn acquire(self) -> Result<Acquired, LockError> {
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

    async fn try_acquire(self) -> Result<Acquired, LockError> {
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
                let options = options.with_wait(std::time::Duration::ZERO);
                client.lock_all_with(names, &options).await?.into()
            }
            Kind::Campaign(..) => {
                return Err(LockError::unsupported("holdline", "a campaign that does not wait"));
            }
        })
    }
}

/// An owner, who may acquire a lock again.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Owner(pub(crate) holdline::Owner);

#[pymethods]
impl Owner {
    #[new]
    fn new() -> Owner {
        Owner(holdline::Owner::new())
    }
}

/// A lock that can be acquired.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Lock(Own<Kind>);

impl Lock {
    pub(crate) fn new(kind: Kind) -> Lock {
        Lock(Own::new(kind))
    }
}

fn convert(py: Python<'_>, acquired: Acquired) -> PyResult<Py<PyAny>> {
    match acquired {
        Acquired::One(held) => Ok(Py::new(py, Grant::new(held))?.into_any()),
        Acquired::Many(guards) => {
            let grants = guards.into_guards().into_iter();
            let grants = grants.map(|guard| Py::new(py, Grant::new(Held::Guard(guard))));
            let grants = grants.collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, grants)?.into_any().unbind())
        }
    }
}

#[pymethods]
impl Lock {
    /// Acquires it; waits as its options say.
    fn acquire(&self) -> Operation {
        Operation::new((*self.0).clone().acquire(), convert)
    }

    /// Acquires it without waiting.
    fn try_acquire(&self) -> Operation {
        Operation::new((*self.0).clone().try_acquire(), convert)
    }
}
