//! Elections, latches, and jobs that run once per slot.

use std::sync::Arc;

use holdline::election::Leader;
use holdline::once::{Begun, Taken};
use holdline_bindings::Held;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::grant::Grant;
use crate::operation::Operation;
use crate::options;
use crate::own::Own;
use crate::views;

/// `(term, value, since, host)` of a leader; `None` if nobody leads.
pub(crate) fn leader(py: Python<'_>, leader: Option<Leader>) -> PyResult<Py<PyAny>> {
    let Some(leader) = leader else { return Ok(py.None()) };
    let since = leader.since().map(views::seconds);
    let view = (leader.term().get(), leader.value(), since, leader.host());
    view.into_py_any(py)
}

/// The leaders of an election, one after the other.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Leaders(Own<Arc<Mutex<holdline::election::Leaders>>>);

impl Leaders {
    pub(crate) fn new(leaders: holdline::election::Leaders) -> Leaders {
        Leaders(Own::new(Arc::new(Mutex::new(leaders))))
    }
}

#[pymethods]
impl Leaders {
    /// The next one; `None` after an error.
    fn next(&self) -> Operation {
        let leaders = (*self.0).clone();
        let work = async move { leaders.lock().await.next().await.transpose() };
        Operation::new(work, leader)
    }
}

/// A count-down latch.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Latch(Own<holdline::Latch>);

impl Latch {
    pub(crate) fn new(latch: holdline::Latch) -> Latch {
        Latch(Own::new(latch))
    }
}

fn plain<T>(py: Python<'_>, value: T) -> PyResult<Py<PyAny>>
where
    T: for<'py> IntoPyObjectExt<'py>,
{
    value.into_py_any(py)
}

#[pymethods]
impl Latch {
    /// Sets the number if the latch is open; whether it did.
    fn set(&self, count: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (latch, count) = ((*self.0).clone(), options::number("count", count)?);
        Ok(Operation::new(async move { latch.try_set(count).await }, plain))
    }

    fn count_down(&self, by: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (latch, by) = ((*self.0).clone(), options::number("by", by)?);
        Ok(Operation::new(async move { latch.count_down(by).await }, plain))
    }

    fn count(&self) -> Operation {
        let latch = (*self.0).clone();
        Operation::new(async move { latch.count().await }, plain)
    }

    /// Waits until it is open; false once the limit has passed.
    #[pyo3(signature = (limit = None))]
    fn wait(&self, limit: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        let latch = (*self.0).clone();
        let limit = limit.map(|limit| options::duration("timeout", limit)).transpose()?;
        let work = async move {
            match limit {
                Some(limit) => latch.wait_for(limit).await,
                None => latch.wait().await.map(|()| true),
            }
        };
        Ok(Operation::new(work, plain))
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
                Begun::Run(run) => {
                    let grant = holdline_bindings::Grant::new(Held::Once(run));
                    ("run", Py::new(py, Grant::new(grant))?.into_any())
                }
                Begun::AlreadyRan(taken) => ("already_ran", view(py, &taken)?),
                Begun::RunningElsewhere(taken) => ("running_elsewhere", view(py, &taken)?),
                _ => ("unknown", py.None()),
            };
            (word, value).into_py_any(py)
        })
    }
}

fn view(py: Python<'_>, taken: &Taken) -> PyResult<Py<PyAny>> {
    let view = views::fields(py, taken.by())?;
    view.set_item("since", taken.since().map(views::seconds))?;
    view.set_item("clock_skew", taken.clock_skew().map(|skew| skew.as_secs_f64()))?;
    Ok(view.into_any().unbind())
}
