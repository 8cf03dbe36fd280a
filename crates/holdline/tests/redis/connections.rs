//! Connections that break, hang, are refused, and lead to another server than before.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use holdline::{Certainty, Client, ErrorKind, LockError, LostReason};
use holdline_services::{Fault, FaultProxy, Frames, RedisConfig, RedisServer, Traffic};

use crate::support::{
    LONG, Referee, behind, clean, client, client_at, connections, is_valid_no_longer_than_kept,
    kept_their_positions, lease, let_go, line, patient, queued, reached, renewed, server, soon,
    take, try_take, unspoilt, until, url_of, within,
};

fn refused(error: &LockError) -> &str {
    match error.kind() {
        ErrorKind::Refused { message } => message,
        other => panic!("{other:?}"),
    }
}

fn unavailable(error: &LockError) -> &str {
    match error.kind() {
        ErrorKind::Unavailable { message } => message,
        other => panic!("{other:?}"),
    }
}

/// The inboxes of those who wait for a name, from their records.
fn inboxes(server: &RedisServer, name: &str) -> BTreeSet<String> {
    let key = format!("holdline:{{{name}}}:1d");
    let records = server.raw().send(&["HVALS", &key]).expect("an answer");
    let records = records.items().expect("a list").iter().filter_map(|record| record.text());
    let inbox = |record: String| record.get(51..67).map(|inbox| format!("holdline:inbox:{inbox}"));
    records.filter_map(inbox).collect()
}

/// Waits until each of these inboxes has a subscriber.
async fn subscribed(server: &RedisServer, inboxes: &BTreeSet<String>) {
    let mut raw = server.raw();
    until("they subscribe", || {
        let channels = raw.say("PUBSUB CHANNELS holdline:inbox:*").expect("an answer");
        let channels = channels.items().expect("a list").iter().filter_map(|one| one.text());
        inboxes.is_subset(&channels.collect())
    })
    .await;
}

/// Kills each connection of ours once and waits until it was made anew.
async fn kill_each(server: &RedisServer) {
    let before = connections(server);
    for id in &before {
        behind(server, &format!("CLIENT KILL ID {id}"));
    }
    until("they connect again", || {
        let now = connections(server);
        now.len() == before.len() && now.iter().all(|id| !before.contains(id))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_are_killed_in_turn_while_200_wait() {
    let server = server();
    let holder = client_at(server.address()).await;
    let clients = join_all((0..4).map(|_| client_at(server.address()))).await;
    unspoilt("the order of the queue", async || {
        let guard = take(&holder, "a", &patient()).await;
        let referee = Referee::default();
        let order = parking_lot::Mutex::new(Vec::new());
        let wait = |place: usize| {
            let (client, referee, order) = (&clients[place % clients.len()], &referee, &order);
            async move {
                let guard = take(client, "a", &patient()).await;
                referee.granted(&guard);
                order.lock().push(guard.lease_id().to_hex());
                let_go(guard).await;
            }
        };
        let waiters = join_all((0..200).map(wait));
        let kills = async {
            queued(&server, "a", 200).await;
            let (wanted, inboxes) = (line(&server, "a"), inboxes(&server, "a"));
            assert_eq!(inboxes.len(), clients.len());
            for _ in 0..2 {
                kill_each(&server).await;
                subscribed(&server, &inboxes).await;
            }
            assert!(guard.is_valid(), "the holder's connection was made anew in time");
            let_go(guard).await;
            wanted
        };
        let (wanted, _) = futures_util::future::join(kills, waiters).await;
        assert_eq!(referee.grants(), 200);
        kept_their_positions(&order.lock(), &wanted)
    })
    .await;
    clean(&server, &clients.iter().chain([&holder]).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_killed_during_hand_offs_cost_no_lock() {
    let server = server();
    let clients = join_all((0..3).map(|_| client_at(server.address()))).await;
    let referee = Referee::default();
    let contend = |place: usize| {
        let (client, referee) = (&clients[place % clients.len()], &referee);
        async move {
            for _ in 0..4 {
                let guard = take(client, "a", &patient()).await;
                referee.granted(&guard);
                let outcome = soon("a release", guard.release()).await;
                assert!(!outcome.is_lost(), "{outcome:?}");
            }
        }
    };
    let kills = async {
        for round in 1..=4 {
            until("the name goes round", || referee.grants() >= 10 * round).await;
            for id in connections(&server) {
                behind(&server, &format!("CLIENT KILL ID {id}"));
            }
        }
    };
    futures_util::future::join(kills, join_all((0..15).map(contend))).await;
    assert_eq!(referee.grants(), 60);
    clean(&server, &clients.iter().collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_costs_the_holder_nothing_and_the_waiter_a_heartbeat_at_most() {
    let server = server();
    let (holder, waiter) = (client_at(server.address()).await, client_at(server.address()).await);
    let guard = take(&holder, "a", &patient()).await;
    let next = tokio::spawn({
        let waiter = waiter.clone();
        async move { take(&waiter, "a", &patient()).await }
    });
    queued(&server, "a", 1).await;
    kill_each(&server).await;
    renewed(&guard).await;
    let_go(guard).await;
    let_go(soon("the next", next).await.expect("no panic")).await;
    // A heartbeat, the time to connect again, and room for a busy machine.
    within(Duration::from_secs(4), async || {
        let guard = take(&holder, "a", &patient()).await;
        let next = tokio::spawn({
            let waiter = waiter.clone();
            async move { take(&waiter, "a", &patient()).await }
        });
        queued(&server, "a", 1).await;
        // The waiter's connection breaks, and before it is there again the name is handed over.
        for id in connections(&server) {
            behind(&server, &format!("CLIENT KILL ID {id}"));
        }
        let freed = Instant::now();
        let outcome = soon("a release", guard.release()).await;
        assert!(!outcome.is_lost(), "{outcome:?}");
        let next = soon("the next", next).await.expect("no panic");
        let took = freed.elapsed();
        let_go(next).await;
        took
    })
    .await;
    clean(&server, &[&holder, &waiter]).await;
}

/// Nothing comes through on a connection any more, in one direction or in both, and nobody says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_replaced() {
    let server = server();
    let cuts = [
        vec![Frames::requests()],
        vec![Frames::replies()],
        vec![Frames::requests(), Frames::replies()],
    ];
    for cut in cuts {
        let proxy = FaultProxy::start(server.address());
        let client = client_at(proxy.address()).await;
        let guard = take(&client, "a", &patient()).await;
        renewed(&guard).await;
        for frames in cut {
            proxy.inject(frames.on_connection(1), Fault::Swallow);
        }
        proxy.await_event(|event| {
            event.connection > 1 && event.is_frame(Traffic::Requests, "holdline:{a}")
        });
        renewed(&guard).await;
        assert!(guard.is_valid());
        let_go(guard).await;
        clean(&server, &[&client]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_in_the_middle_of_a_reply_is_asked_again() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let client = client_at(proxy.address()).await;
    // The reply comes byte by byte, and breaks off long before its end.
    let replies = Frames::replies().containing("holdline:{a}").nth(1);
    proxy.inject(replies, Fault::Dribble(Duration::from_millis(100)));
    let taken = tokio::spawn({
        let client = client.clone();
        async move { take(&client, "a", &patient()).await }
    });
    let half = proxy.await_event(|event| event.fault.is_some());
    proxy.reset_connection(half.connection);
    let guard = soon("the lock", taken).await.expect("no panic");
    let token = behind(&server, "GET holdline:fence").text().expect("a counter");
    assert_eq!(token.parse(), Ok(guard.fencing_token().get()), "one grant, not two");
    let_go(guard).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_connected_to_is_unavailable_and_nothing_was_applied() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let connect = |url: String| async move {
        let error = soon("an answer", Client::connect(&url)).await.expect_err("nobody is there");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
        unavailable(&error).to_owned()
    };
    proxy.refuse();
    let port_is_shut = connect(url_of(proxy.address())).await;
    assert!(port_is_shut.contains("refused"), "{port_is_shut}");
    let no_such_host = connect("redis://no-such-host.invalid:6379".to_owned()).await;
    assert!(no_such_host.contains("no-such-host.invalid"), "{no_such_host}");
    // The machine answers, the server does not.
    server.stop();
    let silent = connect(format!("redis://{}?connect_timeout_ms=4000", server.address())).await;
    assert!(silent.contains("connected, but no reply within 4s"), "{silent}");
    server.cont();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_for_a_while_is_found_again() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let client = client_at(proxy.address()).await;
    let guard = take(&client, "a", &patient()).await;
    proxy.refuse();
    proxy.reset();
    // The first to ask may find the old connection; from then on it is known to be gone.
    unavailable(&try_take(&client, "b", &patient()).await.expect_err("nobody is there"));
    let away = try_take(&client, "b", &patient()).await.expect_err("nobody is there");
    unavailable(&away);
    assert_eq!(away.certainty(), Certainty::NotApplied);
    proxy.accept();
    renewed(&guard).await;
    let_go(guard).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_as_many_clients_as_it_takes_refuses_newcomers_only() {
    let server = RedisServer::start(RedisConfig::default().with_maxclients(2));
    let holder = client_at(server.address()).await;
    let guard = take(&holder, "a", &patient()).await;
    let crowd = server.raw();
    let error = Client::connect(&url_of(server.address())).await.expect_err("no room");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert!(unavailable(&error).contains("accepts no more clients"), "{error:?}");
    renewed(&guard).await;
    drop(crowd);
    // The server notices the end of a connection a moment later.
    let newcomer = soon("room", async {
        loop {
            if let Ok(client) = Client::connect(&url_of(server.address())).await {
                return client;
            }
        }
    });
    let newcomer = newcomer.await;
    let busy = try_take(&newcomer, "a", &patient()).await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    drop(newcomer);
    let_go(guard).await;
}

/// A subscriber that does not read fast enough is cut off by the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_whose_output_overruns_subscribes_again() {
    let limits = "client-output-buffer-limit pubsub 32kb 0 0";
    let server = RedisServer::start(RedisConfig::default().with_line(limits));
    let (holder, waiter) = (client_at(server.address()).await, client_at(server.address()).await);
    let guard = take(&holder, "a", &patient()).await;
    let next = tokio::spawn({
        let waiter = waiter.clone();
        async move { take(&waiter, "a", &patient()).await }
    });
    queued(&server, "a", 1).await;
    let inboxes = inboxes(&server, "a");
    subscribed(&server, &inboxes).await;
    let before = connections(&server);
    let inbox = inboxes.first().expect("one waits");
    server.raw().send(&["PUBLISH", inbox, &"x".repeat(100_000)]).expect("an answer");
    server.await_log("output buffer limits");
    until("it subscribes anew", || connections(&server) != before).await;
    subscribed(&server, &inboxes).await;
    let_go(guard).await;
    let_go(soon("the next", next).await.expect("no panic")).await;
    clean(&server, &[&holder, &waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_changed_during_a_hold_is_an_error_until_it_is_fixed() {
    let server = RedisServer::start(RedisConfig::default().with_password("old"));
    let client = client(&server.url()).await;
    let guard = take(&client, "a", &lease(6_000)).await;
    behind(&server, "CONFIG SET requirepass new");
    // An authenticated connection stays so until it breaks.
    renewed(&guard).await;
    for id in connections(&server) {
        behind(&server, &format!("CLIENT KILL ID {id}"));
    }
    // No connection is made any more, so nothing is renewed.
    until("they are gone", || connections(&server).is_empty()).await;
    is_valid_no_longer_than_kept(&guard, &server);
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Expired);
    let error = try_take(&client, "b", &lease(6_000)).await.expect_err("shut out");
    assert!(refused(&error).contains("user or password is wrong"), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    drop(guard);
    behind(&server, "CONFIG SET requirepass old");
    // It is asked seldom whether somebody has mended it.
    let again = soon("the lock", async {
        loop {
            if let Ok(guard) = try_take(&client, "a", &patient()).await {
                return guard;
            }
            tokio::time::sleep(Duration::from_millis(50)).await; // event: asked until let in
        }
    });
    let_go(again.await).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights_gets_the_missing_rule() {
    let rules = "ann on >secret ~holdline:* &holdline:* +@all -evalsha -eval";
    let config = RedisConfig::default().with_password("top").with_user(rules);
    let server = RedisServer::start(config.with_user("bob on >secret ~other:* &* +@all"));
    let at = server.address();
    for (user, says) in [("", "requires a password"), (":wrong@", "user or password is wrong")] {
        let url = format!("redis://{user}{at}");
        let error = Client::connect(&url).await.expect_err("not let in");
        assert!(refused(&error).contains(says), "{error:?}");
        assert_eq!(error.certainty(), Certainty::NotApplied);
    }
    for (user, says) in [("ann", "+eval"), ("bob", "~KEYS")] {
        let client = client(&format!("redis://{user}:secret@{at}")).await;
        let error = try_take(&client, "a", &patient()).await.expect_err("no right");
        assert!(refused(&error).contains(says), "{error:?}");
        assert!(!error.to_string().contains("secret"));
    }
    let calls = behind(&server, "INFO commandstats").text().expect("text");
    let asked = calls.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("a line");
    assert!(asked.contains("rejected_calls=2,"), "no storm of tries: {asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_on_the_same_port_knows_no_lease() {
    let (first, second) = (server(), server());
    let proxy = FaultProxy::start(first.address());
    let client = client_at(proxy.address()).await;
    let (held, waited) =
        (take(&client, "a", &patient()).await, take(&client, "b", &patient()).await);
    let next = tokio::spawn({
        let other = client_at(proxy.address()).await;
        async move { take(&other, "b", &patient()).await }
    });
    queued(&first, "b", 1).await;
    // Else nothing would be granted there for a while.
    second.settle();
    proxy.set_upstream(second.address());
    proxy.reset();
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Missing);
    assert_eq!(soon("the loss", waited.lost()).await, LostReason::Missing);
    assert!(!held.is_valid() && !waited.is_valid());
    // Who waited waits there, and gets what nobody holds there; tokens go on growing.
    let next = soon("the next", next).await.expect("no panic");
    assert!(next.fencing_token() > waited.fencing_token());
    let again = take(&client, "a", &patient()).await;
    assert!(again.fencing_token() > held.fencing_token());
    drop((held, waited));
    let_go(again).await;
    let_go(next).await;
    clean(&second, &[&client]).await;
}

/// During an outage a waiter gets an error at its own limit, and a holder holds until its lease
/// ends. Neither notices a short outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_ends_waits_at_their_limit_and_no_lease() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let clients = join_all((0..3).map(|_| client_at(proxy.address()))).await;
    let guard = take(&clients[0], "a", &patient().with_lease_duration(4 * LONG)).await;
    renewed(&guard).await;
    for silent in [false, true] {
        let wait = |place: usize| {
            let mutex =
                clients[place % 3].mutex_with("a", &patient().with_wait(Duration::from_secs(5)));
            let mutex = mutex.expect("a good lock");
            async move { soon("an end", mutex.lock()).await.expect_err("nobody answers") }
        };
        let outage = async {
            queued(&server, "a", 9).await;
            if silent {
                proxy.inject(Frames::requests(), Fault::Swallow);
            } else {
                proxy.refuse();
                proxy.reset();
            }
        };
        let (errors, ()) = futures_util::future::join(join_all((0..9).map(wait)), outage).await;
        for error in errors {
            // A waiter that had no reason to ask during the outage does not know of it.
            assert!(error.is_transient() || error.is_contended(), "{error:?}");
        }
        proxy.pass();
        proxy.accept();
        renewed(&guard).await;
        join_all(clients.iter().map(reached)).await;
        until("they are out of the line", || {
            behind(&server, "EXISTS holdline:{a}:1q").integer() == Some(0)
        })
        .await;
    }
    let next = tokio::spawn({
        let client = clients[1].clone();
        async move { take(&client, "a", &patient()).await }
    });
    queued(&server, "a", 1).await;
    let_go(guard).await;
    let_go(soon("the next", next).await.expect("no panic")).await;
    clean(&server, &clients.iter().collect::<Vec<_>>()).await;
}
