//! One event loop: the requests that it drives, and the grants that its programs hold.
//!
//! Wakers run on threads of the library. They store a number and queue a call, unless one is queued
//! already; they never wait for JavaScript (N1 of the crate).

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use holdline::LockError;
use holdline::engine::batch;
use holdline_bindings::{Grant, Work};
use napi::bindgen_prelude::{Either, Function, Result, Status};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use parking_lot::Mutex;

use crate::options::Checked;
use crate::settled::{Outcome, Settled};

/// A function of the event loop. It does not keep the loop alive.
type Call = ThreadsafeFunction<(), (), (), Status, false, true>;

/// A request that was started: its key, or what became of it.
pub type Started = Either<u32, Settled>;

/// What the wakers of one event loop share.
struct Channel {
    woken: Mutex<Vec<u32>>,
    call: Call,
}

/// Wakes the operation with this key.
struct KeyWaker {
    channel: Arc<Channel>,
    key: u32,
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

/// A future of the library that has not ended. Dropped, it is given up.
struct Operation {
    work: Work<Outcome>,
    waker: Waker,
}

/// What belongs to one event loop. Requests and grants have numbers in JavaScript: an object for
/// each would cost more than the request.
#[napi]
pub struct EventLoop {
    channel: Arc<Channel>,
    next: AtomicU32,
    operations: Mutex<HashMap<u32, Operation>>,
    grants: Mutex<HashMap<u32, Arc<Grant>>>,
}

impl Drop for EventLoop {
    /// A worker that is terminated ends no batch. What it gives up is sent at once.
    fn drop(&mut self) {
        batch::end();
    }
}

impl EventLoop {
    fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts a future that has an answer for each case.
    pub(crate) fn drive(&self, future: impl Future<Output = Outcome> + Send + 'static) -> Started {
        let key = self.number();
        let waker = Waker::from(Arc::new(KeyWaker { channel: self.channel.clone(), key }));
        let operation = Operation { work: Work::new(future), waker };
        match self.poll(key, operation) {
            Some(settled) => Either::B(settled),
            None => Either::A(key),
        }
    }

    /// Starts a request.
    pub(crate) fn start<T>(
        &self,
        future: impl Future<Output = std::result::Result<T, LockError>> + Send + 'static,
        convert: impl FnOnce(T) -> Outcome + Send + 'static,
    ) -> Started {
        self.drive(async move {
            match future.await {
                Ok(value) => convert(value),
                Err(error) => Outcome::from(&error),
            }
        })
    }

    /// Starts a request, unless its arguments make none.
    pub(crate) fn checked<A>(&self, made: Checked<A>, start: impl FnOnce(A) -> Started) -> Started {
        match made {
            Ok(arguments) => start(arguments),
            Err(mistake) => Either::B(self.settled(0, Outcome::from(mistake))),
        }
    }

    /// Polls an operation, and keeps it if it has not ended. No lock is held meanwhile.
    fn poll(&self, key: u32, operation: Operation) -> Option<Settled> {
        if operation.work.poll(&operation.waker) {
            return operation.work.take().map(|outcome| self.settled(key, outcome));
        }
        self.operations.lock().insert(key, operation);
        None
    }

    fn settled(&self, key: u32, outcome: Outcome) -> Settled {
        Settled::new(key, outcome, |grant| {
            let id = self.number();
            self.grants.lock().insert(id, Arc::new(grant));
            id
        })
    }

    /// A grant, unless it was released or given up.
    pub(crate) fn grant(&self, id: u32) -> Option<Arc<Grant>> {
        self.grants.lock().get(&id).cloned()
    }

    /// Takes a grant out, to end it.
    pub(crate) fn remove(&self, id: u32) -> Option<Arc<Grant>> {
        self.grants.lock().remove(&id)
    }
}

#[napi]
impl EventLoop {
    /// Has a function called, in the event loop, when operations were woken.
    #[napi(constructor)]
    pub fn new(call: Function<'_, (), ()>) -> Result<EventLoop> {
        let call = call.build_threadsafe_function::<()>().weak::<true>().build()?;
        Ok(EventLoop {
            channel: Arc::new(Channel { woken: Mutex::default(), call }),
            next: AtomicU32::new(1),
            operations: Mutex::default(),
            grants: Mutex::default(),
        })
    }

    /// Returns what became of the operations that were woken and have ended.
    #[napi]
    pub fn drain(&self) -> Vec<Settled> {
        let woken = mem::take(&mut *self.channel.woken.lock());
        woken.into_iter().filter_map(|key| self.look(key)).collect()
    }

    /// Has what is started from here on sent together, at [`EventLoop::end_batch`].
    #[napi]
    pub fn open_batch(&self) {
        batch::open();
    }

    /// Sends what was started since [`EventLoop::open_batch`].
    #[napi]
    pub fn end_batch(&self) {
        batch::end();
    }

    /// Returns what became of one operation, once, if it has ended.
    #[napi]
    pub fn look(&self, key: u32) -> Option<Settled> {
        let operation = self.operations.lock().remove(&key)?;
        self.poll(key, operation)
    }

    /// Gives a request up.
    #[napi]
    pub fn cancel(&self, key: u32) {
        let operation = self.operations.lock().remove(&key);
        drop(operation);
    }

    /// Gives a grant up, unless it has ended.
    #[napi]
    pub fn forget(&self, id: u32) {
        drop(self.remove(id));
    }
}
