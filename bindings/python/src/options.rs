//! Options of Python calls. Wrong types raise `TypeError`; wrong values are the library's errors.

use std::time::Duration;

use holdline::once::{OnceOptions, Slot};
use holdline::{Keep, LockOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt};

use crate::errors::invalid;

/// Reads a time: a `timedelta`, or seconds as a number.
pub(crate) fn duration(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    let seconds: f64 = if value.is_instance_of::<PyDelta>() {
        value.call_method0("total_seconds")?.extract()?
    } else if is_number && !value.is_instance_of::<PyBool>() {
        value.extract()?
    } else {
        return Err(wrong(field, "seconds or a timedelta", value));
    };
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| invalid(value.py(), field, format!("{seconds} s is no time: {error}")))
}

/// Reads a count. What no integer of the library can be is refused as its other wrong values.
pub(crate) fn number<T: TryFrom<i64>>(
    field: &'static str,
    value: &Bound<'_, PyAny>,
) -> PyResult<T> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(wrong(field, "a whole number", value));
    }
    let number = value.extract::<i64>().ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| invalid(value.py(), field, format!("{value} is out of range")))
}

fn text(field: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.extract().map_err(|_| wrong(field, "a string", value))
}

/// Reads a dict of strings.
pub(crate) fn texts(field: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let pairs = value.cast::<PyDict>().map_err(|_| wrong(field, "a dict", value))?;
    pairs.iter().map(|(key, value)| Ok((text(field, &key)?, text(field, &value)?))).collect()
}

fn flag(field: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|_| wrong(field, "a bool", value))
}

fn wrong(field: &str, wanted: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let given = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("`{field}` is {wanted}, not {given}"))
}

/// Takes one option of a lock; `None` if the key is no such option.
fn lock_option(
    options: LockOptions,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Option<LockOptions>> {
    Ok(Some(match key {
        "wait" => options.with_wait(duration("wait", value)?),
        "lease_duration" => options.with_lease_duration(duration("lease_duration", value)?),
        "renew_interval" => options.with_renew_interval(duration("renew_interval", value)?),
        "max_hold" => options.with_max_hold(duration("max_hold", value)?),
        "fair" => options.with_fair(flag(key, value)?),
        "fail_in_outage" => options.with_fail_in_outage(flag(key, value)?),
        "keep" => options.with_keep(keep(value)?),
        "reason" => options.with_reason(text(key, value)?),
        "traceparent" => options.with_traceparent(text(key, value)?),
        "lock_class" => options.with_class(text(key, value)?),
        "labels" => {
            let labels = texts(key, value)?.into_iter();
            labels.fold(options, |options, (name, value)| options.with_label(name, value))
        }
        _ => return Ok(None),
    }))
}

fn keep(value: &Bound<'_, PyAny>) -> PyResult<Keep> {
    match text("keep", value)?.as_str() {
        "renewed" => Ok(Keep::Renewed),
        "fixed" => Ok(Keep::Fixed),
        "detached" => Ok(Keep::Detached),
        "live" => Ok(Keep::Live),
        other => {
            let says = format!("must be renewed, fixed, detached or live, not {other:?}");
            Err(invalid(value.py(), "keep", says))
        }
    }
}

fn unknown(key: &str) -> PyErr {
    PyTypeError::new_err(format!("there is no option `{key}`"))
}

/// The options that are not `None`.
fn given<'a, 'py: 'a>(
    options: Option<&'a Bound<'py, PyDict>>,
) -> impl Iterator<Item = PyResult<(String, Bound<'py, PyAny>)>> + 'a {
    let pairs = options.into_iter().flat_map(|options| options.iter());
    pairs.filter(|(_, value)| !value.is_none()).map(|(key, value)| Ok((key.extract()?, value)))
}

/// Reads the options of a lock.
pub(crate) fn lock(options: Option<&Bound<'_, PyDict>>) -> PyResult<LockOptions> {
    given(options).try_fold(LockOptions::default(), |so_far, pair| {
        let (key, value) = pair?;
        lock_option(so_far, &key, &value)?.ok_or_else(|| unknown(&key))
    })
}

/// Reads the slot and the options of a job that runs once per slot.
pub(crate) fn once(
    py: Python<'_>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<(Slot, OnceOptions)> {
    let (mut every, mut cron, mut zone) = (None, None, "UTC".to_owned());
    let (mut once, mut lock) = (OnceOptions::default(), LockOptions::default());
    for pair in given(options) {
        let (key, value) = pair?;
        match key.as_str() {
            "every" => every = Some(duration("every", &value)?),
            "cron" => cron = Some(text("cron", &value)?),
            "zone" => zone = text("zone", &value)?,
            "at_most_once" => once = once.with_at_most_once(flag(&key, &value)?),
            "keep_on_failure" => once = once.with_keep_on_failure(flag(&key, &value)?),
            "max_skew" => once = once.with_max_skew(duration("max_skew", &value)?),
            key => lock = lock_option(lock, key, &value)?.ok_or_else(|| unknown(key))?,
        }
    }
    let slot = match (every, cron) {
        (Some(every), None) => Slot::every(every),
        (None, Some(cron)) => Slot::cron(cron, zone),
        _ => return Err(invalid(py, "slot", "needs either `every` or `cron`")),
    };
    Ok((slot, once.with_lock(lock)))
}
