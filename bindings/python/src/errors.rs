//! Errors of the library as exceptions.

use std::fmt::Display;

use holdline::LockError;
use holdline_bindings::options::Mistake;
use holdline_bindings::words::{self, Detail};
use pyo3::exceptions::PyTypeError;
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
    let details = details(py, error)?;
    let kind = error.kind().word();
    make.call1((kind, error.to_string(), certainty, error.engine(), name, details))
}

fn details<'py>(py: Python<'py>, error: &LockError) -> PyResult<Bound<'py, PyDict>> {
    let details = PyDict::new(py);
    for (name, detail) in words::details(error) {
        match detail {
            Detail::Holder(by) => {
                let view = by.map(|holder| views::holder(py, holder)).transpose()?;
                details.set_item(name, view)?;
            }
            Detail::Time(time) => details.set_item(name, time.as_secs_f64())?,
            Detail::Number(number) => details.set_item(name, number)?,
            Detail::Text(text) => details.set_item(name, text)?,
            Detail::Texts(texts) => details.set_item(name, texts)?,
        }
    }
    Ok(details)
}

/// Makes the exception of an option that is wrong.
pub(crate) fn mistake(py: Python<'_>, mistake: Mistake) -> PyErr {
    match mistake {
        Mistake::Type { field, wanted, given } => {
            PyTypeError::new_err(format!("`{field}` is {wanted}, not {given}"))
        }
        Mistake::Unknown(key) => PyTypeError::new_err(format!("there is no option `{key}`")),
        Mistake::Value(error) => raise(py, &error),
    }
}

/// Makes the exception of a value that the library cannot take.
pub(crate) fn invalid(py: Python<'_>, field: &'static str, why: impl Display) -> PyErr {
    raise(py, &LockError::invalid("holdline", field, why))
}

/// Raises an error that was made before anything was asked.
pub(crate) fn check<T>(py: Python<'_>, outcome: Result<T, LockError>) -> PyResult<T> {
    outcome.map_err(|error| raise(py, &error))
}
