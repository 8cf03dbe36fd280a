//! Elections and jobs that run once per slot.

use std::sync::Arc;

use holdline::{Begun, Leader, Taken};
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::grant::{Grant, Held};
use crate::operation::Operation;
use crate::own::Own;
use crate::views;

/// `(term, value, since, host)` of a leader.
pub(crate) fn leader(py: Python<'_>, leader: &Leader) -> PyResult<Py<PyAny>> {
    let since = leader.since().map(views::seconds);
    let view = (leader.term().get(), leader.value(), since, leader.host());
    Ok(view.into_pyobject(py)?.into_any().unbind())
}

/// The leaders of an election, one after the other.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Leaders(Own<Arc<Mutex<holdline::Leaders>>>);

impl Leaders {
    pub(crate) fn new(leaders: holdline::Leaders) -> Leaders {
        Leaders(Own::new(Arc::new(Mutex::new(leaders))))
    }
}

#[pymethods]
impl Leaders {
    /// The next one; `None` after an error.
    fn next(&self) -> Operation {
        let leaders = (*self.0).clone();
        let work = async move { leaders.lock().await.next().await.transpose() };
        Operation::new(work, |py, next| match next {
            Some(next) => leader(py, &next),
            None => Ok(py.None()),
        })
    }
}

/// A job that runs once per slot.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Once(Own<holdline::Once>);

impl Once {
    pub(crate) fn new(once: holdline::Once) -> Once {
        Once(Own::new(once))
    }
}

#[pymethods]
impl Once {
    /// Takes the slot: `(word, grant or who took it)`.
    fn begin(&self) -> Operation {
        let once = (*self.0).clone();
        Operation::new(async move { once.begin().await }, |py, begun| {
            let (word, value) = match begun {
                Begun::Run(run) => ("run", Py::new(py, Grant::new(Held::Once(run)))?.into_any()),
                Begun::AlreadyRan(taken) => ("already_ran", view(py, &taken)?),
                Begun::RunningElsewhere(taken) => ("running_elsewhere", view(py, &taken)?),
                _ => ("unknown", py.None()),
            };
            Ok((word, value).into_pyobject(py)?.into_any().unbind())
        })
    }
}

fn view(py: Python<'_>, taken: &Taken) -> PyResult<Py<PyAny>> {
    let view = views::fields(py, taken.by())?;
    view.set_item("since", taken.since().map(views::seconds))?;
    view.set_item("clock_skew", taken.clock_skew().map(|skew| skew.as_secs_f64()))?;
    Ok(view.into_any().unbind())
}
