//! Grants that a process learns without a read (H5 and H6 of `known_contenders`).

use std::time::Duration;

use holdline_core::{AcquireReply, Hint, ReleaseReply};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use holdline_zookeeper::ZooKeeperEngine;

use crate::relay::Relay;
use crate::support::{Contender, connect, contender, engine, hint, nodes, raw, until};

/// How often packets are counted: pings come between, and a machine that stands still causes
/// proofs.
const TRIES: usize = 5;

/// How many packets the server has received, with those of this question.
fn received(server: &ZooKeeper) -> u64 {
    let report = server.word(0, "srvr");
    let count = report.lines().find_map(|line| line.strip_prefix("Received: ")).expect("reported");
    count.parse().expect("a number")
}

/// Returns how many packets the server receives during this.
async fn requests(server: &ZooKeeper, during: impl AsyncFnOnce()) -> u64 {
    let question = {
        let before = received(server);
        received(server) - before
    };
    let before = received(server);
    during().await;
    received(server) - before - question
}

/// Another contender of the same client.
fn beside(first: &Contender) -> Contender {
    let mut other = contender(&first.engine, first.request.name.as_str());
    other.request.client = first.request.client;
    other
}

/// An engine that shares no memory with others, like that of another process.
async fn elsewhere(server: &ZooKeeper) -> (ZooKeeperEngine, Relay) {
    let relay = Relay::start(server.address(0)).await;
    let engine = connect(&format!("zk://{}", relay.address)).await.expect("connected");
    (engine, relay)
}

async fn delete_node_of(server: &ZooKeeper, contender: &Contender) {
    let id = contender.request.lease_id.to_hex();
    let all = nodes(server, "/holdline").await;
    let node = all.iter().find(|node| node.contains(&id)).expect("its node");
    raw(server).await.delete(node, None).await.expect("deleted");
}

async fn is_not_granted(waiter: &mut Contender) {
    let reply = waiter.ask().await;
    assert!(!matches!(reply, Ok(AcquireReply::Granted { .. })), "{reply:?}");
}

/// It used to take a read for the hand-off, and one for the place in the queue.
#[tokio::test]
async fn a_hand_off_within_a_process_is_a_creation_and_a_deletion() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let mut holder = contender(&here, "a");
    let mut last = holder.take().await;
    let mut next = beside(&holder);
    next.queue().await;
    let mut counts = Vec::new();
    for _ in 0..TRIES {
        let count = requests(&server, async || {
            let mut third = beside(&holder);
            third.queue().await;
            holder.let_go().await;
            let token = next.take().await;
            assert!(token > last);
            last = token;
            holder = std::mem::replace(&mut next, third);
        })
        .await;
        counts.push(count);
    }
    assert_eq!(counts.iter().min(), Some(&2), "{counts:?}");
}

/// The event of the only node before it used to be followed by a read.
#[tokio::test]
async fn a_waiter_of_another_process_that_is_next_reads_nothing() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let (there, _relay) = elsewhere(&server).await;
    let mut counts = Vec::new();
    for at in 0..TRIES {
        let mut holder = contender(&here, &format!("n{at}"));
        holder.take().await;
        let mut waiter = contender(&there, &format!("n{at}"));
        waiter.queue().await;
        let mut hints = waiter.watch();
        // That of the holder's node, and a little later that of its own.
        until("it watches", async || server.word(0, "wchs").ends_with("watches:2\n")).await;
        let count = requests(&server, async || {
            holder.let_go().await;
            hint(&mut hints, Hint::LookAgain).await;
            waiter.take().await;
        })
        .await;
        counts.push(count);
        waiter.let_go().await;
    }
    assert_eq!(counts.iter().min(), Some(&1), "{counts:?}");
}

/// The node before it is deleted, but not the one before that.
#[tokio::test]
async fn a_place_that_a_waiter_gives_up_is_no_grant() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let (there, _one) = elsewhere(&server).await;
    let (yonder, _two) = elsewhere(&server).await;
    for engines in [[&here, &there, &yonder], [&here, &here, &yonder], [&here, &here, &here]] {
        let [mut holder, mut second, mut third] = engines.map(|engine| contender(engine, "a"));
        holder.take().await;
        second.queue().await;
        third.queue().await;
        let mut hints = third.watch();
        assert_eq!(second.release(true).await.expect("a reply"), ReleaseReply::Withdrawn);
        hint(&mut hints, Hint::LookAgain).await;
        third.queue().await;
        holder.let_go().await;
        hint(&mut hints, Hint::LookAgain).await;
        third.take().await;
        third.let_go().await;
    }
}

/// A process that was paused since it has learned of its grant may have lost it.
#[tokio::test]
async fn a_grant_that_was_learned_some_time_ago_is_asked_for() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let mut holder = contender(&here, "a");
    holder.take().await;
    let mut waiter = beside(&holder);
    waiter.queue().await;
    holder.let_go().await;
    tokio::time::sleep(Duration::from_millis(150)).await; // event: it is remembered no longer
    delete_node_of(&server, &waiter).await;
    is_not_granted(&mut waiter).await;
}

/// Somebody has deleted the node of a waiter by hand, and its event comes before the grant.
#[tokio::test]
async fn a_waiter_whose_own_node_is_gone_learns_of_no_grant() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let mut holder = contender(&here, "a");
    holder.take().await;
    let mut waiter = beside(&holder);
    waiter.queue().await;
    let mut hints = waiter.watch();
    until("both are watched", async || server.word(0, "wchs").ends_with("watches:2\n")).await;
    delete_node_of(&server, &waiter).await;
    hint(&mut hints, Hint::CheckLease).await;
    holder.let_go().await;
    is_not_granted(&mut waiter).await;
}

/// The node of a contender of this process was deleted by hand. Who stands behind it is not stuck,
/// and is granted the name by the servers alone.
#[tokio::test]
async fn a_waiter_behind_a_node_that_is_gone_is_woken() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let mut holder = contender(&here, "a");
    holder.take().await;
    delete_node_of(&server, &holder).await;
    let mut waiter = beside(&holder);
    waiter.queue().await;
    let mut hints = waiter.watch();
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
    assert_eq!(
        holder.release(true).await.expect("a reply"),
        ReleaseReply::NotHeld { revoked: None }
    );
    waiter.let_go().await;
}
