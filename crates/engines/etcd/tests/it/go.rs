//! Names shared with `etcdctl lock`, which is Go's `concurrency.Mutex`.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use holdline_core::{AcquireReply, Engine, Hint, LockName, Mode, Operation, OperationReply};
use holdline_services::{EtcdConfig, EtcdServer};

use crate::support::{contender, engine, hint, until};

/// An `etcdctl lock` that holds until it is interrupted. What it says is read from a pipe that
/// stays open: a write into a closed one would end it with its key left behind.
struct Theirs(Child, Option<BufReader<ChildStdout>>);

impl Theirs {
    fn start(server: &EtcdServer, name: &str) -> Theirs {
        let mut command = server.ctl_command();
        command.args(["lock", &format!("holdline/{name}")]).stdout(Stdio::piped());
        Theirs(command.spawn().expect("etcdctl starts"), None)
    }

    /// Waits until it says that it holds the name.
    fn await_held(&mut self) {
        let reply = BufReader::new(self.0.stdout.take().expect("a pipe"));
        let mut key = String::new();
        self.1.insert(reply).read_line(&mut key).expect("it says its key");
        assert!(key.starts_with("holdline/"), "{key}");
    }

    /// Interrupts it, which makes it let the name go.
    fn end(mut self) {
        let pid = self.0.id().to_string();
        let reply = Command::new("kill").args(["-INT", &pid]).status();
        assert!(reply.expect("kill runs").success());
        self.0.wait().expect("it ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_and_holdline_wait_for_each_other() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut ours = contender(&engine, "a");
    ours.take().await;
    let mut theirs = Theirs::start(&server, "a");
    until("it waits", async || ours.counts().await == (1, 1)).await;
    let mut next = contender(&engine, "a");
    next.queue().await;
    let mut hints = next.watch();
    ours.let_go().await;
    theirs.await_held();
    assert_eq!(next.counts().await, (1, 1));
    let mut refused = contender(&engine, "a");
    refused.request.queue = false;
    let reply = refused.ask().await.expect("an answer");
    let AcquireReply::Busy { holder: Some(holder), .. } = reply else { panic!("{reply:?}") };
    assert_eq!((holder.mode, holder.metadata.fields().program.as_str()), (Mode::Exclusive, ""));
    theirs.end();
    hint(&mut hints, Hint::LookAgain).await;
    let token = next.take().await;
    assert!(holder.token.is_some_and(|theirs| theirs < token));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_of_holdline_and_ten_of_etcdctl_are_served_in_order_of_arrival() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut first = contender(&engine, "a").for_seconds(30);
    first.take().await;
    let files = Files::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..10 {
        let mut one = contender(&engine, "a").for_seconds(30);
        one.queue().await;
        ours.push(one);
        let mut command = server.ctl_command();
        command.args(["lock", "holdline/a", "sh"]).arg(files.script()).arg(turn.to_string());
        theirs.push(command.arg(files.order()).spawn().expect("etcdctl starts"));
        until("it waits", async || first.counts().await == (1, 2 * turn + 2)).await;
    }
    first.let_go().await;
    for (turn, one) in ours.iter_mut().enumerate() {
        until("its turn comes", async || {
            matches!(one.ask().await, Ok(AcquireReply::Granted { .. }))
        })
        .await;
        let mut order =
            std::fs::OpenOptions::new().append(true).open(files.order()).expect("there");
        std::io::Write::write_all(&mut order, format!("ours {turn}\n").as_bytes())
            .expect("written");
        one.let_go().await;
    }
    for mut child in theirs {
        assert!(child.wait().expect("it ends").success());
    }
    let order = BufReader::new(std::fs::File::open(files.order()).expect("there"));
    let order: Vec<String> = order.lines().map_while(Result::ok).collect();
    let expected = (0..10).flat_map(|turn| [format!("ours {turn}"), format!("theirs {turn}")]);
    assert_eq!(order, expected.collect::<Vec<_>>());
}

/// The file with the order of the grants, and the script that writes it; deleted after the test.
struct Files(PathBuf);

impl Files {
    fn new() -> Files {
        let home = std::env::temp_dir().join(format!("holdline-etcd-go-{}", std::process::id()));
        std::fs::create_dir_all(&home).expect("made");
        let files = Files(home);
        std::fs::write(files.order(), "").expect("written");
        std::fs::write(files.script(), "echo theirs $1 >>$2\n").expect("written");
        files
    }

    fn order(&self) -> PathBuf {
        self.0.join("order")
    }

    fn script(&self) -> PathBuf {
        self.0.join("script")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_frees_a_name_from_etcdctl_by_force_only() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let name = LockName::new("a").expect("good");
    let mut theirs = Theirs::start(&server, "a");
    theirs.await_held();
    let ours = contender(&engine, "a");
    until("it holds", async || ours.counts().await == (1, 0)).await;
    let shown = engine.inspect(&name).await.expect("shown");
    let token = shown.holders[0].summary.token.expect("a token");
    let revoke = |now| Operation::Revoke { name: name.clone(), token, reason: "why".into(), now };
    let politely = engine.operate(&revoke(false)).await.expect_err("must be forced");
    assert!(politely.to_string().contains("forced"), "{politely}");
    assert_eq!(engine.operate(&revoke(true)).await.expect("freed"), OperationReply::Done);
    assert_eq!(ours.counts().await, (0, 0));
    theirs.end();
}
