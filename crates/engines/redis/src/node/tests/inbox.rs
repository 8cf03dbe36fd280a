//! Who hears when, in the world of [`super::world`].

use super::world::{Ground, Peer, SECOND};
use super::*;
use crate::RedisEngine;
use crate::inbox::ProcessInbox;
use holdline_core::contract::MIN_CLAIM_WINDOW;
use holdline_core::hints::Watches;
use holdline_core::{AcquireRequest, ClientId, Engine, Hold, LeaseId, LockName, Metadata, Mode};

pub(super) const SUBSCRIBED: &str = ">3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";
const SUBSCRIBED_OF_OLD: &str = "*3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";

/// Accepts the second connection of the older protocol, and confirms its subscription.
async fn accepts_an_ear(ground: &Ground) -> Peer {
    let mut resp2_subscriber = ground.accepts().await;
    resp2_subscriber.hears("SUBSCRIBE").await;
    resp2_subscriber.says(SUBSCRIBED_OF_OLD).await;
    resp2_subscriber
}

/// By the older protocol the subscription has a connection of its own, whose tries grow seldom.
#[tokio::test]
async fn when_the_server_is_back_the_second_connection_is_made_at_once() {
    let ground = Ground::new("redis://h?protocol=resp2");
    let mut inbox = ground.node.subscribe(b"inbox".to_vec());
    let mut first = ground.accepts().await;
    first.greets_by_the_old_protocol().await;
    for pause in [20, 40, 80, 160, 320, 640] {
        let resp2_subscriber = accepts_an_ear(&ground).await;
        assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
        drop(resp2_subscriber);
        assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Lost));
        ground.settle().await;
        if pause < 640 {
            ground.clock.advance(Duration::from_millis(pause));
        }
    }
    drop(first);
    ground.settle().await;
    ground.clock.advance(Duration::from_millis(20));
    let mut again = ground.accepts().await;
    again.greets_by_the_old_protocol().await;
    let _ear = accepts_an_ear(&ground).await;
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
}

#[tokio::test]
async fn after_a_second_connection_that_lasted_pauses_are_short_again() {
    let ground = Ground::new("redis://h?protocol=resp2");
    let _inbox = ground.node.subscribe(b"inbox".to_vec());
    let mut first = ground.accepts().await;
    first.greets_by_the_old_protocol().await;
    for pause in [20, 40, 80, 160] {
        drop(accepts_an_ear(&ground).await);
        ground.settle().await;
        ground.clock.advance(Duration::from_millis(pause));
    }
    let lasts = accepts_an_ear(&ground).await;
    ground.settle().await;
    ground.clock.advance(2 * SECOND);
    drop(lasts);
    ground.settle().await;
    ground.clock.advance(Duration::from_millis(20));
    accepts_an_ear(&ground).await;
}

/// Else whoever queued while the connection was made anew would be served by its heartbeat only.
#[tokio::test]
async fn who_once_waited_in_vain_waits_again_after_messages_were_heard() {
    let ground = Ground::new("redis://h");
    let (clock, watches) = (Arc::new(ground.clock.clone()), Arc::new(Watches::default()));
    let inbox = Arc::new(ProcessInbox::new(ground.node.clone(), clock, b"inbox".to_vec(), watches));
    let hears = || {
        let inbox = inbox.clone();
        tokio::spawn(async move { inbox.hears_within(SECOND).await })
    };
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let in_vain = hears();
    peer.hears("SUBSCRIBE").await;
    ground.clock.advance(SECOND);
    assert!(!in_time(in_vain).await.expect("no panic"));
    assert!(!in_time(hears()).await.expect("no panic"), "nobody waits again meanwhile");
    peer.says(SUBSCRIBED).await;
    until("messages are heard", || inbox.hears()).await;
    drop(peer);
    until("messages are heard no more", || !inbox.hears()).await;
    let waits = hears();
    ground.settle().await;
    ground.clock.advance(SECOND / 2);
    let mut peer = ground.accepts().await;
    peer.greets().await;
    peer.hears("SUBSCRIBE").await;
    ground.settle().await;
    assert!(!waits.is_finished());
    peer.says(SUBSCRIBED).await;
    assert!(in_time(waits).await.expect("no panic"));
}

/// A claim has a second; messages may take longer to be heard again.
#[tokio::test]
async fn a_claim_does_not_wait_until_messages_are_heard() {
    let ground = Ground::with("redis://h", RedisEngine::new);
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let engine = ground.node.clone();
    let claimed = tokio::spawn(async move {
        let request = AcquireRequest {
            name: LockName::new("a").expect("a good name"),
            lease_id: LeaseId::from_bytes([1; 16]),
            client: ClientId::from_u64(1),
            mode: Mode::Exclusive,
            hold: Hold::Leased(SECOND),
            queue: true,
            known: true,
            claim_window: MIN_CLAIM_WINDOW,
            metadata: Metadata::default(),
        };
        engine.try_acquire(&request).await
    });
    peer.hears("EVALSHA").await;
    peer.says("$16\r\n0000000000000042\r\n").await;
    in_time(claimed).await.expect("no panic").expect("claimed");
}

#[tokio::test]
async fn a_subscription_that_cannot_be_made_now_is_asked_for_again() {
    let ground = Ground::new("redis://h");
    let mut inbox = ground.node.subscribe(b"inbox".to_vec());
    let mut peer = ground.accepts().await;
    peer.greets().await;
    // Before the connection is used, and at once after it.
    for _ in 0..2 {
        peer.hears("SUBSCRIBE").await;
        peer.says("-LOADING the data\r\n").await;
    }
    ground.settle().await;
    ground.clock.advance(Duration::from_millis(100));
    peer.hears("SUBSCRIBE").await;
    peer.says(SUBSCRIBED).await;
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
}

#[tokio::test]
async fn a_channel_that_was_refused_is_not_asked_for_again_on_that_connection() {
    let ground = Ground::new("redis://h");
    let _inbox = ground.node.subscribe(b"inbox".to_vec());
    let mut peer = ground.accepts().await;
    peer.greets().await;
    peer.hears("SUBSCRIBE").await;
    peer.says("-NOPERM no permissions to access one of the channels\r\n").await;
    ground.settle().await;
    let _other = ground.node.subscribe(b"other".to_vec());
    let said = peer.hears("SUBSCRIBE").await;
    assert!(said.contains("other") && !said.contains("inbox"), "{said}");
}

#[tokio::test]
async fn the_second_connection_says_who_we_are_and_asks_once_for_what_is_refused() {
    let ground = Ground::new("redis://who:canary-2c41@h?protocol=resp2");
    let _inbox = ground.node.subscribe(b"inbox".to_vec());
    let mut first = ground.accepts().await;
    first.hears("LIB-VER").await;
    first.says("+OK\r\n$9\r\nrun_id:ab\r\n*0\r\n+OK\r\n+OK\r\n+OK\r\n").await;
    let mut resp2_subscriber = ground.accepts().await;
    let said = resp2_subscriber.hears("AUTH").await;
    assert!(said.contains("who") && said.contains("canary-2c41"), "{said}");
    resp2_subscriber.says("+OK\r\n").await;
    resp2_subscriber.hears("SUBSCRIBE").await;
    resp2_subscriber.says("-NOPERM no permissions to access one of the channels\r\n").await;
    ground.settle().await;
    let _other = ground.node.subscribe(b"other".to_vec());
    let said = resp2_subscriber.hears("SUBSCRIBE").await;
    assert!(said.contains("other") && !said.contains("inbox"), "{said}");
}
