//! How connections come and go, in the world of [`super::world`]: pauses, what is kept of the old
//! ones, and what those are told who wait meanwhile.

use super::world::{Ground, ID, Peer, SECOND, outcome, words_of_ping};
use super::*;

const NOAUTH: &str = "-NOAUTH HELLO must be called with the client already authenticated\r\n";

async fn greets(ground: &Ground) -> Peer {
    let mut peer = ground.accepts().await;
    peer.greets().await;
    ground.settle().await;
    peer
}

/// Lets the server refuse us, and looks that the next try comes after this pause and not before.
async fn refuses(ground: &Ground, pause: Duration) {
    let mut peer = ground.accepts().await;
    peer.hears("HELLO").await;
    peer.says(NOAUTH).await;
    pauses(ground, pause).await;
}

/// Looks that the next try comes after this pause and not before.
async fn pauses(ground: &Ground, pause: Duration) {
    ground.settle().await;
    let dials = ground.dials();
    ground.clock.advance(pause - Duration::from_millis(1));
    ground.settle().await;
    assert_eq!(ground.dials(), dials, "sooner than {pause:?}");
    ground.clock.advance(Duration::from_millis(1));
    until("the next try", || ground.dials() == dials + 1).await;
}

/// Lets a request hang on a connection until its deadline.
async fn hangs(ground: &Ground, line: &str, affinity: Option<Affinity>) -> Peer {
    let mut peer = greets(ground).await;
    let asked = ground.sends(line, affinity, SECOND);
    peer.hears(line.split(' ').next().unwrap_or_default()).await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
    peer
}

#[tokio::test]
async fn a_server_that_refuses_us_is_asked_seldom_and_sooner_again_after_it_let_us_in() {
    let ground = Ground::new("redis://h");
    refuses(&ground, SECOND).await;
    refuses(&ground, 2 * SECOND).await;
    refuses(&ground, 4 * SECOND).await;
    refuses(&ground, 5 * SECOND).await;
    let peer = greets(&ground).await;
    ground.clock.advance(2 * SECOND);
    drop(peer);
    refuses(&ground, SECOND).await;
}

#[tokio::test]
async fn after_a_connection_that_lasted_pauses_are_short_again() {
    let ground = Ground::new("redis://h");
    for pause in [20, 40, 80, 160] {
        drop(greets(&ground).await);
        pauses(&ground, Duration::from_millis(pause)).await;
    }
    let lasts = greets(&ground).await;
    ground.clock.advance(2 * SECOND);
    drop(lasts);
    drop(greets(&ground).await);
    pauses(&ground, Duration::from_millis(20)).await;
}

/// What was refused once says nothing after the server has let us in.
#[tokio::test]
async fn after_a_good_connection_requests_wait_for_the_next_one() {
    let ground = Ground::new("redis://h");
    refuses(&ground, SECOND).await;
    let peer = greets(&ground).await;
    drop(peer);
    ground.settle().await;
    let asked = ground.sends("ECHO a", None, 10 * SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    let mut peer = greets(&ground).await;
    peer.hears("ECHO").await;
    peer.says("$1\r\na\r\n").await;
    assert_eq!(outcome(asked).await.expect("an answer"), bytes("a"));
}

/// The last failure tells more than that there was no connection.
#[tokio::test]
async fn whoever_waits_until_its_deadline_is_told_why_there_was_no_connection() {
    let ground = Ground::new("redis://h");
    drop(ground.accepts().await);
    ground.settle().await;
    ground.clock.advance(SECOND);
    let mut silent = ground.accepts().await;
    silent.hears("HELLO").await;
    let asked = ground.sends("PING", None, SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    let error = outcome(asked).await.expect_err("no connection");
    assert!(unavailable(&error, Certainty::NotApplied).contains("broke off"), "{error}");
}

#[tokio::test]
async fn of_the_connections_that_hang_the_oldest_go() {
    let ground = Ground::new("redis://h");
    let mut all = Vec::new();
    for number in 1..=6 {
        all.push(hangs(&ground, "SET k v", Some([number; 16])).await);
    }
    let _good = greets(&ground).await;
    all[0].is_closed().await;
    all[1].is_closed().await;
    // The newest are kept for what must go behind.
    let _undone = ground.sends("DEL k", Some([3; 16]), SECOND);
    all[2].hears("DEL").await;
}

#[tokio::test]
async fn a_connection_that_recovers_too_late_ends_only_when_all_is_answered() {
    let ground = Ground::new("redis://h");
    let mut old = hangs(&ground, "SET k v", Some(ID)).await;
    let number = words_of_ping(&old.hears("PING").await);
    let undone = ground.sends("DEL k", Some(ID), 10 * SECOND);
    old.hears("DEL").await;
    let _good = greets(&ground).await;
    old.says(&format!("+OK\r\n${}\r\n{number}\r\n", number.len())).await;
    ground.settle().await;
    assert!(!undone.is_finished());
    old.says(":1\r\n").await;
    assert_eq!(outcome(undone).await.expect("undone"), Value::Integer(1));
    old.is_closed().await;
}

/// A deadline that was next to nothing proves nothing, and a ping after it that is not answered
/// does.
#[tokio::test]
async fn a_ping_that_is_not_answered_makes_a_connection_suspect() {
    let ground = Ground::new("redis://h");
    let mut peer = greets(&ground).await;
    ground.clock.advance(2 * SECOND);
    let asked = ground.sends("ECHO a", None, Duration::from_millis(1));
    peer.hears("ECHO").await;
    ground.clock.advance(Duration::from_millis(1));
    unavailable(&outcome(asked).await.expect_err("no time"), Certainty::Unknown);
    peer.hears("PING").await;
    ground.clock.advance(Duration::from_millis(250));
    let _good = greets(&ground).await;
}

#[tokio::test]
async fn a_server_of_the_older_protocol_is_asked_for_the_newer_one_once() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.hears("HELLO").await;
    peer.says("-NOPROTO unsupported protocol version\r\n").await;
    for _ in 0..2 {
        let mut peer = ground.accepts().await;
        assert!(!peer.greets_by_the_old_protocol().await.contains("HELLO"));
        ground.settle().await;
        ground.clock.advance(2 * SECOND);
        drop(peer);
        ground.settle().await;
    }
}

/// It is closed also when it has said its first words and only its subscription is missing.
#[tokio::test]
async fn a_new_connection_ends_when_the_old_one_recovers_meanwhile() {
    let ground = Ground::new("redis://h");
    let _inbox = ground.node.subscribe(b"inbox".to_vec());
    let mut old = ground.accepts().await;
    old.greets().await;
    old.hears("SUBSCRIBE").await;
    old.says(super::hearing::SUBSCRIBED).await;
    ground.settle().await;
    let asked = ground.sends("ECHO a", None, SECOND);
    old.hears("ECHO").await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
    let number = words_of_ping(&old.hears("PING").await);
    let mut new = ground.accepts().await;
    new.greets().await;
    new.hears("SUBSCRIBE").await;
    old.says(&format!("$1\r\na\r\n${}\r\n{number}\r\n", number.len())).await;
    new.is_closed().await;
}

#[tokio::test]
async fn a_connection_that_recovered_is_not_given_up_later() {
    let ground = Ground::new("redis://h");
    let mut peer = hangs(&ground, "SET k v", None).await;
    let number = words_of_ping(&peer.hears("PING").await);
    peer.says(&format!("+OK\r\n${}\r\n{number}\r\n", number.len())).await;
    ground.settle().await;
    for _ in 0..2 {
        ground.clock.advance(40 * SECOND);
        ground.settle().await;
        let asked = ground.sends("ECHO a", None, SECOND);
        peer.hears("ECHO").await;
        peer.says("$1\r\na\r\n").await;
        assert_eq!(outcome(asked).await.expect("an answer"), bytes("a"));
    }
}

#[tokio::test]
async fn a_server_that_still_loads_its_data_is_tried_again() {
    let ground = Ground::new("redis://h?protocol=resp2");
    let asked = ground.sends("PING", None, 10 * SECOND);
    let mut peer = ground.accepts().await;
    peer.hears("LIB-VER").await;
    peer.says("-LOADING Redis is loading\r\n*0\r\n+OK\r\n+OK\r\n+OK\r\n").await;
    let error = outcome(asked).await.expect_err("it cannot answer yet");
    assert!(unavailable(&error, Certainty::NotApplied).contains("loading"), "{error}");
    pauses(&ground, Duration::from_millis(20)).await;
    let mut peer = ground.accepts().await;
    peer.greets_by_the_old_protocol().await;
    in_time(ground.node.ready()).await.expect("a connection");
}

#[tokio::test]
async fn an_answer_larger_than_any_room_is_read_whole() {
    let ground = Ground::new("redis://h");
    let mut peer = greets(&ground).await;
    for size in [300_000, 3] {
        let asked = ground.sends("ECHO a", None, SECOND);
        peer.hears("ECHO").await;
        let text = "x".repeat(size);
        peer.says(&format!("${size}\r\n{text}\r\n")).await;
        assert_eq!(outcome(asked).await.expect("an answer"), bytes(&text));
    }
}
