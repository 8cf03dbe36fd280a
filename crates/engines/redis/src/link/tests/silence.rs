//! Silent and broken connections, deadlines, and bounds, in the world of [`super::world`].

use super::world::{ID, SECOND, World, number_of_ping, outcome};
use super::*;
use std::sync::atomic::Ordering;

const CANARY: &str = "canary-55d0";

#[tokio::test]
async fn a_connection_that_is_silent_for_too_long_is_closed() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let taken = world.sends("SET k mine", Some(ID), SECOND);
    peer.receives("SET").await;
    world.clock.advance(SECOND);
    unavailable(&outcome(taken).await.expect_err("silent"), Certainty::Unknown);
    peer.receives("PING").await;
    let undone = world.sends("DEL k", Some(ID), 100 * SECOND);
    peer.receives("DEL").await;
    world.clock.advance(34 * SECOND);
    world.settle().await;
    assert!(!undone.is_finished(), "it is kept for requests behind");
    world.clock.advance(2 * SECOND);
    let error = outcome(undone).await.expect_err("given up");
    assert!(unavailable(&error, Certainty::Unknown).contains("no reply for too long"), "{error}");
    peer.is_closed().await;
}

/// A deadline that was too short is reported, but only a ping decides about the connection.
#[tokio::test]
async fn a_very_short_deadline_does_not_cost_the_connection() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let asked = world.sends("ECHO a", None, Duration::from_millis(1));
    peer.receives("ECHO").await;
    world.clock.advance(Duration::from_millis(1));
    unavailable(&outcome(asked).await.expect_err("no time"), Certainty::Unknown);
    let number = number_of_ping(&peer.receives("PING").await);
    let next = world.sends("ECHO b", None, SECOND);
    peer.receives("ECHO").await;
    peer.sends_text(&format!("$1\r\na\r\n${}\r\n{number}\r\n$1\r\nb\r\n", number.len())).await;
    assert_eq!(outcome(next).await.expect("an answer"), bytes("b"));
    assert_eq!(world.dials(), 1);
}

/// The reply to a dropped request counts all the same: no ping checks the connection.
#[tokio::test]
async fn a_reply_to_a_dropped_request_counts() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let asked = world.sends("ECHO a", Some(ID), SECOND);
    peer.receives("ECHO").await;
    asked.abort();
    assert!(asked.await.expect_err("gone").is_cancelled());
    peer.sends_text("$1\r\na\r\n").await;
    world.settle().await;
    world.clock.advance(2 * SECOND);
    world.settle().await;
    let next = world.sends("ECHO b", Some(ID), SECOND);
    assert!(!peer.receives("ECHO").await.contains("PING"));
    peer.sends_text("$1\r\nb\r\n").await;
    assert_eq!(outcome(next).await.expect("an answer"), bytes("b"));
    assert_eq!(world.dials(), 1);
}

/// Without a request, the next reply could be for any caller.
#[tokio::test]
async fn a_reply_without_a_request_ends_the_connection() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    peer.sends_text("+OK\r\n").await;
    peer.is_closed().await;
    world.settle().await;
    world.clock.advance(SECOND);
    world.accepts().await.shakes_hands().await;
}

/// A late reply clears a suspect connection, which is used again instead of a new one.
#[tokio::test]
async fn a_connection_that_recovers_is_used_again() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let asked = world.sends("ECHO a", None, SECOND);
    peer.receives("ECHO").await;
    world.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
    let number = number_of_ping(&peer.receives("PING").await);
    let mut second = world.accepts().await;
    second.receives("HELLO").await;
    let waiting = world.sends("ECHO b", None, SECOND);
    world.settle().await;
    peer.sends_text(&format!("$1\r\na\r\n${}\r\n{number}\r\n", number.len())).await;
    peer.receives("ECHO").await;
    peer.sends_text("$1\r\nb\r\n").await;
    assert_eq!(outcome(waiting).await.expect("an answer"), bytes("b"));
    second.is_closed().await;
}

#[tokio::test]
async fn a_connection_that_breaks_at_once_is_dialled_with_growing_pauses() {
    let world = World::new("redis://h");
    for turn in 1..=6_u32 {
        let mut peer = world.accepts().await;
        peer.shakes_hands().await;
        drop(peer);
        world.settle().await;
        assert_eq!(world.dials(), turn as usize, "no dial without a pause");
        let pause = Duration::from_millis(20) * 2_u32.pow(turn - 1);
        world.clock.advance(pause / 2);
        world.settle().await;
        assert_eq!(world.dials(), turn as usize, "the pause grows");
        world.clock.advance(pause / 2);
    }
}

#[tokio::test]
async fn a_password_that_the_server_quotes_is_not_shown() {
    let world = World::new(&format!("redis://user:{CANARY}@h"));
    let asked = world.sends("PING", None, 10 * SECOND);
    let mut peer = world.accepts().await;
    assert!(peer.receives("HELLO").await.contains(CANARY));
    let quoted = format!("with args beginning with: `3` `AUTH` `user` `{CANARY}`");
    peer.sends_text(&format!("-ERR unknown command `HELLO`, {quoted}\r\n")).await;
    drop(peer);
    let mut peer = world.accepts().await;
    peer.receives("LIB-VER").await;
    peer.sends_text(&format!("-ERR unknown command `AUTH`, {quoted}\r\n")).await;
    peer.sends_text("*0\r\n*0\r\n+OK\r\n+OK\r\n+OK\r\n").await;
    let error = outcome(asked).await.expect_err("refused");
    let shown = format!("{error} {error:?} {:?}", world.link);
    assert!(shown.contains("does not know a command") && !shown.contains(CANARY), "{shown}");
}

#[tokio::test]
async fn an_invalid_frame_ends_the_connection() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let asked = world.sends("ECHO a", None, SECOND);
    peer.receives("ECHO").await;
    peer.sends_text("!!!not a RESP frame\r\n").await;
    let error = outcome(asked).await.expect_err("rubbish");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    peer.is_closed().await;
}

/// An announced length is not trusted before its bytes are there.
#[tokio::test]
async fn an_announced_length_is_waited_for_until_the_deadline_only() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let asked = world.sends("ECHO a", None, SECOND);
    peer.receives("ECHO").await;
    peer.sends_text("$536870912\r\na few bytes").await;
    world.settle().await;
    world.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("never whole"), Certainty::Unknown);
}

#[tokio::test]
async fn a_request_that_waits_for_a_connection_is_not_applied_at_its_deadline() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.receives("HELLO").await;
    let asked = world.sends("SET k v", None, SECOND);
    world.settle().await;
    world.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("no connection"), Certainty::NotApplied);
    let late = world.sends("SET k v", None, 10 * SECOND);
    world.settle().await;
    world.clock.advance(SECOND);
    let error = outcome(late).await.expect_err("the dial has failed");
    assert!(unavailable(&error, Certainty::NotApplied).contains("no reply"), "{error}");
    peer.is_closed().await;
}

/// A refusal that an operator must fix is reported at once, and attempts are rare.
#[tokio::test]
async fn while_the_server_refuses_us_requests_fail_at_once() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.receives("HELLO").await;
    peer.sends_text("-NOAUTH HELLO must be called with the client already authenticated\r\n").await;
    world.settle().await;
    for _ in 0..3 {
        let asked = world.sends("PING", None, 10 * SECOND);
        assert!(refused(&outcome(asked).await.expect_err("refused")).contains("password"));
    }
    assert_eq!(world.dials(), 1);
    world.clock.advance(SECOND);
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    world.settle().await;
    world.link.ready().await.expect("a connection");
}

/// A waiter with our inbox must always have a subscriber.
#[tokio::test]
async fn a_new_connection_is_subscribed_before_it_carries_requests() {
    let world = World::new("redis://h");
    let mut inbox = world.link.subscribe(b"inbox".to_vec());
    let subscribed = ">3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";
    for turn in 0..2 {
        let mut peer = world.accepts().await;
        let asked = world.sends("ECHO a", None, 10 * SECOND);
        peer.shakes_hands().await;
        assert!(!peer.receives("SUBSCRIBE").await.contains("ECHO"));
        world.settle().await;
        assert!(!asked.is_finished());
        peer.sends_text(subscribed).await;
        peer.receives("ECHO").await;
        peer.sends_text("$1\r\na\r\n").await;
        assert_eq!(outcome(asked).await.expect("an answer"), bytes("a"));
        if turn > 0 {
            assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Lost));
        }
        assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
        drop(peer);
        world.settle().await;
        world.clock.advance(SECOND);
    }
}

/// Each check of one deadline takes so long that the next one passes meanwhile.
#[tokio::test]
async fn deadlines_that_pass_faster_than_they_are_checked_are_all_reported() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let send = |number: u32| world.sends("ECHO x", None, SECOND + SECOND * number / 1_000);
    let sent: Vec<_> = (0..50).map(send).collect();
    peer.receives("ECHO").await;
    world.settle().await;
    world.clock.advance(SECOND);
    world.clock.advances_by_itself.store(true, Ordering::SeqCst);
    let all_failed = async {
        while !sent.iter().all(tokio::task::JoinHandle::is_finished) {
            world.clock.now();
            tokio::task::yield_now().await;
        }
    };
    in_time(all_failed).await;
    for one in sent {
        unavailable(&outcome(one).await.expect_err("silent"), Certainty::Unknown);
    }
}

/// The end of the stream is read together with the last reply: the task has ended by then.
#[tokio::test]
async fn a_connection_that_ends_after_its_handshake_is_not_polled_again() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    drop(peer);
    world.settle().await;
    assert_eq!(world.network.panics.load(Ordering::SeqCst), 0);
    world.clock.advance(SECOND);
    world.accepts().await.shakes_hands().await;
}
