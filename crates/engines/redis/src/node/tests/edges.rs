//! What happens at the edges of a node's life: before the first words, in a copy of the process,
//! when a server never comes to an end.

use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Engine, Hint, Hold, LeaseId, ListRequest, LockName,
    Metadata, Mode,
};
use std::io::Read;
use std::net::TcpListener;

use super::world::{Ground, SECOND};
use super::*;
use crate::{PlainEngine, RedisEngine};

#[tokio::test]
async fn a_copy_of_the_process_sends_nothing_over_the_connection_of_its_parent() {
    let server = server();
    let node = node(&server.url());
    node.ready().await.expect("a connection");
    node.pretend_fork();
    let refused = say(&node, "SET k v").await.expect_err("not ours");
    assert!(unavailable(&refused, Certainty::NotApplied).contains("fork"), "{refused}");
    assert_eq!(behind(&server, "EXISTS k").integer(), Some(0));
}

/// Whoever waits for the first connection has as much time as a try: it is told why that failed.
#[tokio::test]
async fn the_try_that_fails_in_the_time_of_whoever_waits_for_it_is_heard_out() {
    let ground = Ground::new("redis://h");
    let mut ready = Box::pin(ground.node.ready());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _peer = ground.accepts().await;
    ground.settle().await;
    assert!(ready.as_mut().poll(&mut context).is_pending());
    ground.clock.advance(2 * SECOND);
    // The try's end is not told yet.
    assert!(ready.as_mut().poll(&mut context).is_pending());
    let error = in_time(ready).await.expect_err("it was never established");
    let told = unavailable(&error, Certainty::NotApplied);
    assert!(!told.contains("no connection to the server"), "{told}");
}

/// Otherwise its end would stay behind with a server that only seems to be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_never_greeted_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("redis://{address}");
    let options = options(&url).with_connect_timeout(SHORT);
    let _node = Node::new(&options, clock()).expect("a node");
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
async fn after_a_break_whoever_waits_is_told_to_look_again() {
    let server = server();
    let options = options(&server.url());
    let engine = RedisEngine::connect(&options, clock()).await.expect("connected");
    let (name, id) = (LockName::new("a").expect("a good name"), LeaseId::from_bytes([1; 16]));
    let mut hints = engine.watch(&name, id);
    let next = async |hints: &mut holdline_core::Hints| {
        in_time(std::future::poll_fn(|context| hints.as_mut().poll_next(context))).await
    };
    // The first tells of the beginning; from then on there is a subscription.
    while next(&mut hints).await != Some(Hint::LookAgain) {}
    assert_eq!(next(&mut hints).await, Some(Hint::CheckLease));
    behind(&server, "CLIENT KILL TYPE normal");
    behind(&server, "CLIENT KILL TYPE pubsub");
    assert_eq!(next(&mut hints).await, Some(Hint::LookAgain));
}

fn request() -> AcquireRequest {
    AcquireRequest {
        name: LockName::new("a").expect("a good name"),
        lease_id: LeaseId::from_bytes([1; 16]),
        client: ClientId::from_u64(1),
        mode: Mode::Exclusive,
        hold: Hold::Leased(SECOND),
        queue: false,
        known: false,
        claim_window: holdline_core::contract::MIN_CLAIM_WINDOW,
        metadata: Metadata::default(),
    }
}

/// The name was refused; that nobody tells who holds it makes nothing uncertain.
#[tokio::test]
async fn a_plain_lock_that_was_refused_is_not_taken_whoever_holds_it() {
    let url = "redis://h?dialect=plain&fencing=off&command_timeout_ms=1000";
    let ground = Ground::with(url, PlainEngine::new);
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let engine = ground.node.clone();
    let taken: tokio::task::JoinHandle<Result<AcquireReply, LockError>> =
        tokio::spawn(async move { engine.try_acquire(&request()).await });
    peer.hears("SET").await;
    peer.says("_\r\n").await;
    peer.hears("EVALSHA").await;
    ground.clock.advance(SECOND);
    let error = in_time(taken).await.expect("no panic").expect_err("no answer");
    unavailable(&error, Certainty::NotApplied);
}

#[tokio::test]
async fn a_listing_ends_although_the_server_s_scan_does_not() {
    let ground = Ground::with("redis://h", RedisEngine::new);
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let engine = ground.node.clone();
    let mut listed = tokio::spawn(async move {
        let asked = ListRequest { prefix: String::new(), after: None, limit: 1 };
        engine.list(&asked).await
    });
    let scanned = async {
        loop {
            tokio::select! {
                done = &mut listed => return done,
                _ = peer.hears("SCAN") => peer.says("*2\r\n$1\r\n7\r\n*0\r\n").await,
            }
        }
    };
    let error = in_time(scanned).await.expect("no panic").expect_err("no end");
    assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
}
