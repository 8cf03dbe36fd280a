//! Names shared with Go's `concurrency.Mutex`, driven by `interop/go/mutex`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use holdline_core::{AcquireReply, Hint};
use holdline_services::{EtcdConfig, EtcdServer};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{LONG, contender, engine, hint, until};

/// A process of Go's, in which many contenders lock, each with a session of its own.
struct Go {
    child: Child,
    requests: ChildStdin,
    answers: UnboundedReceiver<String>,
}

impl Go {
    async fn start(server: &EtcdServer) -> Go {
        let mut command = Command::new(program());
        command.arg(server.address().to_string()).arg("holdline/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the driver starts");
        let (requests, outcome) = (child.stdin.take().expect("a pipe"), child.stdout.take());
        let (sender, answers) = unbounded_channel();
        let lines = BufReader::new(outcome.expect("a pipe")).lines();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).take_while(|line| sender.send(line.clone()).is_ok()).count()
        });
        let mut go = Go { child, requests, answers };
        assert_eq!(go.answer().await, "ready");
        go
    }

    fn ask(&mut self, request: &str) {
        writeln!(self.requests, "{request}").expect("it reads");
    }

    async fn answer(&mut self) -> String {
        let answer = tokio::time::timeout(LONG, self.answers.recv()).await;
        answer.expect("an answer in time").expect("the driver lives")
    }

    /// Waits until one of its contenders holds; returns the revision of its key.
    async fn held(&mut self, id: &str) -> u64 {
        let answer = self.answer().await;
        let revision = answer.strip_prefix(&format!("held {id} ")).map(str::parse);
        revision.unwrap_or_else(|| panic!("{answer}")).expect("a number")
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        // One that has ended already still must be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `cargo xtask interop prepare` puts it.
fn program() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let ground = target.expect("cargo's own directory has a parent").join("interop/go");
    let stamp = ground.join("made-of.stamp");
    assert!(stamp.is_file(), "Go's mutex is not there: run `cargo xtask interop prepare`");
    ground.join("bin/mutex")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_and_holdline_wait_for_each_other() {
    let server = EtcdServer::start(EtcdConfig::default());
    let (engine, mut go) = (engine(&server.url()).await, Go::start(&server).await);
    let mut ours = contender(&engine, "a").for_seconds(30);
    let first = ours.take().await.get();
    go.ask("try refused a 30");
    assert_eq!(go.answer().await, "busy refused");
    go.ask("lock waits a 30");
    until("it waits", async || ours.counts().await == (1, 1)).await;
    let mut next = contender(&engine, "a").for_seconds(30);
    next.queue().await;
    let mut hints = next.watch();
    ours.let_go().await;
    let second = go.held("waits").await;
    assert!(second > first && next.counts().await == (1, 1));
    let mut refused = contender(&engine, "a");
    refused.request.queue = false;
    assert!(matches!(refused.ask().await, Ok(AcquireReply::Busy { .. })));
    go.ask("unlock waits");
    assert_eq!(go.answer().await, "unlocked waits");
    hint(&mut hints, Hint::LookAgain).await;
    assert!(next.take().await.get() > second);
    next.let_go().await;
    // Free for both.
    go.ask("try free a 30");
    go.held("free").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_of_holdline_and_ten_of_go_are_served_in_order_of_arrival() {
    let server = EtcdServer::start(EtcdConfig::default());
    let (engine, mut go) = (engine(&server.url()).await, Go::start(&server).await);
    let mut first = contender(&engine, "a").for_seconds(30);
    let mut last = first.take().await.get();
    let mut ours = Vec::new();
    for turn in 0..10 {
        let mut one = contender(&engine, "a").for_seconds(30);
        one.queue().await;
        ours.push(one);
        go.ask(&format!("lock {turn} a 60"));
        until("it waits", async || first.counts().await == (1, 2 * turn + 2)).await;
    }
    first.let_go().await;
    for (turn, one) in ours.iter_mut().enumerate() {
        // The contender before has released, so this one holds at once, and no other.
        let token = one.take().await.get();
        assert!(token > last && go.answers.is_empty(), "turn {turn}");
        one.let_go().await;
        last = go.held(&turn.to_string()).await;
        assert!(last > token);
        go.ask(&format!("unlock {turn}"));
        assert_eq!(go.answer().await, format!("unlocked {turn}"));
    }
    assert_eq!(first.counts().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_go_that_is_killed_frees_the_name_with_its_session() {
    let server = EtcdServer::start(EtcdConfig::default());
    let (engine, mut go) = (engine(&server.url()).await, Go::start(&server).await);
    go.ask("lock held a 2");
    let first = go.held("held").await;
    go.ask("lock waiting a 2");
    let mut next = contender(&engine, "a").for_seconds(30);
    until("both are there", async || next.counts().await == (1, 1)).await;
    next.queue().await;
    drop(go);
    until("their sessions are over", async || next.counts().await == (1, 0)).await;
    assert!(next.take().await.get() > first);
    next.let_go().await;
}
