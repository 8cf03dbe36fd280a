//! Errors of the library as exceptions.

use std::fmt::Display;

use holdline::{ErrorKind, HolderSummary, LockError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::views;

/// Makes the exception of an error: `holdline._errors.make(kind, message, certainty, engine, name,
/// details)`.
pub(crate) fn raise(py: Python<'_>, error: &LockError) -> PyErr {
    match made(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

fn made<'py>(py: Python<'py>, error: &LockError) -> PyResult<Bound<'py, PyAny>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "holdline._errors", "make")?;
    let certainty = error.certainty().word();
    let name = error.name().map(|name| name.as_str());
    let details = details(py, error.kind())?;
    let kind = error.kind().word();
    make.call1((kind, error.to_string(), certainty, error.engine(), name, details))
}

fn details<'py>(py: Python<'py>, kind: &ErrorKind) -> PyResult<Bound<'py, PyDict>> {
    let details = PyDict::new(py);
    let holder = |holder: &Option<Box<HolderSummary>>| -> PyResult<()> {
        let view = holder.as_deref().map(|holder| views::holder(py, holder)).transpose()?;
        details.set_item("holder", view)
    };
    match kind {
        ErrorKind::Busy { holder: by } => holder(by)?,
        ErrorKind::TimedOut { waited, holder: by } => {
            details.set_item("waited", waited.as_secs_f64())?;
            holder(by)?;
        }
        ErrorKind::Lost { reason } => details.set_item("reason", reason.word())?,
        ErrorKind::TooManyWaiters { limit } => details.set_item("limit", limit)?,
        ErrorKind::NoQuorum { nodes } => details.set_item("nodes", nodes)?,
        ErrorKind::Quarantined { left } => details.set_item("left", left.as_secs_f64())?,
        ErrorKind::Unsupported { feature } => details.set_item("feature", feature)?,
        ErrorKind::Foreign { found } => details.set_item("found", found)?,
        ErrorKind::Invalid { field, .. } => details.set_item("field", field)?,
        _ => {}
    }
    Ok(details)
}

/// Makes the exception of a value that the library cannot take.
pub(crate) fn invalid(py: Python<'_>, field: &'static str, why: impl Display) -> PyErr {
    raise(py, &LockError::invalid("holdline", field, why))
}

/// Raises an error that was made before anything was asked.
pub(crate) fn check<T>(py: Python<'_>, outcome: Result<T, LockError>) -> PyResult<T> {
    outcome.map_err(|error| raise(py, &error))
}
