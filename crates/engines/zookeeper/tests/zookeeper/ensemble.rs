//! Three members, of which one is lost.

use std::time::Duration;

use holdline_core::{AcquireReply, Hint, Purpose, RenewReply};
use holdline_services::{ZooKeeper, ZooKeeperConfig};

use crate::relay::Relay;
use crate::support::{Contender, connect, contender, engine, hint, nodes, until};

/// A session in seconds, and when its client has given it up.
const SHORT: u64 = 4;
const GIVEN_UP: Duration = Duration::from_millis(6_500);
const TRIES: usize = 5;

#[tokio::test]
async fn a_leader_that_is_killed_or_stopped_costs_no_lock_and_no_place() {
    let servers = ZooKeeper::start_three(&ZooKeeperConfig::default());
    let engine = engine(&servers.url()).await;
    let (mut holder, mut waiter) = (contender(&engine, "a"), contender(&engine, "a"));
    let first = holder.take().await;
    waiter.queue().await;
    let leader = servers.leader();
    servers.kill(leader);
    goes_on(&holder, &waiter).await;
    give_up(&holder).await;
    let second = taken(&mut waiter).await;
    assert!(second > first, "{second} after {first}");
    servers.relaunch(leader);
    servers.await_ready(leader);

    let mut last = contender(&engine, "a");
    last.queue().await;
    let leader = servers.leader();
    servers.stop(leader);
    goes_on(&waiter, &last).await;
    give_up(&waiter).await;
    let third = taken(&mut last).await;
    assert!(third > second, "{third} after {second}");
    servers.cont(leader);
    give_up(&last).await;
}

/// Releases; the connection may break under the request, for members still look for a leader.
async fn give_up(holder: &Contender) {
    until("it is released", async || holder.release(false).await.is_ok()).await;
}

/// Holder and waiter have kept the grant and the position.
async fn goes_on(holder: &Contender, waiter: &Contender) {
    until("the holder is kept", async || {
        matches!(holder.keep().await, Ok(RenewReply::Renewed { .. }))
    })
    .await;
    until("the place is kept", async || {
        matches!(waiter.renew(Purpose::Wait).await, Ok(RenewReply::Queued { .. }))
    })
    .await;
}

/// The token of a contender that is first in the queue.
async fn taken(contender: &mut Contender) -> holdline_core::FencingToken {
    let mut token = None;
    until("it holds", async || {
        if let Ok(AcquireReply::Granted { token: granted, .. }) = contender.ask().await {
            token = Some(granted);
        }
        token.is_some()
    })
    .await;
    token.expect("granted")
}

/// CURATOR-604: a client gives its session up, and a server that was restarted gives that session
/// its whole time once more. A node of it is there yet, under the contender's own id, and is
/// nobody's to take for a grant.
#[tokio::test]
async fn a_node_of_a_session_that_was_given_up_is_not_taken_for_ones_own() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let relay = Relay::start(server.address(0)).await;
    let there = connect(&format!("zk://{}", relay.address)).await.expect("connected");
    for turn in 0..TRIES {
        let here = engine(&server.url()).await;
        let name = format!("n{turn}");
        let mut holder = contender(&there, &name).for_seconds(SHORT);
        let mut next = contender(&here, &name);
        let old = holder.take().await;
        next.queue().await;
        relay.refuse(true);
        relay.break_off();
        server.kill(0);
        // The client counts by itself, seven fifths of its session.
        tokio::time::sleep(GIVEN_UP).await; // event: the end of that time
        server.restart();
        relay.refuse(false);
        let (kept, asked) = (holder.keep().await, holder.ask().await);
        let is_there = nodes(&server, &format!("/holdline/{name}")).await.len() == 2;
        let token = taken(&mut next).await;
        assert!(token > old);
        if matches!(kept, Ok(RenewReply::Renewed { .. })) || !is_there {
            // It came back before it had given up, or when the servers had ended it.
            continue;
        }
        assert!(matches!(kept, Ok(RenewReply::Unknown)), "{kept:?}");
        assert!(matches!(asked, Ok(AcquireReply::Unknown)), "{asked:?}");
        return;
    }
    panic!("spoilt {TRIES} times: the old node was never there with a new session");
}

/// A client that reaches no server loses its locks with its session, gets that reply, and does not
/// take the node of its old session for its own.
#[tokio::test]
async fn a_session_that_expires_is_reported_lost_to_holder_and_waiter() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let relay = Relay::start(server.address(0)).await;
    let url = format!("zk://{}?command_timeout_ms=2000", relay.address);
    let there = connect(&url).await.expect("connected");
    let mut holder = contender(&here, "a");
    let mut waiter = contender(&there, "a").for_seconds(2);
    let mut cut_off = contender(&there, "b").for_seconds(2);
    holder.take().await;
    waiter.queue().await;
    let old = cut_off.take().await;
    let mut hints = cut_off.watch();
    relay.refuse(true);
    // At risk at once: the broken connection causes a hint to check the lease.
    hint(&mut hints, Hint::CheckLease).await;
    until("the servers have ended its session", async || {
        nodes(&server, "/holdline/b").await.is_empty()
            && nodes(&server, "/holdline/a").await.len() == 1
    })
    .await;
    let mut next = contender(&here, "b");
    assert!(next.take().await > old);
    relay.refuse(false);
    until("the loss is reported", async || matches!(cut_off.keep().await, Ok(RenewReply::Unknown)))
        .await;
    holder.let_go().await;
    until("the loss is reported to the waiter", async || {
        matches!(waiter.ask().await, Ok(AcquireReply::Unknown))
    })
    .await;
    assert!(matches!(next.keep().await, Ok(RenewReply::Renewed { .. })));
}
