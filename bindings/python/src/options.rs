//! Options of Python calls. Wrong types raise `TypeError`; wrong values are the library's errors.

use std::time::Duration;

use holdline::LockOptions;
use holdline::once::{OnceOptions, Slot};
use holdline_bindings::options::{self as shared, Given, Unfit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt};

use crate::errors::{invalid, mistake};

/// A value of Python.
struct Value<'py>(Bound<'py, PyAny>);

impl Value<'_> {
    fn unfit(&self, wanted: &'static str) -> Unfit {
        let given = self.0.get_type().name();
        let given = given.map_or_else(|_| "?".to_owned(), |name| name.to_string());
        Unfit::Type { wanted, given }
    }
}

impl Given for Value<'_> {
    /// A `timedelta`, or seconds as a number.
    fn time(&self) -> Result<Duration, Unfit> {
        let wrong = |_| self.unfit("seconds or a timedelta");
        let is_number = self.0.is_instance_of::<PyInt>() || self.0.is_instance_of::<PyFloat>();
        let seconds: f64 = if self.0.is_instance_of::<PyDelta>() {
            let total = self.0.call_method0("total_seconds");
            total.and_then(|total| total.extract()).map_err(wrong)?
        } else if is_number && !self.0.is_instance_of::<PyBool>() {
            self.0.extract().map_err(wrong)?
        } else {
            return Err(self.unfit("seconds or a timedelta"));
        };
        Duration::try_from_secs_f64(seconds)
            .map_err(|error| Unfit::Value(format!("{seconds} s is no time: {error}")))
    }

    fn text(&self) -> Result<String, Unfit> {
        self.0.extract().map_err(|_| self.unfit("a string"))
    }

    fn flag(&self) -> Result<bool, Unfit> {
        self.0.extract().map_err(|_| self.unfit("a bool"))
    }

    fn texts(&self) -> Result<Vec<(String, String)>, Unfit> {
        let pairs = self.0.cast::<PyDict>().map_err(|_| self.unfit("a dict"))?;
        pairs.iter().map(|(key, value)| Ok((Value(key).text()?, Value(value).text()?))).collect()
    }
}

/// Reads a time.
pub(crate) fn duration(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    Value(value.clone()).time().map_err(|unfit| mistake(value.py(), unfit.of(field)))
}

/// Reads a count. What no integer of the library can be is refused as its other wrong values.
pub(crate) fn number<T: TryFrom<i64>>(
    field: &'static str,
    value: &Bound<'_, PyAny>,
) -> PyResult<T> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(mistake(value.py(), Value(value.clone()).unfit("a whole number").of(field)));
    }
    let number = value.extract::<i64>().ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| invalid(value.py(), field, format!("{value} is out of range")))
}

/// Reads a dict of strings.
pub(crate) fn texts(
    field: &'static str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Vec<(String, String)>> {
    Value(value.clone()).texts().map_err(|unfit| mistake(value.py(), unfit.of(field)))
}

/// The options that are not `None`.
fn given<'py>(options: Option<&Bound<'py, PyDict>>) -> PyResult<Vec<(String, Value<'py>)>> {
    let pairs = options.into_iter().flat_map(|options| options.iter());
    let pairs = pairs.filter(|(_, value)| !value.is_none());
    pairs.map(|(key, value)| Ok((key.extract()?, Value(value)))).collect()
}

/// Reads the options of a lock.
pub(crate) fn lock(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<LockOptions> {
    shared::lock(given(options)?).map_err(|wrong| mistake(py, wrong))
}

/// Reads the slot and the options of a job that runs once per slot.
pub(crate) fn once(
    py: Python<'_>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<(Slot, OnceOptions)> {
    shared::once(given(options)?).map_err(|wrong| mistake(py, wrong))
}
