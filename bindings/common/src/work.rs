//! A request that was started: a future of the library that a program drives from its own thread or
//! event loop.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

enum State<T> {
    Working(Pin<Box<dyn Future<Output = T> + Send>>),
    Finished(T),
    Taken,
}

/// A request that was started. It runs only while it is polled; dropping it drops the future, and
/// the library gives up what was asked for.
pub struct Work<T>(Mutex<State<T>>);

impl<T> Work<T> {
    /// Starts nothing yet.
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Work<T> {
        Work(Mutex::new(State::Working(Box::pin(future))))
    }

    /// Polls the future; true once it has ended. Else the waker will be woken.
    pub fn poll(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        let State::Working(work) = &mut *state else { return true };
        match work.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(value) => {
                let ended = mem::replace(&mut *state, State::Finished(value));
                drop(state);
                drop(ended);
                true
            }
            Poll::Pending => false,
        }
    }

    /// Returns the value, once; `None` if it was taken, was cancelled, or has not ended. In the
    /// last case it is cancelled.
    pub fn take(&self) -> Option<T> {
        let state = mem::replace(&mut *self.0.lock(), State::Taken);
        match state {
            State::Finished(value) => Some(value),
            State::Working(_) | State::Taken => None,
        }
    }

    /// Drops the future, or the value that nobody took.
    pub fn cancel(&self) {
        drop(self.take());
    }
}
