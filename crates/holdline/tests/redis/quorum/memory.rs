//! Nodes that forget: restarted empty, flushed, wiped together, replaced by a blank one. A minority
//! costs nothing. If a majority has forgotten, the holder is notified, nobody holds beside it, and
//! tokens grow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use holdline::{ErrorKind, Keep, LockOptions, LostReason};
use holdline_redis::NodeState;
use holdline_services::{FaultProxy, RedisConfig};

use super::ground::{
    MINUTE, Nodes, SHORT, admin, client_through, few_vote, lost, problem, revoke_now, seen, short,
    take_at_last, taking,
};
use crate::support::{
    Referee, behind, lease, let_go, patient, renewed, soon, take, try_take, until,
};

/// Three hold a name for somebody, two are free, and one of the three forgets: without a
/// quarantine it would be the third of a second majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_empty_makes_no_second_holder() {
    for flushed in [false, true] {
        let nodes = Nodes::start(5, SHORT).await;
        let proxies = nodes.proxies();
        proxies[3].refuse();
        proxies[4].refuse();
        let (holder, other) = (client_through(&proxies).await, nodes.client_at_home().await);
        let referee = Referee::default();
        let guard = take(&holder, "a", &short()).await;
        referee.granted(&guard);
        assert_eq!(nodes.with(&guard), 3);
        if flushed {
            behind(&nodes.0[2], "FLUSHALL");
        } else {
            nodes.0[2].kill();
            nodes.0[2].restart();
        }
        let refused =
            try_take(&other, "a", &short()).await.expect_err("held by two, and one waits");
        let expected = matches!(
            refused.kind(),
            ErrorKind::NoQuorum { .. } | ErrorKind::Busy { .. } | ErrorKind::Quarantined { .. }
        );
        assert!(expected, "{refused:?}");
        // The referee looks whether the first still believes when the second is granted.
        let next = take_at_last(&other, "a", &short()).await;
        referee.granted(&next);
        lost(&guard).await;
        drop(guard);
        nodes.vote(5).await;
        nodes.held_on(&next, 5).await;
        let_go(next).await;
        proxies.iter().for_each(FaultProxy::pass);
        nodes.clean(&[&holder, &other]).await;
    }
}

/// The same for a holder that reaches all: it keeps what it has, and the node votes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_loses_its_data_costs_no_lock_and_is_repaired() {
    let nodes = Nodes::start(5, SHORT).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let guard = take(&holder, "a", &short()).await;
    nodes.held_on(&guard, 5).await;
    nodes.0[1].kill();
    nodes.0[1].restart();
    behind(&nodes.0[3], "FLUSHALL");
    nodes.vote(5).await;
    nodes.held_on(&guard, 5).await;
    let busy = try_take(&other, "a", &short()).await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    let before = guard.fencing_token();
    let_go(guard).await;
    let next = take(&other, "a", &short()).await;
    assert!(next.fencing_token() > before);
    let_go(next).await;
    nodes.clean(&[&holder, &other]).await;
}

/// Each client reports what it has measured when it ends, so many short ones end a wait as one long
/// one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_end_at_once_measure_a_wait_together() {
    let nodes = Nodes::start(3, MINUTE).await;
    let left = || behind(&nodes.0[2], "HGET holdline:node:1 r").text()?.parse::<u64>().ok();
    let first = nodes.client().await;
    let_go(take(&first, "a", &patient()).await).await;
    nodes.0[2].kill();
    nodes.0[2].restart();
    let_go(take(&first, "a", &patient()).await).await;
    until("the others have agreed", || left().is_some()).await;
    nodes.clean(&[&first]).await;
    drop(first);
    for _ in 0..3 {
        let before = left();
        assert!(before.is_some());
        // Nobody waits for the slowest node, so one that is busy may not have reported its state.
        soon("the wait goes on", async {
            while left() == before {
                let short = nodes.client().await;
                let_go(take(&short, "a", &patient()).await).await;
                nodes.clean(&[&short]).await;
            }
        })
        .await;
        assert!(left() < before, "{:?} after {before:?}", left());
    }
}

/// A lease is given back to a node as soon as it votes, also where the next renewal is due in
/// minutes: with three servers the next one may be restarted only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_votes_again_is_given_leases_before_their_next_renewal() {
    let longest = 10 * MINUTE;
    let nodes = Nodes::start(3, longest).await;
    let client = nodes.client_at_home().await;
    let seldom = lease(600_000).with_renew_interval(Duration::from_secs(250));
    let guard = take(&client, "a", &seldom).await;
    nodes.held_on(&guard, 3).await;
    nodes.0[2].kill();
    nodes.0[2].restart();
    let waits = || behind(&nodes.0[2], "HGET holdline:node:1 r").text().is_some();
    until("the others have agreed", waits).await;
    assert_eq!(nodes.with(&guard), 2);
    // As if clients had measured all of it.
    behind(&nodes.0[2], "HSET holdline:node:1 r 1");
    nodes.held_on(&guard, 3).await;
    let_go(guard).await;
    nodes.clean(&[&client]).await;
}

/// What was answered in the last second is not on the disk: it comes back with an older memory,
/// which counts for none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_an_old_copy_is_quarantined() {
    let nodes = Nodes::start(3, SHORT).await;
    let client = nodes.client_at_home().await;
    let_go(take(&client, "a", &short()).await).await;
    behind(&nodes.0[0], "SAVE");
    let guard = take(&client, "a", &short()).await;
    nodes.held_on(&guard, 3).await;
    nodes.0[0].kill();
    nodes.0[0].restart();
    let status = nodes.status().await;
    let (state, _) = problem(&status, 0);
    assert!(matches!(state, NodeState::Forgot | NodeState::Quarantined), "{status:?}");
    nodes.vote(3).await;
    nodes.held_on(&guard, 3).await;
    let before = guard.fencing_token();
    let_go(guard).await;
    let next = take(&client, "a", &short()).await;
    assert!(next.fencing_token() > before);
    let_go(next).await;
    nodes.clean(&[&client]).await;
}

/// The end of its file is torn off, as by a loss of power: it comes back with less than it has
/// answered, and what is left counts for none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_truncated_append_only_file_is_quarantined() {
    let config = RedisConfig::default().with_appendonly("everysec");
    let nodes = Nodes::start_with(3, SHORT, &config).await;
    let client = nodes.client_at_home().await;
    let_go(take(&client, "a", &short()).await).await;
    let guard = take(&client, "a", &short()).await;
    nodes.held_on(&guard, 3).await;
    nodes.0[0].kill();
    let file = nodes.0[0].directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let file = std::fs::File::options().write(true).open(file).expect("the file");
    let length = file.metadata().expect("its length").len();
    // Of the last step only: a server that lost all of them is a blank one.
    file.set_len(length - 10).expect("cut short");
    nodes.0[0].restart();
    nodes.0[0].await_log("loaded anyway because aof-load-truncated is enabled");
    let status = nodes.status().await;
    let (state, _) = problem(&status, 0);
    assert!(matches!(state, NodeState::Forgot | NodeState::Quarantined), "{status:?}");
    nodes.vote(3).await;
    nodes.held_on(&guard, 3).await;
    let before = guard.fencing_token();
    let_go(guard).await;
    let next = take(&client, "a", &short()).await;
    assert!(next.fencing_token() > before);
    let_go(next).await;
    nodes.clean(&[&client]).await;
}

/// A majority has forgotten: the holder is notified, nobody gets in before its lease is over, and
/// the order of tokens rests on the clocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_five_that_lose_their_data_at_once_cost_the_lock_and_no_token() {
    let nodes = Nodes::start(5, SHORT).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let referee = Referee::default();
    let guard = take(&holder, "a", &short()).await;
    referee.granted(&guard);
    nodes.held_on(&guard, 5).await;
    for server in &nodes.0[..3] {
        server.kill();
    }
    nodes.0[..3].iter().for_each(holdline_services::RedisServer::restart);
    assert_eq!(lost(&guard).await, LostReason::Expired);
    let next = take_at_last(&other, "a", &short()).await;
    referee.granted(&next);
    nodes.vote(5).await;
    nodes.held_on(&next, 5).await;
    drop(guard);
    let_go(next).await;
    nodes.clean(&[&holder, &other]).await;
}

/// Nobody remembers that there was a set: it is initialised anew, and refuses requests for as long
/// as any lease may have been, unless an operator vouches for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_that_are_flushed_at_once_wait_until_an_operator_vouches_for_them() {
    let nodes = Nodes::start(5, SHORT).await;
    let proxies = nodes.proxies();
    let holder = nodes.at_home_behind(&proxies).await;
    let other = nodes.at_home_behind(&proxies).await;
    let referee = Referee::default();
    let guard = take(&holder, "a", &short()).await;
    referee.granted(&guard);
    // At once, as far as anybody can see: nobody is to look while some of them remember.
    for proxy in &proxies {
        proxy.refuse();
        proxy.reset();
    }
    for server in &nodes.0 {
        behind(server, "FLUSHALL");
    }
    proxies.iter().for_each(FaultProxy::accept);
    lost(&guard).await;
    let refused = soon("they wait", async {
        loop {
            let error = try_take(&other, "a", &short()).await.expect_err("nobody is granted");
            if let ErrorKind::Quarantined { left } = error.kind() {
                return *left;
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // event: asked until they wait
        }
    });
    let left = refused.await;
    assert!(left > Duration::from_secs(500), "{left:?}");
    // A wait goes on until its limit, and one without a limit until they vote.
    let limited = short().with_wait(Duration::from_millis(300));
    let limited = other.mutex_with("a", &limited).expect("a good lock");
    let error = soon("an end", limited.lock()).await.expect_err("they wait still");
    assert!(matches!(error.kind(), ErrorKind::Quarantined { .. }), "{error:?}");
    let waiter = {
        let unlimited = LockOptions::default().with_lease_duration(SHORT);
        let mutex = other.mutex_with("a", &unlimited).expect("a good lock");
        tokio::spawn(async move { mutex.lock().await })
    };
    // The longest lease is that of the client which founded the set.
    let through: Vec<_> = proxies.iter().map(FaultProxy::address).collect();
    let operator = admin(&through, MINUTE);
    let vouch = async { operator.vouch(&operator.plan_vouch().await?).await };
    let status = soon("a set", vouch).await.expect("vouched for");
    assert_eq!(status.votes, 5, "{status:?}");
    let next = soon("the next", waiter).await.expect("no panic").expect("waited out");
    referee.granted(&next);
    drop(guard);
    let_go(next).await;
    nodes.clean(&[&holder, &other]).await;
}

/// Held locks live through it, and so does the order of tokens, while everybody contends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_no_lock_and_no_order() {
    let nodes = Nodes::start(5, SHORT).await;
    let clients = join_all((0..3).map(|_| nodes.client_at_home())).await;
    let options = short();
    let kept = join_all(["k0", "k1", "k2"].map(|name| take(&clients[0], name, &options))).await;
    let (referee, over) = (Referee::default(), AtomicBool::new(false));
    let contend = |place: usize| {
        let (client, referee, over) = (&clients[place % 3], &referee, &over);
        async move {
            // A contender with bad luck asks again, so that all see the end.
            let options = short().with_wait(Duration::from_secs(5));
            let mutex = client.mutex_with("a", &options).expect("a good lock");
            while !over.load(Ordering::Relaxed) {
                // While the nodes agree to a newcomer an attempt may meet too few that know of it.
                match soon("an end", mutex.lock()).await {
                    Ok(guard) => {
                        referee.granted(&guard);
                        let _ = soon("a release", guard.release()).await;
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::TimedOut { .. }) => {}
                    Err(error) => few_vote(&error),
                }
            }
        }
    };
    let restarts = async {
        for server in &nodes.0 {
            let before = referee.grants();
            until("the name goes round", || referee.grants() >= before + 5).await;
            tokio::task::block_in_place(|| {
                server.kill();
                server.restart();
            });
            nodes.vote(5).await;
            for guard in &kept {
                renewed(guard).await;
                nodes.held_on(guard, 5).await;
            }
        }
        over.store(true, Ordering::Relaxed);
    };
    futures_util::future::join(restarts, join_all((0..4).map(contend))).await;
    for guard in kept {
        let_go(guard).await;
    }
    nodes.clean(&clients.iter().collect::<Vec<_>>()).await;
}

/// A blank server takes the address of one that lives on elsewhere, with all that it has granted:
/// its votes count for nobody any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_node_that_still_runs_votes_for_nobody() {
    let nodes = Nodes::start(3, SHORT).await;
    let (old, blank) = (&nodes.0[2], Nodes::blank(1, &RedisConfig::default()));
    // The address that both have in turn.
    let door = FaultProxy::start(old.address());
    let through = [nodes.0[0].address(), nodes.0[1].address(), door.address()];
    let (client, knows_old) = (nodes.at_home(&through).await, nodes.client_at_home().await);
    let referee = Referee::default();
    let guard = take(&client, "a", &short()).await;
    referee.granted(&guard);
    nodes.held_on(&guard, 3).await;
    door.set_upstream(blank.0[0].address());
    door.reset();
    let changed = || async { admin(&through, SHORT).status().await };
    soon("the newcomer votes", async {
        while changed().await.votes < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await; // event: until it votes
        }
    })
    .await;
    // The newcomer is given the lease too.
    until("held there", || blank.with(&guard) == 1).await;
    // A client that still knows it reports it.
    let status = seen(&nodes.addresses(), 2, NodeState::Replaced).await;
    let fix = status.nodes[2].fix.as_deref().unwrap_or_default();
    assert!(fix.contains("quorum rejoin"), "{status:?}");
    // With the old one and one other that is free there would be a majority of three.
    behind(&nodes.0[1], "DEL holdline:{a}");
    behind(old, "DEL holdline:{a}");
    let refused = try_take(&knows_old, "a", &short()).await.expect_err("one vote is no majority");
    assert!(!matches!(refused.kind(), ErrorKind::Invalid { .. }), "{refused:?}");
    assert!(guard.is_valid());
    nodes.held_on(&guard, 2).await;
    let before = guard.fencing_token();
    let_go(guard).await;
    let next = take_at_last(&knows_old, "a", &short()).await;
    referee.granted(&next);
    assert!(next.fencing_token() > before);
    let_go(next).await;
    nodes.clean(&[&client, &knows_old]).await;
}

/// Two servers with one memory, in turn behind one address: the second is a newcomer, and the first
/// is reported as replaced. Neither votes for what the other has granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_in_turn_behind_one_address_are_detected() {
    let nodes = Nodes::start(3, SHORT).await;
    let first = &nodes.0[2];
    let door = FaultProxy::start(first.address());
    let twin = Nodes::blank(1, &RedisConfig::default().with_replica_of(first.address()));
    let copied = || {
        let info = behind(&twin.0[0], "INFO replication").text().unwrap_or_default();
        info.contains("master_link_status:up")
    };
    until("the copy is made", copied).await;
    behind(&twin.0[0], "REPLICAOF NO ONE");
    let alone = || {
        let info = behind(first, "INFO replication").text().unwrap_or_default();
        info.contains("connected_slaves:0")
    };
    until("they have parted", alone).await;
    let through = [nodes.0[0].address(), nodes.0[1].address(), door.address()];
    let client = nodes.at_home(&through).await;
    let guard = take(&client, "a", &short()).await;
    nodes.held_on(&guard, 3).await;
    let turn = |to: &holdline_services::RedisServer| {
        door.set_upstream(to.address());
        door.reset();
    };
    let third = async |state| seen(&through, 2, state).await;
    turn(&twin.0[0]);
    third(NodeState::Quarantined).await;
    turn(first);
    let status = third(NodeState::Replaced).await;
    assert!(problem(&status, 2).1.contains("was replaced"), "{status:?}");
    turn(&twin.0[0]);
    third(NodeState::Votes).await;
    renewed(&guard).await;
    let_go(guard).await;
    nodes.clean(&[&client]).await;
}

/// A node that is started again while it waits begins its wait anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_restarted_in_quarantine_starts_it_again_and_votes_later() {
    let config = RedisConfig::default().with_appendonly("everysec");
    let nodes = Nodes::start_with(3, SHORT, &config).await;
    let client = nodes.client_at_home().await;
    let guard = take(&client, "a", &short()).await;
    nodes.held_on(&guard, 3).await;
    for _ in 0..2 {
        nodes.0[0].restart();
        seen(&nodes.addresses(), 0, NodeState::Quarantined).await;
    }
    nodes.vote(3).await;
    nodes.held_on(&guard, 3).await;
    let_go(guard).await;
    nodes.clean(&[&client]).await;
}

/// A server boots with a wrong clock, and it is set while the node waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_neither_ends_a_wait_nor_prolongs_it() {
    let nodes = Nodes::start_with(3, MINUTE, &RedisConfig::default().with_clock()).await;
    let client = nodes.client_at_home().await;
    let guard = take(&client, "a", &patient()).await;
    nodes.0[0].restart();
    let left = async || {
        let status = seen(&nodes.addresses(), 0, NodeState::Quarantined).await;
        Duration::from_millis(status.nodes[0].quarantine_left_ms.expect("it waits"))
    };
    let before = left().await;
    nodes.0[0].clock().step_forward(2 * MINUTE);
    nodes.0[0].await_clock();
    // A new client looks at once, and would readmit it.
    let newcomer = nodes.client().await;
    renewed(&guard).await;
    assert_ne!(left().await, Duration::ZERO);
    nodes.0[0].clock().step_back(60 * MINUTE);
    nodes.0[0].await_clock();
    assert!(left().await <= before);
    let_go(guard).await;
    nodes.clean(&[&client, &newcomer]).await;
}

/// A deletion and a revocation by an operator are reported, and the next token is larger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_freed_by_an_operator_is_lost_and_the_next_token_is_larger() {
    let nodes = Nodes::start(5, MINUTE).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let guard = take(&holder, "a", &patient()).await;
    nodes.held_on(&guard, 5).await;
    for server in &nodes.0 {
        behind(server, "DEL holdline:{a}");
    }
    let next = take(&other, "a", &patient()).await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(lost(&guard).await, LostReason::Missing);
    drop(guard);
    nodes.held_on(&next, 5).await;
    let waiter = taking(&holder, "a", &patient());
    revoke_now(&other, &next).await;
    let last = soon("the last", waiter).await.expect("no panic");
    assert_eq!(lost(&next).await, LostReason::Revoked("maintenance".to_owned()));
    assert!(last.fencing_token() > next.fencing_token());
    drop(next);
    let_go(last).await;
    nodes.clean(&[&holder, &other]).await;
}

/// A deletion on two of five is mended by the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_deleted_on_a_minority_is_repaired() {
    let nodes = Nodes::start(5, MINUTE).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let guard = take(&holder, "a", &patient()).await;
    nodes.held_on(&guard, 5).await;
    behind(&nodes.0[0], "DEL holdline:{a}");
    behind(&nodes.0[1], "DEL holdline:{a}");
    nodes.held_on(&guard, 5).await;
    let fixed = lease(50_000).with_keep(Keep::Fixed);
    let fixed = nodes.take_on_all(&holder, "b", &fixed).await;
    behind(&nodes.0[0], "DEL holdline:{b}");
    behind(&nodes.0[1], "DEL holdline:{b}");
    let busy = try_take(&other, "b", &patient()).await.expect_err("a majority has it still");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    let_go(guard).await;
    let_go(fixed).await;
    nodes.clean(&[&holder, &other]).await;
}
