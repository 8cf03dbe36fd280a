//! The slots of a set: what clients may change, and what only operators decide.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::quorum::{Configuration, NodeId};
use holdline_core::{
    AcquireReply, AcquireRequest, Ending, Engine, ErrorKind, Hold, LeaseId, LockError,
    ReleaseRequest,
};
use holdline_redis::{NodeState, QuorumAdmin, QuorumEngine, QuorumOptions, QuorumStatus};
use holdline_services::{FaultProxy, RedisConfig, RedisServer, Reply};

use crate::support::{HOLD, Nodes, admin_of, name, request};

/// These servers, by this name for 127.0.0.1.
fn options(host: &str, servers: &[&RedisServer]) -> QuorumOptions {
    let hosts = servers.iter().map(|one| format!("{host}:{}", one.address().port()));
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let url = format!("redlock://{hosts}?command_timeout_ms=5000");
    QuorumOptions::from_url(&url).expect("a good URL")
}

fn admin(servers: &[&RedisServer]) -> QuorumAdmin {
    admin_of(&options("127.0.0.1", servers))
}

async fn connect(options: &QuorumOptions) -> QuorumEngine {
    let engine = QuorumEngine::connect(options, Arc::new(MachineClock)).await;
    engine.expect("a set")
}

/// Returns the id and the configuration of each server.
fn kept(servers: &[RedisServer]) -> Vec<Reply> {
    let kept = |one: &RedisServer| one.raw().say("HMGET holdline:node:1 m i g c").expect("a reply");
    servers.iter().map(kept).collect()
}

fn states(status: &QuorumStatus) -> Vec<NodeState> {
    status.nodes.iter().map(|node| node.state).collect()
}

fn message<T: std::fmt::Debug>(outcome: Result<T, LockError>) -> String {
    let error = outcome.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error:?}");
    error.to_string()
}

fn ending(id: u8) -> ReleaseRequest {
    let ending = Ending { for_good: false, hold: HOLD };
    ReleaseRequest { name: name(), lease_id: LeaseId::from_bytes([id; 16]), ending }
}

/// The set is {0, 1, 2}, and a client lists {0, 1, 3}.
#[tokio::test]
async fn one_wrong_server_in_a_list_evicts_no_member_and_is_reported() {
    let nodes = Nodes::start(4, &RedisConfig::default());
    let [a, b, c, x] = &nodes.servers[..] else { panic!("four servers") };
    let right = admin(&[a, b, c]);
    crate::support::vouched(&right).await;
    let before = kept(&nodes.servers[..3]);
    let wrong = options("127.0.0.1", &[a, b, x]);
    let engine = connect(&wrong).await;
    // Two of the set answer, so names can be acquired.
    for id in 1..=5 {
        let reply = engine.try_acquire(&request(id)).await.expect("two vote");
        let granted = matches!(reply, AcquireReply::Granted { .. });
        assert!(granted || id > 1, "{reply:?}");
    }
    let status = admin_of(&wrong).status().await;
    let votes = NodeState::Votes;
    assert_eq!(states(&status), [votes, votes, NodeState::Mislisted], "{status:?}");
    let problem = status.nodes[2].problem.as_deref().expect("said");
    for server in [a, b, c, x] {
        assert!(problem.contains(&server.address().to_string()), "{problem}");
    }
    let fix = status.nodes[2].fix.as_deref().expect("said");
    assert!(fix.contains("quorum replace OLD NEW"), "{fix}");
    assert_eq!(admin_of(&wrong).plan_rejoin().await.expect("one set"), []);
    admin_of(&wrong).rejoin().await.expect("there is nothing to do");
    assert_eq!(kept(&nodes.servers[..3]), before, "no node receives a command");
    assert_eq!(right.status().await.votes, 3);
}

#[tokio::test]
async fn an_operator_replaces_a_server_and_readmits_it() {
    let nodes = Nodes::start(4, &RedisConfig::default());
    let [a, b, c, x] = &nodes.servers[..] else { panic!("four servers") };
    crate::support::vouched(&admin(&[a, b, c])).await;
    let new = admin(&[a, b, x]);
    let (old, by) = (c.address().to_string(), x.address().to_string());
    let before = kept(&nodes.servers);
    let planned = new.plan_replace(&[(&old, &by)]).await.expect("two remember");
    let [one] = &planned[..] else { panic!("{planned:?}") };
    assert_eq!((&one.address, &one.by, one.state), (&old, &by, NodeState::Down));
    let short = new.plan_replace(&[(&one.id, &by)]).await.expect("by its id");
    assert_eq!(short, planned);
    let (a_at, b_at) = (a.address().to_string(), b.address().to_string());
    for (pairs, says) in [
        (&[(&*old, &*old)][..], "not among the servers that the URL names"),
        (&[(&*by, &*by)], "is no server of the set"),
        (&[(&*old, &*a_at)], "a server of the set already"),
        (&[(&*old, &*by), (&*a_at, &*by)], "in one pair only"),
        (&[(&*b_at, &*by)], "1 of 3 servers vote, and 2 must"),
    ] {
        let reported = message(new.plan_replace(pairs).await);
        assert!(reported.contains(says), "{reported}");
    }
    assert_eq!(kept(&nodes.servers), before, "looking changes nothing");
    let status = new.replace(&planned).await.expect("agreed");
    assert_eq!((status.epoch, status.votes), (Some(3), 2), "{status:?}");
    assert_eq!(status.nodes[2].state, NodeState::Quarantined, "{status:?}");
    // The old server knows nothing of it, and can be taken back all the same: in a dry run here.
    let back = admin(&[a, b, c]);
    let planned = back.plan_replace(&[(&by, &old)]).await.expect("two remember");
    assert_eq!(planned.len(), 1);
    // Or it learns of the change as soon as a client lists it.
    let status = back.rejoin().await.expect("nothing is evicted by that");
    assert_eq!(status.nodes[2].state, NodeState::Replaced, "{status:?}");
    assert_eq!(back.plan_rejoin().await.expect("one set"), [], "its slot has another address");
    // The same verb brings it back.
    let planned = back.plan_replace(&[(&by, &old)]).await.expect("two remember");
    let status = back.replace(&planned).await.expect("agreed");
    assert_eq!((status.epoch, status.votes), (Some(4), 2), "{status:?}");
    assert_eq!(status.nodes[2].state, NodeState::Quarantined, "{status:?}");
    let evicted = admin(&[a, b, x]).rejoin().await.expect("a reply");
    assert_eq!(evicted.nodes[2].state, NodeState::Replaced, "{evicted:?}");
}

#[tokio::test]
async fn a_server_of_another_set_gets_no_slot() {
    let (nodes, other) =
        (Nodes::start(3, &RedisConfig::default()), Nodes::start(1, &RedisConfig::default()));
    let [a, b, c] = &nodes.servers[..] else { panic!("three servers") };
    nodes.init().await;
    other.init().await;
    let x = &other.servers[0];
    let (old, by) = (c.address().to_string(), x.address().to_string());
    let new = admin(&[a, b, x]);
    let reported = message(new.plan_replace(&[(&old, &by)]).await);
    assert!(reported.contains("belongs to the set") && !reported.contains("delete"), "{reported}");
    x.raw().say("DEL holdline:node:1").expect("deleted");
    let planned = new.plan_replace(&[(&old, &by)]).await.expect("two remember");
    assert_eq!(new.replace(&planned).await.expect("agreed").epoch, Some(3));
}

/// Initialised as 127.0.0.1, listed as localhost, and a majority loses its data.
#[tokio::test]
async fn a_majority_without_data_under_other_names_recovers_by_a_running_client() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let servers: Vec<&RedisServer> = nodes.servers.iter().collect();
    let renamed = options("localhost", &servers);
    let client = connect(&renamed).await;
    client.try_acquire(&request(1)).await.expect("all vote");
    for server in &servers[..2] {
        server.raw().say("FLUSHALL").expect("flushed");
    }
    // A client that acquires is refused, refreshes its view, and readmits them.
    let mut id = 2;
    loop {
        let status = admin_of(&renamed).status().await;
        if status.epoch == Some(3) {
            let waits = NodeState::Quarantined;
            assert_eq!(states(&status)[..2], [waits, waits], "{status:?}");
            return;
        }
        let _ = client.try_acquire(&request(id)).await;
        id += 1;
        assert!(id < 250, "{status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await; // event: until they are readmitted
    }
}

/// The same without a running client that has seen them.
#[tokio::test]
async fn a_majority_without_data_under_other_names_is_reported_and_an_operator_replaces_all() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let servers: Vec<&RedisServer> = nodes.servers.iter().collect();
    let renamed = options("localhost", &servers);
    for server in &servers[..2] {
        server.raw().say("FLUSHALL").expect("flushed");
    }
    let reported = message(QuorumEngine::connect(&renamed, Arc::new(MachineClock)).await);
    assert!(
        reported.contains("quorum replace OLD NEW") && !reported.contains("FLUSH"),
        "{reported}"
    );
    for server in &servers {
        let port = server.address().port();
        assert!(reported.contains(&format!("127.0.0.1:{port}")), "{reported}");
        assert!(reported.contains(&format!("localhost:{port}")), "{reported}");
    }
    let operator = admin_of(&renamed);
    let status = operator.status().await;
    let lost = NodeState::Mislisted;
    assert_eq!(states(&status), [lost, lost, NodeState::Votes], "{status:?}");
    let pairs = servers[..2].iter().map(|server| {
        let port = server.address().port();
        (format!("127.0.0.1:{port}"), format!("localhost:{port}"))
    });
    let pairs: Vec<(String, String)> = pairs.collect();
    let reported = message(operator.plan_replace(&pairs[..1]).await);
    assert!(reported.contains(&pairs[1].0), "{reported}");
    let planned = operator.plan_replace(&pairs).await.expect("all slots are accounted for");
    let status = operator.replace(&planned).await.expect("agreed");
    assert_eq!((status.epoch, status.votes), (Some(3), 1), "{status:?}");
    let status = crate::support::vouched(&operator).await;
    assert_eq!(status.votes, 3, "{status:?}");
}

/// The operator was asked about two servers. Then one of them lost its data again, and so did the
/// third.
#[tokio::test]
async fn a_vouch_ends_the_wait_of_no_server_that_has_lost_its_data_since_the_question() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let operator = nodes.admin();
    let flush = |server: &RedisServer| drop(server.raw().say("FLUSHALL").expect("flushed"));
    nodes.servers[..2].iter().for_each(flush);
    operator.rejoin().await.expect("the addresses are right");
    let confirmed = operator.plan_vouch().await.expect("they are one set");
    let addresses: Vec<&str> = confirmed.iter().map(|server| &*server.address).collect();
    let address = |at: usize| nodes.servers[at].address().to_string();
    assert_eq!(addresses, [address(0), address(1)]);
    flush(&nodes.servers[1]);
    flush(&nodes.servers[2]);
    let status = operator.vouch(&confirmed).await.expect("the first one may vote");
    assert_eq!(status.nodes[0].state, NodeState::Votes, "{status:?}");
    let votes = |at: usize| status.nodes[at].state == NodeState::Votes;
    assert!(!votes(1) && !votes(2) && !status.works(), "{status:?}");
    operator.rejoin().await.expect("the addresses are right");
    let confirmed = operator.plan_vouch().await.expect("they are one set");
    let status = operator.vouch(&confirmed).await.expect("confirmed");
    assert_eq!(status.votes, 3, "{status:?}");
}

/// Between the question and the answer of the operator the name leads to another server.
#[tokio::test]
async fn a_slot_goes_only_to_the_server_that_the_operator_was_asked_about() {
    let nodes = Nodes::start(5, &RedisConfig::default());
    let [a, b, c, x, y] = &nodes.servers[..] else { panic!("five servers") };
    let proxy = FaultProxy::start(b.address());
    let list = [a.address(), proxy.address(), c.address()].map(|one| one.to_string()).join(",");
    let url = format!("redlock://{list}?command_timeout_ms=5000");
    let options = QuorumOptions::from_url(&url).expect("a good URL");
    crate::support::vouched(&admin_of(&options)).await;
    let lead_to = |server: &RedisServer| {
        proxy.set_upstream(server.address());
        proxy.reset();
    };
    lead_to(x);
    let before = kept(&nodes.servers);
    let operator = admin_of(&options);
    let planned = operator.plan_rejoin().await.expect("one server is new");
    assert_eq!(planned.len(), 1);
    lead_to(y);
    assert!(message(operator.replace(&planned).await).contains("repeat the command"));
    assert_eq!(kept(&nodes.servers)[..4], before[..4], "nobody has lost its slot");
    let planned = operator.plan_rejoin().await.expect("one server is new");
    let status = operator.replace(&planned).await.expect("confirmed");
    assert_eq!(status.nodes[1].state, NodeState::Quarantined, "{status:?}");
}

/// The names of a client lead to blank servers: the addresses are those of members. It never saw
/// the members there.
#[tokio::test]
async fn a_client_whose_names_lead_elsewhere_takes_no_set_over() {
    for wrong in [1, 2] {
        let nodes = Nodes::start(3, &RedisConfig::default());
        let blank = Nodes::start(2, &RedisConfig::default());
        let proxies: Vec<FaultProxy> =
            nodes.servers.iter().map(|member| FaultProxy::start(member.address())).collect();
        let list = proxies.iter().map(|proxy| proxy.address().to_string()).collect::<Vec<_>>();
        let url = format!("redlock://{}?command_timeout_ms=5000", list.join(","));
        let client = QuorumOptions::from_url(&url).expect("a good URL");
        crate::support::vouched(&admin_of(&client)).await;
        let before = kept(&nodes.servers);
        for (proxy, server) in proxies.iter().zip(&blank.servers).take(wrong) {
            proxy.set_upstream(server.address());
        }
        match connect(&client).await.try_acquire(&request(1)).await {
            Ok(_) => assert_eq!(wrong, 1, "two of three vote"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
                assert!(error.to_string().contains("quorum rejoin"), "{error}");
            }
        }
        let status = admin_of(&client).status().await;
        for node in &status.nodes[..wrong] {
            assert_eq!(node.state, NodeState::Blank, "{status:?}");
            let fix = node.fix.as_deref().expect("an operator decides");
            assert!(fix.contains("leads to the right server") && fix.contains("quorum rejoin"));
        }
        assert_eq!(kept(&nodes.servers), before, "nobody has lost its slot");
        assert_eq!(nodes.admin().status().await.votes, 3);
    }
}

/// One server of another set, and one that was emptied: the last member with data must keep them.
#[tokio::test]
async fn no_advice_destroys_the_data_of_a_member() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let other = Nodes::start(1, &RedisConfig::default());
    nodes.init().await;
    other.init().await;
    let [a, b, _] = &nodes.servers[..] else { panic!("three servers") };
    b.raw().say("FLUSHALL").expect("flushed");
    for servers in [[a, b, &other.servers[0]], [a, &nodes.servers[2], &other.servers[0]]] {
        let status = admin(&servers).status().await;
        let texts = status.nodes.iter().flat_map(|node| [&node.problem, &node.fix]);
        let texts = texts.chain([&status.problem, &status.fix]).flatten();
        for text in texts {
            assert!(!text.contains("delete") && !text.contains("node:1"), "{text}");
        }
        assert!(status.nodes[2].fix.is_some(), "{status:?}");
    }
}

/// Gives a server the data of another one.
fn copy_data(from: &RedisServer, to: &RedisServer) {
    let port = from.address().port().to_string();
    to.raw().send(&["REPLICAOF", "127.0.0.1", &port]).expect("a reply");
    let is_linked = || {
        let info = to.raw().say("INFO replication").expect("a reply").text();
        info.is_some_and(|info| info.contains("master_link_status:up"))
    };
    while !is_linked() {}
    to.raw().say("REPLICAOF NO ONE").expect("a reply");
}

/// A copy of a member knows the id of the member, and some names of a client lead to copies.
#[tokio::test]
async fn a_client_whose_names_lead_to_copies_of_members_takes_no_set_over() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let [a, b, c] = &nodes.servers[..] else { panic!("three servers") };
    let copies = Nodes::start(2, &RedisConfig::default());
    let [x, y] = &copies.servers[..] else { panic!("two servers") };
    copy_data(a, x);
    copy_data(b, y);
    let before = kept(&nodes.servers);
    for (servers, wrong) in [([x, b, c], 1), ([x, y, c], 2)] {
        let client = options("127.0.0.1", &servers);
        let connected = QuorumEngine::connect(&client, Arc::new(MachineClock)).await;
        if wrong == 1 {
            let engine = connected.expect("a majority is the set");
            engine.try_acquire(&request(1)).await.expect("two of three vote");
            engine.release(&ending(1)).await.expect("released");
        } else {
            assert!(message(connected.map(drop)).contains("Correct the list"));
        }
        let status = admin(&servers).status().await;
        let fix = status.nodes[0].fix.as_deref().expect("an operator decides");
        assert!(fix.contains("Correct the list"), "{status:?}");
        assert_eq!(kept(&nodes.servers), before, "nobody has lost its slot");
        assert_eq!(nodes.admin().status().await.votes, 3);
    }
}

/// One operator gave the slot of the first server to the fourth. Another one gave it that of the
/// second, of which only the first server has learned.
#[tokio::test]
async fn two_operators_give_no_server_two_slots() {
    let nodes = Nodes::start(4, &RedisConfig::default());
    let [a, b, c, x] = &nodes.servers[..] else { panic!("four servers") };
    crate::support::vouched(&admin(&[a, b, c])).await;
    let first = admin(&[x, b, c]);
    let address = |server: &RedisServer| server.address().to_string();
    let planned = first.plan_replace(&[(address(a), address(x))]).await.expect("it may");
    first.replace(&planned).await.expect("replaced");
    let field = |server: &RedisServer, name: &str| {
        let reply = server.raw().send(&["HGET", "holdline:node:1", name]).expect("a reply");
        reply.text().expect("set")
    };
    let before = field(a, "c");
    let mut words: Vec<String> = before.split(' ').map(str::to_owned).collect();
    "3".clone_into(&mut words[2]);
    for word in &mut words {
        if word.ends_with(&address(b)) {
            *word = format!("{}/3@{}", field(x, "i"), address(x));
        }
    }
    let text = words.join(" ");
    let other: Configuration = text.parse().expect("a configuration");
    let stamp = other.stamp().to_string();
    let proof = format!("{}/{stamp}", field(a, "m"));
    let fields = ["HSET", "holdline:node:1", "c", &text, "s", &stamp, "p", &proof];
    a.raw().send(&fields).expect("written");
    let refused = message(admin(&[a, x, c]).plan_rejoin().await);
    assert!(refused.contains("two operators have changed this set"), "{refused}");
    assert_eq!(field(x, "c"), field(b, "c"), "the agreed change stands");
}

/// A server becomes a replica and a master again: its run is the same, and its data are older.
#[tokio::test]
async fn a_server_that_was_a_replica_is_in_quarantine() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let server = &nodes.servers[0];
    let copy = RedisServer::start(RedisConfig::default());
    copy_data(server, &copy);
    let engine = connect(&nodes.options("")).await;
    engine.try_acquire(&request(1)).await.expect("all vote");
    copy_data(&copy, server);
    let voted = server.raw().say("HGET holdline:node:1 g").expect("a reply").text();
    assert_eq!(voted.as_deref(), Some("open"), "its own data do not show it");
    let status = nodes.admin().rejoin().await.expect("it knows its id");
    assert_eq!((status.votes, status.nodes[0].state), (2, NodeState::Quarantined), "{status:?}");
}

/// A member is switched over to its replica, and back.
#[tokio::test]
async fn a_member_that_gets_its_data_back_from_its_former_replica_is_in_quarantine() {
    let nodes = Nodes::start(4, &RedisConfig::default());
    let [a, b, c, replica] = &nodes.servers[..] else { panic!("four servers") };
    let proxy = FaultProxy::start(a.address());
    let list = [proxy.address(), b.address(), c.address()].map(|one| one.to_string()).join(",");
    let url = format!("redlock://{list}?command_timeout_ms=5000");
    let options = QuorumOptions::from_url(&url).expect("a good URL");
    crate::support::vouched(&admin_of(&options)).await;
    for (from, to) in [(a, replica), (replica, a)] {
        copy_data(from, to);
        proxy.set_upstream(to.address());
        proxy.reset();
        let status = admin_of(&options).rejoin().await.expect("it knows its id");
        assert_eq!(status.nodes[0].state, NodeState::Quarantined, "{status:?}");
        assert_eq!(status.votes, 2, "{status:?}");
    }
}

/// A server loses its data, and its address leads to a blank server and back to it, which has run
/// all the time and had nearly waited.
#[tokio::test]
async fn an_address_that_leads_elsewhere_and_back_brings_no_quarantine_back() {
    let nodes = Nodes::start(4, &RedisConfig::default());
    let [a, b, c, x] = &nodes.servers[..] else { panic!("four servers") };
    let proxy = FaultProxy::start(b.address());
    let addresses = [a.address(), proxy.address(), c.address()];
    let list = addresses.map(|one| one.to_string()).join(",");
    let url = format!("redlock://{list}?command_timeout_ms=5000&max_lease_duration_ms=20000");
    let options = QuorumOptions::from_url(&url).expect("a good URL");
    crate::support::vouched(&admin_of(&options)).await;
    // The client runs all the time, and has seen the member by its name: it has a vote of it.
    let client = connect(&options).await;
    let hold = Hold::Leased(Duration::from_secs(10));
    let asked = |id| AcquireRequest { hold, ..request(id) };
    loop {
        let _ = client.try_acquire(&asked(200)).await;
        let voted = b.raw().say("EXISTS holdline:{a}").expect("a reply").integer() == Some(1);
        let _ = client.release(&ending(200)).await;
        if voted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // event: all servers are known
    }
    b.raw().say("FLUSHALL").expect("flushed");
    let field = |server: &RedisServer, name: &str| {
        server.raw().send(&["HGET", "holdline:node:1", name]).expect("a reply").text()
    };
    let maintained = async |what: &str, mut is_done: Box<dyn FnMut() -> bool + '_>| {
        for id in (1..200).cycle().take(2_000) {
            if is_done() {
                return;
            }
            // A request that meets another state wakes the maintenance.
            let _ = client.try_acquire(&asked(id)).await;
            let _ = client.release(&ending(id)).await;
            tokio::time::sleep(Duration::from_millis(10)).await; // event: the maintenance goes on
        }
        panic!("never: {what}");
    };
    maintained("the first quarantine begins", Box::new(|| field(b, "r").is_some())).await;
    // As if clients had measured most of it.
    b.raw().say("HSET holdline:node:1 r 50000000").expect("set");
    let first = field(b, "i");
    proxy.set_upstream(x.address());
    proxy.reset();
    maintained("the blank server waits", Box::new(|| field(x, "r").is_some())).await;
    proxy.set_upstream(b.address());
    proxy.reset();
    maintained("it is out", Box::new(|| field(b, "g").as_deref() == Some("out"))).await;
    assert_eq!((field(b, "i"), field(b, "r")), (first.clone(), None), "nothing of its tenure");
    // A restart changes nothing about that, and an operator readmits it under another id.
    let status = admin_of(&options).rejoin().await.expect("the address is right");
    assert_eq!(status.nodes[1].state, NodeState::Quarantined, "{status:?}");
    assert_ne!(field(b, "i"), first);
    let left = status.nodes[1].quarantine_left_ms.expect("it waits");
    assert!(left > 20_000, "the whole quarantine: {left}");
}

/// Another client has begun to initialise them, with another longest lease.
#[tokio::test]
async fn an_init_never_uses_another_longest_lease_than_requested() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let slots = nodes.servers.iter().zip(1..);
    let slots: Vec<(NodeId, String)> =
        slots.map(|(one, id)| (NodeId::from_bytes([id; 16]), one.address().to_string())).collect();
    let named: Vec<(NodeId, &str)> = slots.iter().map(|(id, at)| (*id, at.as_str())).collect();
    let other = Configuration::initial(&named, Duration::from_secs(90));
    let (text, stamp) = (other.to_string(), other.stamp().to_string());
    let zero = "0".repeat(16);
    for (server, (id, _)) in nodes.servers.iter().zip(&slots) {
        let mut raw = server.raw();
        let info = raw.say("INFO server").expect("a reply").text().expect("a text");
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("a reply");
        let id = id.to_string();
        let blank = ["m", run, "i", &id, "g", "blank", "l", &zero, "f", &zero];
        raw.send(&[&["HSET", "holdline:node:1"][..], &blank].concat()).expect("set");
    }
    let proposed = ["HSET", "holdline:node:1", "g", "proposed", "c", &text, "s", &stamp];
    nodes.servers[0].raw().send(&proposed).expect("set");
    // Another server has lost what it had accepted: the operator knows that it is the same.
    nodes.servers[1].raw().say("FLUSHALL").expect("flushed");
    let asked = nodes.options("").with_max_lease(Duration::from_secs(60));
    let reported = message(admin_of(&asked).init().await);
    assert!(reported.contains("90s and not 60s"), "{reported}");
    assert!(states(&nodes.admin().status().await).iter().all(|one| *one != NodeState::Votes));
    // Without a requested lease, the pending proposal is completed.
    let status = nodes.admin().init().await.expect("all answer");
    assert_eq!((status.max_lease_ms, status.votes), (Some(90_000), 0), "{status:?}");
    let reported = message(admin_of(&asked).init().await);
    assert!(reported.contains("90s and not 60s"), "{reported}");
}

/// Nothing is left of the set, not even its longest lease, so the next client brings its own.
#[tokio::test]
async fn after_a_total_loss_a_set_has_the_longest_lease_of_the_client_that_initialises_it() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let before = nodes.init_with("&max_lease_duration_ms=90000").await;
    assert_eq!(before.max_lease_ms, Some(90_000), "{before:?}");
    for (parameters, longest) in [("&max_lease_duration_ms=45000", 45_000), ("", 60_000)] {
        for server in &nodes.servers {
            server.raw().say("FLUSHALL").expect("flushed");
        }
        let client = connect(&nodes.options(parameters)).await;
        let mut id = 1;
        let initialised = loop {
            let error = client.try_acquire(&request(id)).await.expect_err("they wait");
            let status = nodes.admin().status().await;
            if states(&status) == [NodeState::Quarantined; 3] {
                break status;
            }
            id += 1;
            assert!(id < 250, "{error:?} {status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await; // event: until it is initialised
        };
        assert_eq!(
            (initialised.epoch, initialised.max_lease_ms),
            (Some(1), Some(longest)),
            "{initialised:?}"
        );
        assert_ne!(initialised.set, before.set, "it is another set");
        // No lease of the set before can be longer than this wait.
        let left = initialised.nodes.iter().filter_map(|node| node.quarantine_left_ms);
        assert!(left.into_iter().all(|left| left > 500_000), "{initialised:?}");
    }
}

/// A server has lost its data, and a read-only client that saw it before does not readmit it.
#[tokio::test]
async fn a_read_only_client_readmits_no_server() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let looks = connect(&nodes.options("").with_read_only()).await;
    looks.inspect(&name()).await.expect("all vote");
    nodes.servers[0].raw().say("FLUSHALL").expect("flushed");
    nodes.servers[1].restart();
    let before = kept(&nodes.servers);
    let mut asked = 0;
    // It repeats its rounds until it sees that too few vote.
    while looks.inspect(&name()).await.is_ok() {
        asked += 1;
        assert!(asked < 2_000, "two of three have lost their data");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: until its next round
    }
    assert_eq!(kept(&nodes.servers), before, "looking changes nothing");
}
