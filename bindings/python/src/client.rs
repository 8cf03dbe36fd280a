//! The client.

use std::time::Duration;

use holdline::admin::{HolderFields, ListRequest};
use holdline::{ClientOptions, LockName, ShutdownReport};
use holdline_bindings::options as shared;
use holdline_bindings::{Held, Kind};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::check;
use crate::grant::{Grant, Lease};
use crate::layers::{self, Latch, Leaders, Once};
use crate::lock::{Lock, Owner};
use crate::metrics::start_metrics;
use crate::observing::Events;
use crate::operation::Operation;
use crate::options;
use crate::own::Own;
use crate::views;

type Options<'a, 'py> = &'a Bound<'py, PyDict>;

/// Connects to the store that a URL names. Holders report host, user and program: the interpreter's
/// own name would say nothing. `classes` are those of names, by their prefixes.
#[pyfunction]
#[pyo3(signature = (
    url, holder, *, lease_duration = None, answer_within = None, metrics = false, classes = None,
    events = None,
))]
pub(crate) fn connect(
    url: String,
    holder: (String, String, String),
    lease_duration: Option<&Bound<'_, PyAny>>,
    answer_within: Option<&Bound<'_, PyAny>>,
    metrics: bool,
    classes: Option<&Bound<'_, PyAny>>,
    events: Option<PyRef<'_, Events>>,
) -> PyResult<Operation> {
    let (host, user, program) = holder;
    // Work on a thread of its own goes on while Python code keeps its thread busy.
    let pid = Some(std::process::id());
    let holder = HolderFields { host, pid, user, program, ..HolderFields::default() };
    let mut options = ClientOptions::default().with_own_thread(true).with_holder(holder);
    if let Some(time) = lease_duration {
        options = options.with_lease_duration(options::duration("lease_duration", time)?);
    }
    if let Some(time) = answer_within {
        options = options.with_answer_within(options::duration("answer_within", time)?);
    }
    if metrics {
        start_metrics();
        options = options.with_metrics();
    }
    if let Some(classes) = classes {
        let classes = options::texts("classes", classes)?;
        options = options.with_class_rule(move |name| shared::class_of(&classes, name));
    }
    if let Some(events) = events {
        options = options.with_observer(events.observer());
    }
    let work = async move { holdline::Client::connect_with(&url, options).await };
    Ok(Operation::new(work, |py, client| Ok(Py::new(py, Client(Own::new(client)))?.into_any())))
}

/// A connection to one store.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Client(pub(crate) Own<holdline::Client>);

impl Client {
    fn library(&self) -> holdline::Client {
        (*self.0).clone()
    }
}

#[pymethods]
impl Client {
    #[getter]
    fn engine(&self) -> &str {
        self.0.capabilities().engine
    }

    #[pyo3(signature = (name, **options))]
    fn lock(&self, py: Python<'_>, name: &str, options: Option<Options<'_, '_>>) -> PyResult<Lock> {
        let mutex = check(py, self.0.mutex_with(name, &options::lock(py, options)?))?;
        Ok(Lock::new(Kind::Mutex(mutex)))
    }

    /// A mutex for an owner, who may acquire it again.
    #[pyo3(signature = (name, owner, **options))]
    fn rlock(
        &self,
        py: Python<'_>,
        name: &str,
        owner: &Owner,
        options: Option<Options<'_, '_>>,
    ) -> PyResult<Lock> {
        let mutex = check(py, self.0.mutex_with(name, &options::lock(py, options)?))?;
        Ok(Lock::new(Kind::Owned(mutex, owner.0.clone())))
    }

    /// The read side and the write side.
    #[pyo3(signature = (name, **options))]
    fn rwlock(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<Options<'_, '_>>,
    ) -> PyResult<(Lock, Lock)> {
        let rwlock = check(py, self.0.rwlock_with(name, &options::lock(py, options)?))?;
        Ok((Lock::new(Kind::Read(rwlock.clone())), Lock::new(Kind::Write(rwlock))))
    }

    #[pyo3(signature = (name, permits, count, **options))]
    fn semaphore(
        &self,
        py: Python<'_>,
        name: &str,
        permits: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        options: Option<Options<'_, '_>>,
    ) -> PyResult<Lock> {
        let lock = options::lock(py, options)?;
        let (permits, count) =
            (options::number("permits", permits)?, options::number("count", count)?);
        let semaphore = check(py, self.0.semaphore_with(name, permits, &lock))?;
        Ok(Lock::new(Kind::Semaphore(semaphore, count)))
    }

    #[pyo3(signature = (names, count, **options))]
    fn any_of(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        count: Option<&Bound<'_, PyAny>>,
        options: Option<Options<'_, '_>>,
    ) -> PyResult<Lock> {
        let any_of = check(py, self.0.any_of_with(names, &options::lock(py, options)?))?;
        Ok(Lock::new(match count {
            None => Kind::AnyOf(any_of),
            Some(count) => Kind::Many(any_of, options::number("count", count)?),
        }))
    }

    #[pyo3(signature = (names, **options))]
    fn lock_all(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        options: Option<Options<'_, '_>>,
    ) -> PyResult<Lock> {
        Ok(Lock::new(Kind::All(self.library(), names, options::lock(py, options)?)))
    }

    #[pyo3(signature = (name, value, **options))]
    fn campaign(
        &self,
        py: Python<'_>,
        name: &str,
        value: String,
        options: Option<Options<'_, '_>>,
    ) -> PyResult<Lock> {
        let election = check(py, self.0.election_with(name, &options::lock(py, options)?))?;
        Ok(Lock::new(Kind::Campaign(election, value)))
    }

    /// Looks who leads now.
    fn leader(&self, py: Python<'_>, name: &str) -> PyResult<Operation> {
        let election = check(py, self.0.election(name))?;
        let work = async move { election.leader().await };
        Ok(Operation::new(work, layers::leader))
    }

    /// The leaders, one after the other.
    fn leaders(&self, py: Python<'_>, name: &str) -> PyResult<Leaders> {
        let election = check(py, self.0.election(name))?;
        Ok(Leaders::new(election.observe()))
    }

    #[pyo3(signature = (name, **options))]
    fn once(&self, py: Python<'_>, name: &str, options: Option<Options<'_, '_>>) -> PyResult<Once> {
        let (slot, options) = options::once(py, options)?;
        check(py, self.0.once_with(name, slot, options)).map(Once::new)
    }

    fn latch(&self, py: Python<'_>, name: &str) -> PyResult<Latch> {
        check(py, self.0.latch(name)).map(Latch::new)
    }

    fn attach(&self, lease: &Lease) -> Operation {
        let (client, lease) = (self.library(), lease.0.clone());
        let work = async move { client.leases().attach(&lease).await };
        Operation::new(work, |py, guard| {
            let grant = holdline_bindings::Grant::new(Held::Guard(guard));
            Ok(Py::new(py, Grant::new(grant))?.into_any())
        })
    }

    /// Renews a detached lease for its whole duration, or for another one.
    #[pyo3(signature = (lease, lease_duration = None))]
    fn renew(
        &self,
        lease: &Lease,
        lease_duration: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Operation> {
        let (client, lease) = (self.library(), lease.0.clone());
        let duration = lease_duration.map(|time| options::duration("lease_duration", time));
        let duration = duration.transpose()?;
        let work = async move {
            match duration {
                None => client.leases().renew(&lease).await,
                Some(duration) => {
                    client.leases().renew_by_id(lease.name(), lease.lease_id(), duration).await
                }
            }
        };
        Ok(Operation::new(work, |py, left: Duration| left.as_secs_f64().into_py_any(py)))
    }

    fn release(&self, lease: &Lease) -> Operation {
        let (client, lease) = (self.library(), lease.0.clone());
        Operation::new(async move { client.leases().release(&lease).await }, views::release)
    }

    fn inspect(&self, py: Python<'_>, name: &str) -> PyResult<Operation> {
        let client = self.library();
        let engine = client.capabilities().engine;
        let name = LockName::new(name)
            .map_err(|error| holdline::LockError::invalid(engine, "name", error));
        let name = check(py, name)?;
        let work = async move { client.admin().inspect(&name).await };
        Ok(Operation::new(work, |py, state| views::snapshot(py, &state)))
    }

    /// One page of names that are held or waited for, and where to go on.
    fn list(&self, prefix: String, after: Option<&str>, limit: usize) -> PyResult<Operation> {
        let client = self.library();
        let after = after.map(LockName::new).transpose();
        let after = after.map_err(|error| PyTypeError::new_err(error.to_string()))?;
        let work = async move { client.admin().list(&ListRequest { prefix, after, limit }).await };
        Ok(Operation::new(work, |py, page| {
            let names = page.names.iter().map(|state| views::snapshot(py, state));
            let names = PyList::new(py, names.collect::<PyResult<Vec<_>>>()?)?;
            let after = page.after.map(|name| name.as_str().to_owned());
            (names, after).into_py_any(py)
        }))
    }

    /// Refuses new attempts, and waits until what was given up is gone from the store.
    fn shutdown(&self, limit: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (client, limit) = (self.library(), options::duration("limit", limit)?);
        Ok(Operation::sure(async move { client.shutdown(limit).await }, |py, report| {
            let is_clean = ShutdownReport::is_clean(&report);
            is_clean.into_py_any(py)
        }))
    }
}
