//! What the tests share: engines of one server, and contenders.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::contract::MAX_CLAIM_WINDOW;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Ending, Engine, Entropy, FencingToken, Hold, LeaseId,
    LockError, LockName, Metadata, Mode, Purpose, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest,
};
use holdline_postgres::{PostgresEngine, PostgresOptions};
use holdline_services::PostgresServer;
use rand::Rng;

/// How long what must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const HOLD: Hold = Hold::Leased(Duration::from_secs(30));

struct Random;

impl Entropy for Random {
    fn fill(&mut self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

pub(crate) async fn connect(url: &str) -> Result<PostgresEngine, LockError> {
    let mut options = PostgresOptions::from_url(url)?;
    if !url.contains("timeout_ms") {
        // Limits that a machine that is busy does not meet.
        options = options.with_command_timeout(PATIENCE).with_connect_timeout(PATIENCE);
    }
    PostgresEngine::connect(&options, Arc::new(MachineClock)).await
}

pub(crate) async fn engine(server: &PostgresServer) -> PostgresEngine {
    connect(&server.url()).await.expect("connected")
}

/// A request for a name that queues, under a fresh id of a client of its own.
pub(crate) fn request(text: &str) -> AcquireRequest {
    AcquireRequest {
        name: name(text),
        lease_id: LeaseId::random(&mut Random),
        client: ClientId::random(&mut Random),
        mode: Mode::Exclusive,
        hold: HOLD,
        queue: true,
        known: false,
        claim_window: MAX_CLAIM_WINDOW,
        metadata: Metadata::default(),
    }
}

pub(crate) fn ending(request: &AcquireRequest, for_good: bool) -> ReleaseRequest {
    ReleaseRequest {
        name: request.name.clone(),
        lease_id: request.lease_id,
        ending: Ending { for_good, hold: request.hold },
    }
}

/// Asks, and must be granted.
pub(crate) async fn take(engine: &PostgresEngine, request: &AcquireRequest) -> FencingToken {
    match engine.try_acquire(request).await {
        Ok(AcquireReply::Granted { token, .. }) => token,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Asks, and must be queued.
pub(crate) async fn queue(engine: &PostgresEngine, request: &AcquireRequest) {
    let reply = engine.try_acquire(request).await;
    assert!(matches!(reply, Ok(AcquireReply::Queued { .. })), "{reply:?}");
}

/// Releases, and must have held.
pub(crate) async fn let_go(engine: &PostgresEngine, request: &AcquireRequest) {
    let reply = engine.release(&ending(request, false)).await;
    assert!(matches!(reply, Ok(ReleaseReply::Released { .. })), "{reply:?}");
}

pub(crate) async fn renew(
    engine: &PostgresEngine,
    request: &AcquireRequest,
    purpose: Purpose,
) -> Result<RenewReply, LockError> {
    let line = RenewRequest {
        name: request.name.clone(),
        lease_id: request.lease_id,
        client: request.client,
        purpose,
    };
    engine.renew(&[line]).await.pop().expect("one answer")
}

/// How long what must happen may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Looks until it is so, and lets other tasks run meanwhile.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::task::yield_now().await;
    }
}

/// Drives a future without any runtime.
pub(crate) fn drive<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        match work.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// Each yield lets the connection come a step further.
pub(crate) async fn yields(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Numbers of steps, small and large.
pub(crate) fn growing() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(0), |&last: &usize| Some(2 * last + 1))
}
