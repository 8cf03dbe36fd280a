//! Faults of other ZooKeeper clients, one test each.

use std::time::Duration;

use holdline_core::{
    AcquireReply, Certainty, ErrorKind, Hint, LockName, Purpose, ReleaseReply, RenewReply,
};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use zookeeper_client::{Acls, CreateMode};

use crate::relay::Relay;
use crate::support::{connect, contender, engine, hint, nodes, raw, until};

async fn server() -> (ZooKeeper, holdline_zookeeper::ZooKeeperEngine) {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let engine = engine(&server.url()).await;
    (server, engine)
}

#[tokio::test]
async fn one_server_shows_what_a_session_keeps_and_what_it_does_not() {
    let (server, engine) = server().await;
    two_locks_of_one_client_on_one_name_do_not_share_a_node(&server, &engine).await;
    a_release_that_comes_again_frees_nothing_of_the_next_one(&engine).await;
    a_waiter_that_is_not_renewed_loses_its_position(&server, &engine).await;
    an_id_that_another_engine_gave_up_does_not_come_back(&server).await;
}

async fn two_locks_of_one_client_on_one_name_do_not_share_a_node(
    server: &ZooKeeper,
    engine: &holdline_zookeeper::ZooKeeperEngine,
) {
    let mut one = contender(engine, "a");
    let mut other = contender(engine, "a");
    other.request.client = one.request.client;
    one.take().await;
    other.queue().await;
    let found = nodes(server, "/holdline/a").await;
    let begin = format!("/holdline/a/_c_{}-lock-", one.request.lease_id.to_hex());
    assert!(found.len() == 2 && found.iter().any(|path| path.starts_with(&begin)), "{found:?}");
    one.let_go().await;
    assert!(matches!(other.renew(Purpose::Wait).await, Ok(RenewReply::Held { .. })));
    other.let_go().await;
}

async fn a_release_that_comes_again_frees_nothing_of_the_next_one(
    engine: &holdline_zookeeper::ZooKeeperEngine,
) {
    let mut one = contender(engine, "b");
    let mut next = contender(engine, "b");
    one.take().await;
    next.queue().await;
    one.let_go().await;
    for _ in 0..3 {
        let reply = one.release(false).await.expect("a reply");
        assert_eq!(reply, ReleaseReply::NotHeld { revoked: None });
    }
    next.take().await;
    assert!(matches!(next.keep().await, Ok(RenewReply::Renewed { .. })));
}

/// The node of a waiter may be gone when the waiter is first in the queue.
async fn a_waiter_that_is_not_renewed_loses_its_position(
    server: &ZooKeeper,
    engine: &holdline_zookeeper::ZooKeeperEngine,
) {
    let mut holder = contender(engine, "c");
    let mut waiter = contender(engine, "c").for_seconds(1);
    holder.take().await;
    waiter.queue().await;
    let mut hints = waiter.watch();
    hint(&mut hints, Hint::CheckLease).await;
    until("its node is gone", async || nodes(server, "/holdline/c").await.len() == 1).await;
    holder.let_go().await;
    assert!(matches!(waiter.ask().await, Ok(AcquireReply::Unknown)));
}

async fn an_id_that_another_engine_gave_up_does_not_come_back(server: &ZooKeeper) {
    let (here, there) = (engine(&server.url()).await, engine(&server.url()).await);
    let mut late = contender(&here, "d");
    let mut elsewhere = late.clone();
    elsewhere.engine = there;
    let reply = elsewhere.release(true).await.expect("a reply");
    assert_eq!(reply, ReleaseReply::NotHeld { revoked: None });
    let error = late.ask().await.expect_err("given up");
    assert_eq!((error.kind(), error.certainty()), (&ErrorKind::Cancelled, Certainty::NotApplied));
    assert_eq!(nodes(server, "/holdline/d").await, Vec::<String>::new());
}

/// The creation is carried out and its answer lost: asked again under the same id, the node is
/// found by the id in its name, and there is one.
#[tokio::test]
async fn a_creation_whose_reply_was_lost_is_found_again() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let relay = Relay::start(server.address(0)).await;
    let url = format!("zk://{}?command_timeout_ms=2000", relay.address);
    let engine = connect(&url).await.expect("connected");
    let mut holder = contender(&engine, "a");
    holder.take().await;
    let mut lost = contender(&engine, "a");
    lost.request.client = holder.request.client;
    let its_id = lost.request.lease_id.to_hex();
    relay.lose_answers_from(&format!("{its_id}-lock-"));
    let error = lost.ask().await.expect_err("no answer");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    assert!(relay.loses(), "the creation has left");
    relay.break_off();
    until("it gets its position", async || {
        matches!(lost.ask().await, Ok(AcquireReply::Queued { .. }))
    })
    .await;
    let found = nodes(&server, "/holdline/a").await;
    assert_eq!(found.iter().filter(|path| path.contains(&its_id)).count(), 1, "{found:?}");
    holder.let_go().await;
    lost.take().await;
}

/// A node may be created after a heartbeat of its waiter that found none. Its session is remembered
/// all the same, so that a release finds the node.
#[tokio::test]
async fn a_heartbeat_forgets_no_creation_that_is_under_way() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let relay = Relay::start(server.address(0)).await;
    let url = format!("zk://{}?command_timeout_ms=500", relay.address);
    let engine = connect(&url).await.expect("connected");
    let (mut other, mut late) = (contender(&engine, "a"), contender(&engine, "a"));
    late.request.client = other.request.client;
    other.take().await;
    relay.hold_request(&format!("{}-lock-", late.request.lease_id.to_hex()));
    let error = late.ask().await.expect_err("no answer");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    let heartbeat = late.renew(Purpose::Wait).await;
    let mut released = late.release(true).await.is_ok();
    relay.let_go();
    until("it is released", async || {
        released = released || late.release(true).await.is_ok();
        released
    })
    .await;
    // On the same connection, and so after all that was held back.
    other.let_go().await;
    assert_eq!(nodes(&server, "/holdline/a").await, Vec::<String>::new());
    assert_eq!(heartbeat.expect_err("no answer yet").certainty(), Certainty::Unknown);
}

/// The creation times out while there is no connection. The client crate that was used before sent
/// it after the reconnect, when the caller had given up.
#[tokio::test]
async fn a_creation_that_is_sent_after_a_reconnect_leaves_no_node() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let relay = Relay::start(server.address(0)).await;
    let url = format!("zk://{}?command_timeout_ms=500", relay.address);
    let engine = connect(&url).await.expect("connected");
    let mut other = contender(&engine, "a");
    other.take().await;
    for heartbeats in [false, true] {
        relay.refuse(true);
        let mut tried = Vec::new();
        // The first ones may leave while the connection breaks.
        until("a creation is certainly not sent", async || {
            let mut late = contender(&engine, "a");
            late.request.client = other.request.client;
            let error = late.ask().await.expect_err("no connection");
            assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
            tried.push(late);
            error.certainty() == Certainty::NotApplied
        })
        .await;
        if heartbeats && let Some(late) = tried.last() {
            late.renew(Purpose::Wait).await.expect_err("no connection");
        }
        relay.refuse(false);
        // On the same connection, and so after all that was queued.
        until("the connection is back", async || other.keep().await.is_ok()).await;
        let found = nodes(&server, "/holdline/a").await;
        let id_of = |late: &crate::support::Contender| late.request.lease_id.to_hex();
        let unsent = tried.last().map(id_of).expect("one");
        assert!(!found.iter().any(|path| path.contains(&unsent)), "{found:?}");
        for late in &tried {
            until("it is released", async || late.release(true).await.is_ok()).await;
        }
        let found = nodes(&server, "/holdline/a").await;
        assert_eq!(found.len(), 1, "{found:?}");
    }
    other.let_go().await;
}

/// Engines of one process share what they know of lease ids, and so the sessions in which those
/// are. An engine that is dropped leaves none open for longer than its leases last.
#[tokio::test]
async fn what_a_dropped_engine_held_ends_with_its_lease() {
    let (server, dropped) = server().await;
    let engine = engine(&server.url()).await;
    let mut holder = contender(&dropped, "a").for_seconds(6);
    holder.take().await;
    drop((holder, dropped));
    let mut next = contender(&engine, "a");
    next.queue().await;
    until("the name is free", async || {
        matches!(next.ask().await, Ok(AcquireReply::Granted { .. }))
    })
    .await;
}

/// A server, and an engine that reaches it through a relay.
async fn behind_a_relay() -> (ZooKeeper, Relay, holdline_zookeeper::ZooKeeperEngine) {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let relay = Relay::start(server.address(0)).await;
    let engine = engine(&format!("zk://{}", relay.address)).await;
    (server, relay, engine)
}

/// The undo used to look before the node was made, and nothing deleted it then.
#[tokio::test]
async fn a_lease_id_that_is_given_up_while_it_is_asked_for_leaves_no_node() {
    let (server, relay, engine) = behind_a_relay().await;
    relay.hold_answers_from("/holdline/fresh");
    let mut late = contender(&engine, "fresh");
    let given_up = late.clone();
    let asking = tokio::spawn(async move { late.ask().await.map(drop) });
    until("it is asked for", async || relay.holds()).await;
    let mut undoing = tokio::spawn(async move { given_up.release(true).await });
    // event: an undo that does not wait for the request is done by then
    let early = tokio::time::timeout(Duration::from_millis(500), &mut undoing).await;
    relay.let_go();
    // Granted or cancelled: the answer is not used.
    let _ = asking.await.expect("a reply");
    match early {
        Ok(undone) => undone.expect("a reply").map(drop).expect("done"),
        Err(_) => undoing.await.expect("a reply").map(drop).expect("done"),
    }
    assert_eq!(nodes(&server, "/holdline/fresh").await, Vec::<String>::new());
    contender(&engine, "fresh").take().await;
}

#[tokio::test]
async fn asking_again_while_the_first_request_is_under_way_makes_one_node() {
    let (server, relay, engine) = behind_a_relay().await;
    relay.hold_answers_from("/holdline/twice");
    let (mut first, mut again) = (contender(&engine, "twice"), contender(&engine, "twice"));
    again.request = first.request.clone();
    let asking = tokio::spawn(async move { first.take().await });
    until("it is asked for", async || relay.holds()).await;
    let mut again_asking = tokio::spawn(async move { again.take().await });
    // event: a second request that does not wait for the first has left by then
    let early = tokio::time::timeout(Duration::from_millis(500), &mut again_asking).await;
    assert!(early.is_err(), "both watch the same node");
    relay.let_go();
    let token = asking.await.expect("granted");
    assert_eq!(again_asking.await.expect("granted"), token);
    assert_eq!(nodes(&server, "/holdline/twice").await.len(), 1);
}

/// The record of a holder in another process cannot be read. A waiter gets its position, and gives
/// it up.
#[tokio::test]
async fn a_waiter_behind_an_unreadable_holder_gets_its_position_and_leaves_no_node() {
    let (server, engine) = server().await;
    let mut before = contender(&engine, "a");
    before.take().await;
    before.let_go().await;
    let raw = crate::support::raw(&server).await;
    let mode = zookeeper_client::CreateMode::EphemeralSequential
        .with_acls(zookeeper_client::Acls::anyone_all());
    let theirs = format!("/holdline/a/_c_{}-lock-", before.request.lease_id.to_hex());
    raw.create(&theirs, b"newer", &mode).await.expect("made");
    let held = nodes(&server, "/holdline/a").await.pop().expect("one node");
    let mut waiter = contender(&engine, "a");
    let reply = waiter.ask().await.expect("queued");
    assert!(matches!(reply, AcquireReply::Queued { holder: None, .. }), "{reply:?}");
    assert_eq!(waiter.release(true).await.expect("a reply"), ReleaseReply::Withdrawn);
    assert_eq!(nodes(&server, "/holdline/a").await, [held]);
}

/// A foreign node in the queue used to prevent a release, which was not tried again.
#[tokio::test]
async fn a_foreign_node_in_a_queue_prevents_no_release() {
    let (server, engine) = server().await;
    let (mut holder, mut waiter) = (contender(&engine, "a"), contender(&engine, "a"));
    holder.take().await;
    waiter.queue().await;
    let raw = crate::support::raw(&server).await;
    let open =
        zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    raw.create("/holdline/a/stranger", b"", &open).await.expect("made");
    assert_eq!(waiter.release(true).await.expect("a reply"), ReleaseReply::Withdrawn);
    holder.let_go().await;
    assert_eq!(nodes(&server, "/holdline/a").await, ["/holdline/a/stranger"]);
}

#[tokio::test]
async fn a_session_that_hangs_delays_no_renewal_of_others() {
    let (_server, relay, engine) = behind_a_relay().await;
    let mut hung = contender(&engine, "hung").for_seconds(20);
    let mut well = contender(&engine, "well").for_seconds(10);
    hung.take().await;
    well.take().await;
    relay.hold_answers_from("/holdline/hung");
    let request = |contender: &crate::support::Contender| holdline_core::RenewRequest {
        name: contender.request.name.clone(),
        lease_id: contender.request.lease_id,
        client: contender.request.client,
        purpose: Purpose::Keep(contender.request.hold),
    };
    let batch = [request(&hung), request(&well)];
    let mut reply = holdline_core::Engine::renew(&engine, &batch).await;
    let (well_reply, hung_reply) = (reply.pop().expect("two"), reply.pop().expect("two"));
    assert!(matches!(well_reply, Ok(RenewReply::Renewed { .. })), "{well_reply:?}");
    let hung_reply = hung_reply.expect_err("no answer");
    assert_eq!(hung_reply.certainty(), Certainty::Unknown, "{hung_reply}");
    relay.let_go();
}

/// A session that has expired leaves its node for a moment: a member that lags still shows it, and
/// a server that was restarted keeps it. Asked again under its id, a contender took that node for
/// one of another client.
#[tokio::test]
async fn a_node_that_an_ended_session_left_is_deleted_and_not_taken_for_another_clients() {
    let (server, engine) = server().await;
    for is_cached in [true, false] {
        let mut left = contender(&engine, "a");
        left.take().await;
        let reply = left.release(false).await.expect("a reply");
        assert!(matches!(reply, ReleaseReply::Released { .. }), "{reply:?}");
        left.request.known = false;
        if !is_cached {
            left.request.name = LockName::new("b").expect("a good name");
        }
        let queue = format!("/holdline/{}", left.request.name.as_str());
        let client = raw(&server).await;
        let mode = |mode: CreateMode| mode.with_acls(Acls::anyone_all());
        client.mkdir(&queue, &mode(CreateMode::Persistent)).await.ok();
        let path = format!("{queue}/_c_{}-lock-", left.request.lease_id.to_hex());
        let sequential = mode(CreateMode::EphemeralSequential);
        client.create(&path, b"", &sequential).await.expect("made");
        left.take().await;
        assert_eq!(nodes(&server, &queue).await.len(), 1);
        left.let_go().await;
        assert_eq!(nodes(&server, &queue).await.len(), 0);
    }
}
