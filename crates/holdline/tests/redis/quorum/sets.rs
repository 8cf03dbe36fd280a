//! Which servers are one set, and what is reported about those that are not.

use std::net::SocketAddr;
use std::time::Duration;

use holdline::{Certainty, Client, ErrorKind, LockError};
use holdline_redis::{NodeState, QuorumStatus};
use holdline_services::{FaultProxy, RedisConfig, RedisServer};

use super::ground::{
    MINUTE, Nodes, SHORT, admin, client_of, few_vote, found, lines, problem, seen_as, short,
    take_at_last, url, url_of_hosts,
};
use crate::support::{LONG, behind, lease, let_go, patient, renewed, soon, take, try_take, until};

/// The refusal that a client of these servers gets: at once, or as soon as the last one has
/// answered, since a client does not wait for that one once a majority has.
async fn refused(addresses: &[SocketAddr]) -> String {
    let client = match soon("an answer", Client::connect(&url(addresses))).await {
        Ok(client) => client,
        Err(error) => return message(&error),
    };
    let refused = soon("a refusal", async {
        loop {
            match try_take(&client, "refused", &patient()).await {
                Ok(guard) => let_go(guard).await,
                Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => return error,
                Err(error) => few_vote(&error),
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // event: until all have answered
        }
    });
    let error = refused.await;
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    message(&error)
}

fn message(error: &LockError) -> String {
    match error.kind() {
        ErrorKind::Refused { message } => message.clone(),
        other => panic!("{other:?}"),
    }
}

/// Each is named in its own line of the error, and no set is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dependent_server_is_named_in_the_error() {
    let plain = Nodes::blank(2, &RedisConfig::default());
    let master = RedisServer::start(RedisConfig::default());
    let replica = RedisServer::start(RedisConfig::default().with_replica_of(master.address()));
    let cluster = RedisServer::start(RedisConfig::default().with_line("cluster-enabled yes"));
    let watched = RedisServer::start(RedisConfig::default());
    // As a Sentinel does on each server that it monitors.
    let mut sentinel = watched.raw();
    sentinel.say("SUBSCRIBE __sentinel__:hello").expect("an answer");
    let has_replicas = || {
        let info = behind(&master, "INFO replication").text().unwrap_or_default();
        info.contains("connected_slaves:1")
    };
    until("the replica is connected", has_replicas).await;
    let cases = [
        (&replica, "it is a replica"),
        (&master, "it has replicas"),
        (&cluster, "Redis Cluster"),
        (&watched, "a Sentinel monitors it"),
    ];
    for (server, says) in cases {
        let addresses = [plain.0[0].address(), plain.0[1].address(), server.address()];
        let status = admin(&addresses, MINUTE).status().await;
        let (state, why) = problem(&status, 2);
        assert_eq!(state, NodeState::Down, "{status:?}");
        assert!(why.contains(says), "{why}");
        let client = client_of(&addresses).await;
        let error = try_take(&client, "a", &patient()).await.expect_err("no set");
        let causes = lines(&error);
        assert!(causes[2].contains(&server.address().to_string()), "{causes:?}");
        assert!(causes[2].contains(says), "{causes:?}");
    }
    let keys = behind(&plain.0[0], "EXISTS holdline:{a}").integer();
    assert_eq!(keys, Some(0), "nothing was founded, and nothing granted");
}

/// A node that gets a replica later is found out at the next start of a client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_replica_costs_its_master_the_vote_of_new_clients() {
    let nodes = Nodes::start(3, MINUTE).await;
    let before = nodes.client().await;
    let _replica = RedisServer::start(RedisConfig::default().with_replica_of(nodes.0[1].address()));
    let connected = || {
        let info = behind(&nodes.0[1], "INFO replication").text().unwrap_or_default();
        info.contains("connected_slaves:1")
    };
    until("the replica is connected", connected).await;
    let status = nodes.status().await;
    assert!(problem(&status, 1).1.contains("it has replicas"), "{status:?}");
    assert_eq!(status.votes, 2, "{status:?}");
    let after = nodes.client().await;
    let guard = take(&after, "a", &patient()).await;
    assert_eq!(nodes.with(&guard), 2);
    let_go(guard).await;
    nodes.clean(&[&before, &after]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_names_is_refused() {
    let nodes = Nodes::blank(2, &RedisConfig::default());
    let other_name = FaultProxy::start(nodes.0[0].address());
    let addresses = [nodes.0[0].address(), nodes.0[1].address(), other_name.address()];
    let said = message(&found(&addresses, MINUTE).await.expect_err("two are one"));
    assert!(said.contains("are one server"), "{said}");
    for one in [addresses[0], addresses[2]] {
        assert!(said.contains(&one.to_string()), "{said}");
    }
    assert!(refused(&addresses).await.contains("are one server"));
    // And the same of a set that is in use.
    let nodes = Nodes::start(3, MINUTE).await;
    let other_name = FaultProxy::start(nodes.0[0].address());
    let addresses = [nodes.0[0].address(), nodes.0[1].address(), other_name.address()];
    assert!(refused(&addresses).await.contains("are one server"));
}

/// Half of four is no majority.
/// An older client gives them other names, in another order, and sets options to their defaults.
/// All are one set, and either client readmits a node that has forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_spell_the_same_servers_otherwise_share_one_set() {
    let nodes = Nodes::start(3, SHORT).await;
    let ports = nodes.addresses().into_iter().map(|at| at.port()).rev();
    let hosts: Vec<String> = ports.map(|port| format!("localhost:{port}")).collect();
    let spelt = "&prefix=holdline:&dialect=native&db=0&protocol=resp2";
    let older = crate::support::client(&format!("{}{spelt}", url_of_hosts(&hosts))).await;
    let newer = nodes.client_at_home().await;
    let guard = take(&newer, "a", &short()).await;
    let busy = try_take(&older, "a", &short()).await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    let before = guard.fencing_token();
    let_go(guard).await;
    let report = soon("a shutdown", newer.shutdown(LONG)).await;
    assert!(report.is_clean(), "{report:?}");
    behind(&nodes.0[1], "FLUSHALL");
    let guard = take(&older, "a", &short()).await;
    assert!(guard.fencing_token() > before);
    nodes.vote(3).await;
    nodes.held_on(&guard, 3).await;
    let newer = nodes.client_at_home().await;
    let busy = try_take(&newer, "a", &short()).await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    let_go(guard).await;
    nodes.clean(&[&older, &newer]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_even_number_more_than_half_decide() {
    let nodes = Nodes::start(4, MINUTE).await;
    let status = nodes.status().await;
    assert_eq!((status.majority, status.may_lose), (3, 1), "{status:?}");
    let client = nodes.client().await;
    let guard = take(&client, "a", &patient()).await;
    nodes.held_on(&guard, 4).await;
    nodes.0[0].stop();
    renewed(&guard).await;
    let_go(guard).await;
    let_go(take(&client, "a", &patient()).await).await;
    nodes.0[1].stop();
    let error = try_take(&client, "a", &lease(2_000)).await.expect_err("half are no majority");
    assert_eq!(lines(&error).len(), 4, "{error:?}");
    nodes.0[..2].iter().for_each(RedisServer::cont);
    let_go(take_at_last(&client, "a", &patient()).await).await;
    nodes.clean(&[&client]).await;
}

/// One is a set as well: it waits when it may have forgotten, and its tokens grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_of_one_loses_its_data_and_waits() {
    let nodes = Nodes::start(1, Duration::from_secs(2)).await;
    let client = nodes.client().await;
    let options = lease(2_000).with_wait(crate::support::LONG);
    let guard = take(&client, "a", &options).await;
    let before = guard.fencing_token();
    let_go(guard).await;
    // It comes back with a copy, which may be an old one. Without any it would be a new set.
    behind(&nodes.0[0], "SAVE");
    nodes.0[0].kill();
    nodes.0[0].restart();
    let guard = take_at_last(&client, "a", &options).await;
    assert!(guard.fencing_token() > before);
    let_go(guard).await;
    nodes.clean(&[&client]).await;
}

/// A client with an outdated view of the set is refused by all, looks, and asks once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_by_a_client_that_has_not_seen_a_change_of_the_set_is_made_again() {
    let nodes = Nodes::start(3, MINUTE).await;
    let (sees, sleeps) = (nodes.client_at_home().await, nodes.client_at_home().await);
    // Who holds asks often, and so sees it and brings it about.
    let guard = take(&sees, "a", &patient()).await;
    nodes.0[0].kill();
    nodes.0[0].restart();
    // The nodes receive the change one after the other, and last the one that is readmitted.
    let waits = |status: &QuorumStatus| status.nodes[0].state == NodeState::Quarantined;
    let status = seen_as(&nodes.addresses(), waits).await;
    assert_eq!((status.epoch, status.votes), (Some(3), 2), "{status:?}");
    let_go(try_take(&sleeps, "b", &patient()).await.expect("two vote")).await;
    let_go(guard).await;
    nodes.clean(&[&sees, &sleeps]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blank_servers_found_a_set_by_themselves_and_wait_until_an_operator_vouches() {
    let nodes = Nodes::blank(5, &RedisConfig::default());
    let client = nodes.client().await;
    let error = try_take(&client, "a", &patient()).await.expect_err("they wait");
    let ErrorKind::Quarantined { left } = error.kind() else { panic!("{error:?}") };
    assert!(*left > Duration::from_secs(740) && *left <= Duration::from_secs(750), "{left:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    let status = nodes.status().await;
    assert_eq!((status.epoch, status.votes), (Some(1), 0), "{status:?}");
    assert!(status.nodes.iter().all(|node| node.state == NodeState::Quarantined), "{status:?}");
    let status = found(&nodes.addresses(), MINUTE).await.expect("vouched for");
    assert_eq!(status.votes, 5, "{status:?}");
    // The client finds out by itself.
    let_go(take_at_last(&client, "a", &patient()).await).await;
    nodes.clean(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_above_the_maximum_of_the_set_is_refused_with_its_name() {
    let nodes = Nodes::start(3, Duration::from_secs(5)).await;
    let client = nodes.client().await;
    let asked = match client.mutex_with("a", &lease(5_001)) {
        Ok(mutex) => soon("an answer", mutex.try_lock()).await.map(drop),
        Err(error) => Err(error),
    };
    let error = asked.expect_err("too long");
    let ErrorKind::Invalid { field: "lease_duration", message } = error.kind() else {
        panic!("{error:?}")
    };
    assert!(message.contains("5s"), "{message}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    let_go(take(&client, "a", &lease(5_000)).await).await;
    nodes.clean(&[&client]).await;
}

/// A client that names a part of a set, or more servers, gets nothing: its majority would differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_other_servers_than_the_set_gets_nothing() {
    let nodes = Nodes::start(5, MINUTE).await;
    let addresses = nodes.addresses();
    let said = refused(&addresses[..3]).await;
    assert!(said.contains("the set has 5 servers, and 3 are named"), "{said}");
    let strangers = Nodes::start(3, MINUTE).await;
    let mut mixed = addresses.clone();
    mixed[4] = strangers.addresses()[0];
    // A majority is of one set: the stranger is a missing vote, and reported.
    let status = admin(&mixed, MINUTE).status().await;
    assert_eq!((status.votes, status.nodes[4].state), (4, NodeState::Mislisted), "{status:?}");
    assert!(status.works(), "{status:?}");
    let other = client_of(&mixed).await;
    let guard = take(&other, "a", &patient()).await;
    renewed(&guard).await;
    let_go(guard).await;
    drop(other);
    mixed[3] = strangers.addresses()[1];
    mixed[2] = strangers.addresses()[2];
    let said = refused(&mixed).await;
    assert!(said.contains("these servers are not one set"), "{said}");
    for address in &mixed {
        assert!(said.contains(&address.to_string()), "{said}");
    }
    // Who named them rightly is not disturbed.
    let client = nodes.client().await;
    let guard = take(&client, "a", &patient()).await;
    nodes.held_on(&guard, 5).await;
    let_go(guard).await;
    nodes.clean(&[&client]).await;
}

/// The dump of another set is put back on one of five, under a lock that is held: its renewals go
/// on, and other clients are refused as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_is_renewed_while_one_server_gets_the_dump_of_another_set() {
    let (nodes, others) = (Nodes::start(5, MINUTE).await, Nodes::start(3, MINUTE).await);
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let guard = nodes.take_on_all(&holder, "a", &patient()).await;
    let [server, theirs] = [&nodes.0[4], &others.0[0]];
    behind(theirs, "SAVE");
    server.kill();
    let [from, to] = [theirs, server].map(|one| one.directory().join("dump.rdb"));
    std::fs::copy(from, to).expect("put back");
    server.restart();
    let is_foreign = |status: &QuorumStatus| status.nodes[4].state == NodeState::Mislisted;
    let status = seen_as(&nodes.addresses(), is_foreign).await;
    assert_eq!((status.votes, status.works()), (4, true), "{status:?}");
    // The second is sent after the first was answered, so after the server came back.
    renewed(&guard).await;
    renewed(&guard).await;
    let busy = try_take(&other, "a", &patient()).await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    let_go(try_take(&other, "b", &patient()).await.expect("four vote")).await;
    nodes.held_on(&guard, 4).await;
    let_go(guard).await;
    let_go(take(&other, "a", &patient()).await).await;
    nodes.clean(&[&holder, &other]).await;
}

/// Two operators, each with other servers and one in common, at the same moment: at most one of
/// the two sets comes to be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sets_that_share_a_server_are_not_both_founded() {
    for _ in 0..5 {
        let nodes = Nodes::blank(5, &RedisConfig::default());
        let addresses = nodes.addresses();
        let (mine, theirs) = (admin(&addresses[..3], MINUTE), admin(&addresses[2..], MINUTE));
        let both = async {
            let (one, other) = tokio::join!(mine.init(), theirs.init());
            [one, other]
        };
        let outcomes = soon("both have ended", both).await;
        let founded = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert!(founded <= 1, "{outcomes:?}");
        for outcome in outcomes {
            match outcome {
                Ok(status) => assert_eq!((status.epoch, status.votes), (Some(1), 0), "{status:?}"),
                Err(error) => {
                    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
                    let said = message(&error);
                    assert!(said.contains("not one set"), "{said}");
                }
            }
        }
    }
}

/// Foreign data on a node is reported and left alone. On a minority of nodes it costs no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_data_is_left_and_a_minority_of_it_costs_no_lock() {
    let nodes = Nodes::start(3, MINUTE).await;
    let client = nodes.at_home(&nodes.addresses()).await;
    behind(&nodes.0[0], "SET holdline:{a} theirs");
    let guard = take(&client, "a", &patient()).await;
    renewed(&guard).await;
    let_go(guard).await;
    behind(&nodes.0[1], "LPUSH holdline:{a} theirs");
    let error = try_take(&client, "a", &patient()).await.expect_err("not ours");
    assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    assert_eq!(behind(&nodes.0[0], "GET holdline:{a}").text().as_deref(), Some("theirs"));
    assert_eq!(behind(&nodes.0[1], "LLEN holdline:{a}").integer(), Some(1));
    // What a node keeps of its set may be of a version that we do not know: it has no vote.
    behind(&nodes.0[2], "HSET holdline:node:1 c 2;made;up s 9 p never");
    let newcomer = nodes.client().await;
    let guard = take(&newcomer, "b", &patient()).await;
    assert_eq!(nodes.with(&guard), 2);
    let status = nodes.status().await;
    let (state, why) = problem(&status, 2);
    assert_eq!(state, NodeState::Down, "{status:?}");
    assert!(!why.is_empty(), "{status:?}");
    let kept = behind(&nodes.0[2], "HGET holdline:node:1 c").text();
    assert_eq!(kept.as_deref(), Some("2;made;up"), "left as it is");
    let_go(guard).await;
}
