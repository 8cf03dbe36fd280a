//! Direct calls of an engine, for its own tests: contenders without the library in between.

use std::time::Duration;

use holdline_core::contract::MAX_HAND_OFF_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Ending, Engine, Entropy, FencingToken, Hold, LeaseId,
    LockError, LockKind, LockName, Metadata, Mode, Purpose, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest,
};
use rand::Rng;

/// What [`request`] asks for.
pub const HOLD: Hold = Hold::Leased(Duration::from_secs(30));

/// Random bytes from the operating system.
pub(crate) struct Random;

impl Entropy for Random {
    fn fill(&mut self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}

/// A lock name.
///
/// # Panics
/// It is none.
pub fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

/// A request for exclusive use that queues, under a fresh id of a client of its own.
///
/// # Panics
/// `text` is no lock name.
pub fn request(text: &str) -> AcquireRequest {
    AcquireRequest {
        name: name(text),
        lease_id: LeaseId::random(&mut Random),
        client: ClientId::random(&mut Random),
        mode: Mode::Exclusive,
        kind: LockKind::Mutex,
        hold: HOLD,
        queue: true,
        known: false,
        hand_off_lease: MAX_HAND_OFF_LEASE,
        metadata: Metadata::default(),
    }
}

/// The end of what was asked for.
pub fn ending(request: &AcquireRequest, for_good: bool) -> ReleaseRequest {
    ReleaseRequest {
        name: request.name.clone(),
        lease_id: request.lease_id,
        ending: Ending { for_good, hold: request.hold },
    }
}

/// Asks, and must be granted.
///
/// # Panics
/// It is not.
pub async fn take(engine: &dyn Engine, request: &AcquireRequest) -> FencingToken {
    match engine.try_acquire(request).await {
        Ok(AcquireReply::Granted { token, .. }) => token,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Asks, and must be queued.
///
/// # Panics
/// It is not.
pub async fn queue(engine: &dyn Engine, request: &AcquireRequest) {
    let reply = engine.try_acquire(request).await;
    assert!(matches!(reply, Ok(AcquireReply::Queued { .. })), "{reply:?}");
}

/// Releases, and must have held.
///
/// # Panics
/// It did not.
pub async fn let_go(engine: &dyn Engine, request: &AcquireRequest) {
    let reply = engine.release(&ending(request, false)).await;
    assert!(matches!(reply, Ok(ReleaseReply::Released { .. })), "{reply:?}");
}

/// Renews one lease, or one place in a queue.
///
/// # Errors
/// As the engine's.
///
/// # Panics
/// The engine does not return one reply for each renewal.
pub async fn renew(
    engine: &dyn Engine,
    request: &AcquireRequest,
    purpose: Purpose,
) -> Result<RenewReply, LockError> {
    let renewal = RenewRequest {
        name: request.name.clone(),
        lease_id: request.lease_id,
        client: request.client,
        purpose,
    };
    engine.renew(&[renewal]).await.pop().expect("one answer")
}

/// Renews, and must be unknown.
///
/// # Panics
/// It is known.
pub async fn is_unknown(engine: &dyn Engine, request: &AcquireRequest, purpose: Purpose) {
    let reply = renew(engine, request, purpose).await;
    assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
}

/// Checks that a name is usable: another contender gets it at once, with a token larger than
/// `after`, and its release frees the name; a release hands it to a waiter.
///
/// # Panics
/// It is not.
pub async fn is_usable(engine: &dyn Engine, text: &str, after: FencingToken) {
    for _ in 0..2 {
        let newcomer = AcquireRequest { queue: false, ..request(text) };
        assert!(take(engine, &newcomer).await > after);
        let_go(engine, &newcomer).await;
    }
    let held = request(text);
    let waits = request(text);
    take(engine, &held).await;
    queue(engine, &waits).await;
    let_go(engine, &held).await;
    take(engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    let_go(engine, &waits).await;
}
