//! What the tests share: engines, and contenders that ask by hand.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::contract::MAX_CLAIM_WINDOW;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Ending, Engine, FencingToken, Hint, Hints, Hold,
    LeaseId, LockError, LockName, Metadata, Mode, Purpose, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest,
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

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A contender of a client of its own, for 30 s, which queues.
pub(crate) fn contender(engine: &EtcdEngine, name: &str) -> Contender {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    let request = AcquireRequest {
        name: LockName::new(name).expect("a good name"),
        lease_id: LeaseId::from_bytes(bytes),
        client: ClientId::from_u64(number),
        mode: Mode::Exclusive,
        hold: Hold::Leased(Duration::from_secs(30)),
        queue: true,
        known: false,
        claim_window: MAX_CLAIM_WINDOW,
        metadata: Metadata::default(),
    };
    Contender { engine: engine.clone(), request }
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
        let line = RenewRequest {
            name: self.request.name.clone(),
            lease_id: self.request.lease_id,
            client: self.request.client,
            purpose,
        };
        self.engine.renew(&[line]).await.remove(0)
    }

    pub(crate) async fn keep(&self) -> Result<RenewReply, LockError> {
        self.renew(Purpose::Keep(self.request.hold)).await
    }

    pub(crate) async fn release(&self, for_good: bool) -> Result<ReleaseReply, LockError> {
        let (name, lease_id) = (self.request.name.clone(), self.request.lease_id);
        let ending = Ending { for_good, hold: self.request.hold };
        self.engine.release(&ReleaseRequest { name, lease_id, ending }).await
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

/// Waits for a hint; others may come before it.
pub(crate) async fn hint(hints: &mut Hints, wanted: Hint) {
    let found = async {
        while poll_fn(|context| hints.as_mut().poll_next(context)).await != Some(wanted) {}
    };
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
