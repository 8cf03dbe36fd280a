//! How many requests a cycle and a hand-off send, by the server's own count.

use holdline_core::{AcquireReply, Hint};
use holdline_services::{EtcdConfig, EtcdFlavour, EtcdServer};

use crate::support::{Counts, contender, engine, hint, until};

#[tokio::test]
async fn a_cycle_is_two_transactions_and_a_hand_off_three_and_a_read() {
    for flavour in EtcdFlavour::ALL {
        let server = EtcdServer::start(EtcdConfig::default().with_flavour(flavour));
        let engine = engine(&server.url()).await;
        let before = Counts::read(&server).await;
        let mut holder = contender(&engine, "a");
        holder.take().await;
        holder.let_go().await;
        let cycle = Counts::read(&server).await.since(&before);
        assert_eq!((cycle.transactions, cycle.reads), (2, 0), "{flavour:?}: a cycle");
        assert_eq!(cycle.watch_messages, 0, "{flavour:?}: a cycle");

        // A name that was free so far is requested by a transaction that only a free name answers.
        for wanted in [4, 3] {
            let mut holder = contender(&engine, "b");
            let mut waiter = contender(&engine, "b");
            let before = Counts::read(&server).await;
            let since = async || Counts::read(&server).await.since(&before);
            holder.take().await;
            waiter.queue().await;
            let mut hints = waiter.watch();
            until("the watch is made", async || since().await.watch_messages > 0).await;
            holder.let_go().await;
            hint(&mut hints, Hint::LookAgain).await;
            waiter.take().await;
            let Counts { transactions, reads, .. } = since().await;
            assert_eq!((transactions, reads), (wanted, 1), "{flavour:?}: a hand-off");
            waiter.let_go().await;
        }
    }
}

/// A write of another client used to cost two reads of the whole queue.
#[tokio::test]
async fn a_write_between_the_enqueue_and_the_watch_costs_one_read_of_one_key() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    server.ctl(&["put", "other", "value"]);
    let before = Counts::read(&server).await;
    let since = async || Counts::read(&server).await.since(&before);
    let mut hints = waiter.watch();
    until("the key before is read", async || since().await.transactions > 0).await;
    holder.let_go().await;
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
    // That read and the release, and the request of the waiter.
    let Counts { transactions, reads, .. } = since().await;
    assert_eq!((transactions, reads), (2, 1));
}

/// The holder may leave after the enqueue and before the watch.
#[tokio::test]
async fn a_release_between_the_enqueue_and_the_watch_is_noticed() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    holder.let_go().await;
    let mut hints = waiter.watch();
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
}

/// The key of a waiter that somebody deleted gives no grant, and a key that is made again is last.
#[tokio::test]
async fn a_waiter_whose_key_was_deleted_does_not_hold_when_the_holder_leaves() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    let mut next = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    next.queue().await;
    let lines = server.ctl(&["get", "--prefix", "holdline/a/"]);
    let lines: Vec<_> = lines.lines().collect();
    let id = waiter.request.lease_id.to_hex();
    let found = lines.chunks(2).find(|pair| pair[1].contains(&id)).expect("the waiter's key");
    server.ctl(&["del", found[0]]);
    holder.let_go().await;
    let reply = waiter.ask().await;
    assert!(matches!(reply, Ok(AcquireReply::Unknown)), "{reply:?}");
    next.take().await;
}
