//! What the library reports, as Python values.

use std::time::{SystemTime, UNIX_EPOCH};

use holdline::admin::json::{HolderJson, LockJson};
use holdline::admin::{HolderFields, Snapshot};
use holdline::{ErrorKind, HolderSummary, LostReason, ReleaseOutcome, RiskReason};
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

/// A loss: its word, and a text for people.
pub(crate) fn lost(py: Python<'_>, reason: &LostReason) -> PyResult<Py<PyAny>> {
    (reason.word(), reason.to_string()).into_py_any(py)
}

/// Why a lease is at risk: a word, and a text for people. A lease that is over has those of its
/// loss.
pub(crate) fn risk(py: Python<'_>, reason: &RiskReason) -> PyResult<Py<PyAny>> {
    let (word, text) = match reason {
        RiskReason::NotRenewed(Some(failure)) => ("not_renewed", failure.to_string()),
        RiskReason::NotRenewed(None) => ("not_renewed", "no renewal was answered".to_owned()),
        RiskReason::RunsOut => ("runs_out", "it is not renewed beyond its end".to_owned()),
        RiskReason::Revoked(why) => return lost(py, &LostReason::Revoked(why.clone())),
        RiskReason::Lost(reason) => return lost(py, reason),
        RiskReason::Ended => ("released", "it was released".to_owned()),
        _ => ("other", "it is at risk".to_owned()),
    };
    (word, text).into_py_any(py)
}

/// `(confirmed, held_for, lost, failure)` of a release.
pub(crate) fn release(py: Python<'_>, outcome: ReleaseOutcome) -> PyResult<Py<PyAny>> {
    let (confirmed, held_for, lost, failure) = match outcome {
        ReleaseOutcome::Released { held_for, confirmed, failure } => {
            (confirmed, Some(held_for.as_secs_f64()), None, failure)
        }
        ReleaseOutcome::Lost { reason } => {
            (false, None, Some((reason.word(), reason.to_string())), None)
        }
        _ => (true, None, None, None),
    };
    let failure = failure.map(|kind: ErrorKind| kind.to_string());
    (confirmed, held_for, lost, failure).into_py_any(py)
}
