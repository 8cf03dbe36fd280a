//! A connection that hangs, or whose stream is full, and the connections beside it, in the world of
//! [`super::world`].

use super::world::{ID, Peer, SECOND, World, outcome};
use super::*;
use crate::link::{Call, Script};

/// More than a stream of that world buffers.
fn filler() -> String {
    format!("SET k {}", "x".repeat(1 << 18))
}

/// Makes a call with this routing policy.
fn call(
    world: &World,
    routing: RoutingPolicy,
) -> tokio::task::JoinHandle<Result<Value, LockError>> {
    static SCRIPT: Script = Script::new("any", "return 1");
    let (keys, arguments) = (Args::default(), Args::default());
    let call = Call { script: &SCRIPT, keys, arguments, routing, deadline: SECOND };
    let link = world.link.clone();
    tokio::spawn(async move { link.call(|| call.clone()).await })
}

/// A request of the id has hung until its deadline on what is returned; no other connection was
/// made yet.
async fn one_hangs(world: &World, line: &str) -> Peer {
    let mut hangs = world.accepts().await;
    hangs.shakes_hands().await;
    let taken = world.sends(line, Some(ID), SECOND);
    world.settle().await;
    world.clock.advance(SECOND);
    unavailable(&outcome(taken).await.expect_err("nothing comes"), Certainty::Unknown);
    hangs
}

#[tokio::test]
async fn a_retry_waits_for_a_healthy_connection() {
    let world = World::new("redis://h");
    let _hangs = one_hangs(&world, "SET k v").await;
    let asked = call(&world, RoutingPolicy::Retry(ID));
    world.settle().await;
    let mut good = world.accepts().await;
    good.shakes_hands().await;
    good.receives("EVALSHA").await;
    good.sends_text(":1\r\n").await;
    assert_eq!(outcome(asked).await.expect("an answer"), Value::Integer(1));
}

/// A frozen server accepts no other connection.
#[tokio::test]
async fn a_retry_goes_behind_the_unanswered_request_if_no_other_connection_comes() {
    let world = World::new("redis://h");
    let mut hangs = one_hangs(&world, "SET k v").await;
    let asked = call(&world, RoutingPolicy::Retry(ID));
    world.settle().await;
    world.clock.advance(SECOND / 2);
    hangs.receives("EVALSHA").await;
    world.clock.advance(SECOND / 2);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
}

#[tokio::test]
async fn an_undo_goes_behind_the_unanswered_request_at_once_if_no_connection_is_healthy() {
    let world = World::new("redis://h");
    let mut hangs = one_hangs(&world, "SET k v").await;
    let undone = call(&world, RoutingPolicy::Undo(ID));
    hangs.receives("EVALSHA").await;
    assert!(!undone.is_finished());
}

#[tokio::test]
async fn a_deadline_is_reported_while_the_stream_is_full() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let mut slow = Vec::new();
    for line in [&filler(), "ECHO a", "ECHO b"] {
        slow.push(world.sends(line, None, 100 * SECOND));
        world.settle().await;
    }
    let asked = world.sends("ECHO c", None, SECOND);
    world.settle().await;
    world.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("nothing comes"), Certainty::Unknown);
    assert!(slow.iter().all(|one| !one.is_finished()));
}

/// The copy of an undo is written as soon as the stream has room, although nobody waits for it.
#[tokio::test]
async fn an_undo_is_copied_behind_the_unanswered_request_while_the_stream_is_full() {
    let world = World::new("redis://h");
    let mut hangs = one_hangs(&world, &filler()).await;
    let mut good = world.accepts().await;
    good.shakes_hands().await;
    world.settle().await;
    let undone = call(&world, RoutingPolicy::Undo(ID));
    good.receives("EVALSHA").await;
    good.sends_text(":1\r\n").await;
    assert_eq!(outcome(undone).await.expect("undone"), Value::Integer(1));
    world.settle().await;
    world.clock.advance(3 * SECOND);
    world.settle().await;
    // Nobody could react to `NOSCRIPT`, so it is sent by its text.
    hangs.receives("EVAL").await;
}
