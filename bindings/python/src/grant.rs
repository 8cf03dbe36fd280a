//! Grants and detached leases.

use std::time::Duration;

use holdline::clock::Moment;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::operation::Operation;
use crate::own::Own;
use crate::views;

/// A grant: a held lock, a leadership, or a slot.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Grant(Own<holdline_bindings::Grant>);

impl Grant {
    pub(crate) fn new(grant: holdline_bindings::Grant) -> Grant {
        Grant(Own::new(grant))
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
        self.0.held().name().as_str()
    }

    #[getter]
    fn fencing_token(&self) -> u64 {
        self.0.held().fencing_token().get()
    }

    /// The proof of the grant.
    #[getter]
    fn lease_id(&self) -> String {
        self.0.held().lease_id().to_string()
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.0.held().mode().word()
    }

    #[getter]
    fn is_valid(&self) -> bool {
        self.0.held().is_valid()
    }

    /// Seconds that the lease is still valid; infinite for a live grant.
    #[getter]
    fn remaining(&self) -> f64 {
        if self.0.held().valid_until() == Moment::NEVER {
            return f64::INFINITY;
        }
        self.0.held().remaining().as_secs_f64()
    }

    /// When the slot began, in seconds since 1970, for a job that runs once per slot.
    #[getter]
    fn slot_start(&self) -> Option<f64> {
        self.0.slot_start().map(views::seconds)
    }

    /// Why it is over, if it is.
    fn lost_reason(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.0.is_ours() {
            return Ok(None);
        }
        self.0.lost_reason().map(|why| views::reason(py, why)).transpose()
    }

    /// Resolves when the lease is no longer valid, or was released.
    fn lost(&self) -> Operation {
        Operation::sure(self.0.lost(), views::reason)
    }

    /// Why it is at risk or over, if it is; `None` once it was released here.
    fn risk(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if !self.0.is_ours() {
            return Ok(None);
        }
        self.0.risk().map(|why| views::reason(py, why)).transpose()
    }

    /// Resolves when the lease is at risk or over, or was released.
    fn at_risk(&self) -> Operation {
        Operation::sure(self.0.at_risk(), views::reason)
    }

    /// Resolves when an operator has revoked the lease, or when it is over, or was released. A
    /// lease that is at risk for another reason resolves [`Grant::at_risk`] only.
    fn revoked(&self) -> Operation {
        Operation::sure(self.0.revoked(), views::reason)
    }

    fn renew(&self) -> Operation {
        Operation::new(self.0.renew(), float)
    }

    fn release(&self) -> Operation {
        Operation::new(self.0.release(), |py, outcome| match outcome {
            Some(outcome) => views::release(py, outcome),
            None => Ok(py.None()),
        })
    }

    fn detach(&self) -> Operation {
        Operation::new(self.0.detach(), |py, lease| Ok(Py::new(py, Lease(lease))?.into_any()))
    }

    /// Stores the value of a leadership that observers see.
    fn proclaim(&self, value: String) -> Operation {
        Operation::new(self.0.proclaim(value), nothing)
    }

    /// Keeps the slot until its end: the job is done.
    fn finish(&self) -> Operation {
        Operation::new(self.0.finish(), nothing)
    }

    /// Ends a job that has failed; whether the slot is kept.
    fn fail(&self) -> Operation {
        Operation::new(self.0.fail(), |py, kept| kept.into_py_any(py))
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
