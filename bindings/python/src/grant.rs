//! Grants and detached leases.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use holdline::clock::Moment;
use holdline::once::OnceRun;
use holdline::{Certainty, ErrorKind, Guard, Leadership, LockError, LostReason, RiskReason};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::operation::Operation;
use crate::own::Own;
use crate::views;

/// What the library gave for a grant.
pub(crate) enum Held {
    Guard(Guard),
    Leadership(Box<Leadership>),
    Once(Box<OnceRun>),
}

impl Held {
    fn guard(&self) -> &Guard {
        match self {
            Held::Guard(guard) => guard,
            Held::Leadership(leadership) => leadership.guard(),
            Held::Once(run) => run.guard(),
        }
    }
}

/// Takes a grant out of its place to end it. Dropped before that, it gives the grant up: a task
/// that is cancelled while it leaves a block, or an interrupt, must leave no renewed lease.
struct Ending {
    library: Arc<Mutex<Option<Held>>>,
    is_taken: bool,
}

impl Ending {
    async fn take(mut self) -> Option<Held> {
        let held = self.library.lock().await.take();
        self.is_taken = true;
        held
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        // Else a renewal or a detachment is in progress, and the drop of the grant remains.
        if let Ok(mut library) = self.library.try_lock() {
            drop(library.take());
        }
    }
}

/// A grant: a held lock, a leadership, or a slot.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Grant {
    held: Own<holdline::Held>,
    /// There until the grant is ended here.
    library: Own<Arc<Mutex<Option<Held>>>>,
    slot_start: Option<f64>,
}

impl Grant {
    pub(crate) fn new(held: Held) -> Grant {
        let slot_start = match &held {
            Held::Once(run) => Some(views::seconds(run.slot_start())),
            _ => None,
        };
        let handle = Own::new(held.guard().held());
        Grant { held: handle, library: Own::new(Arc::new(Mutex::new(Some(held)))), slot_start }
    }

    /// The library's part, and the error if it is gone.
    fn parts(&self) -> (Arc<Mutex<Option<Held>>>, LockError) {
        let kind = ErrorKind::Lost { reason: LostReason::Released };
        let ended = LockError::new("holdline", kind, Certainty::NotApplied);
        ((*self.library).clone(), ended.with_name(self.held.name()))
    }

    /// Runs a request that ends the grant.
    fn ending<T, F, C>(&self, request: impl FnOnce(Held) -> F + Send + 'static, c: C) -> Operation
    where
        T: Send + 'static,
        F: Future<Output = Result<T, LockError>> + Send + 'static,
        C: for<'py> FnOnce(Python<'py>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        let (library, ended) = self.parts();
        let ending = Ending { library, is_taken: false };
        let work = async move { request(ending.take().await.ok_or(ended)?).await };
        Operation::new(work, c)
    }
}

fn nothing(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

fn float(py: Python<'_>, time: Duration) -> PyResult<Py<PyAny>> {
    time.as_secs_f64().into_py_any(py)
}

#[pymethods]
impl Grant {
    #[getter]
    fn name(&self) -> &str {
        self.held.name().as_str()
    }

    #[getter]
    fn fencing_token(&self) -> u64 {
        self.held.fencing_token().get()
    }

    /// The proof of the grant.
    #[getter]
    fn lease_id(&self) -> String {
        self.held.lease_id().to_string()
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.held.mode().word()
    }

    #[getter]
    fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// Seconds that the lease is still valid; infinite for a live grant.
    #[getter]
    fn remaining(&self) -> f64 {
        if self.held.valid_until() == Moment::NEVER {
            return f64::INFINITY;
        }
        self.held.remaining().as_secs_f64()
    }

    /// When the slot began, in seconds since 1970, for a job that runs once per slot.
    #[getter]
    fn slot_start(&self) -> Option<f64> {
        self.slot_start
    }

    /// Why it is over, if it is.
    fn lost_reason(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.held.is_ours() {
            return Ok(None);
        }
        self.held.lost().now_or_never().map(|reason| views::lost(py, &reason)).transpose()
    }

    /// Resolves when the lease is no longer valid, or was released.
    fn lost(&self) -> Operation {
        let held = (*self.held).clone();
        Operation::sure(async move { held.lost().await }, |py, why| views::lost(py, &why))
    }

    /// Why it is at risk or over, if it is; `None` once it was released here.
    fn risk(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.held.is_ours() {
            return Ok(None);
        }
        match self.held.at_risk().now_or_never() {
            None | Some(RiskReason::Ended) => Ok(None),
            Some(reason) => views::risk(py, &reason).map(Some),
        }
    }

    /// Resolves when the lease is at risk or over, or was released.
    fn at_risk(&self) -> Operation {
        let held = (*self.held).clone();
        Operation::sure(async move { held.at_risk().await }, |py, why| views::risk(py, &why))
    }

    /// Resolves when an operator has revoked the lease, or when it is over, or was released. A
    /// lease that is at risk for another reason resolves [`Grant::at_risk`] only.
    fn revoked(&self) -> Operation {
        let held = (*self.held).clone();
        let work = async move {
            held.cancellation_token().cancelled_owned().await;
            held.at_risk().await
        };
        Operation::sure(work, |py, why| views::risk(py, &why))
    }

    fn renew(&self) -> Operation {
        let (library, ended) = self.parts();
        let work = async move { library.lock().await.as_ref().ok_or(ended)?.guard().renew().await };
        Operation::new(work, float)
    }

    fn release(&self) -> Operation {
        let release = async |held| {
            Ok(match held {
                Held::Guard(guard) => Some(guard.release().await),
                Held::Leadership(leadership) => Some(leadership.resign().await),
                Held::Once(run) => run.give_back().await,
            })
        };
        self.ending(release, |py, outcome| match outcome {
            Some(outcome) => views::release(py, outcome),
            None => Ok(py.None()),
        })
    }

    fn detach(&self) -> Operation {
        let (library, ended) = self.parts();
        let work = async move {
            let mut slot = library.lock().await;
            let guard = match slot.take() {
                Some(Held::Guard(guard)) => guard,
                None => return Err(ended),
                other => {
                    *slot = other;
                    let says = "a leadership or a slot cannot be detached";
                    return Err(LockError::invalid("holdline", "grant", says));
                }
            };
            guard.detach().await.map_err(|failed| {
                let error = failed.error().clone();
                *slot = Some(Held::Guard(failed.into_guard()));
                error
            })
        };
        Operation::new(work, |py, lease| Ok(Py::new(py, Lease(lease))?.into_any()))
    }

    /// Stores the value of a leadership that observers see.
    fn proclaim(&self, value: String) -> Operation {
        let (library, ended) = self.parts();
        let work = async move {
            match library.lock().await.as_ref() {
                Some(Held::Leadership(leadership)) => leadership.proclaim(value).await,
                Some(_) => Err(LockError::invalid("holdline", "grant", "it is no leadership")),
                None => Err(ended),
            }
        };
        Operation::new(work, nothing)
    }

    /// Keeps the slot until its end: the job is done.
    fn finish(&self) -> Operation {
        let finish = async |held| match held {
            Held::Once(run) => run.finish().await,
            _ => Err(LockError::invalid("holdline", "grant", "it is no slot")),
        };
        self.ending(finish, nothing)
    }

    /// Ends a job that has failed; whether the slot is kept.
    fn fail(&self) -> Operation {
        let fail = async |held| match held {
            Held::Once(run) => Ok(run.fail().await),
            _ => Err(LockError::invalid("holdline", "grant", "it is no slot")),
        };
        self.ending(fail, |py, kept| kept.into_py_any(py))
    }
}

/// A detached lease as plain data.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Lease(pub(crate) holdline::Lease);

#[pymethods]
impl Lease {
    /// Reads what `to_json` wrote.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Lease> {
        let lease = serde_json::from_str(text);
        lease.map(Lease).map_err(|why| PyValueError::new_err(format!("no lease: {why}")))
    }

    fn to_json(&self) -> PyResult<String> {
        views::json(&self.0)
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name().as_str()
    }

    #[getter]
    fn lease_id(&self) -> String {
        self.0.lease_id().to_string()
    }

    #[getter]
    fn fencing_token(&self) -> u64 {
        self.0.fencing_token().get()
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.0.mode().word()
    }

    #[getter]
    fn lease_duration(&self) -> f64 {
        self.0.lease_duration().as_secs_f64()
    }
}
