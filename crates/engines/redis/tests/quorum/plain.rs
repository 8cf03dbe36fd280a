//! The plain dialect: locks of other libraries exclude ours, and are left as they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Ending, Engine, ErrorKind, FencingToken, Hold, LeaseId,
    LockError, LockKind, LockName, Metadata, Mode, Operation, ReleaseReply, ReleaseRequest,
};
use holdline_redis::{NodeState, QuorumAdmin, QuorumEngine, QuorumOptions};
use holdline_services::{Fault, FaultProxy, Frames, RedisConfig, RedisServer, Reply, Traffic};

use crate::support::{Nodes, PATIENCE};

const TOKENS: &str = "&dialect=plain&key_template={name}";
const BARE: &str = "&dialect=plain&key_template={name}&fencing=off";
const KEY: &str = "a{b}";
const HOLD: Hold = Hold::Leased(Duration::from_secs(30));
/// The time limit of an expected event on a slow machine.
const LIMIT: Duration = Duration::from_secs(90);

async fn start(parameters: &str) -> Nodes {
    let nodes = Nodes::start(3, &RedisConfig::default());
    if parameters == TOKENS {
        nodes.init_with(parameters).await;
    }
    nodes
}

async fn connect(options: &QuorumOptions) -> QuorumEngine {
    let engine = QuorumEngine::connect(options, Arc::new(MachineClock)).await;
    engine.expect("the servers are there")
}

async fn open(parameters: &str) -> (Nodes, QuorumEngine) {
    let nodes = start(parameters).await;
    let engine = connect(&nodes.options(parameters)).await;
    (nodes, engine)
}

/// Sends a command to one server, past the engine.
fn say(server: &RedisServer, words: &[&str]) -> Reply {
    server.raw().send(words).expect("an answer")
}

async fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !seen() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await; // event: asked again until it is seen
    }
}

fn name() -> LockName {
    LockName::new(KEY).expect("a good name")
}

fn request(id: u8) -> AcquireRequest {
    AcquireRequest {
        name: name(),
        lease_id: LeaseId::from_bytes([id; 16]),
        client: ClientId::from_u64(7),
        mode: Mode::Exclusive,
        kind: LockKind::Mutex,
        hold: HOLD,
        queue: false,
        known: false,
        hand_off_lease: MIN_HAND_OFF_LEASE,
        metadata: Metadata::default(),
    }
}

async fn ask(engine: &QuorumEngine, id: u8) -> Result<AcquireReply, LockError> {
    engine.try_acquire(&request(id)).await
}

async fn release(engine: &QuorumEngine, id: u8) -> ReleaseReply {
    let ending = Ending { for_good: false, hold: HOLD };
    let request = ReleaseRequest { name: name(), lease_id: request(id).lease_id, ending };
    engine.release(&request).await.expect("an answer")
}

fn keys(nodes: &Nodes) -> Vec<Vec<String>> {
    let of_one = |server: &RedisServer| {
        let reply = say(server, &["KEYS", "*"]);
        let mut keys: Vec<String> =
            reply.items().expect("a list").iter().filter_map(Reply::text).collect();
        keys.sort_unstable();
        keys
    };
    nodes.servers.iter().map(of_one).collect()
}

#[tokio::test]
async fn a_foreign_lock_without_an_expiry_excludes_and_is_left_as_it_is() {
    for parameters in [TOKENS, BARE] {
        let (nodes, engine) = open(parameters).await;
        for server in &nodes.servers {
            say(server, &["SET", KEY, "somebody"]);
        }
        let reply = ask(&engine, 7).await.expect("an answer");
        let AcquireReply::Busy { holder: Some(holder), at_most: None, .. } = reply else {
            panic!("{parameters}: {reply:?}")
        };
        assert_eq!(holder.metadata.fields().program, "a foreign client", "{parameters}");
        assert_eq!((holder.token, holder.held_for, holder.left), (None, None, None));
        let snapshot = engine.inspect(&name()).await.expect("shown");
        assert_eq!(snapshot.holders.len(), 1, "{parameters}: {snapshot:?}");
        for server in &nodes.servers {
            assert_eq!(say(server, &["GET", KEY]).text().as_deref(), Some("somebody"));
            assert_eq!(say(server, &["PTTL", KEY]), Reply::Integer(-1), "{parameters}");
        }
    }
}

#[tokio::test]
async fn only_the_lock_key_is_where_other_libraries_look() {
    for (parameters, held, left) in [
        (
            TOKENS,
            &["a{b}", "holdline:a{b}:1l", "holdline:node:1"][..],
            &["holdline:a{b}:1l", "holdline:node:1"][..],
        ),
        (BARE, &["a{b}"][..], &[][..]),
    ] {
        let (nodes, engine) = open(parameters).await;
        let reply = ask(&engine, 7).await.expect("an answer");
        assert!(matches!(reply, AcquireReply::Granted { .. }), "{parameters}: {reply:?}");
        // A majority has it; the third server may still get it.
        let count = |wanted: &[&str]| keys(&nodes).iter().filter(|keys| *keys == wanted).count();
        assert!(count(held) >= 2, "{parameters}: {:?}", keys(&nodes));
        let released = release(&engine, 7).await;
        assert!(matches!(released, ReleaseReply::Released { .. }), "{parameters}: {released:?}");
        assert!(count(left) >= 2, "{parameters}: {:?}", keys(&nodes));
    }
}

/// One server is down: two of three name the holder, which is enough.
#[tokio::test]
async fn a_refusal_beside_a_lost_node_names_the_holder() {
    for parameters in [TOKENS, BARE] {
        let (nodes, engine) = open(parameters).await;
        nodes.servers[2].kill();
        for server in &nodes.servers[..2] {
            say(server, &["SET", KEY, "somebody", "PX", "60000"]);
        }
        let reply = ask(&engine, 7).await.expect("an answer");
        let AcquireReply::Busy { holder: Some(holder), at_most: Some(_), .. } = reply else {
            panic!("{parameters}: {reply:?}")
        };
        assert_eq!(holder.metadata.fields().program, "a foreign client", "{parameters}");
    }
}

/// The grants of a lost attempt were undone: its id must not come back on any node.
#[tokio::test]
async fn an_undone_lease_id_is_rejected_on_every_node() {
    let (nodes, engine) = open(BARE).await;
    let [first, second, _] = &nodes.servers[..] else { panic!("three servers") };
    for server in [first, second] {
        say(server, &["SET", KEY, "somebody"]);
    }
    let reply = ask(&engine, 7).await;
    assert!(matches!(reply, Ok(AcquireReply::Busy { .. })), "{reply:?}");
    for server in [first, second] {
        say(server, &["DEL", KEY]);
    }
    until("the undo", || keys(&nodes).iter().all(Vec::is_empty)).await;
    let again = ask(&engine, 7).await.expect_err("the id is dead");
    assert!(matches!(again.kind(), ErrorKind::Cancelled), "{again:?}");
    assert!(keys(&nodes).iter().all(Vec::is_empty), "{:?}", keys(&nodes));
    let other = ask(&engine, 8).await;
    assert!(matches!(other, Ok(AcquireReply::Granted { .. })), "{other:?}");
}

/// Waits until the engine is connected to all servers, and they have its scripts.
async fn await_connections(engine: &QuorumEngine, nodes: &Nodes) {
    let has = |keys: &Vec<String>| keys.iter().any(|key| key == KEY);
    let end = Instant::now() + LIMIT;
    for id in 100.. {
        let reply = ask(engine, id).await;
        assert!(matches!(reply, Ok(AcquireReply::Granted { .. })), "{reply:?}");
        tokio::time::sleep(Duration::from_millis(50)).await; // event: the slowest takes it too
        let all = keys(nodes).iter().all(has);
        release(engine, id).await;
        until("it is released", || !keys(nodes).iter().any(has)).await;
        if all {
            return;
        }
        assert!(Instant::now() < end, "they do not all vote");
    }
}

/// A hanging request takes the name when it arrives at the node. One undo goes behind it, and
/// another one over a connection that answers.
#[tokio::test]
async fn a_hanging_request_is_undone_behind_it() {
    for parameters in [TOKENS, BARE] {
        let nodes = start(parameters).await;
        let proxy = FaultProxy::start(nodes.servers[0].address());
        let hosts = [proxy.address(), nodes.servers[1].address(), nodes.servers[2].address()];
        let hosts = hosts.map(|host| host.to_string()).join(",");
        let patience = PATIENCE.as_millis();
        let url = format!("redlock://{hosts}?command_timeout_ms={patience}{parameters}");
        let engine = connect(&QuorumOptions::from_url(&url).expect("a good URL")).await;
        await_connections(&engine, &nodes).await;
        for server in &nodes.servers[1..] {
            say(server, &["SET", KEY, "somebody"]);
        }
        let id = request(7).lease_id.to_hex();
        proxy.inject(Frames::requests().containing(&id).nth(1), Fault::Hold);
        let reply = ask(&engine, 7).await;
        assert!(matches!(reply, Ok(AcquireReply::Busy { .. })), "{parameters}: {reply:?}");
        let brought = || {
            let about = |event: &holdline_services::Event| event.is_frame(Traffic::Requests, &id);
            proxy.events().into_iter().filter(about).count()
        };
        until("a request and its undo", || brought() >= 2).await;
        let answered = proxy.seen_on(1, Traffic::Replies);
        proxy.thaw();
        until("both are carried out", || proxy.seen_on(1, Traffic::Replies) >= answered + 2).await;
        let left = say(&nodes.servers[0], &["EXISTS", KEY]);
        assert_eq!(left, Reply::Integer(0), "{parameters}");
    }
}

/// With tokens, a server without data is in quarantine for us, while other libraries get its vote
/// at once. Without tokens so do we, and two clients may hold a lock.
#[tokio::test]
async fn a_server_without_data_votes_at_once_only_without_tokens() {
    for parameters in [TOKENS, BARE] {
        let (nodes, engine) = open(parameters).await;
        let [_, forgets, third] = &nodes.servers[..] else { panic!("three servers") };
        // The first holder has exactly a majority, which includes the second server.
        say(third, &["SET", KEY, "somebody"]);
        let first = ask(&engine, 1).await;
        assert!(matches!(first, Ok(AcquireReply::Granted { .. })), "{parameters}: {first:?}");
        say(third, &["DEL", KEY]);
        forgets.restart();
        if parameters == TOKENS {
            let admin = QuorumAdmin::new(&nodes.options(TOKENS), Arc::new(MachineClock));
            let admin = admin.expect("good options");
            let end = Instant::now() + LIMIT;
            while admin.status().await.nodes[1].state != NodeState::Quarantined {
                assert!(Instant::now() < end, "it has lost its data");
                tokio::time::sleep(Duration::from_millis(20)).await; // event: until it waits
            }
            let other = connect(&nodes.options(TOKENS)).await;
            let second = ask(&other, 2).await;
            assert!(matches!(second, Ok(AcquireReply::Busy { .. })), "{second:?}");
            // The command of another library.
            let set = say(forgets, &["SET", KEY, "somebody", "NX", "PX", "30000"]);
            assert_eq!(set, Reply::Simple("OK".to_owned()), "it knows no quarantine");
            continue;
        }
        let end = Instant::now() + LIMIT;
        for id in 2.. {
            match ask(&engine, id).await.expect("an answer") {
                AcquireReply::Granted { .. } => break,
                other => assert!(Instant::now() < end, "still {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await; // event: until it is found again
        }
    }
}

#[tokio::test]
async fn without_tokens_operations_that_need_one_are_unsupported() {
    let (nodes, engine) = open(BARE).await;
    let can = engine.capabilities();
    let lacks = [can.fencing, can.revoke, can.polite_revoke, can.metadata, can.detach, can.repeat];
    assert_eq!(lacks, [false; 6]);
    let token = FencingToken::MIN;
    let revoke = Operation::Revoke { name: name(), token, reason: String::new(), now: true };
    for (operation, lacked) in
        [(revoke, "revoke"), (Operation::RaiseFence { to: token }, "fencing tokens")]
    {
        let refused = engine.operate(&operation).await.expect_err("it needs a token");
        let ErrorKind::Unsupported { feature } = refused.kind() else { panic!("{refused:?}") };
        assert_eq!(*feature, lacked);
    }
    let detached = AcquireRequest { hold: Hold::Detached(Duration::from_secs(9)), ..request(7) };
    let refused = engine.try_acquire(&detached).await.expect_err("nothing would know whose it is");
    assert!(matches!(refused.kind(), ErrorKind::Unsupported { .. }), "{refused:?}");
    assert!(keys(&nodes).iter().all(Vec::is_empty), "{:?}", keys(&nodes));
}

#[tokio::test]
async fn without_tokens_there_is_no_set_to_maintain() {
    let nodes = Nodes::start(1, &RedisConfig::default());
    let options = nodes.options(BARE);
    let refused = QuorumAdmin::new(&options, Arc::new(MachineClock)).expect_err("no set");
    let ErrorKind::Unsupported { feature } = refused.kind() else { panic!("{refused}") };
    assert!(feature.contains("`fencing=off`"), "{refused}");
    let options = nodes.options("&dialect=plain&signal_template=s:{name}");
    let refused = QuorumEngine::connect(&options, Arc::new(MachineClock)).await;
    let refused = refused.expect_err("not over several servers");
    let ErrorKind::Invalid { field, .. } = refused.kind() else { panic!("{refused}") };
    assert_eq!(*field, "signal_template", "{refused}");
}
