//! The limits of a link's life: before the handshake, in a fork of the process, and with a server
//! whose scan never ends.

use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Engine, Hint, Hold, LeaseId, ListRequest, LockKind,
    LockName, Metadata, Mode,
};
use std::io::Read;
use std::net::TcpListener;

use super::world::{SECOND, World};
use super::*;
use crate::{PlainEngine, RedisEngine};

#[tokio::test]
async fn a_fork_sends_nothing_over_the_connection_of_its_parent() {
    let server = server();
    let link = link(&server.url());
    link.ready().await.expect("a connection");
    link.pretend_fork();
    let refused = say(&link, "SET k v").await.expect_err("not ours");
    assert!(unavailable(&refused, Certainty::NotApplied).contains("fork"), "{refused}");
    assert_eq!(ask_server(&server, "EXISTS k").integer(), Some(0));
}

/// A caller that waits for the first connection has as much time as an attempt, and receives its
/// error.
#[tokio::test]
async fn a_failing_attempt_to_connect_reports_its_own_error_to_callers() {
    let world = World::new("redis://h");
    let mut ready = Box::pin(world.link.ready());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _peer = world.accepts().await;
    world.settle().await;
    assert!(ready.as_mut().poll(&mut context).is_pending());
    world.clock.advance(2 * SECOND);
    // The end of the attempt is not reported yet.
    assert!(ready.as_mut().poll(&mut context).is_pending());
    let error = in_time(ready).await.expect_err("it was never established");
    let message = unavailable(&error, Certainty::NotApplied);
    assert!(!message.contains("no connection to the server"), "{message}");
}

/// Otherwise a frozen server would keep its end of the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_handshake_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("redis://{address}");
    let options = options(&url).with_connect_timeout(SHORT);
    let _node = Link::new(&options, clock()).expect("a link");
    let ended = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut words = [0; 4096];
        loop {
            match stream.read(&mut words) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(error.kind()),
            }
        }
    });
    let ended = in_time(ended).await.expect("no panic");
    assert_eq!(ended, Some(std::io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn after_a_break_every_waiter_receives_a_hint_to_look_again() {
    let server = server();
    let options = options(&server.url());
    let engine = RedisEngine::connect(&options, clock()).await.expect("connected");
    let (name, id) = (LockName::new("a").expect("a good name"), LeaseId::from_bytes([1; 16]));
    let mut hints = engine.watch(&name, id);
    let next = async |hints: &mut holdline_core::Hints| {
        in_time(std::future::poll_fn(|context| hints.as_mut().poll_next(context))).await
    };
    // The first hint is that of a new subscription.
    while next(&mut hints).await != Some(Hint::LookAgain) {}
    assert_eq!(next(&mut hints).await, Some(Hint::CheckLease));
    ask_server(&server, "CLIENT KILL TYPE normal");
    ask_server(&server, "CLIENT KILL TYPE pubsub");
    assert_eq!(next(&mut hints).await, Some(Hint::LookAgain));
}

fn request() -> AcquireRequest {
    AcquireRequest {
        name: LockName::new("a").expect("a good name"),
        lease_id: LeaseId::from_bytes([1; 16]),
        client: ClientId::from_u64(1),
        mode: Mode::Exclusive,
        kind: LockKind::Mutex,
        hold: Hold::Leased(SECOND),
        queue: false,
        known: false,
        hand_off_lease: holdline_core::contract::MIN_HAND_OFF_LEASE,
        metadata: Metadata::default(),
    }
}

/// The lock was refused. That its holder is unknown makes nothing uncertain.
#[tokio::test]
async fn a_refused_plain_lock_is_not_applied_even_if_its_holder_is_unknown() {
    let url = "redis://h?dialect=plain&fencing=off&command_timeout_ms=1000&quarantine=off";
    let world = World::with(url, PlainEngine::new);
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let engine = world.link.clone();
    let taken: tokio::task::JoinHandle<Result<AcquireReply, LockError>> =
        tokio::spawn(async move { engine.try_acquire(&request()).await });
    peer.receives("SET").await;
    peer.sends_text("_\r\n").await;
    peer.receives("EVALSHA").await;
    world.clock.advance(SECOND);
    let error = in_time(taken).await.expect("no panic").expect_err("no answer");
    unavailable(&error, Certainty::NotApplied);
}

#[tokio::test]
async fn a_listing_ends_although_the_server_s_scan_does_not() {
    let world = World::with("redis://h?quarantine=off", RedisEngine::new);
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let engine = world.link.clone();
    let mut listed = tokio::spawn(async move {
        let asked = ListRequest { prefix: String::new(), after: None, limit: 1 };
        engine.list(&asked).await
    });
    let scanned = async {
        loop {
            tokio::select! {
                done = &mut listed => return done,
                _ = peer.receives("SCAN") => peer.sends_text("*2\r\n$1\r\n7\r\n*0\r\n").await,
            }
        }
    };
    let error = in_time(scanned).await.expect("no panic").expect_err("no end");
    assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
}
