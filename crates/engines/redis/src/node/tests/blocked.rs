//! A connection that takes nothing more, in the world of [`super::world`].

use super::world::{Ground, ID, SECOND, outcome};
use super::*;
use crate::node::{Call, Script};

/// More than a stream of that world keeps on its way.
fn filler() -> String {
    format!("SET k {}", "x".repeat(1 << 18))
}

#[tokio::test]
async fn a_deadline_is_told_while_nothing_can_be_written() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let slow: Vec<_> =
        [&filler(), "ECHO a", "ECHO b"].map(|line| ground.sends(line, None, 100 * SECOND)).into();
    ground.settle().await;
    let asked = ground.sends("ECHO c", None, SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("nothing comes"), Certainty::Unknown);
    assert!(slow.iter().all(|one| !one.is_finished()));
}

/// The copy of an undo is written as soon as the connection takes anything, whoever waits for it.
#[tokio::test]
async fn an_undo_is_copied_behind_what_hangs_also_where_nothing_can_be_written() {
    static UNDO: Script = Script::new("undo", "return 1");
    let ground = Ground::new("redis://h");
    let mut hangs = ground.accepts().await;
    hangs.greets().await;
    let taken = ground.sends(&filler(), Some(ID), SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(taken).await.expect_err("nothing comes"), Certainty::Unknown);
    let mut good = ground.accepts().await;
    good.greets().await;
    ground.settle().await;
    let undone = tokio::spawn({
        let (node, tie) = (ground.node.clone(), Tie::Undo(ID));
        let (keys, arguments) = (Vec::new(), Vec::new());
        let call = Call { script: &UNDO, keys, arguments, tie, deadline: SECOND };
        async move { node.call(call).await }
    });
    good.hears("EVALSHA").await;
    good.says(":1\r\n").await;
    assert_eq!(outcome(undone).await.expect("undone"), Value::Integer(1));
    ground.settle().await;
    ground.clock.advance(3 * SECOND);
    ground.settle().await;
    hangs.hears("EVALSHA").await;
}
