//! One queue with Apache Curator, both ways: Debian's, run by the machine's Java.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use holdline_core::{AcquireReply, ErrorKind, Mode, Purpose, RenewReply};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::{Contender, LONG, contender, engine, nodes, until};

const JARS: &str = "curator-recipes curator-framework curator-client zookeeper zookeeper-jute \
                    guava slf4j-api slf4j-nop";

/// A process of Curator's.
struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

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

impl Peer {
    async fn start(server: &ZooKeeper) -> Peer {
        let path = class_path(&compiled().await);
        let mut child = Command::new("java")
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &path, "Peer"])
            .arg(server.hosts())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("java (Debian package default-jre-headless)");
        let requests = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Peer { child, requests, answers }
    }

    async fn ask(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.requests.write_all(line.as_bytes()).await.expect("it runs");
    }

    async fn hear(&mut self, wanted: &str) {
        let heard = timeout(LONG, self.answers.next_line()).await.expect("an answer in time");
        assert_eq!(heard.expect("it runs").as_deref(), Some(wanted));
    }
}

async fn is_handed(contender: &mut Contender) {
    until("it is our turn", async || {
        matches!(contender.renew(Purpose::Wait).await, Ok(RenewReply::Handed { .. }))
    })
    .await;
    contender.take().await;
}

#[tokio::test]
async fn curator_and_we_are_served_in_one_order() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let mut peer = Peer::start(&server).await;
    mutexes_share_a_name_both_ways(&server, &mut peer).await;
    readers_and_writers_share_a_name_both_ways(&server, &mut peer).await;
    what_would_not_see_us_is_refused(&server, &mut peer).await;
    a_killed_process_frees_the_name(&server, peer).await;
}

/// In turn ours and Curator's: each waits for the one before.
async fn mutexes_share_a_name_both_ways(server: &ZooKeeper, peer: &mut Peer) {
    let engine = engine(&server.url()).await;
    let path = "/holdline/mutex";
    let mut first = contender(&engine, "mutex");
    let mut last_token = first.take().await;
    let mut ours = Vec::new();
    for number in 0..4 {
        peer.ask(&format!("mutex {number} {path}")).await;
        let so_many = 2 * number + 2;
        until("Curator's stands in the queue", async || nodes(server, path).await.len() == so_many)
            .await;
        let mut one = contender(&engine, "mutex");
        one.queue().await;
        ours.push(one);
    }
    first.let_go().await;
    for (number, mut one) in ours.into_iter().enumerate() {
        peer.hear(&format!("held {number}")).await;
        assert!(matches!(one.ask().await, Ok(AcquireReply::Queued { .. })), "{number}");
        peer.ask(&format!("unlock {number}")).await;
        peer.hear(&format!("unlocked {number}")).await;
        is_handed(&mut one).await;
        let token = one.take().await;
        assert!(token > last_token, "{token} after {last_token}");
        last_token = token;
        one.let_go().await;
    }
    until("nothing is left", async || nodes(server, path).await.is_empty()).await;
}

async fn readers_and_writers_share_a_name_both_ways(server: &ZooKeeper, peer: &mut Peer) {
    let engine = engine(&format!("{}?curator=readwrite", server.url())).await;
    let path = "/holdline/both";
    let stand = async |count: usize| {
        until("it stands in the queue", async || nodes(server, path).await.len() == count).await;
    };
    // Readers hold together; a writer of theirs waits for ours, ours behind it waits for theirs.
    let mut reader = contender(&engine, "both").in_mode(Mode::Shared);
    reader.take().await;
    peer.ask(&format!("read r {path}")).await;
    peer.hear("held r").await;
    peer.ask(&format!("write w {path}")).await;
    stand(3).await;
    let mut behind = contender(&engine, "both").in_mode(Mode::Shared);
    behind.queue().await;
    reader.let_go().await;
    peer.ask("unlock r").await;
    peer.hear("unlocked r").await;
    peer.hear("held w").await;
    assert!(matches!(behind.ask().await, Ok(AcquireReply::Queued { .. })));
    peer.ask("unlock w").await;
    peer.hear("unlocked w").await;
    is_handed(&mut behind).await;
    // A writer of ours waits for our reader, a reader of theirs for our writer.
    let mut writer = contender(&engine, "both");
    writer.queue().await;
    peer.ask(&format!("read late {path}")).await;
    stand(3).await;
    behind.let_go().await;
    is_handed(&mut writer).await;
    assert_eq!(nodes(server, path).await.len(), 2);
    writer.let_go().await;
    peer.hear("held late").await;
    peer.ask("unlock late").await;
    peer.hear("unlocked late").await;
}

async fn what_would_not_see_us_is_refused(server: &ZooKeeper, peer: &mut Peer) {
    let mutexes = engine(&server.url()).await;
    peer.ask("read other /holdline/other").await;
    peer.hear("held other").await;
    let told = contender(&mutexes, "other").ask().await.expect_err("it would not see us");
    assert!(matches!(told.kind(), ErrorKind::Invalid { .. }), "{told}");
    assert!(told.to_string().contains("write `curator=readwrite`"), "{told}");
    assert_eq!(nodes(server, "/holdline/other").await.len(), 1);
    peer.ask("unlock other").await;
    peer.hear("unlocked other").await;
}

/// Curator's session is closed by nobody: its end frees the name.
async fn a_killed_process_frees_the_name(server: &ZooKeeper, mut peer: Peer) {
    let engine = engine(&server.url()).await;
    peer.ask("mutex last /holdline/killed").await;
    peer.hear("held last").await;
    let mut waiter = contender(&engine, "killed");
    waiter.queue().await;
    peer.child.kill().await.expect("killed");
    is_handed(&mut waiter).await;
}
