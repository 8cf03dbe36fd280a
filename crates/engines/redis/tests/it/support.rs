//! What the tests of the scripts share: engines of one server, and contenders.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::contract::MAX_CLAIM_WINDOW;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Ending, Engine, Entropy, FencingToken, Hold, LeaseId,
    LockError, LockName, Metadata, Mode, Purpose, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest,
};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{RedisServer, Reply};
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

/// An engine whose limits a machine that is busy does not meet.
pub(crate) async fn engine(server: &RedisServer) -> RedisEngine {
    let options = RedisOptions::from_url(&server.url()).expect("a good URL");
    let options = options.with_command_timeout(PATIENCE).with_connect_timeout(PATIENCE);
    RedisEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected")
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
pub(crate) async fn take(engine: &RedisEngine, request: &AcquireRequest) -> FencingToken {
    match engine.try_acquire(request).await {
        Ok(AcquireReply::Granted { token, .. }) => token,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Asks, and must be queued.
pub(crate) async fn queue(engine: &RedisEngine, request: &AcquireRequest) {
    let reply = engine.try_acquire(request).await;
    assert!(matches!(reply, Ok(AcquireReply::Queued { .. })), "{reply:?}");
}

/// Releases, and must have held.
pub(crate) async fn let_go(engine: &RedisEngine, request: &AcquireRequest) {
    let reply = engine.release(&ending(request, false)).await;
    assert!(matches!(reply, Ok(ReleaseReply::Released { .. })), "{reply:?}");
}

pub(crate) async fn renew(
    engine: &RedisEngine,
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

/// Asks the server behind the engine's back.
pub(crate) fn raw(server: &RedisServer, words: &[&str]) -> Reply {
    server.raw().send(words).expect("the server answers")
}

/// Returns all keys of the server, in order.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let reply = raw(server, &["KEYS", "*"]);
    let mut keys: Vec<String> =
        reply.items().expect("a list").iter().filter_map(Reply::text).collect();
    keys.sort_unstable();
    keys
}
