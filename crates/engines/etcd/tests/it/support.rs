//! What the tests share: engines, and contenders that ask by hand.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::asking;
use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AcquireRequest, Engine, FencingToken, Hint, Hints, Hold, LockError, Purpose,
    ReleaseReply, RenewReply,
};
use holdline_etcd::{EtcdEngine, EtcdOptions};

/// What must happen happens within this time, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// An engine over this URL.
pub(crate) async fn engine(url: &str) -> EtcdEngine {
    connect(url).await.expect("connected")
}

pub(crate) async fn connect(url: &str) -> Result<EtcdEngine, LockError> {
    let mut options = EtcdOptions::from_url(url)?;
    if !url.contains("timeout_ms") {
        // Limits that a machine that is busy does not meet.
        options = options.with_command_timeout(LONG).with_connect_timeout(LONG);
    }
    EtcdEngine::connect(&options, Arc::new(MachineClock)).await
}

/// One lease id, and how it asks.
#[derive(Clone)]
pub(crate) struct Contender {
    pub(crate) engine: EtcdEngine,
    pub(crate) request: AcquireRequest,
}

/// A contender of a client of its own, for 30 s, which queues.
pub(crate) fn contender(engine: &EtcdEngine, name: &str) -> Contender {
    Contender { engine: engine.clone(), request: asking::request(name) }
}

impl Contender {
    pub(crate) fn for_seconds(mut self, seconds: u64) -> Contender {
        self.request.hold = Hold::Leased(Duration::from_secs(seconds));
        self
    }

    pub(crate) async fn ask(&mut self) -> Result<AcquireReply, LockError> {
        let reply = self.engine.try_acquire(&self.request).await;
        if let Ok(AcquireReply::Granted { .. } | AcquireReply::Queued { .. }) = reply {
            self.request.known = true;
        }
        reply
    }

    /// Asks, and must hold.
    pub(crate) async fn take(&mut self) -> FencingToken {
        match self.ask().await {
            Ok(AcquireReply::Granted { token, .. }) => token,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Asks, and must wait.
    pub(crate) async fn queue(&mut self) {
        let reply = self.ask().await;
        assert!(matches!(reply, Ok(AcquireReply::Queued { .. })), "not queued: {reply:?}");
    }

    pub(crate) async fn renew(&self, purpose: Purpose) -> Result<RenewReply, LockError> {
        asking::renew(&self.engine, &self.request, purpose).await
    }

    pub(crate) async fn keep(&self) -> Result<RenewReply, LockError> {
        self.renew(Purpose::Keep(self.request.hold)).await
    }

    pub(crate) async fn release(&self, for_good: bool) -> Result<ReleaseReply, LockError> {
        self.engine.release(&asking::ending(&self.request, for_good)).await
    }

    /// Releases, and must have held.
    pub(crate) async fn let_go(&self) {
        let reply = self.release(false).await;
        assert!(matches!(reply, Ok(ReleaseReply::Released { .. })), "not released: {reply:?}");
    }

    pub(crate) fn watch(&self) -> Hints {
        self.engine.watch(&self.request.name, self.request.lease_id)
    }

    /// How many hold and how many wait.
    pub(crate) async fn counts(&self) -> (usize, usize) {
        let shown = self.engine.inspect(&self.request.name).await.expect("an answer");
        (shown.holder_count, shown.queue_length)
    }
}

/// Waits for any hint.
pub(crate) async fn next_hint(hints: &mut Hints) -> Hint {
    poll_fn(|context| hints.as_mut().poll_next(context)).await.expect("a watch goes on")
}

/// Waits for a hint; others may come before it.
pub(crate) async fn hint(hints: &mut Hints, wanted: Hint) {
    let found = async { while next_hint(hints).await != wanted {} };
    assert!(tokio::time::timeout(LONG, found).await.is_ok(), "no {wanted:?} within {LONG:?}");
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !so().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: looked for until it is seen
    }
}
