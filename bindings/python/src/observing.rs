//! The events of locks, for observers in Python.
//!
//! Threads of the library store events, and a thread of Python's takes them and calls the
//! observers: nothing that an observer does delays a renewal (P1 of the crate).
//! Invariant E1: at most [`CAPACITY`] events wait; later ones are counted and left out.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use holdline::health::QuorumHealth;
use holdline::observer::{HoldEnd, Subject};
use holdline::{FencingToken, HolderSummary, LockError, LostReason, Observer, ReleaseOutcome};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::errors;
use crate::notifier::{Channel, Notifier};
use crate::own::Own;
use crate::views;

/// How many events wait at most.
const CAPACITY: usize = 10_000;

/// Name, lease id, mode, engine and class.
type Lock = (String, String, &'static str, &'static str, String);

struct Event {
    method: &'static str,
    lock: Option<Lock>,
    arguments: Vec<Argument>,
}

/// An argument of an observer's method.
enum Argument {
    Token(FencingToken),
    Seconds(Duration),
    Position(Option<usize>),
    Flag(bool),
    Word(&'static str),
    Holder(Option<HolderSummary>),
    Error(LockError),
    Lost(LostReason),
    Released(ReleaseOutcome),
    Health(QuorumHealth),
}

impl Argument {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Argument::Token(token) => token.get().into_py_any(py),
            Argument::Seconds(time) => time.as_secs_f64().into_py_any(py),
            Argument::Position(position) => position.into_py_any(py),
            Argument::Flag(flag) => flag.into_py_any(py),
            Argument::Word(word) => word.into_py_any(py),
            Argument::Holder(holder) => {
                holder.map(|holder| views::holder(py, &holder)).transpose()?.into_py_any(py)
            }
            Argument::Error(error) => Ok(errors::raise(py, &error).into_value(py).into_any()),
            Argument::Lost(reason) => reason.word().into_py_any(py),
            Argument::Released(outcome) => views::release(py, outcome),
            Argument::Health(health) => quorum_health(py, health),
        }
    }
}

/// `(engine, margin, [(address, up, votes, quarantine, clock_drift)])`.
fn quorum_health(py: Python<'_>, health: QuorumHealth) -> PyResult<Py<PyAny>> {
    let nodes = health.nodes.into_iter().map(|node| {
        // Far below 2^53, so it is exact.
        let drift = node.clock_drift_us.map(|drift| drift as f64 / 1e6);
        (node.address, node.up, node.votes, node.quarantine.as_secs_f64(), drift)
    });
    (health.engine, health.margin, PyList::new(py, nodes.collect::<Vec<_>>())?).into_py_any(py)
}

#[derive(Default)]
struct Stored {
    events: Vec<Event>,
    left_out: u64,
}

struct Store {
    /// The methods that an observer has.
    wanted: HashSet<String>,
    stored: Mutex<Stored>,
    channel: Arc<Channel>,
}

/// The events of one client, until Python takes them.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Events(Own<Arc<Store>>);

impl Events {
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(Storing((*self.0).clone()))
    }
}

#[pymethods]
impl Events {
    /// `wanted` are the methods that observers have; the notifier is woken when there are events.
    #[new]
    fn new(notifier: &Notifier, wanted: HashSet<String>) -> Events {
        let channel = notifier.channel().clone();
        Events(Own::new(Arc::new(Store { wanted, stored: Mutex::default(), channel })))
    }

    /// Takes the stored events, `(method, lock, arguments)`, and how many were left out.
    fn take(&self, py: Python<'_>) -> PyResult<(Vec<Py<PyAny>>, u64)> {
        let Stored { events, left_out } = std::mem::take(&mut *self.0.stored.lock());
        let convert = |event: Event| {
            let arguments = event.arguments.into_iter().map(|one| one.into_python(py));
            let arguments = PyTuple::new(py, arguments.collect::<PyResult<Vec<_>>>()?)?;
            (event.method, event.lock, arguments).into_py_any(py)
        };
        let events = events.into_iter().map(convert).collect::<PyResult<Vec<_>>>()?;
        Ok((events, left_out))
    }
}

/// The observer of the library, which stores what it receives.
struct Storing(Arc<Store>);

impl Storing {
    /// Stores an event, unless no observer has a method for it.
    fn store(
        &self,
        method: &'static str,
        subject: Option<Subject<'_>>,
        arguments: impl FnOnce() -> Vec<Argument>,
    ) {
        if !self.0.wanted.contains(method) {
            return;
        }
        let lock = subject.map(|it| {
            let class = it.class.name().to_owned();
            (it.name.as_str().to_owned(), it.lease_id.to_string(), it.mode.word(), it.engine, class)
        });
        let event = Event { method, lock, arguments: arguments() };
        let mut stored = self.0.stored.lock();
        if stored.events.len() >= CAPACITY {
            stored.left_out += 1;
            return;
        }
        stored.events.push(event);
        let is_first = stored.events.len() == 1;
        drop(stored);
        if is_first {
            self.0.channel.signal();
        }
    }
}

impl Observer for Storing {
    fn acquired(&self, subject: Subject<'_>, token: FencingToken, waited: Duration) {
        let arguments = || vec![Argument::Token(token), Argument::Seconds(waited)];
        self.store("on_acquired", Some(subject), arguments);
    }

    fn queued(
        &self,
        subject: Subject<'_>,
        position: Option<usize>,
        holder: Option<&HolderSummary>,
    ) {
        let arguments = || vec![Argument::Position(position), Argument::Holder(holder.cloned())];
        self.store("on_queued", Some(subject), arguments);
    }

    fn without_store(&self, subject: Subject<'_>, error: &LockError) {
        self.store("on_without_store", Some(subject), || vec![Argument::Error(error.clone())]);
    }

    fn requeued(&self, subject: Subject<'_>) {
        self.store("on_requeued", Some(subject), Vec::new);
    }

    fn failed(&self, subject: Subject<'_>, error: &LockError) {
        self.store("on_failed", Some(subject), || vec![Argument::Error(error.clone())]);
    }

    fn renewed(&self, subject: Subject<'_>, slack: Duration) {
        self.store("on_renewed", Some(subject), || vec![Argument::Seconds(slack)]);
    }

    fn at_risk(&self, subject: Subject<'_>, remaining: Duration) {
        self.store("on_at_risk", Some(subject), || vec![Argument::Seconds(remaining)]);
    }

    fn lost(&self, subject: Subject<'_>, reason: &LostReason) {
        self.store("on_lost", Some(subject), || vec![Argument::Lost(reason.clone())]);
    }

    fn released(&self, subject: Subject<'_>, outcome: &ReleaseOutcome) {
        self.store("on_released", Some(subject), || vec![Argument::Released(outcome.clone())]);
    }

    fn dropped(&self, subject: Subject<'_>, confirmed: bool) {
        self.store("on_dropped", Some(subject), || vec![Argument::Flag(confirmed)]);
    }

    fn wait_started(&self, subject: Subject<'_>) {
        self.store("on_wait_started", Some(subject), Vec::new);
    }

    fn wait_finished(&self, subject: Subject<'_>) {
        self.store("on_wait_finished", Some(subject), Vec::new);
    }

    fn cancelled(&self, subject: Subject<'_>, waited: Duration) {
        self.store("on_cancelled", Some(subject), || vec![Argument::Seconds(waited)]);
    }

    fn attached(&self, subject: Subject<'_>, token: FencingToken) {
        self.store("on_attached", Some(subject), || vec![Argument::Token(token)]);
    }

    fn ended(&self, subject: Subject<'_>, end: &HoldEnd, held_for: Duration) {
        let arguments = || vec![Argument::Word(end.word()), Argument::Seconds(held_for)];
        self.store("on_ended", Some(subject), arguments);
    }

    fn quorum_health(&self, health: &QuorumHealth) {
        self.store("on_quorum_health", None, || vec![Argument::Health(health.clone())]);
    }
}
