//! Redisson's `RedissonRedLock`: an `RLock` of one name on several servers, decided by a majority.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::asking::{ending, let_go, renew, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AcquireRequest, Engine, ErrorKind, LockError, Purpose, ReleaseReply, RenewReply,
};
use holdline_redis::{QuorumEngine, QuorumOptions};
use holdline_services::{RedisConfig, RedisServer, Reply};

use crate::support::{PATIENCE, behind, request};

const JAVA: &str = "b983c153-7421-469a-addb-44fb92259a1b:77";
const UNFENCED: &str = "&fencing=off";

struct Nodes([RedisServer; 3]);

impl Nodes {
    fn start() -> Nodes {
        Nodes([(); 3].map(|()| RedisServer::start(RedisConfig::default())))
    }

    fn options(&self, parameters: &str) -> Result<QuorumOptions, LockError> {
        let hosts: Vec<String> = self.0.iter().map(|server| server.address().to_string()).collect();
        let url = format!(
            "redlock://{}?dialect=redisson&command_timeout_ms=20000{parameters}",
            hosts.join(",")
        );
        QuorumOptions::from_url(&url)
    }

    async fn engine(&self) -> QuorumEngine {
        let options = self.options(UNFENCED).expect("good options");
        QuorumEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected")
    }

    fn owners(&self) -> Vec<Vec<String>> {
        let fields = |server| {
            let fields = behind(server, &["HKEYS", "a"]);
            let mut fields: Vec<String> =
                fields.items().expect("a list").iter().filter_map(Reply::text).collect();
            fields.retain(|field| field != "holdline");
            fields
        };
        self.0.iter().map(fields).collect()
    }

    /// Waits until a grant is on each server: two of them are enough to connect and to grant, and a
    /// request to a server that is not connected yet is not made up for.
    async fn reaches_all(&self, engine: &QuorumEngine) {
        let end = Instant::now() + PATIENCE;
        let are_there =
            || self.0.iter().all(|one| behind(one, &["EXISTS", "probe"]) == Reply::Integer(1));
        let mut have_all = false;
        while !have_all {
            assert!(Instant::now() < end, "a server is not reached");
            let probe = request("probe");
            take(engine, &probe).await;
            for _ in 0..40 {
                have_all = have_all || are_there();
                tokio::time::sleep(Duration::from_millis(5)).await; // event: looked again
            }
            let_go(engine, &probe).await;
        }
    }

    /// A lock of Redisson's on these servers.
    fn java_holds(&self, nodes: &[usize]) {
        for node in nodes {
            behind(&self.0[*node], &["HSET", "a", JAVA, "1"]);
            behind(&self.0[*node], &["PEXPIRE", "a", "30000"]);
        }
    }
}

/// Waits until the servers of a decided request have all answered.
async fn until(what: &str, seen: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !seen() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await; // event: asked again until it is seen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_server_has_an_rlock_and_publishes_its_release() {
    let nodes = Nodes::start();
    let engine = nodes.engine().await;
    nodes.reaches_all(&engine).await;
    let held = request("a");
    take(&engine, &held).await;
    until("all three grant", || nodes.owners().iter().all(|owners| owners.len() == 1)).await;
    let owners = nodes.owners();
    assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
    assert!(owners[0][0].starts_with(&held.lease_id.short().to_string()), "{owners:?}");
    for server in &nodes.0 {
        assert_eq!(behind(server, &["HGET", "a", &owners[0][0]]).text().as_deref(), Some("1"));
        assert!(matches!(behind(server, &["PTTL", "a"]), Reply::Integer(left) if left > 0));
    }
    let kept = renew(&engine, &held, Purpose::Keep(held.hold)).await;
    assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
    let mut listeners = nodes.0.each_ref().map(RedisServer::raw);
    for listener in &mut listeners {
        listener.send(&["SUBSCRIBE", "redisson_lock__channel:{a}"]).expect("subscribed");
    }
    let_go(&engine, &held).await;
    for listener in &mut listeners {
        let message = listener.read().expect("a message");
        let payload = message.items().and_then(|items| items.last()).and_then(Reply::text);
        assert_eq!(payload.as_deref(), Some("0"));
    }
    until("all three are free", || nodes.owners().iter().all(Vec::is_empty)).await;
    let again = engine.release(&ending(&held, false)).await.expect("an answer");
    assert_eq!(again, ReleaseReply::NotHeld { revoked: None });
}

#[tokio::test]
async fn a_majority_of_redissons_excludes_ours_and_a_minority_does_not() {
    let nodes = Nodes::start();
    let engine = nodes.engine().await;
    nodes.java_holds(&[0, 1]);
    match engine.try_acquire(&request("a")).await.expect("an answer") {
        AcquireReply::Busy { holder, .. } => {
            let holder = holder.expect("the holder is shown");
            let shown = format!("{:?}", holder.metadata);
            assert!(shown.contains("Redisson"), "{shown}");
        }
        other => panic!("{other:?}"),
    }
    // The third server has nothing of the lost attempt, and the others what they had.
    until("the grant is undone", || nodes.owners()[2].is_empty()).await;
    assert_eq!(nodes.owners()[..2], [vec![JAVA.to_owned()], vec![JAVA.to_owned()]]);
    behind(&nodes.0[1], &["DEL", "a"]);
    let held = request("a");
    take(&engine, &held).await;
    assert_eq!(nodes.owners()[0], [JAVA], "Redisson's own lock stays");
    let_go(&engine, &held).await;
    assert_eq!(nodes.owners()[0], [JAVA], "Redisson's own lock stays");
}

#[tokio::test]
async fn a_dead_server_is_tolerated_and_two_are_not() {
    let nodes = Nodes::start();
    let engine = nodes.engine().await;
    nodes.0[0].kill();
    let (held, other) = (request("a"), request("a"));
    take(&engine, &held).await;
    let reply = nodes.engine().await.try_acquire(&other).await.expect("an answer");
    assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
    let_go(&engine, &held).await;
    nodes.0[1].kill();
    let error = engine.try_acquire(&request("a")).await.expect_err("no majority");
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error}");
    until("nothing is left", || behind(&nodes.0[2], &["EXISTS", "a"]) == Reply::Integer(0)).await;
}

#[tokio::test]
async fn what_is_no_rlock_is_foreign_and_stays() {
    let nodes = Nodes::start();
    let engine = nodes.engine().await;
    for plant in [&["SET", "a", "x"][..], &["HSET", "a", "mode", "read", JAVA, "1"]] {
        for server in &nodes.0 {
            behind(server, &["DEL", "a"]);
            behind(server, plant);
        }
        let before = nodes.0.each_ref().map(|server| behind(server, &["DUMP", "a"]));
        let error = engine.try_acquire(&request("a")).await.expect_err("foreign");
        assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{plant:?}: {error}");
        let after = nodes.0.each_ref().map(|server| behind(server, &["DUMP", "a"]));
        assert_eq!(before, after, "{plant:?}");
    }
}

#[tokio::test]
async fn tokens_and_a_queue_are_refused() {
    let nodes = Nodes::start();
    for parameters in ["", "&fencing=on"] {
        let options = nodes.options(parameters);
        let error = match options {
            Ok(options) => QuorumEngine::connect(&options, Arc::new(MachineClock)).await.err(),
            Err(error) => Some(error),
        };
        let error = error.expect("refused").to_string();
        assert!(error.contains("fencing=off") && error.contains("no tokens"), "{error}");
    }
    let engine = nodes.engine().await;
    assert!(!engine.capabilities().fencing);
    let queues = AcquireRequest { queue: true, ..request("a") };
    let error = engine.try_acquire(&queues).await.expect_err("no queue");
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
}
