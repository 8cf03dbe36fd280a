//! When messages are received, in the world of [`super::world`].

use super::world::{Peer, SECOND, World};
use super::*;
use crate::RedisEngine;
use crate::inbox::{Grants, ProcessInbox};
use crate::link::facts::{Quarantine, ServerFacts};
use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::hints::Watches;
use holdline_core::{
    AcquireRequest, ClientId, Engine, ErrorKind, Hold, LeaseId, LockKind, LockName, Metadata, Mode,
    Moment,
};

pub(super) const SUBSCRIBED: &str = ">3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";
const SUBSCRIBED_OF_OLD: &str = "*3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";

/// Accepts the second connection of RESP2, and confirms its subscription.
async fn accepts_subscriber(world: &World) -> Peer {
    let mut resp2_subscriber = world.accepts().await;
    resp2_subscriber.receives("SUBSCRIBE").await;
    resp2_subscriber.sends_text(SUBSCRIBED_OF_OLD).await;
    resp2_subscriber
}

/// With RESP2 the subscription has a connection of its own, whose attempts become rare.
#[tokio::test]
async fn when_the_server_returns_the_second_connection_is_made_at_once() {
    let world = World::new("redis://h?protocol=resp2");
    let mut inbox = world.link.subscribe(b"inbox".to_vec());
    let mut first = world.accepts().await;
    first.shakes_hands_resp2().await;
    for pause in [20, 40, 80, 160, 320, 640] {
        let resp2_subscriber = accepts_subscriber(&world).await;
        assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
        drop(resp2_subscriber);
        assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Lost));
        world.settle().await;
        if pause < 640 {
            world.clock.advance(Duration::from_millis(pause));
        }
    }
    drop(first);
    world.settle().await;
    world.clock.advance(Duration::from_millis(20));
    let mut again = world.accepts().await;
    again.shakes_hands_resp2().await;
    let _subscriber = accepts_subscriber(&world).await;
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
}

#[tokio::test]
async fn after_a_second_connection_that_lasted_pauses_are_short_again() {
    let world = World::new("redis://h?protocol=resp2");
    let _inbox = world.link.subscribe(b"inbox".to_vec());
    let mut first = world.accepts().await;
    first.shakes_hands_resp2().await;
    for pause in [20, 40, 80, 160] {
        drop(accepts_subscriber(&world).await);
        world.settle().await;
        world.clock.advance(Duration::from_millis(pause));
    }
    let lasts = accepts_subscriber(&world).await;
    world.settle().await;
    world.clock.advance(2 * SECOND);
    drop(lasts);
    world.settle().await;
    world.clock.advance(Duration::from_millis(20));
    accepts_subscriber(&world).await;
}

/// Otherwise a contender that queues during a reconnect would be served by its heartbeat only.
#[tokio::test]
async fn after_a_timeout_and_a_confirmation_callers_wait_again() {
    let world = World::new("redis://h");
    let (clock, watches) = (Arc::new(world.clock.clone()), Arc::new(Watches::default()));
    let inbox = Arc::new(ProcessInbox::new(
        world.link.clone(),
        clock,
        b"inbox".to_vec(),
        watches,
        Grants::Believed,
    ));
    let receives = || {
        let inbox = inbox.clone();
        tokio::spawn(async move { inbox.subscribed_within(SECOND).await })
    };
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let in_vain = receives();
    peer.receives("SUBSCRIBE").await;
    world.clock.advance(SECOND);
    assert!(!in_time(in_vain).await.expect("no panic"));
    assert!(!in_time(receives()).await.expect("no panic"), "nobody waits again meanwhile");
    peer.sends_text(SUBSCRIBED).await;
    until("messages are received", || inbox.is_subscribed()).await;
    drop(peer);
    until("messages are no longer received", || !inbox.is_subscribed()).await;
    let waits = receives();
    world.settle().await;
    world.clock.advance(SECOND / 2);
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    peer.receives("SUBSCRIBE").await;
    world.settle().await;
    assert!(!waits.is_finished());
    peer.sends_text(SUBSCRIBED).await;
    assert!(in_time(waits).await.expect("no panic"));
}

/// The default of Redis 7 gives a new user no channel.
#[tokio::test]
async fn a_refused_subscription_ends_the_wait_for_it_at_once() {
    let world = World::new("redis://h");
    let (clock, watches) = (Arc::new(world.clock.clone()), Arc::new(Watches::default()));
    let inbox = Arc::new(ProcessInbox::new(
        world.link.clone(),
        clock,
        b"inbox".to_vec(),
        watches,
        Grants::Believed,
    ));
    let receives = || {
        let inbox = inbox.clone();
        tokio::spawn(async move { inbox.subscribed_within(SECOND).await })
    };
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let first = receives();
    peer.receives("SUBSCRIBE").await;
    peer.sends_text("-NOPERM no permissions to access one of the channels\r\n").await;
    // The clock stands still.
    assert!(!in_time(first).await.expect("no panic"));
    assert!(!in_time(receives()).await.expect("no panic"));
    // On the next connection the user may subscribe.
    drop(peer);
    world.settle().await;
    world.clock.advance(SECOND);
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    peer.receives("SUBSCRIBE").await;
    peer.sends_text(SUBSCRIBED).await;
    until("messages are received", || inbox.is_subscribed()).await;
}

/// The lease of a hand-off may be a second; restoring the subscription may take longer.
#[tokio::test]
async fn a_repeated_request_does_not_wait_for_the_subscription() {
    let world = World::with("redis://h?quarantine=off", RedisEngine::new);
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    let engine = world.link.clone();
    let granted = tokio::spawn(async move {
        let request = AcquireRequest {
            name: LockName::new("a").expect("a good name"),
            lease_id: LeaseId::from_bytes([1; 16]),
            client: ClientId::from_u64(1),
            mode: Mode::Exclusive,
            kind: LockKind::Mutex,
            hold: Hold::Leased(SECOND),
            queue: true,
            known: true,
            hand_off_lease: MIN_HAND_OFF_LEASE,
            metadata: Metadata::default(),
        };
        engine.try_acquire(&request).await
    });
    peer.receives("EVALSHA").await;
    peer.sends_text("$16\r\n0000000000000042\r\n").await;
    in_time(granted).await.expect("no panic").expect("granted");
}

#[tokio::test]
async fn a_subscription_that_fails_is_requested_again() {
    let world = World::new("redis://h");
    let mut inbox = world.link.subscribe(b"inbox".to_vec());
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    // Before the connection is used, and at once after it.
    for _ in 0..2 {
        peer.receives("SUBSCRIBE").await;
        peer.sends_text("-LOADING the data\r\n").await;
    }
    world.settle().await;
    world.clock.advance(Duration::from_millis(100));
    peer.receives("SUBSCRIBE").await;
    peer.sends_text(SUBSCRIBED).await;
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
}

#[tokio::test]
async fn a_refused_channel_is_not_requested_again_on_that_connection() {
    let world = World::new("redis://h");
    let _inbox = world.link.subscribe(b"inbox".to_vec());
    let mut peer = world.accepts().await;
    peer.shakes_hands().await;
    peer.receives("SUBSCRIBE").await;
    peer.sends_text("-NOPERM no permissions to access one of the channels\r\n").await;
    world.settle().await;
    let _other = world.link.subscribe(b"other".to_vec());
    let said = peer.receives("SUBSCRIBE").await;
    assert!(said.contains("other") && !said.contains("inbox"), "{said}");
}

#[tokio::test]
async fn the_second_connection_authenticates_and_requests_a_refused_channel_once() {
    let world = World::new("redis://who:canary-2c41@h?protocol=resp2");
    let _inbox = world.link.subscribe(b"inbox".to_vec());
    let mut first = world.accepts().await;
    first.receives("LIB-VER").await;
    first.sends_text("+OK\r\n$9\r\nrun_id:ab\r\n*0\r\n+OK\r\n+OK\r\n+OK\r\n").await;
    let mut resp2_subscriber = world.accepts().await;
    let said = resp2_subscriber.receives("AUTH").await;
    assert!(said.contains("who") && said.contains("canary-2c41"), "{said}");
    resp2_subscriber.sends_text("+OK\r\n").await;
    resp2_subscriber.receives("SUBSCRIBE").await;
    resp2_subscriber.sends_text("-NOPERM no permissions to access one of the channels\r\n").await;
    world.settle().await;
    let _other = world.link.subscribe(b"other".to_vec());
    let said = resp2_subscriber.receives("SUBSCRIBE").await;
    assert!(said.contains("other") && !said.contains("inbox"), "{said}");
}

/// A message can be read before this client has asked the new master, which would say so.
#[test]
fn a_hand_off_counts_only_from_a_master_that_may_grant() {
    let quarantine = Some(Quarantine { since: Moment::ORIGIN, left: 2 * SECOND });
    let master = ServerFacts { quarantine, ..ServerFacts::default() };
    let unknown = ServerFacts::default();
    let replica =
        ServerFacts { no_grants: Some(ErrorKind::NotInitialised), ..ServerFacts::default() };
    let counts =
        |sender, second| Grants::OfMaster.counts(sender, Moment::ORIGIN.after(second * SECOND));
    assert!(!counts(Some(&master), 1));
    assert!(counts(Some(&master), 2));
    assert!(counts(Some(&unknown), 2), "a server that lets nobody ask");
    assert!(!counts(Some(&replica), 2));
    assert!(!counts(None, 2), "a connection that did not ask which server it is");
    master.quarantine_ended.set(()).expect("once");
    assert!(counts(Some(&master), 1), "an operator has ended it");
    assert!(!Grants::Asked.counts(Some(&master), Moment::ORIGIN.after(2 * SECOND)));
}
