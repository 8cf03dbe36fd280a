//! Wakes an event loop.
//!
//! Wakers run on threads of the library. They store a number and queue a call, unless one is queued
//! already; they never wait for JavaScript (N1 of the crate).

use std::mem;
use std::sync::Arc;
use std::task::Wake;

use napi::bindgen_prelude::{Function, Result, Status};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use parking_lot::Mutex;

/// A function of the event loop. It does not keep the loop alive.
type Call = ThreadsafeFunction<(), (), (), Status, false, true>;

/// What the wakers of one event loop share.
pub(crate) struct Channel {
    woken: Mutex<Vec<f64>>,
    call: Call,
}

/// Wakes the operation with this key.
pub(crate) struct KeyWaker {
    pub(crate) channel: Arc<Channel>,
    pub(crate) key: f64,
}

impl Wake for KeyWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.channel.woken.lock();
        woken.push(self.key);
        let first = woken.len() == 1;
        drop(woken);
        if first {
            // It fails only when the event loop has ended, and then nobody waits.
            self.channel.call.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

/// Where wakers report: each event loop has one.
#[napi]
pub struct Notifier {
    pub(crate) channel: Arc<Channel>,
}

#[napi]
impl Notifier {
    /// Has a function called, in the event loop, when operations were woken.
    #[napi(constructor)]
    pub fn new(call: Function<'_, (), ()>) -> Result<Notifier> {
        let call = call.build_threadsafe_function::<()>().weak::<true>().build()?;
        Ok(Notifier { channel: Arc::new(Channel { woken: Mutex::default(), call }) })
    }

    /// Returns the keys that were woken since the last call.
    #[napi]
    pub fn drain(&self) -> Vec<f64> {
        mem::take(&mut *self.channel.woken.lock())
    }
}
