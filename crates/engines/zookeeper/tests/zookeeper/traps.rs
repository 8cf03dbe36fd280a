//! Faults that other clients of ZooKeeper have had, each by its name.

use holdline_core::{AcquireReply, Certainty, ErrorKind, Hint, Purpose, ReleaseReply, RenewReply};
use holdline_services::{ZooKeeper, ZooKeeperConfig};

use crate::relay::Relay;
use crate::support::{connect, contender, engine, hint, nodes, until};

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
    a_waiter_that_nobody_keeps_loses_its_place(&server, &engine).await;
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
    assert!(matches!(other.renew(Purpose::Wait).await, Ok(RenewReply::Handed { .. })));
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
        let told = one.release(false).await.expect("told");
        assert_eq!(told, ReleaseReply::NotHeld { revoked: None });
    }
    next.take().await;
    assert!(matches!(next.keep().await, Ok(RenewReply::Renewed { .. })));
}

/// The node that a waiter had when it began to wait may be gone when its turn comes.
async fn a_waiter_that_nobody_keeps_loses_its_place(
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
    let told = elsewhere.release(true).await.expect("told");
    assert_eq!(told, ReleaseReply::NotHeld { revoked: None });
    let told = late.ask().await.expect_err("given up");
    assert_eq!((told.kind(), told.certainty()), (&ErrorKind::Cancelled, Certainty::NotApplied));
    assert_eq!(nodes(server, "/holdline/d").await, Vec::<String>::new());
}

/// The creation is carried out and its answer lost: asked again under the same id, the node is
/// found by the id in its name, and there is one.
#[tokio::test]
async fn a_creation_whose_answer_was_lost_is_found_again() {
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
    let told = lost.ask().await.expect_err("no answer");
    assert_eq!(told.certainty(), Certainty::Unknown, "{told}");
    assert!(relay.loses(), "the creation has left");
    relay.break_off();
    until("it is known how it stands", async || {
        matches!(lost.ask().await, Ok(AcquireReply::Queued { .. }))
    })
    .await;
    let found = nodes(&server, "/holdline/a").await;
    assert_eq!(found.iter().filter(|path| path.contains(&its_id)).count(), 1, "{found:?}");
    holder.let_go().await;
    lost.take().await;
}
