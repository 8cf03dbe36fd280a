//! Wakes event loops and threads by a file descriptor.
//!
//! Wakers run on threads of the library. They store a number and write to a pipe; they never wait
//! for the interpreter (P1 of the crate).

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;

/// Where wakers report: an event loop watches its descriptor, or a thread waits for it.
#[pyclass(frozen, module = "holdline._holdline")]
pub(crate) struct Notifier(Arc<Channel>);

/// What the wakers of one notifier share.
pub(crate) struct Channel {
    woken: Mutex<Vec<u64>>,
    reader: PipeReader,
    writer: PipeWriter,
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

    /// It fails only when the pipe is full, and then the reader is woken anyway.
    pub(crate) fn signal(&self) {
        let _ = (&self.writer).write(&[0]);
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

/// A pipe of which neither end blocks.
fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    ioctl_fionbio(&reader, true)?;
    ioctl_fionbio(&writer, true)?;
    Ok((reader, writer))
}

#[pymethods]
impl Notifier {
    #[new]
    fn new() -> PyResult<Notifier> {
        let (reader, writer) =
            pipe().map_err(|error| PyOSError::new_err(format!("no pipe: {error}")))?;
        let closed = AtomicBool::new(false);
        Ok(Notifier(Arc::new(Channel { woken: Mutex::default(), reader, writer, closed })))
    }

    fn fileno(&self) -> i32 {
        self.0.reader.as_raw_fd()
    }

    /// Returns the keys that were woken since the last call.
    fn drain(&self) -> Vec<u64> {
        let mut signals = [0; 64];
        // Read before the keys are taken: a key that comes between the two is found now. Signals
        // that are left wake the reader again.
        let _ = (&self.0.reader).read(&mut signals);
        std::mem::take(&mut *self.0.woken.lock())
    }

    /// Waits until something was woken; false once it is closed.
    fn wait(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut watched = [PollFd::new(&self.0.reader, PollFlags::IN)];
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
