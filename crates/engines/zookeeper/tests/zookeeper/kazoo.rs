//! One queue with kazoo, both ways: the library from its registry, run by the machine's Python.

use std::path::Path;

use holdline_core::{AcquireReply, ErrorKind, Mode};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use tokio::process::Command;

use crate::peer::{Peer, is_handed, take_turns};
use crate::support::{contender, engine, nodes, until};

fn start(server: &ZooKeeper) -> Peer {
    // Where `cargo xtask interop prepare` puts the libraries, and what is left once they are there.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a parent");
    let ground = target.join("interop/python");
    let stamp = ground.join("made-of.stamp");
    assert!(stamp.is_file(), "kazoo is not there: run `cargo xtask interop prepare`");
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../interop/python/kazoo_peer.py");
    Peer::start(Command::new(ground.join("bin/python")).arg(driver).arg(server.hosts()))
}

#[tokio::test]
async fn kazoo_and_holdline_are_served_in_one_order() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let (mut peer, url) = (start(&server), format!("{}?family=kazoo", server.url()));
    take_turns(&server, &url, &mut peer, "lock").await;
    take_turns(&server, &url, &mut peer, "election").await;
    readers_and_writers_share_a_name_both_ways(&server, &mut peer).await;
    a_family_that_would_not_see_the_lock_is_refused(&server, &mut peer).await;
    // Its session is not closed: its expiry frees the name.
    let engine = engine(&url).await;
    peer.ask("lock last /holdline/killed").await;
    peer.expect("held last").await;
    let mut waiter = contender(&engine, "killed");
    waiter.queue().await;
    peer.kill().await;
    is_handed(&mut waiter).await;
}

async fn readers_and_writers_share_a_name_both_ways(server: &ZooKeeper, peer: &mut Peer) {
    let engine = engine(&format!("{}?family=kazoo", server.url())).await;
    let path = "/holdline/both";
    let mut reader = contender(&engine, "both").in_mode(Mode::Shared);
    reader.take().await;
    peer.ask(&format!("read r {path}")).await;
    peer.expect("held r").await;
    let mut writer = contender(&engine, "both");
    writer.queue().await;
    peer.ask(&format!("write w {path}")).await;
    until("its writer waits", async || nodes(server, path).await.len() == 4).await;
    reader.let_go().await;
    assert!(matches!(writer.ask().await, Ok(AcquireReply::Queued { .. })), "theirs reads");
    peer.unlock("r").await;
    is_handed(&mut writer).await;
    let mut late = contender(&engine, "both").in_mode(Mode::Shared);
    late.queue().await;
    writer.let_go().await;
    peer.expect("held w").await;
    assert!(matches!(late.ask().await, Ok(AcquireReply::Queued { .. })), "theirs writes");
    peer.unlock("w").await;
    is_handed(&mut late).await;
    late.let_go().await;
}

async fn a_family_that_would_not_see_the_lock_is_refused(server: &ZooKeeper, peer: &mut Peer) {
    let for_curator = engine(&server.url()).await;
    peer.ask("lock other /holdline/other").await;
    peer.expect("held other").await;
    let error =
        contender(&for_curator, "other").ask().await.expect_err("it would not see the lock");
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("write `family=kazoo`"), "{error}");
    assert_eq!(nodes(server, "/holdline/other").await.len(), 1);
    peer.unlock("other").await;
}
