//! Contenders of an engine's own tests: one lease id each, with direct calls, and waits for events.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use holdline_core::{
    AcquireReply, AcquireRequest, Engine, FencingToken, Hint, Hints, Hold, LockError, Mode,
    Purpose, ReleaseReply, RenewReply,
};

use crate::asking;

/// The longest wait for something that must happen, on any machine.
pub const LONG: Duration = Duration::from_secs(60);

/// One lease id, and how it asks.
#[derive(Clone)]
pub struct Contender<E> {
    /// The engine that is asked.
    pub engine: E,
    /// The request.
    pub request: AcquireRequest,
}

/// Makes a contender with a client of its own. It queues, and asks for 30 s.
///
/// # Panics
/// `name` is no lock name.
pub fn contender<E: Engine + Clone>(engine: &E, name: &str) -> Contender<E> {
    Contender { engine: engine.clone(), request: asking::request(name) }
}

impl<E: Engine> Contender<E> {
    /// Asks for a lease of this many seconds.
    #[must_use]
    pub fn for_seconds(mut self, seconds: u64) -> Contender<E> {
        self.request.hold = Hold::Leased(Duration::from_secs(seconds));
        self
    }

    /// Asks for this mode.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> Contender<E> {
        self.request.mode = mode;
        self
    }

    /// Asks once; after a grant or a place in the queue it asks again as known.
    ///
    /// # Errors
    /// As the engine's.
    pub async fn ask(&mut self) -> Result<AcquireReply, LockError> {
        let reply = self.engine.try_acquire(&self.request).await;
        if let Ok(AcquireReply::Granted { .. } | AcquireReply::Queued { .. }) = reply {
            self.request.known = true;
        }
        reply
    }

    /// Asks, and must be granted.
    ///
    /// # Panics
    /// It is not.
    pub async fn take(&mut self) -> FencingToken {
        match self.ask().await {
            Ok(AcquireReply::Granted { token, .. }) => token,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Asks, and must be queued.
    ///
    /// # Panics
    /// It is not.
    pub async fn queue(&mut self) {
        let reply = self.ask().await;
        assert!(matches!(reply, Ok(AcquireReply::Queued { .. })), "not queued: {reply:?}");
    }

    /// Renews for this purpose.
    ///
    /// # Errors
    /// As the engine's.
    pub async fn renew(&self, purpose: Purpose) -> Result<RenewReply, LockError> {
        asking::renew(&self.engine, &self.request, purpose).await
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// As the engine's.
    pub async fn keep(&self) -> Result<RenewReply, LockError> {
        self.renew(Purpose::Keep(self.request.hold)).await
    }

    /// Releases.
    ///
    /// # Errors
    /// As the engine's.
    pub async fn release(&self, for_good: bool) -> Result<ReleaseReply, LockError> {
        self.engine.release(&asking::ending(&self.request, for_good)).await
    }

    /// Releases, and must have held.
    ///
    /// # Panics
    /// It did not.
    pub async fn let_go(&self) {
        asking::let_go(&self.engine, &self.request).await;
    }

    /// Watches its lease id.
    pub fn watch(&self) -> Hints {
        self.engine.watch(&self.request.name, self.request.lease_id)
    }

    /// Returns how many contenders hold the name and how many wait for it.
    ///
    /// # Panics
    /// The engine returns an error.
    pub async fn counts(&self) -> (usize, usize) {
        let shown = self.engine.inspect(&self.request.name).await.expect("an answer");
        (shown.holder_count, shown.queue_length)
    }
}

/// Waits for any hint.
///
/// # Panics
/// The watch ends.
pub async fn next_hint(hints: &mut Hints) -> Hint {
    poll_fn(|context| hints.as_mut().poll_next(context)).await.expect("a watch does not end")
}

/// Waits for this hint; others may come before it.
///
/// # Panics
/// It does not come.
pub async fn hint(hints: &mut Hints, wanted: Hint) {
    let found = async { while next_hint(hints).await != wanted {} };
    assert!(tokio::time::timeout(LONG, found).await.is_ok(), "no {wanted:?} within {LONG:?}");
}

/// Checks a condition until it is true.
///
/// # Panics
/// It never is.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: checked until it is true
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future to its end outside of any runtime.
pub fn without_runtime<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
