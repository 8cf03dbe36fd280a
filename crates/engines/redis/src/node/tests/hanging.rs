//! What happens on and beside a connection that hangs, or takes nothing more, in the world of
//! [`super::world`].

use super::world::{Ground, ID, Peer, SECOND, outcome};
use super::*;
use crate::node::{Call, Script};

/// More than a stream of that world keeps on its way.
fn filler() -> String {
    format!("SET k {}", "x".repeat(1 << 18))
}

/// Makes a call that is tied to the one id.
fn call(
    ground: &Ground,
    routing: RoutingPolicy,
) -> tokio::task::JoinHandle<Result<Value, LockError>> {
    static SCRIPT: Script = Script::new("any", "return 1");
    let (keys, arguments) = (Args::default(), Args::default());
    let call = Call { script: &SCRIPT, keys, arguments, routing, deadline: SECOND };
    let node = ground.node.clone();
    tokio::spawn(async move { node.call(|| call.clone()).await })
}

/// A request of the id has hung until its deadline on what is returned; no other connection was
/// made yet.
async fn one_hangs(ground: &Ground, line: &str) -> Peer {
    let mut hangs = ground.accepts().await;
    hangs.greets().await;
    let taken = ground.sends(line, Some(ID), SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(taken).await.expect_err("nothing comes"), Certainty::Unknown);
    hangs
}

#[tokio::test]
async fn what_is_asked_again_at_once_waits_for_a_good_connection() {
    let ground = Ground::new("redis://h");
    let _hangs = one_hangs(&ground, "SET k v").await;
    let asked = call(&ground, RoutingPolicy::Retry(ID));
    ground.settle().await;
    let mut good = ground.accepts().await;
    good.greets().await;
    good.hears("EVALSHA").await;
    good.says(":1\r\n").await;
    assert_eq!(outcome(asked).await.expect("an answer"), Value::Integer(1));
}

/// A server that stands still gives no other connection.
#[tokio::test]
async fn what_is_asked_again_goes_behind_what_hangs_when_no_other_connection_comes() {
    let ground = Ground::new("redis://h");
    let mut hangs = one_hangs(&ground, "SET k v").await;
    let asked = call(&ground, RoutingPolicy::Retry(ID));
    ground.settle().await;
    ground.clock.advance(SECOND / 2);
    hangs.hears("EVALSHA").await;
    ground.clock.advance(SECOND / 2);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
}

#[tokio::test]
async fn an_undo_goes_behind_what_hangs_at_once_while_there_is_no_good_connection() {
    let ground = Ground::new("redis://h");
    let mut hangs = one_hangs(&ground, "SET k v").await;
    let undone = call(&ground, RoutingPolicy::Undo(ID));
    hangs.hears("EVALSHA").await;
    assert!(!undone.is_finished());
}

#[tokio::test]
async fn a_deadline_is_told_while_nothing_can_be_written() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let mut slow = Vec::new();
    for line in [&filler(), "ECHO a", "ECHO b"] {
        slow.push(ground.sends(line, None, 100 * SECOND));
        ground.settle().await;
    }
    let asked = ground.sends("ECHO c", None, SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("nothing comes"), Certainty::Unknown);
    assert!(slow.iter().all(|one| !one.is_finished()));
}

/// The copy of an undo is written as soon as the connection takes anything, whoever waits for it.
#[tokio::test]
async fn an_undo_is_copied_behind_what_hangs_also_where_nothing_can_be_written() {
    let ground = Ground::new("redis://h");
    let mut hangs = one_hangs(&ground, &filler()).await;
    let mut good = ground.accepts().await;
    good.greets().await;
    ground.settle().await;
    let undone = call(&ground, RoutingPolicy::Undo(ID));
    good.hears("EVALSHA").await;
    good.says(":1\r\n").await;
    assert_eq!(outcome(undone).await.expect("undone"), Value::Integer(1));
    ground.settle().await;
    ground.clock.advance(3 * SECOND);
    ground.settle().await;
    // Nobody would answer it that the server does not know the script.
    hangs.hears("EVAL").await;
}
