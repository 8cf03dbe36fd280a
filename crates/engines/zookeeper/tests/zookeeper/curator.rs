//! One queue with Apache Curator, both ways: Debian's, run by the machine's Java.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdline::Client;
use holdline_core::{AcquireReply, ErrorKind, Mode};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use tokio::process::Command;

use crate::peer::{Peer, is_handed, take_turns};
use crate::support::{contender, engine, nodes, until};

const JARS: &str = "curator-recipes curator-framework curator-client zookeeper zookeeper-jute \
                    guava slf4j-api slf4j-nop";

fn class_path(classes: &Path) -> String {
    let jars = JARS.split_whitespace().map(|jar| format!("/usr/share/java/{jar}.jar"));
    let all: Vec<String> = jars.chain([classes.display().to_string()]).collect();
    all.join(":")
}

/// Compiles the driver into a directory of its own.
async fn compiled() -> PathBuf {
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("curator");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../interop/java/Peer.java");
    let path = class_path(&classes);
    let output = Command::new("javac")
        .args(["-cp", &path, "-d"])
        .arg(&classes)
        .arg(source)
        .output()
        .await
        .expect("javac (Debian package default-jdk-headless)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    classes
}

async fn start(server: &ZooKeeper) -> Peer {
    let path = class_path(&compiled().await);
    let mut java = Command::new("java");
    java.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &path, "Peer"]);
    Peer::start(java.arg(server.hosts()))
}

#[tokio::test]
async fn curator_and_holdline_are_served_in_one_order() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let mut peer = start(&server).await;
    take_turns(&server, &server.url(), &mut peer, "mutex").await;
    // Candidates of Curator's `LeaderSelector` are contenders of its mutex.
    take_turns(&server, &server.url(), &mut peer, "selector").await;
    an_observer_sees_a_candidate_of_a_leader_selector(&server, &mut peer).await;
    candidates_of_a_leader_latch_are_refused(&server, &mut peer).await;
    readers_and_writers_share_a_name_both_ways(&server, &mut peer).await;
    a_family_that_would_not_see_the_lock_is_refused(&server, &mut peer).await;
    a_killed_process_frees_the_name(&server, peer).await;
}

async fn readers_and_writers_share_a_name_both_ways(server: &ZooKeeper, peer: &mut Peer) {
    let engine = engine(&format!("{}?family=curator-readwrite", server.url())).await;
    let path = "/holdline/both";
    let stand = async |count: usize| {
        until("it is in the queue", async || nodes(server, path).await.len() == count).await;
    };
    // Readers share the name. Curator's writer waits for Holdline's reader, and Holdline's next
    // contender for Curator's writer.
    let mut reader = contender(&engine, "both").in_mode(Mode::Shared);
    reader.take().await;
    peer.ask(&format!("read r {path}")).await;
    peer.expect("held r").await;
    peer.ask(&format!("write w {path}")).await;
    stand(3).await;
    let mut behind = contender(&engine, "both").in_mode(Mode::Shared);
    behind.queue().await;
    reader.let_go().await;
    peer.unlock("r").await;
    peer.expect("held w").await;
    assert!(matches!(behind.ask().await, Ok(AcquireReply::Queued { .. })));
    peer.unlock("w").await;
    is_handed(&mut behind).await;
    // Holdline's writer waits for its reader, Curator's reader for Holdline's writer.
    let mut writer = contender(&engine, "both");
    writer.queue().await;
    peer.ask(&format!("read late {path}")).await;
    stand(3).await;
    behind.let_go().await;
    is_handed(&mut writer).await;
    assert_eq!(nodes(server, path).await.len(), 2);
    writer.let_go().await;
    peer.expect("held late").await;
    peer.unlock("late").await;
}

async fn a_family_that_would_not_see_the_lock_is_refused(server: &ZooKeeper, peer: &mut Peer) {
    let mutexes = engine(&server.url()).await;
    peer.ask("read other /holdline/other").await;
    peer.expect("held other").await;
    let error = contender(&mutexes, "other").ask().await.expect_err("it would not see the lock");
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("write `family=curator-readwrite`"), "{error}");
    assert_eq!(nodes(server, "/holdline/other").await.len(), 1);
    peer.unlock("other").await;
}

async fn an_observer_sees_a_candidate_of_a_leader_selector(server: &ZooKeeper, peer: &mut Peer) {
    let client = Client::with_options(
        Arc::new(engine(&server.url()).await),
        holdline::ClientOptions::default(),
    )
    .expect("a client");
    let election = client.election("seen").expect("a good name");
    peer.ask("selector theirs /holdline/seen").await;
    peer.expect("held theirs").await;
    let theirs = election.leader().await.expect("an answer").expect("it leads");
    assert_eq!((theirs.value(), theirs.host()), ("", ""));
    let ours = tokio::spawn({
        let election = election.clone();
        async move { election.campaign("ours").await }
    });
    until("ours waits", async || nodes(server, "/holdline/seen").await.len() == 2).await;
    peer.unlock("theirs").await;
    let ours = ours.await.expect("no panic").expect("it leads");
    assert!(ours.term() > theirs.term());
    let _ = ours.resign().await;
}

/// `LeaderLatch` names its nodes otherwise, so neither would see the other.
async fn candidates_of_a_leader_latch_are_refused(server: &ZooKeeper, peer: &mut Peer) {
    let engine = engine(&server.url()).await;
    peer.ask("latch theirs /holdline/latch").await;
    peer.expect("held theirs").await;
    let error = contender(&engine, "latch").ask().await.expect_err("it would not see the leader");
    assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error:?}");
    assert_eq!(nodes(server, "/holdline/latch").await.len(), 1, "it is left as it is");
    peer.unlock("theirs").await;
}

/// Curator's session is not closed: its expiry frees the name.
async fn a_killed_process_frees_the_name(server: &ZooKeeper, mut peer: Peer) {
    let engine = engine(&server.url()).await;
    peer.ask("mutex last /holdline/killed").await;
    peer.expect("held last").await;
    let mut waiter = contender(&engine, "killed");
    waiter.queue().await;
    peer.kill().await;
    is_handed(&mut waiter).await;
}
