//! Reconnecting, in the world of [`super::world`]: pauses, old connections that are kept, and the
//! errors of requests that wait meanwhile.

use super::world::{ID, Peer, SECOND, World, number_of_ping, outcome};
use super::*;

const NOAUTH: &str = "-NOAUTH HELLO must be called with the client already authenticated\r\n";

async fn shakes_hands(world: &World) -> Peer {
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    world.settle().await;
    peer
}

/// Lets the server refuse us, and checks that the next attempt comes after this pause and not
/// before.
async fn refuses(world: &World, pause: Duration) {
    let mut peer = world.accepts().await;
    peer.receives("HELLO").await;
    peer.sends_text(NOAUTH).await;
    pauses(world, pause).await;
}

/// Checks that the next attempt comes after this pause and not before.
async fn pauses(world: &World, pause: Duration) {
    world.settle().await;
    let dials = world.dials();
    world.clock.advance(pause - Duration::from_millis(1));
    world.settle().await;
    assert_eq!(world.dials(), dials, "sooner than {pause:?}");
    world.clock.advance(Duration::from_millis(1));
    until("the next try", || world.dials() == dials + 1).await;
}

/// Lets a request hang on a connection until its deadline.
async fn hangs(world: &World, line: &str, affinity: Option<Affinity>) -> Peer {
    let mut peer = shakes_hands(world).await;
    let asked = world.sends(line, affinity, SECOND);
    peer.receives(line.split(' ').next().unwrap_or_default()).await;
    world.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
    peer
}

#[tokio::test]
async fn a_server_that_refuses_us_is_dialled_rarely_until_it_accepts() {
    let world = World::new("redis://h");
    refuses(&world, SECOND).await;
    refuses(&world, 2 * SECOND).await;
    refuses(&world, 4 * SECOND).await;
    refuses(&world, 5 * SECOND).await;
    let peer = shakes_hands(&world).await;
    world.clock.advance(2 * SECOND);
    drop(peer);
    refuses(&world, SECOND).await;
}

#[tokio::test]
async fn after_a_connection_that_lasted_pauses_are_short_again() {
    let world = World::new("redis://h");
    for pause in [20, 40, 80, 160] {
        drop(shakes_hands(&world).await);
        pauses(&world, Duration::from_millis(pause)).await;
    }
    let lasts = shakes_hands(&world).await;
    world.clock.advance(2 * SECOND);
    drop(lasts);
    drop(shakes_hands(&world).await);
    pauses(&world, Duration::from_millis(20)).await;
}

/// An old refusal means nothing after the server has accepted us.
#[tokio::test]
async fn after_a_good_connection_requests_wait_for_the_next_one() {
    let world = World::new("redis://h");
    refuses(&world, SECOND).await;
    let peer = shakes_hands(&world).await;
    drop(peer);
    world.settle().await;
    let asked = world.sends("ECHO a", None, 10 * SECOND);
    world.settle().await;
    world.clock.advance(SECOND);
    let mut peer = shakes_hands(&world).await;
    peer.receives("ECHO").await;
    peer.sends_text("$1\r\na\r\n").await;
    assert_eq!(outcome(asked).await.expect("an answer"), bytes("a"));
}

/// The last failure says more than that there was no connection.
#[tokio::test]
async fn a_request_that_waits_until_its_deadline_reports_why_there_was_no_connection() {
    let world = World::new("redis://h");
    drop(world.accepts().await);
    world.settle().await;
    world.clock.advance(SECOND);
    let mut silent = world.accepts().await;
    silent.receives("HELLO").await;
    let asked = world.sends("PING", None, SECOND);
    world.settle().await;
    world.clock.advance(SECOND);
    let error = outcome(asked).await.expect_err("no connection");
    assert!(unavailable(&error, Certainty::NotApplied).contains("broke off"), "{error}");
}

#[tokio::test]
async fn of_the_connections_that_hang_the_oldest_go() {
    let world = World::new("redis://h");
    let mut all = Vec::new();
    for number in 1..=6 {
        all.push(hangs(&world, "SET k v", Some([number; 16])).await);
    }
    let _good = shakes_hands(&world).await;
    all[0].is_closed().await;
    all[1].is_closed().await;
    // The newest are kept for requests that must go behind.
    let _undone = world.sends("DEL k", Some([3; 16]), SECOND);
    all[2].receives("DEL").await;
}

#[tokio::test]
async fn a_connection_that_recovers_too_late_ends_only_when_all_is_answered() {
    let world = World::new("redis://h");
    let mut old = hangs(&world, "SET k v", Some(ID)).await;
    let number = number_of_ping(&old.receives("PING").await);
    let undone = world.sends("DEL k", Some(ID), 10 * SECOND);
    old.receives("DEL").await;
    let _good = shakes_hands(&world).await;
    old.sends_text(&format!("+OK\r\n${}\r\n{number}\r\n", number.len())).await;
    world.settle().await;
    assert!(!undone.is_finished());
    old.sends_text(":1\r\n").await;
    assert_eq!(outcome(undone).await.expect("undone"), Value::Integer(1));
    old.is_closed().await;
}

/// A very short deadline proves nothing; an unanswered ping after it does.
#[tokio::test]
async fn a_ping_that_is_not_answered_makes_a_connection_suspect() {
    let world = World::new("redis://h");
    let mut peer = shakes_hands(&world).await;
    world.clock.advance(2 * SECOND);
    let asked = world.sends("ECHO a", None, Duration::from_millis(1));
    peer.receives("ECHO").await;
    world.clock.advance(Duration::from_millis(1));
    unavailable(&outcome(asked).await.expect_err("no time"), Certainty::Unknown);
    peer.receives("PING").await;
    world.clock.advance(Duration::from_millis(250));
    let _good = shakes_hands(&world).await;
}

#[tokio::test]
async fn a_server_without_resp3_is_asked_for_it_once() {
    let world = World::new("redis://h");
    let mut peer = world.accepts().await;
    peer.receives("HELLO").await;
    peer.sends_text("-NOPROTO unsupported protocol version\r\n").await;
    for _ in 0..2 {
        let mut peer = world.accepts().await;
        assert!(!peer.shakes_hands_resp2().await.contains("HELLO"));
        world.settle().await;
        world.clock.advance(2 * SECOND);
        drop(peer);
        world.settle().await;
    }
}

/// It is closed even if its handshake is complete and only the subscription is missing.
#[tokio::test]
async fn a_new_connection_ends_when_the_old_one_recovers_meanwhile() {
    let world = World::new("redis://h");
    let _inbox = world.link.subscribe(b"inbox".to_vec());
    let mut old = world.accepts().await;
    old.shakes_hands().await;
    old.receives("SUBSCRIBE").await;
    old.sends_text(super::inbox::SUBSCRIBED).await;
    world.settle().await;
    let asked = world.sends("ECHO a", None, SECOND);
    old.receives("ECHO").await;
    world.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
    let number = number_of_ping(&old.receives("PING").await);
    let mut new = world.accepts().await;
    new.shakes_hands().await;
    new.receives("SUBSCRIBE").await;
    old.sends_text(&format!("$1\r\na\r\n${}\r\n{number}\r\n", number.len())).await;
    new.is_closed().await;
}

#[tokio::test]
async fn a_connection_that_recovered_is_not_closed_later() {
    let world = World::new("redis://h");
    let mut peer = hangs(&world, "SET k v", None).await;
    let number = number_of_ping(&peer.receives("PING").await);
    peer.sends_text(&format!("+OK\r\n${}\r\n{number}\r\n", number.len())).await;
    world.settle().await;
    for _ in 0..2 {
        world.clock.advance(40 * SECOND);
        world.settle().await;
        let asked = world.sends("ECHO a", None, SECOND);
        peer.receives("ECHO").await;
        peer.sends_text("$1\r\na\r\n").await;
        assert_eq!(outcome(asked).await.expect("an answer"), bytes("a"));
    }
}

#[tokio::test]
async fn a_server_that_still_loads_its_data_is_tried_again() {
    let world = World::new("redis://h?protocol=resp2");
    let asked = world.sends("PING", None, 10 * SECOND);
    let mut peer = world.accepts().await;
    peer.receives("LIB-VER").await;
    peer.sends_text("-LOADING Redis is loading\r\n*0\r\n+OK\r\n+OK\r\n+OK\r\n").await;
    let error = outcome(asked).await.expect_err("it cannot answer yet");
    assert!(unavailable(&error, Certainty::NotApplied).contains("loading"), "{error}");
    pauses(&world, Duration::from_millis(20)).await;
    let mut peer = world.accepts().await;
    peer.shakes_hands_resp2().await;
    in_time(world.link.ready()).await.expect("a connection");
}

#[tokio::test]
async fn a_reply_larger_than_the_buffer_is_read_completely() {
    let world = World::new("redis://h");
    let mut peer = shakes_hands(&world).await;
    for size in [300_000, 3] {
        let asked = world.sends("ECHO a", None, SECOND);
        peer.receives("ECHO").await;
        let text = "x".repeat(size);
        peer.sends_text(&format!("${size}\r\n{text}\r\n")).await;
        assert_eq!(outcome(asked).await.expect("an answer"), bytes(&text));
    }
}
