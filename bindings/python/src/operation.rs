//! A request that was started: a future of the library that Python waits for, in one of two ways.
//!
//! A thread calls `wait`, which drives the future on that thread. An event loop calls `poll`
//! whenever the notifier names the operation's key, and then `take`. Dropping an operation, or
//! `cancel`, drops the future: the library gives up what was asked for by itself.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use holdline::LockError;
use holdline_bindings::Work;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::notifier::{KeyWaker, Notifier};
use crate::own::Own;

/// How often the main thread looks for signals while it waits.
const SIGNALS: Duration = Duration::from_millis(50);

/// Turns what a future returned into a Python object.
type Finish = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Py<PyAny>> + Send>;

/// A request that was started.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Operation {
    key: u64,
    work: Own<Work<Finish>>,
}

impl Operation {
    /// Starts nothing yet: the future runs when it is polled.
    pub(crate) fn new<T, F, C>(future: F, convert: C) -> Operation
    where
        T: Send + 'static,
        F: Future<Output = Result<T, LockError>> + Send + 'static,
        C: for<'py> FnOnce(Python<'py>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let work = async move {
            let outcome = future.await;
            let finish: Finish = Box::new(move |py| match outcome {
                Ok(value) => convert(py, value),
                Err(error) => Err(raise(py, &error)),
            });
            finish
        };
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        Operation { key, work: Own::new(Work::new(work)) }
    }

    /// As [`Operation::new`], for futures that do not fail.
    pub(crate) fn sure<T, F, C>(future: F, convert: C) -> Operation
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        C: for<'py> FnOnce(Python<'py>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        Operation::new(async move { Ok(future.await) }, convert)
    }

    fn own_process(&self) -> PyResult<()> {
        if self.work.is_ours() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("this was started by the parent process, before a fork"))
    }
}

/// Wakes the thread that waits. A token of `unpark` alone may belong to somebody else.
struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Only the main thread of a process runs Python's signal handlers. A thread that Python cannot
/// name looks for signals, which costs a little and is never wrong.
fn is_main_thread(py: Python<'_>) -> bool {
    let compare = || -> PyResult<bool> {
        let threading = py.import("threading")?;
        let main_thread = threading.call_method0("main_thread")?.getattr("ident")?;
        threading.call_method0("get_ident")?.eq(main_thread)
    };
    compare().unwrap_or(true)
}

#[pymethods]
impl Operation {
    /// The number by which a notifier names this operation.
    #[getter]
    fn key(&self) -> u64 {
        self.key
    }

    /// Waits for the end on this thread and returns the value. Signals end the wait by the
    /// exception that their handler raises, and drop the future.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.wait_for(py, None)?;
        self.take(py)
    }

    /// Waits for the end for at most so many seconds; returns whether it has ended.
    #[pyo3(signature = (seconds))]
    fn wait_for(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<bool> {
        self.own_process()?;
        let limit = seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)));
        // A limit that no clock reaches is none.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit.ok()?));
        let parked =
            Arc::new(Parked { thread: std::thread::current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(parked.clone());
        let slice = if is_main_thread(py) { SIGNALS } else { Duration::MAX };
        loop {
            let ended = py.detach(|| {
                if self.work.poll(&waker) {
                    return Some(true);
                }
                while !parked.woken.swap(false, Ordering::Acquire) {
                    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                    if left == Some(Duration::ZERO) {
                        return Some(false);
                    }
                    let slice = slice.min(left.unwrap_or(Duration::MAX));
                    std::thread::park_timeout(slice);
                    if slice == SIGNALS {
                        return None;
                    }
                }
                None
            });
            if let Some(ended) = ended {
                return Ok(ended);
            }
            if let Err(signal) = py.check_signals() {
                self.cancel(py);
                return Err(signal);
            }
        }
    }

    /// Looks whether it has ended; if not, the notifier will name its key once.
    fn poll(&self, py: Python<'_>, notifier: &Notifier) -> PyResult<bool> {
        self.own_process()?;
        let channel = notifier.channel().clone();
        let waker = Waker::from(Arc::new(KeyWaker { channel, key: self.key }));
        Ok(py.detach(|| self.work.poll(&waker)))
    }

    /// Returns the value, once, or raises the error.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.own_process()?;
        let ended = py.detach(|| self.work.take());
        let finish = ended.ok_or_else(|| {
            PyRuntimeError::new_err("the operation was cancelled or has not ended")
        })?;
        finish(py)
    }

    /// Drops the future, or the value that nobody took.
    fn cancel(&self, py: Python<'_>) {
        if self.work.is_ours() {
            py.detach(|| self.work.cancel());
        }
    }
}
