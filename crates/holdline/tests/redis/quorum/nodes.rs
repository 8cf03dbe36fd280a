//! Nodes that cannot be reached, stand still, are slow, lose messages or answer rubbish: a minority
//! of them costs nothing and is waited for by nobody; without a majority nobody holds, and nothing
//! stays behind.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use futures_util::future::join_all;
use holdline::{Certainty, ErrorKind, Keep, LockOptions, LostReason};
use holdline_services::{Fault, FaultProxy, Frames, Loss, PrivateNetwork, RedisServer};

use super::ground::{
    MINUTE, Nodes, SHORT, client_of, client_through, lines, lost, marks, short, take_at_last,
    taking, url_of_hosts,
};
use crate::support::{
    LONG, Referee, behind, is_valid_no_longer_than_kept, lease, let_go, patient, renewed, soon,
    take, try_take, until,
};

const KEY: &str = "holdline:{a}";

/// Two of five lose what is asked of them, or what they answer: that is no vote, and no fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_minority_loses_costs_no_lock_and_is_undone() {
    let nodes = Nodes::start(5, MINUTE).await;
    for (name, lost) in [("a", Frames::requests()), ("b", Frames::replies())] {
        let proxies = nodes.proxies();
        let client = client_through(&proxies).await;
        let key = format!("holdline:{{{name}}}");
        proxies[..2]
            .iter()
            .for_each(|proxy| proxy.inject(lost.clone().containing(&key), Fault::Swallow));
        let guard = take(&client, name, &patient()).await;
        renewed(&guard).await;
        let_go(guard).await;
        proxies.iter().for_each(FaultProxy::pass);
        nodes.clean(&[&client]).await;
    }
}

/// Two answers decide then that a name is refused: they name its holder, as three do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_beside_a_lost_node_names_the_holder() {
    let nodes = Nodes::start(5, MINUTE).await;
    let (client, other) = (nodes.client().await, nodes.client().await);
    // A node that voted late may hold nothing of it, and it cannot name its holder then.
    let guard = nodes.take_on_all(&client, "a", &patient()).await;
    nodes.0[4].kill();
    until("the loss of the node is seen", || TcpStream::connect(nodes.0[4].address()).is_err())
        .await;
    for _ in 0..3 {
        let error = try_take(&other, "a", &patient()).await.expect_err("it is held");
        let ErrorKind::Busy { holder: Some(holder) } = error.kind() else { panic!("{error:?}") };
        // The floors of a new set differ from node to node, so a late node may have another token.
        // Then none is named.
        assert!(holder.token.is_none_or(|token| token == guard.fencing_token()), "{error:?}");
        assert_eq!(holder.lease_id, guard.lease_id().short(), "{error:?}");
    }
    let_go(guard).await;
}

/// Three of five: what was granted nobody learns of, so there is no lock, and nothing of it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_majority_loses_is_no_lock_and_leaves_nothing() {
    let nodes = Nodes::start(5, MINUTE).await;
    let other = nodes.client().await;
    for (name, lost) in [("a", Frames::requests()), ("b", Frames::replies())] {
        let proxies = nodes.proxies();
        let client = nodes.at_home_behind(&proxies).await;
        let key = format!("holdline:{{{name}}}");
        for proxy in &proxies[..3] {
            proxy.inject(lost.clone().containing(&key), Fault::Swallow);
        }
        let error = try_take(&client, name, &lease(2_000)).await.expect_err("two votes are none");
        assert_eq!(lines(&error).len(), 5, "{error:?}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
        proxies.iter().for_each(FaultProxy::pass);
        // Not by the end of its lease: the id was given up, wherever it may have been granted.
        until("the id is dead where it may have been granted", || {
            nodes.0[..3].iter().all(|server| marks(server, name) > 0)
        })
        .await;
        nodes.nothing_is_left().await;
        let_go(take(&other, name, &patient()).await).await;
        nodes.clean(&[&client]).await;
    }
    nodes.clean(&[&other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_refusing_nodes_of_five_cost_no_lock_and_with_three_each_is_named() {
    let nodes = Nodes::start(5, MINUTE).await;
    let proxies = nodes.proxies();
    let (client, other) = (nodes.at_home_behind(&proxies).await, nodes.client().await);
    let refuse = |proxy: &FaultProxy| {
        proxy.refuse();
        proxy.reset();
    };
    proxies[..2].iter().for_each(refuse);
    let guard = take(&client, "a", &patient()).await;
    assert_eq!(nodes.with(&guard), 3);
    let_go(guard).await;
    refuse(&proxies[2]);
    let error = try_take(&client, "a", &patient()).await.expect_err("two votes are none");
    let causes = lines(&error);
    assert_eq!(causes.len(), 5, "{error:?}");
    for (proxy, line) in proxies.iter().zip(causes) {
        assert!(line.starts_with(&format!("{}: ", proxy.address())), "{line}");
    }
    // Two cannot decide, so nothing was asked of them.
    assert!(causes[3].ends_with(": answers") && causes[4].ends_with(": answers"), "{causes:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    nodes.nothing_is_left().await;
    let_go(take(&other, "a", &patient()).await).await;
    proxies.iter().for_each(FaultProxy::accept);
    let_go(take_at_last(&client, "a", &patient()).await).await;
    nodes.clean(&[&client, &other]).await;
}

/// A minority keeps renewing, which prolongs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_majority_has_lost_before_any_node_frees_the_name() {
    let nodes = Nodes::start(5, MINUTE).await;
    for cut in [Frames::requests(), Frames::replies()] {
        let proxies = nodes.proxies();
        let (holder, other) = (client_through(&proxies).await, nodes.client().await);
        let referee = Referee::default();
        let often = Duration::from_millis(300);
        let guard = take(&holder, "a", &lease(8_000).with_renew_interval(often)).await;
        referee.granted(&guard);
        nodes.held_on(&guard, 5).await;
        let next = taking(&other, "a", &patient());
        proxies[..3].iter().for_each(|proxy| proxy.inject(cut.clone(), Fault::Swallow));
        for server in &nodes.0[..3] {
            is_valid_no_longer_than_kept(&guard, server);
        }
        assert_eq!(lost(&guard).await, LostReason::Expired);
        drop(guard);
        let next = soon("the next", next).await.expect("no panic");
        referee.granted(&next);
        let_go(next).await;
        proxies.iter().for_each(FaultProxy::pass);
        proxies.iter().for_each(FaultProxy::reset);
        nodes.clean(&[&holder, &other]).await;
    }
}

/// One name that nobody knows, one machine that swallows who connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_missing_or_never_accept_cost_no_lock() {
    let name = "quorum::nodes::servers_that_are_missing_or_never_accept_cost_no_lock";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let nodes = Nodes::start(5, MINUTE).await;
    let mut hosts: Vec<String> = nodes.addresses().iter().map(ToString::to_string).collect();
    hosts[0] = "nobody.invalid:6379".to_owned();
    network.lose(Loss::Connecting(nodes.0[1].address()));
    let client = crate::support::client(&url_of_hosts(&hosts)).await;
    let guard = take(&client, "a", &patient()).await;
    renewed(&guard).await;
    assert_eq!(nodes.with(&guard), 3);
    let_go(guard).await;
    network.heal();
    // It is found again by itself.
    soon("four vote", async {
        loop {
            let guard = take(&client, "a", &patient()).await;
            let on = nodes.with(&guard);
            let_go(guard).await;
            if on == 4 {
                return;
            }
        }
    })
    .await;
    nodes.clean(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_in_the_middle_of_an_answer_cost_no_lock() {
    let nodes = Nodes::start(5, MINUTE).await;
    let proxies = nodes.proxies();
    let client = nodes.at_home_behind(&proxies).await;
    for proxy in &proxies[..2] {
        proxy.inject(Frames::replies().containing(KEY).nth(1), Fault::SwallowThenReset);
    }
    let guard = take(&client, "a", &patient()).await;
    for proxy in &proxies[..2] {
        proxy.await_event(|event| event.fault.is_some());
    }
    nodes.held_on(&guard, 5).await;
    let_go(guard).await;
    // All connections at once, while a name is held and waited for.
    let guard = take(&client, "a", &patient()).await;
    let waiter = taking(&client, "a", &patient());
    for server in &nodes.0 {
        behind(server, "CLIENT KILL TYPE pubsub");
        behind(server, "CLIENT KILL TYPE normal");
    }
    renewed(&guard).await;
    let outcome = soon("a release", guard.release()).await;
    assert!(!outcome.is_lost(), "{outcome:?}");
    let_go(soon("the next", waiter).await.expect("no panic")).await;
    nodes.clean(&[&client]).await;
}

/// Three of seven delay their answers, each in its way: names are acquired and released while none
/// of the three has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_paused_one_refused_and_one_slow_node_delay_nobody() {
    let nodes = Nodes::start(7, MINUTE).await;
    let proxies = nodes.proxies();
    let client = client_through(&proxies).await;
    let first = take(&client, "first", &patient()).await;
    nodes.held_on(&first, 7).await;
    nodes.0[0].stop();
    proxies[1].refuse();
    proxies[1].reset();
    proxies[2].inject(Frames::requests(), Fault::Hold);
    for _ in 0..20 {
        let guard = take(&client, "a", &patient()).await;
        let_go(guard).await;
    }
    renewed(&first).await;
    let_go(first).await;
    // What was held back comes late, and is undone.
    nodes.0[0].cont();
    proxies[1].accept();
    proxies[2].pass();
    nodes.clean(&[&client]).await;
}

/// A majority decides without the node that answers last. Its late answers are still read: what it
/// has lost is restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_always_answers_last_is_repaired() {
    let nodes = Nodes::start(5, MINUTE).await;
    let proxies = nodes.proxies();
    let client = nodes.at_home_behind(&proxies).await;
    let guard = take(&client, "a", &patient()).await;
    nodes.held_on(&guard, 5).await;
    proxies[4].inject(Frames::replies(), Fault::Delay(Duration::from_millis(100)));
    behind(&nodes.0[4], "DEL holdline:{a}");
    nodes.held_on(&guard, 5).await;
    let_go(guard).await;
    proxies[4].pass();
    nodes.clean(&[&client]).await;
}

/// A server that was started again knows no script. The names that a majority has granted meanwhile
/// are asked of it no second time, so it has to know the script by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_started_again_and_answers_last_votes() {
    let nodes = Nodes::start(3, SHORT).await;
    let proxies = nodes.proxies();
    let client = nodes.at_home_behind(&proxies).await;
    proxies[2].inject(Frames::replies(), Fault::Delay(Duration::from_millis(100)));
    nodes.0[2].kill();
    nodes.0[2].restart();
    let guard = take(&client, "healed", &short()).await;
    nodes.held_on(&guard, 3).await;
    let_go(guard).await;
    let fixed = LockOptions::default().with_lease_duration(SHORT).with_keep(Keep::Fixed);
    let_go(nodes.take_on_all(&client, "a", &fixed).await).await;
    proxies[2].pass();
    nodes.clean(&[&client]).await;
}

/// What is to be taken again was asked for before the release, and is found out behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_released_during_its_repair_is_left_nowhere() {
    let nodes = Nodes::start(5, 2 * MINUTE).await;
    let proxies = nodes.proxies();
    let client = nodes.at_home_behind(&proxies).await;
    // Longer than anything is waited for here: what is left is not gone by itself.
    let options = lease(120_000).with_renew_interval(Duration::from_millis(300));
    let guard = take(&client, "a", &options).await;
    nodes.held_on(&guard, 5).await;
    // Only the text of requests shows what they ask for.
    let asks = Frames::replies().containing("'record'");
    for (server, proxy) in nodes.0.iter().zip(&proxies) {
        behind(server, "SCRIPT FLUSH");
        proxy.inject(asks.clone(), Fault::Hold);
    }
    behind(&nodes.0[4], "DEL holdline:{a}");
    let held = |proxy: &FaultProxy| proxy.events().iter().any(|event| event.fault.is_some());
    until("it is asked what is kept", || proxies.iter().any(held)).await;
    let name = guard.name().clone();
    let released = tokio::spawn(guard.release());
    let key = format!("holdline:{{{name}}}");
    let kept = |server: &RedisServer| behind(server, &format!("EXISTS {key}")).integer();
    until("it is let go", || nodes.0.iter().all(|server| kept(server) == Some(0))).await;
    proxies.iter().for_each(FaultProxy::thaw);
    let _ = soon("a release", released).await.expect("no panic");
    nodes.clean(&[&client]).await;
}

/// The lock does not wait for a node's limit: the answer of the slow one is held back throughout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_held_back_is_waited_for_by_neither_acquire_nor_release() {
    let nodes = Nodes::start(3, MINUTE).await;
    let proxies = nodes.proxies();
    let client = client_through(&proxies).await;
    let first = take(&client, "first", &patient()).await;
    nodes.held_on(&first, 3).await;
    let_go(first).await;
    proxies[0].inject(Frames::replies().containing(KEY), Fault::Hold);
    let guard = take(&client, "a", &patient()).await;
    // It was asked and has granted, and its reply has not arrived.
    nodes.held_on(&guard, 3).await;
    let_go(guard).await;
    let held = |proxy: &FaultProxy| {
        proxy.events().iter().filter(|event| event.fault == Some(Fault::Hold)).count()
    };
    assert!(held(&proxies[0]) > 0, "its answer is held back still");
    proxies[0].pass();
    nodes.clean(&[&client]).await;
}

/// Nothing passes any more in either direction, and no error is reported. The others decide, and
/// what arrives at the end of the cut brings nothing back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_delays_nobody_and_leaves_nothing() {
    let nodes = Nodes::start(3, MINUTE).await;
    let proxies = nodes.proxies();
    let client = nodes.at_home_behind(&proxies).await;
    let kept = take(&client, "kept", &patient()).await;
    nodes.held_on(&kept, 3).await;
    for frames in [Frames::requests(), Frames::replies()] {
        proxies[0].inject(frames, Fault::Hold);
    }
    let referee = Referee::default();
    for _ in 0..3 {
        let guard = take(&client, "a", &patient()).await;
        referee.granted(&guard);
        assert_eq!(nodes.with(&guard), 2);
        let_go(guard).await;
        renewed(&kept).await;
    }
    proxies[0].pass();
    proxies[0].thaw();
    nodes.held_on(&kept, 3).await;
    let guard = nodes.take_on_all(&client, "a", &patient()).await;
    referee.granted(&guard);
    let_go(guard).await;
    let_go(kept).await;
    nodes.clean(&[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_cost_time_and_no_order() {
    let name = "quorum::nodes::lost_packets_cost_time_and_no_order";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let nodes = Nodes::start(5, MINUTE).await;
    let clients = join_all((0..3).map(|_| nodes.client())).await;
    let referee = Referee::default();
    let kept = take(&clients[0], "kept", &patient()).await;
    network.lose(Loss::Percent(20));
    let contend = |place: usize| {
        let (client, referee) = (&clients[place % 3], &referee);
        async move {
            let mutex = client.mutex_with("a", &patient()).expect("a good lock");
            let mut held = 0;
            while held < 3 {
                // An attempt that missed too many answers says so, and is made again.
                match soon("an end", mutex.lock()).await {
                    Ok(guard) => {
                        referee.granted(&guard);
                        held += 1;
                        let _ = soon("a release", guard.release()).await;
                    }
                    Err(error) => assert_eq!(lines(&error).len(), 5),
                }
            }
        }
    };
    join_all((0..4).map(contend)).await;
    assert_eq!(referee.grants(), 12);
    renewed(&kept).await;
    network.heal();
    let_go(kept).await;
    nodes.clean(&clients.iter().collect::<Vec<_>>()).await;
}

/// Listens, and answers everything with the same bytes.
fn answers_with(answer: &'static [u8]) -> std::net::SocketAddr {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let here = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut bytes = [0; 65_536];
                while let Ok(1..) = client.read(&mut bytes) {
                    if client.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    here
}

/// One node answers byte by byte, one rubbish: the others decide, and rubbish is no vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_is_no_vote_and_bytes_one_by_one_are() {
    let nodes = Nodes::start(3, MINUTE).await;
    let rubbish: [&[u8]; 4] =
        [b"+OK\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$536870912\r\n", b"*1000000\r\n"];
    for answer in rubbish {
        let drop_by_drop = FaultProxy::start(nodes.0[1].address());
        drop_by_drop.inject(Frames::replies(), Fault::Dribble(Duration::from_micros(200)));
        let places = [nodes.0[0].address(), drop_by_drop.address(), answers_with(answer)];
        let client = client_of(&places).await;
        // Both others are needed.
        let guard = take(&client, "a", &patient()).await;
        renewed(&guard).await;
        assert_eq!(nodes.with(&guard), 2, "{}", answer.escape_ascii());
        let_go(guard).await;
        drop_by_drop.pass();
        nodes.clean(&[&client]).await;
    }
}

/// An answer that comes after its limit is dropped: the next request gets its own answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_are_no_votes_and_answer_no_other_request() {
    let nodes = Nodes::start(3, MINUTE).await;
    let proxies = nodes.proxies();
    let client = nodes.at_home_behind(&proxies).await;
    for proxy in &proxies[..2] {
        proxy.inject(Frames::replies().containing(KEY), Fault::Hold);
    }
    let error = try_take(&client, "a", &lease(2_000)).await.expect_err("one vote is none");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    lines(&error);
    proxies.iter().for_each(FaultProxy::thaw);
    for name in ["b", "c"] {
        let guard = take(&client, name, &patient()).await;
        nodes.held_on(&guard, 3).await;
        let key = format!("GET holdline:{{{name}}}");
        let kept = |server: &RedisServer| behind(server, &key).text()?.get(67..83)?.parse().ok();
        let tokens: Vec<u64> = nodes.0.iter().filter_map(kept).collect();
        assert!(tokens.contains(&guard.fencing_token().get()), "{tokens:?} and {guard:?}");
        let_go(guard).await;
    }
    nodes.clean(&[&client]).await;
}

/// Who was given up while a majority stood still is not found there when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_thaw_keep_nothing_of_what_was_given_up() {
    let nodes = Nodes::start(5, MINUTE).await;
    let (client, other) = (nodes.client().await, nodes.client().await);
    let first = take(&client, "first", &patient()).await;
    nodes.held_on(&first, 5).await;
    nodes.0[..3].iter().for_each(RedisServer::stop);
    let mutex = client.mutex_with("dropped", &patient()).expect("a good lock");
    let dropped = tokio::time::timeout(Duration::from_millis(200), mutex.lock()).await;
    assert!(dropped.is_err(), "too few answer");
    let error = try_take(&client, "tried", &lease(2_000)).await.expect_err("too few answer");
    assert_eq!(lines(&error).len(), 5, "{error:?}");
    let limited = patient().with_wait(Duration::from_millis(300));
    let limited = client.mutex_with("limited", &limited).expect("a good lock");
    let error = soon("an end", limited.lock()).await.expect_err("too few answer");
    assert_ne!(error.certainty(), Certainty::Applied, "{error:?}");
    nodes.0[..3].iter().for_each(RedisServer::cont);
    renewed(&first).await;
    let_go(first).await;
    for name in ["dropped", "tried", "limited"] {
        let_go(take(&other, name, &patient().with_wait(LONG)).await).await;
    }
    nodes.clean(&[&client, &other]).await;
}

/// Each message of an acquire, a renewal and a release in turn, on each of three nodes: lost with
/// its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_message_of_one_node_can_be_lost_with_its_connection() {
    let nodes = Nodes::start(3, MINUTE).await;
    let proxies = nodes.proxies();
    let client = client_through(&proxies).await;
    let referee = Referee::default();
    for proxy in &proxies {
        for frames in [Frames::requests(), Frames::replies()] {
            for k in 1..=4 {
                proxy.inject(frames.clone().containing(KEY).nth(k), Fault::SwallowThenReset);
                let guard = take(&client, "a", &patient()).await;
                referee.granted(&guard);
                renewed(&guard).await;
                let outcome = soon("a release", guard.release()).await;
                assert!(!outcome.is_lost(), "{outcome:?}");
                proxy.pass();
            }
        }
    }
    nodes.clean(&[&client]).await;
}
