//! Wakes event loops and threads by a file descriptor.
//!
//! Wakers run on threads of the library. They store a number and write to an eventfd; they never
//! wait for the interpreter (P1 of the crate).

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Where wakers report: an event loop watches its descriptor, or a thread waits for it.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Notifier(Arc<Channel>);

/// What the wakers of one notifier share.
pub(crate) struct Channel {
    woken: Mutex<Vec<u64>>,
    event: OwnedFd,
    closed: AtomicBool,
}

impl Channel {
    pub(crate) fn wake(&self, key: u64) {
        let mut woken = self.woken.lock();
        woken.push(key);
        let first = woken.len() == 1;
        drop(woken);
        if first {
            self.signal();
        }
    }

    /// It fails only when the counter is full, and then the reader is woken anyway.
    pub(crate) fn signal(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// Wakes the operation with this key.
pub(crate) struct KeyWaker {
    pub(crate) channel: Arc<Channel>,
    pub(crate) key: u64,
}

impl Wake for KeyWaker {
    fn wake(self: Arc<Self>) {
        self.channel.wake(self.key);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.channel.wake(self.key);
    }
}

impl Notifier {
    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.0
    }
}

#[pymethods]
impl Notifier {
    #[new]
    fn new() -> PyResult<Notifier> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| PyOSError::new_err(format!("no eventfd: {error}")))?;
        let channel = Channel { woken: Mutex::default(), event, closed: AtomicBool::new(false) };
        Ok(Notifier(Arc::new(channel)))
    }

    fn fileno(&self) -> i32 {
        self.0.event.as_raw_fd()
    }

    /// Returns the keys that were woken since the last call.
    fn drain(&self) -> Vec<u64> {
        let mut counter = [0; 8];
        // Read before the keys are taken: a key that comes between the two is found now.
        let _ = rustix::io::read(&self.0.event, &mut counter);
        std::mem::take(&mut *self.0.woken.lock())
    }

    /// Waits until something was woken; false once it is closed.
    fn wait(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut watched = [PollFd::new(&self.0.event, PollFlags::IN)];
            // A signal ends it early, and the caller looks again.
            let _ = poll(&mut watched, None);
        });
        !self.0.closed.load(Ordering::Acquire)
    }

    /// Ends the wait for good.
    fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.signal();
    }
}
