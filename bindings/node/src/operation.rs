//! A request that was started: a future of the library that an event loop drives.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;

use holdline::LockError;
use holdline_bindings::Work;
use holdline_bindings::options::Mistake;
use napi_derive::napi;

use crate::notifier::{KeyWaker, Notifier};
use crate::settled::Settled;

/// A request that was started. Dropped, it is given up.
#[napi]
pub struct Operation {
    key: f64,
    work: Work<Settled>,
}

impl Operation {
    /// Starts nothing yet: the future runs when it is polled.
    pub(crate) fn new<T>(
        future: impl Future<Output = Result<T, LockError>> + Send + 'static,
        convert: impl FnOnce(T) -> Settled + Send + 'static,
    ) -> Operation {
        Operation::sure(async move {
            match future.await {
                Ok(value) => convert(value),
                Err(error) => Settled::from(&error),
            }
        })
    }

    /// A future that has an answer for each case.
    pub(crate) fn sure(future: impl Future<Output = Settled> + Send + 'static) -> Operation {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let key = f64::from(NEXT.fetch_add(1, Ordering::Relaxed));
        Operation { key, work: Work::new(future) }
    }

    /// A request that is refused, unless its arguments make one.
    pub(crate) fn checked(made: Result<Operation, Mistake>) -> Operation {
        made.unwrap_or_else(|mistake| Operation::sure(async move { Settled::from(mistake) }))
    }
}

#[napi]
impl Operation {
    /// The number by which a notifier names this operation.
    #[napi(getter)]
    pub fn key(&self) -> f64 {
        self.key
    }

    /// Returns what became of it, once; else the notifier will name its key.
    #[napi]
    pub fn poll(&self, notifier: &Notifier) -> Option<Settled> {
        let waker = KeyWaker { channel: notifier.channel.clone(), key: self.key };
        if self.work.poll(&Waker::from(Arc::new(waker))) { self.work.take() } else { None }
    }

    /// Gives the request up.
    #[napi]
    pub fn cancel(&self) {
        self.work.cancel();
    }
}
