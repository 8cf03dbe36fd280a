//! Whatever can be acquired, under one name in Python: its kind decides what is asked.

use holdline_bindings::{Acquired, Kind};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::grant::Grant;
use crate::operation::Operation;
use crate::own::Own;

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
    let is_one = matches!(acquired, Acquired::One(_));
    let grants = holdline_bindings::Grant::all(acquired).into_iter();
    let mut grants =
        grants.map(|grant| Py::new(py, Grant::new(grant))).collect::<PyResult<Vec<_>>>()?;
    match grants.pop() {
        Some(grant) if is_one => Ok(grant.into_any()),
        last => {
            grants.extend(last);
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
