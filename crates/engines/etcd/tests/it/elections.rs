//! Elections shared with `etcdctl elect`, which is Go's `concurrency.Election`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, LockOptions};
use holdline_services::{EtcdConfig, EtcdServer};

use crate::support::{engine, until};

/// An `etcdctl elect`, as a candidate or as an observer.
struct Theirs {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Theirs {
    fn start(server: &EtcdServer, words: &[&str]) -> Theirs {
        let mut command = server.ctl_command();
        command.arg("elect").args(words).stdout(Stdio::piped());
        let mut child = command.spawn().expect("etcdctl starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Theirs { child, lines }
    }

    /// The next line that begins so.
    fn says(&mut self, start: &str) -> String {
        let mut lines = self.lines.by_ref().map(|line| line.expect("text"));
        lines.find(|line| line.starts_with(start)).expect("it says so before it ends")
    }

    /// Interrupts it, which makes it resign.
    fn end(mut self) {
        let pid = self.child.id().to_string();
        let reply = Command::new("kill").args(["-INT", &pid]).status();
        assert!(reply.expect("kill runs").success());
        self.child.wait().expect("it ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_of_etcdctl_and_holdline_wait_for_each_other_in_one_queue() {
    let server = EtcdServer::start(EtcdConfig::default());
    let client = Client::with_options(
        Arc::new(engine(&server.url()).await),
        holdline::ClientOptions::default(),
    )
    .expect("a client");
    let options = LockOptions::default().with_lease_duration(Duration::from_secs(30));
    let election = client.election_with("e", &options).expect("a good name");
    let queue_length = async |length: usize| {
        let snapshot = client.admin().inspect(election.name()).await.expect("an answer");
        snapshot.queue_length == length
    };
    let mut leaders = election.observe();
    let first = election.campaign("ours").await.expect("nobody leads");
    let seen = leaders.next().await.expect("it goes on").expect("an answer");
    assert_eq!((seen.term(), seen.value()), (first.term(), "ours"));

    // Theirs waits for ours, and the next of ours for theirs.
    let mut theirs = Theirs::start(&server, &["holdline/e", "their value"]);
    until("it waits", async || queue_length(1).await).await;
    let next = tokio::spawn({
        let election = election.clone();
        async move { election.campaign("ours again").await }
    });
    until("ours waits", async || queue_length(2).await).await;
    let _ = first.resign().await;
    theirs.says("holdline/e/");
    let seen = leaders.next().await.expect("it goes on").expect("an answer");
    assert_eq!(seen.value(), "their value");
    let their_term = seen.term();

    // Their observers follow ours: the value is the record of the lock.
    let mut observer = Theirs::start(&server, &["--listen", "holdline/e"]);
    observer.says("their value");
    theirs.end();
    let next = next.await.expect("no panic").expect("it leads");
    assert!(next.term() > their_term);
    let record = observer.says("{");
    assert!(record.contains("ours again"), "{record}");
    let seen = leaders.next().await.expect("it goes on").expect("an answer");
    assert_eq!((seen.term(), seen.value()), (next.term(), "ours again"));
    let _ = next.resign().await;
    observer.end();
}
