//! What the library reports, as Python values.

use std::time::{SystemTime, UNIX_EPOCH};

use holdline::admin::json::{HolderJson, LockJson};
use holdline::admin::{HolderFields, Snapshot};
use holdline::{HolderSummary, ReleaseOutcome};
use holdline_bindings::words::{Reason, Release};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// What a holder states about itself.
pub(crate) fn fields<'py>(py: Python<'py>, fields: &HolderFields) -> PyResult<Bound<'py, PyAny>> {
    views(py)?.call_method1("fields", (json(fields)?,))
}

/// A holder that an error reports.
pub(crate) fn holder<'py>(py: Python<'py>, by: &HolderSummary) -> PyResult<Bound<'py, PyAny>> {
    views(py)?.call_method1("holder", (json(&HolderJson::from(by))?,))
}

/// The state of a name: its holders and its queue, head first.
pub(crate) fn snapshot(py: Python<'_>, state: &Snapshot) -> PyResult<Py<PyAny>> {
    let holders = state.holders.iter();
    let own: Vec<_> = holders.map(|by| (by.live, by.detached, by.pids.clone())).collect();
    let text = json(&LockJson::from(state))?;
    Ok(views(py)?.call_method1("snapshot", (text, own))?.unbind())
}

/// The module that makes dicts of JSON.
fn views(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("holdline._views")
}

/// Writes what always encodes.
pub(crate) fn json(view: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(view).map_err(|why| PyValueError::new_err(why.to_string()))
}

/// Why a lease is lost or at risk: a word, and a text for people.
pub(crate) fn reason(py: Python<'_>, reason: Reason) -> PyResult<Py<PyAny>> {
    (reason.word, reason.text).into_py_any(py)
}

/// `(confirmed, held_for, lost, failure)` of a release.
pub(crate) fn release(py: Python<'_>, outcome: ReleaseOutcome) -> PyResult<Py<PyAny>> {
    let release = Release::from(outcome);
    let held_for = release.held_for.map(|time| time.as_secs_f64());
    let lost = release.lost.map(|lost| (lost.word, lost.text));
    (release.confirmed, held_for, lost, release.failure).into_py_any(py)
}
