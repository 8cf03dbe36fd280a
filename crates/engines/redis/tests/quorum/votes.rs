//! The state that attempts and healing leave on the nodes.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Ending, Engine, ErrorKind, FencingToken, LeaseId,
    LockName, Purpose, ReleaseRequest, RenewReply, RenewRequest,
};
use holdline_redis::{QuorumEngine, QuorumOptions};
use holdline_services::{RedisConfig, RedisServer, Reply, cut};

use crate::support::{HOLD, Nodes, name, request};

const LOCK: &str = "holdline:{a}";
const COUNTER: &str = "holdline:{a}:1l";

async fn connect(nodes: &Nodes) -> QuorumEngine {
    let engine = QuorumEngine::connect(&nodes.options(""), Arc::new(MachineClock)).await;
    engine.expect("a set")
}

async fn renew(engine: &QuorumEngine, id: u8) -> RenewReply {
    let lease_id = LeaseId::from_bytes([id; 16]);
    let (client, purpose) = (request(id).client, Purpose::Keep(HOLD));
    let batch = [RenewRequest { name: name(), lease_id, client, purpose }];
    engine.renew(&batch).await.remove(0).expect("a majority answers")
}

/// Renews until a server has the lock: a renewal heals it where it is missing.
async fn await_lock(engine: &QuorumEngine, server: &RedisServer, id: u8) {
    let began = Instant::now();
    while number(server, &format!("EXISTS {LOCK}")) != Some(1) {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not healed");
        assert!(matches!(renew(engine, id).await, RenewReply::Renewed { .. }));
        engine.flush().await;
    }
}

/// Acquires the name under new ids until all servers have voted.
async fn acquired_by_all(engine: &QuorumEngine, nodes: &Nodes) -> u8 {
    let held = |server: &RedisServer| number(server, &format!("EXISTS {LOCK}")) == Some(1);
    for id in 1..u8::MAX {
        let granted = engine.try_acquire(&request(id)).await.expect("free");
        assert!(matches!(granted, AcquireReply::Granted { .. }), "{granted:?}");
        if nodes.servers.iter().all(held) {
            return id;
        }
        release(engine, id).await;
    }
    panic!("the servers never vote all")
}

/// Acquires the name under new ids until all servers have the same token on record. A node that
/// voted after the decision may have another one from its own counter.
async fn granted_alike(engine: &QuorumEngine, nodes: &Nodes) -> (u8, FencingToken) {
    for id in 1..u8::MAX {
        let granted = engine.try_acquire(&request(id)).await.expect("free");
        let AcquireReply::Granted { token, .. } = granted else { panic!("{granted:?}") };
        let line = format!("GETRANGE {LOCK} 67 82");
        let recorded = |one: &RedisServer| one.raw().say(&line).expect("a reply");
        let expected = Reply::Bulk(format!("{:016}", token.get()).into());
        if nodes.servers.iter().all(|one| recorded(one) == expected) {
            return (id, token);
        }
        release(engine, id).await;
    }
    panic!("the servers never agree at once");
}

/// Two nodes lose the lock one after the other, and continue with larger counters. Their healed
/// records are a majority, and none of them may prove a token to a client that knows the lease id.
#[tokio::test]
async fn healed_records_prove_no_token_to_a_known_lease_id() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let engine = connect(&nodes).await;
    let (id, token) = granted_alike(&engine, &nodes).await;
    let above = token.get() + 1_000;
    for server in &nodes.servers[1..] {
        server.raw().say(&format!("SET {COUNTER} {above:016}")).expect("set");
        server.raw().say(&format!("DEL {LOCK}")).expect("deleted");
        await_lock(&engine, server, id).await;
    }
    for known in [false, true] {
        let again = AcquireRequest { known, ..request(id) };
        let answer = engine.try_acquire(&again).await;
        let error = answer.expect_err("no majority proves a token");
        assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
        assert_eq!(error.to_string().matches("proves no token").count(), 2, "{error}");
    }
    assert!(matches!(renew(&engine, id).await, RenewReply::Renewed { .. }), "it is still kept");
}

/// A server votes after the decision with its own counter, and one of the deciding servers loses
/// the lock. No majority has one token on record any more, but the holder knows the granted one.
#[tokio::test]
async fn a_lease_is_healed_even_if_a_late_vote_has_another_token() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let engine = connect(&nodes).await;
    let (id, token) = granted_alike(&engine, &nodes).await;
    release(&engine, id).await;
    let (late, id, above) = (&nodes.servers[2], u8::MAX, token.get() + 3_600_000_000);
    late.raw().say(&format!("SET {COUNTER} {above:016}")).expect("set");
    late.stop();
    let granted = engine.try_acquire(&request(id)).await.expect("free on two of three");
    let AcquireReply::Granted { token, .. } = granted else { panic!("{granted:?}") };
    late.cont();
    let began = Instant::now();
    while number(late, &format!("EXISTS {LOCK}")) != Some(1) {
        assert!(began.elapsed() < Duration::from_secs(60), "its vote never came");
    }
    let lost = &nodes.servers[1];
    lost.raw().say(&format!("DEL {LOCK}")).expect("deleted");
    await_lock(&engine, lost, id).await;
    let recorded =
        |one: &RedisServer| one.raw().say(&format!("GETRANGE {LOCK} 67 82")).expect("a reply");
    assert_eq!(recorded(lost), Reply::Bulk(format!("{:016}", token.get()).into()));
    assert_ne!(recorded(late), recorded(lost), "it voted by its own counter");
}

async fn release(engine: &QuorumEngine, id: u8) {
    let ending = Ending { for_good: false, hold: HOLD };
    let lease_id = LeaseId::from_bytes([id; 16]);
    engine.release(&ReleaseRequest { name: name(), lease_id, ending }).await.expect("released");
    engine.flush().await;
}

fn number(server: &RedisServer, line: &str) -> Option<i64> {
    server.raw().say(line).expect("a reply").integer()
}

/// The requests of a contender wait at two stopped servers, and then its process ends. When the
/// servers continue, they find its undo behind its requests.
#[test]
fn the_late_votes_of_a_dead_contender_are_undone() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let process = tokio::runtime::Runtime::new().expect("a runtime");
    process.block_on(async {
        nodes.init().await;
        let url = format!("{}?command_timeout_ms=300", nodes.url());
        let options = QuorumOptions::from_url(&url).expect("a good URL");
        let engine = QuorumEngine::connect(&options, Arc::new(MachineClock)).await.expect("a set");
        // Both have voted, so both have the script.
        nodes.servers[0].stop();
        let mut id = 10;
        while engine.try_acquire(&request(id)).await.is_err() {
            id += 1;
        }
        nodes.servers[0].cont();
        release(&engine, id).await;
        for server in &nodes.servers[1..] {
            assert_eq!(number(server, &format!("EXISTS {LOCK}")), Some(0));
            server.raw().say(&format!("DEL {COUNTER}")).expect("deleted");
        }
        nodes.servers[1..].iter().for_each(RedisServer::stop);
        let error = engine.try_acquire(&request(2)).await.expect_err("there is no majority");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    });
    process.shutdown_background();
    nodes.servers[1..].iter().for_each(RedisServer::cont);
    for server in &nodes.servers[1..] {
        let (began, voted) = (Instant::now(), format!("EXISTS {COUNTER}"));
        while number(server, &voted) != Some(1) {
            assert!(began.elapsed() < Duration::from_secs(60), "the request never came");
        }
        let held = format!("EXISTS {LOCK}");
        // Far less than the lease, and far more than a slow machine needs.
        while number(server, &held) != Some(0) {
            assert!(began.elapsed() < Duration::from_secs(15), "the vote stays");
        }
    }
}

/// How the attempts of a contender end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    InAnError,
    Dropped,
}

/// Stops all servers but the first while requests for several names wait at them, and ends the
/// process. The servers read only a part of what they were sent once the process is gone.
fn late_votes_for_many_names_are_undone(ends: Ends) {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let process = tokio::runtime::Runtime::new().expect("a runtime");
    let names = ["a", "b", "c", "d", "e"];
    process.block_on(async {
        nodes.init().await;
        let url = format!("{}?command_timeout_ms=300", nodes.url());
        let options = QuorumOptions::from_url(&url).expect("a good URL");
        let engine = QuorumEngine::connect(&options, Arc::new(MachineClock)).await.expect("a set");
        // All servers know the script of an acquire.
        let warm = acquired_by_all(&engine, &nodes).await;
        release(&engine, warm).await;
        nodes.servers[1..].iter().for_each(RedisServer::stop);
        let mut attempts = tokio::task::JoinSet::new();
        for name in names {
            let name = LockName::new(name).expect("a good name");
            let wanted = AcquireRequest { name, ..request(200) };
            let engine = engine.clone();
            attempts.spawn(async move {
                if ends == Ends::InAnError {
                    return engine.try_acquire(&wanted).await.map(drop);
                }
                assert!(cut(1, engine.try_acquire(&wanted)).await.is_none());
                let ending = Ending { for_good: true, hold: HOLD };
                let AcquireRequest { name, lease_id, .. } = wanted;
                engine.release(&ReleaseRequest { name, lease_id, ending }).await.map(drop)
            });
        }
        for ended in attempts.join_all().await {
            ended.expect_err("there is no majority");
        }
    });
    process.shutdown_background();
    nodes.servers[1..].iter().for_each(RedisServer::cont);
    for server in &nodes.servers[1..] {
        for name in names {
            became(server, &format!("EXISTS holdline:{{{name}}}:1l"), 1, "the request never came");
            became(server, &format!("EXISTS holdline:{{{name}}}"), 0, "the vote stays");
        }
    }
}

#[test]
fn the_late_votes_for_many_names_of_a_dead_contender_are_undone() {
    late_votes_for_many_names_are_undone(Ends::InAnError);
}

#[test]
fn the_late_votes_of_dropped_attempts_of_a_dead_contender_are_undone() {
    late_votes_for_many_names_are_undone(Ends::Dropped);
}

/// Acquires names until the server has voted for one. It learns how to acquire, and not how to
/// release.
async fn learn_to_acquire(engine: &QuorumEngine, server: &RedisServer) {
    let began = Instant::now();
    for id in 100..u8::MAX {
        assert!(began.elapsed() < Duration::from_secs(60), "it never votes");
        let name = LockName::new(format!("warm-{id}")).expect("a good name");
        let warm = AcquireRequest { name, ..request(id) };
        engine.try_acquire(&warm).await.expect("free");
        if number(server, &format!("EXISTS holdline:{{warm-{id}}}")) == Some(1) {
            return;
        }
    }
    panic!("it never votes");
}

/// A stopped server has yet to vote for a lease that is released meanwhile, and has never seen a
/// release. The holder ends.
#[test]
fn a_release_behind_a_late_vote_ends_it_on_a_server_that_knows_no_release() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let process = tokio::runtime::Runtime::new().expect("a runtime");
    process.block_on(async {
        nodes.init().await;
        let engine = connect(&nodes).await;
        learn_to_acquire(&engine, &nodes.servers[2]).await;
        nodes.servers[2].stop();
        engine.try_acquire(&request(200)).await.expect("two of three answer");
        release(&engine, 200).await;
    });
    process.shutdown_background();
    nodes.servers[2].cont();
    became(&nodes.servers[2], &format!("EXISTS {COUNTER}"), 1, "the request never came");
    became(&nodes.servers[2], &format!("EXISTS {LOCK}"), 0, "the vote stays");
}

/// A server stops after it has voted, and the contender goes on, loses, and ends. The server has
/// never seen a release.
#[test]
fn the_vote_of_a_dead_contender_is_undone_by_a_server_that_knows_no_undo() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let process = tokio::runtime::Runtime::new().expect("a runtime");
    process.block_on(async {
        nodes.init().await;
        acquired_by_all(&connect(&nodes).await, &nodes).await;
        let mut voter = nodes.servers[0].raw();
        voter.say("SCRIPT FLUSH").expect("flushed");
        voter.say(&format!("DEL {LOCK}")).expect("deleted");
        let engine = connect(&nodes).await;
        learn_to_acquire(&engine, &nodes.servers[0]).await;
        let wanted = request(200);
        let mut attempt = std::pin::pin!(engine.try_acquire(&wanted));
        let mut context = Context::from_waker(Waker::noop());
        assert!(attempt.as_mut().poll(&mut context).is_pending());
        became(&nodes.servers[0], &format!("EXISTS {LOCK}"), 1, "it never voted");
        nodes.servers[0].stop();
        drop(attempt.await);
    });
    process.shutdown_background();
    nodes.servers[0].cont();
    became(&nodes.servers[0], &format!("EXISTS {LOCK}"), 0, "the vote stays");
}

/// The servers hang before the lease is given up, so no request of it is unanswered.
#[test]
fn a_lease_that_is_given_up_while_its_servers_hang_ends_when_they_continue() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let process = tokio::runtime::Runtime::new().expect("a runtime");
    process.block_on(async {
        nodes.init().await;
        let url = format!("{}?command_timeout_ms=300", nodes.url());
        let options = QuorumOptions::from_url(&url).expect("a good URL");
        let engine = QuorumEngine::connect(&options, Arc::new(MachineClock)).await.expect("a set");
        let id = acquired_by_all(&engine, &nodes).await;
        nodes.servers.iter().for_each(RedisServer::stop);
        let hung = engine.inspect(&name()).await;
        hung.expect_err("no server answers");
        let ending = Ending { for_good: true, hold: HOLD };
        let lease_id = LeaseId::from_bytes([id; 16]);
        let request = ReleaseRequest { name: name(), lease_id, ending };
        engine.release(&request).await.expect_err("no server answers");
    });
    process.shutdown_background();
    nodes.servers.iter().for_each(RedisServer::cont);
    for server in &nodes.servers {
        became(server, &format!("EXISTS {LOCK}"), 0, "the vote stays");
    }
}

/// A server rejects the undo of one name for good. The undo of another name waits behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_that_a_node_rejects_delays_no_other() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let url = format!("{}?command_timeout_ms=300", nodes.url());
    let options = QuorumOptions::from_url(&url).expect("a good URL");
    let engine = QuorumEngine::connect(&options, Arc::new(MachineClock)).await.expect("a set");
    let id = acquired_by_all(&engine, &nodes).await;
    let other = AcquireRequest { name: LockName::new("b").expect("good"), ..request(id) };
    let granted = engine.try_acquire(&other).await.expect("free");
    assert!(matches!(granted, AcquireReply::Granted { .. }), "{granted:?}");
    let late = &nodes.servers[1];
    became(late, "EXISTS holdline:{b}", 1, "it never voted");
    let rights = "ACL SETUSER default resetkeys ~holdline:{b}* ~holdline:node*";
    late.raw().say(rights).expect("set");
    release(&engine, id).await;
    late.stop();
    // So its connection is known to hang, and the next undo is only queued.
    drop(engine.inspect(&name()).await);
    let ending = Ending { for_good: false, hold: HOLD };
    let lease_id = LeaseId::from_bytes([id; 16]);
    let undo = ReleaseRequest { name: other.name.clone(), lease_id, ending };
    engine.release(&undo).await.expect("two of three answer");
    late.cont();
    became(late, "EXISTS holdline:{b}", 0, "its undo waits behind the rejected one");
}

/// The third answer is not awaited when two servers are busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_lost_to_a_holder_leaves_no_tombstone() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let engine = connect(&nodes).await;
    acquired_by_all(&engine, &nodes).await;
    for id in 100..120 {
        let answer = engine.try_acquire(&request(id)).await.expect("an answer");
        assert!(matches!(answer, AcquireReply::Busy { .. }), "{answer:?}");
    }
    engine.flush().await;
    for server in &nodes.servers {
        let marks = server.raw().say("KEYS holdline:*:1t:*").expect("a reply");
        assert_eq!(marks, Reply::Array(Vec::new()));
    }
}

/// Waits until a request has this reply. The limit is far less than the lease, and far more than a
/// slow machine needs.
fn became(server: &RedisServer, line: &str, expected: i64, otherwise: &str) {
    let began = Instant::now();
    while number(server, line) != Some(expected) {
        assert!(began.elapsed() < Duration::from_secs(15), "{line}: {otherwise}");
    }
}
