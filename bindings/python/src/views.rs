//! What the library reports, as Python values.

use std::time::{SystemTime, UNIX_EPOCH};

use holdline::admin::json::{HolderJson, LockJson, WaiterJson};
use holdline::admin::{HolderFields, HolderView, Snapshot};
use holdline::{ErrorKind, HolderSummary, LostReason, ReleaseOutcome, RiskReason};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde_json::Value;

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

/// A holder of which an error tells.
pub(crate) fn holder<'py>(py: Python<'py>, by: &HolderSummary) -> PyResult<Bound<'py, PyDict>> {
    beside(py, by.metadata.fields(), &HolderJson::from(by))
}

/// A holder of a snapshot.
fn holder_view<'py>(py: Python<'py>, by: &HolderView) -> PyResult<Bound<'py, PyDict>> {
    let view = beside(py, by.summary.metadata.fields(), &HolderJson::from(by))?;
    if !view.contains("revoke_reason")? {
        view.set_item("revoke_reason", py.None())?;
    }
    view.set_item("live", by.live)?;
    view.set_item("detached", by.detached)?;
    view.set_item("pids", &by.pids)?;
    Ok(view)
}

/// The state of a name: its holders and its queue, head first.
pub(crate) fn snapshot(py: Python<'_>, state: &Snapshot) -> PyResult<Py<PyAny>> {
    let view = PyDict::new(py);
    add(&view, &LockJson::from(state))?;
    view.del_item("held")?;
    view.set_item("is_held", state.is_held())?;
    view.set_item("frozen", state.freeze.as_ref().map(|freeze| &freeze.reason))?;
    let holders = state.holders.iter().map(|by| holder_view(py, by));
    view.set_item("holders", holders.collect::<PyResult<Vec<_>>>()?)?;
    let queue = state.queue.iter();
    let queue = queue.map(|one| beside(py, one.metadata.fields(), &WaiterJson::from(one)));
    view.set_item("queue", queue.collect::<PyResult<Vec<_>>>()?)?;
    Ok(view.into_any().unbind())
}

/// Puts what a holder or waiter states about itself beside its other fields.
fn beside<'py>(
    py: Python<'py>,
    about: HolderFields,
    json: &impl Serialize,
) -> PyResult<Bound<'py, PyDict>> {
    let view = fields(py, &about)?;
    add(&view, json)?;
    view.del_item("about")?;
    Ok(view)
}

/// Adds the fields of a JSON object. Python has times in seconds: `left_ms` becomes `left`.
fn add(view: &Bound<'_, PyDict>, json: &impl Serialize) -> PyResult<()> {
    let json = serde_json::to_value(json).map_err(|why| PyValueError::new_err(why.to_string()))?;
    for (key, value) in json.as_object().into_iter().flatten() {
        if let Some(key) = key.strip_suffix("_ms") {
            view.set_item(key, value.as_f64().map(|millis| millis / 1_000.0))?;
            continue;
        }
        match value {
            Value::Bool(truth) => view.set_item(key, truth)?,
            Value::Number(number) => view.set_item(key, number.as_u64())?,
            Value::String(text) => view.set_item(key, text)?,
            Value::Object(_) => {
                let inner = PyDict::new(view.py());
                add(&inner, value)?;
                view.set_item(key, inner)?;
            }
            Value::Null | Value::Array(_) => view.set_item(key, view.py().None())?,
        }
    }
    Ok(())
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
