//! How many requests a cycle and a hand-off send, by the server's own count.

use std::collections::BTreeMap;

use holdline_core::{AcquireReply, Hint};
use holdline_services::{EtcdConfig, EtcdFlavour, EtcdServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{contender, engine, hint, until};

/// What is counted: transactions, reads outside of them, and answers on the stream of watches.
const COUNTED: [(&str, &str); 3] = [
    ("Txn", "grpc_server_started_total{grpc_method=\"Txn\""),
    ("Range", "grpc_server_started_total{grpc_method=\"Range\""),
    ("Watch", "grpc_server_msg_sent_total{grpc_method=\"Watch\""),
];

/// Reads the counters of a server.
async fn counts(server: &EtcdServer) -> BTreeMap<&'static str, u64> {
    let mut stream = TcpStream::connect(server.address()).await.expect("connected");
    let request = b"GET /metrics HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    let count = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    };
    COUNTED.map(|(what, name)| (what, count(name))).into()
}

/// Returns what was counted since `before`.
async fn since(server: &EtcdServer, before: &BTreeMap<&'static str, u64>) -> [u64; 3] {
    let now = counts(server).await;
    COUNTED.map(|(what, _)| now[what] - before[what])
}

#[tokio::test]
async fn a_cycle_is_two_transactions_and_a_hand_off_three_and_a_read() {
    for flavour in EtcdFlavour::ALL {
        let server = EtcdServer::start(EtcdConfig::default().with_flavour(flavour));
        let engine = engine(&server.url()).await;
        let before = counts(&server).await;
        let mut holder = contender(&engine, "a");
        holder.take().await;
        holder.let_go().await;
        assert_eq!(since(&server, &before).await, [2, 0, 0], "{flavour:?}: a cycle");

        // A name that was free so far is requested by a transaction that only a free name answers.
        for wanted in [4, 3] {
            let mut holder = contender(&engine, "b");
            let mut waiter = contender(&engine, "b");
            let before = counts(&server).await;
            holder.take().await;
            waiter.queue().await;
            let mut hints = waiter.watch();
            until("the watch is made", async || since(&server, &before).await[2] > 0).await;
            holder.let_go().await;
            hint(&mut hints, Hint::LookAgain).await;
            waiter.take().await;
            let [transactions, reads, _] = since(&server, &before).await;
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
    let before = counts(&server).await;
    let mut hints = waiter.watch();
    until("the key before is read", async || since(&server, &before).await[1] > 0).await;
    holder.let_go().await;
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
    // The release, and the request of the waiter.
    let [transactions, reads, _] = since(&server, &before).await;
    assert_eq!((transactions, reads), (1, 2));
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
