//! What the library reports, as Python values.

use std::time::{SystemTime, UNIX_EPOCH};

use holdline::admin::{HolderFields, Snapshot};
use holdline::{ErrorKind, HolderSummary, LostReason, ReleaseOutcome, RiskReason};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// What a holder states about itself, as the library writes it in JSON.
pub(crate) fn fields<'py>(py: Python<'py>, fields: &HolderFields) -> PyResult<Bound<'py, PyDict>> {
    let view = PyDict::new(py);
    for (key, text) in [
        ("host", &fields.host),
        ("user", &fields.user),
        ("program", &fields.program),
        ("reason", &fields.reason),
        ("traceparent", &fields.traceparent),
        ("value", &fields.value),
    ] {
        view.set_item(key, text)?;
    }
    view.set_item("pid", fields.pid)?;
    view.set_item("labels", &fields.labels)?;
    Ok(view)
}

pub(crate) fn holder<'py>(py: Python<'py>, by: &HolderSummary) -> PyResult<Bound<'py, PyDict>> {
    let view = fields(py, &by.metadata.fields())?;
    view.set_item("lease_id", by.lease_id.to_string())?;
    view.set_item("fencing_token", by.token.map(|token| token.get()))?;
    view.set_item("mode", by.mode.word())?;
    view.set_item("held_for", by.held_for.map(|time| time.as_secs_f64()))?;
    view.set_item("left", by.left.map(|time| time.as_secs_f64()))?;
    Ok(view)
}

/// The state of a name: its holders and its queue, head first.
pub(crate) fn snapshot(py: Python<'_>, state: &Snapshot) -> PyResult<Py<PyAny>> {
    let view = PyDict::new(py);
    view.set_item("name", state.name.as_str())?;
    let holders = state.holders.iter().map(|by| holder(py, &by.summary));
    view.set_item("holders", PyList::new(py, holders.collect::<PyResult<Vec<_>>>()?)?)?;
    view.set_item("holder_count", state.holder_count)?;
    let queue = state.queue.iter().map(|waiter| {
        let view = fields(py, &waiter.metadata.fields())?;
        view.set_item("lease_id", waiter.lease_id.to_string())?;
        view.set_item("mode", waiter.mode.word())?;
        view.set_item("waited", waiter.waited.map(|time| time.as_secs_f64()))?;
        Ok(view)
    });
    view.set_item("queue", PyList::new(py, queue.collect::<PyResult<Vec<_>>>()?)?)?;
    view.set_item("queue_length", state.queue_length)?;
    view.set_item("permits_of", state.permits_of)?;
    view.set_item("frozen", state.freeze.as_ref().map(|freeze| freeze.reason.clone()))?;
    view.set_item("is_held", state.is_held())?;
    Ok(view.into_any().unbind())
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
