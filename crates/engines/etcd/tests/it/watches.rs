//! Watches whose server no longer accepts the token of their stream.

use std::time::Duration;

use holdline_core::{AcquireReply, Engine, Hint, Hints, LockName};
use holdline_etcd::EtcdEngine;
use holdline_services::{EtcdConfig, EtcdFlavour, EtcdServer};

use crate::support::{Contender, contender, engine, hint, next_hint};

/// How long an unused token stays valid, in seconds.
const LIFETIME: u32 = 1;
/// A token is forgotten after its lifetime and up to a second more.
const IDLE: Duration = Duration::from_secs(4);
/// How long hints are counted for which there is no reason, and how many may come.
const QUIET: Duration = Duration::from_secs(2);
const FEW: usize = 20;
/// A server closes a connection at the fourth ping that comes too early; they came each 3 s.
const FOUR_PINGS: Duration = Duration::from_millis(14_500);

/// Has one contender wait for another on this name, and be woken.
async fn wait_once(engine: &EtcdEngine, name: &str) -> Contender {
    let mut holder = contender(engine, name);
    let mut waiter = contender(engine, name);
    holder.take().await;
    waiter.queue().await;
    let mut hints = waiter.watch();
    calm(&mut waiter, &mut hints).await;
    holder.let_go().await;
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
    waiter
}

/// Asks after each hint, as a waiter does. Few hints may come, since nothing happens.
async fn calm(waiter: &mut Contender, hints: &mut Hints) {
    let mut count = 0;
    let looking = async {
        loop {
            next_hint(hints).await;
            count += 1;
            let reply = waiter.ask().await;
            assert!(matches!(reply, Ok(AcquireReply::Queued { .. })), "{reply:?}");
        }
    };
    // event: the end of a time in which a client without a pause would ask hundreds of times
    let _ = tokio::time::timeout(QUIET, looking).await;
    assert!(count <= FEW, "{count} hints while nothing happened");
}

/// The stream of the first wait stays open, and the server forgets its token meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_after_the_token_of_the_stream_has_expired() {
    for flavour in EtcdFlavour::ALL {
        let config = EtcdConfig::default().with_flavour(flavour).with_password("s3cret");
        let server = EtcdServer::start(config.with_token_lifetime(LIFETIME));
        let engine = engine(&server.url()).await;
        wait_once(&engine, "first").await.let_go().await;
        tokio::time::sleep(IDLE).await; // event: the server forgets the token, without a message
        // The next request finds out, and has a new one.
        contender(&engine, "other").take().await;
        wait_once(&engine, "second").await;
    }
}

/// A signed token names the state of users and roles that it was given for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_after_a_role_was_added() {
    for flavour in EtcdFlavour::ALL {
        let config = EtcdConfig::default().with_flavour(flavour).with_password("s3cret");
        let server = EtcdServer::start(config.with_signed_tokens());
        let engine = engine(&server.url()).await;
        wait_once(&engine, "first").await.let_go().await;
        server.ctl(&["role", "add", "another"]);
        wait_once(&engine, "second").await;
    }
}

/// Servers close a connection on which pings come more often than they allow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_stays_on_its_connection_while_nothing_happens() {
    let server = EtcdServer::start(EtcdConfig::default().with_flavour(EtcdFlavour::V37));
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    holder.take().await;
    let _hints = holder.watch();
    let before = connections(&server);
    tokio::time::sleep(FOUR_PINGS).await; // event: the server has counted the pings
    assert_eq!(connections(&server), before);
    assert_eq!(before.len(), 1, "{before:?}");
}

/// The ports from which connections to a server are open.
fn connections(server: &EtcdServer) -> Vec<String> {
    let (port, open) = (format!(":{:04X}", server.address().port()), "01");
    let listed = std::fs::read_to_string("/proc/net/tcp").expect("Linux lists connections");
    let mut ports = Vec::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split_whitespace().take(4).collect();
        if let [_, from, to, state] = fields[..]
            && to.ends_with(&port)
            && state == open
        {
            ports.push(from.to_owned());
        }
    }
    ports.sort_unstable();
    ports
}

/// A user that has lost its rights is refused again and again until it has them back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_given_back_let_watches_work_again() {
    for flavour in EtcdFlavour::ALL {
        let config = EtcdConfig::default().with_flavour(flavour);
        let server = EtcdServer::start(config.with_password("s3cret"));
        for words in [
            &["user", "add", "locker:hers"][..],
            &["role", "add", "locks"],
            &["user", "grant-role", "locker", "locks"],
            &["role", "grant-permission", "locks", "readwrite", "--prefix=true", "holdline/"],
        ] {
            server.ctl(words);
        }
        let theirs = engine(&server.url()).await;
        let ours = engine(&format!("etcd://locker:hers@{}", server.address())).await;
        let mut holder = contender(&theirs, "a");
        let mut waiter = contender(&ours, "a");
        holder.take().await;
        waiter.queue().await;
        server.ctl(&["user", "revoke-role", "locker", "locks"]);
        let mut hints = waiter.watch();
        // event: a watch that is refused is tried a few times meanwhile
        let early = tokio::time::timeout(QUIET, next_hint(&mut hints)).await;
        assert!(early.is_err(), "{early:?}");
        assert!(ours.inspect(&LockName::new("a").expect("good")).await.is_err());
        server.ctl(&["user", "grant-role", "locker", "locks"]);
        holder.let_go().await;
        hint(&mut hints, Hint::LookAgain).await;
        waiter.take().await;
    }
}
