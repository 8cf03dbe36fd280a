//! Connections that break, servers that freeze, crash and come back, processes that fork.

use std::time::Duration;

use futures_util::FutureExt;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Engine, ErrorKind, Hold, Purpose, RenewReply,
};
use holdline_services::{FaultProxy, Frames, MariaDbConfig, MariaDbServer};

use crate::support::{
    HOLD, connect, ending, engine, eventually, let_go, queue, renew, request, take, url_at,
};

#[tokio::test]
async fn a_connection_that_is_killed_costs_no_lease() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    let token = take(&engine, &held).await;
    server.sql("kill user holdline");
    // What meets the end of its connection is unknown; what comes after finds a new one.
    let renewed = loop {
        match renew(&engine, &held, Purpose::Keep(HOLD)).await {
            Err(error) => assert_eq!(error.certainty(), Certainty::Unknown, "{error}"),
            Ok(reply) => break reply,
        }
    };
    assert!(matches!(renewed, RenewReply::Renewed { .. }), "{renewed:?}");
    assert_eq!(take(&engine, &held).await, token);
    let_go(&engine, &held).await;
}

/// The end of an idle connection is seen when it comes: no command runs into it.
#[tokio::test]
async fn a_connection_that_ends_while_idle_is_made_anew_unasked() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    take(&engine, &held).await;
    let newest = "select coalesce(max(id), 0) from information_schema.processlist \
        where user = 'holdline' and command <> 'Killed'";
    let newest = || server.sql(newest)[0].parse::<u64>().expect("a number");
    for _ in 0..3 {
        let before = newest();
        server.sql("kill user holdline");
        eventually("a new connection", || newest() > before).await;
        // The handshake may still run: then the command waits for it, and is not lost.
        let renewed = renew(&engine, &held, Purpose::Keep(HOLD)).await;
        assert!(matches!(renewed, Ok(RenewReply::Renewed { .. })), "{renewed:?}");
    }
}

#[tokio::test]
async fn a_killed_server_takes_no_token_and_no_grant_back() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    let engine = engine(&server).await;
    let mut last = None;
    for round in 0..3 {
        let (first, mut second) = (request("a"), request("a"));
        let token = take(&engine, &first).await;
        assert!(Some(token) > last, "{token} after {last:?}");
        queue(&engine, &second).await;
        if round % 2 == 0 {
            let_go(&engine, &first).await;
        }
        server.kill();
        server.restart();
        while engine.inspect(&first.name).await.is_err() {}
        if round % 2 == 0 {
            second.known = true;
            last = Some(take(&engine, &second).await);
            assert!(last > Some(token));
            let_go(&engine, &second).await;
        } else {
            assert_eq!(take(&engine, &first).await, token);
            last = Some(token);
            while engine.release(&ending(&second, false)).await.is_err() {}
            let_go(&engine, &first).await;
        }
    }
}

/// The control of what `doctor` fails (`durability`): such a server answers before it has written
/// anything down, and does that once a second.
#[tokio::test]
async fn a_server_that_flushes_no_commit_grants_again_after_a_crash() {
    let config = MariaDbConfig::default().with_line("innodb-flush-log-at-trx-commit=0");
    let server = MariaDbServer::start(config);
    let engine = engine(&server).await;
    take(&engine, &request("made")).await;
    for round in 0..20 {
        let held = request(&format!("round {round}"));
        let token = take(&engine, &held).await;
        server.kill();
        server.restart();
        while engine.inspect(&held.name).await.is_err() {}
        let next = AcquireRequest { queue: false, ..request(held.name.as_str()) };
        match engine.try_acquire(&next).await.expect("asked") {
            AcquireReply::Granted { token: again, .. } => return assert_eq!(again, token),
            AcquireReply::Busy { .. } => {} // It was written down just then.
            reply => panic!("{reply:?}"),
        }
    }
    panic!("no commit was lost in twenty crashes");
}

#[tokio::test]
async fn a_frozen_server_costs_a_timeout_and_the_outcome_is_unknown() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let url = format!("{}?command_timeout_ms=2000&connect_timeout_ms=2000", server.url());
    let engine = connect(&url).await.expect("connected");
    take(&engine, &request("made")).await;
    let asked = AcquireRequest { queue: false, ..request("a") };
    server.stop();
    let error = engine.try_acquire(&asked).await.expect_err("no answer");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    // The connection is given up, and another cannot be made.
    let error = engine.try_acquire(&request("b")).await.expect_err("no connection");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    server.cont();
    let given_up = ending(&asked, true);
    while engine.release(&given_up).await.is_err() {}
    // Whenever the request is carried out, it is refused from then on, or was undone.
    let next = AcquireRequest { queue: false, ..request("a") };
    while engine.try_acquire(&next).await.is_err() {}
    let snapshot = engine.inspect(&asked.name).await.expect("shown");
    assert_eq!(snapshot.holder_count, 1, "{snapshot:?}");
    assert_eq!(snapshot.holders[0].summary.lease_id, next.lease_id.short());
}

/// The command was committed, and the reply was lost.
#[tokio::test]
async fn a_grant_whose_reply_was_lost_is_unknown_and_found_again() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let proxy = FaultProxy::start(server.address());
    let watcher = engine(&server).await;
    take(&watcher, &request("made")).await;
    let behind = connect(&url_at(proxy.address())).await.expect("connected");
    take(&behind, &request("known")).await;
    let asked = AcquireRequest { queue: false, ..request("a") };
    // The name has a row from now on.
    let before = request("a");
    take(&watcher, &before).await;
    let_go(&watcher, &before).await;
    proxy.inject(Frames::replies(), holdline_services::Fault::SwallowThenReset);
    let error = behind.try_acquire(&asked).await.expect_err("no answer");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    // Its answer was on the way before the server had committed it.
    let shown = loop {
        let shown = watcher.inspect(&asked.name).await.expect("shown");
        if shown.holder_count == 1 {
            break shown;
        }
    };
    proxy.pass();
    let again = take(&behind, &asked).await;
    assert_eq!(Some(again), shown.holders[0].summary.token);
    let_go(&behind, &asked).await;
}

/// Each request and each reply is cut off once: wherever it happens, giving up leaves nothing.
#[tokio::test]
async fn a_connection_can_be_cut_anywhere_and_giving_up_leaves_nothing() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let proxy = FaultProxy::start(server.address());
    let behind = connect(&url_at(proxy.address())).await.expect("connected");
    let watcher = engine(&server).await;
    take(&watcher, &request("made")).await;
    for yields in 0..15 {
        let asked = AcquireRequest { queue: false, ..request("a") };
        let cut = async {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            proxy.reset();
        };
        let (reply, ()) = tokio::join!(behind.try_acquire(&asked), cut);
        if let Err(error) = &reply {
            assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        }
        let given_up = ending(&asked, true);
        while behind.release(&given_up).await.is_err() {}
        let next = request("a");
        take(&watcher, &next).await;
        let_go(&watcher, &next).await;
    }
}

/// A future that is dropped before its statement was written leaves nothing; after that its id is
/// given up as after any lost answer.
#[tokio::test]
async fn an_acquire_that_is_dropped_anywhere_leaves_nothing_once_given_up() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (engine, watcher) = (engine(&server).await, engine(&server).await);
    take(&watcher, &request("made")).await;
    for yields in 0..12 {
        let asked = AcquireRequest { queue: false, ..request("a") };
        let mut attempt = Box::pin(engine.try_acquire(&asked).into_future());
        for _ in 0..yields {
            if attempt.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(attempt);
        engine.release(&ending(&asked, true)).await.expect("given up");
        let shown = watcher.inspect(&asked.name).await.expect("shown");
        assert!(!shown.is_held() && shown.queue_length == 0, "{shown:?}");
    }
}

#[tokio::test]
async fn a_holder_that_is_cut_off_loses_the_name_when_its_lease_ends_and_is_notified() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let proxy = FaultProxy::start(server.address());
    let url = format!("{}?command_timeout_ms=5000", url_at(proxy.address()));
    let (cut_off, other) = (connect(&url).await.expect("connected"), engine(&server).await);
    let hold = Hold::Leased(Duration::from_secs(3));
    let held = AcquireRequest { hold, ..request("a") };
    let token = take(&cut_off, &held).await;
    proxy.refuse();
    proxy.reset();
    let error = renew(&cut_off, &held, Purpose::Keep(hold)).await.expect_err("cut off");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    // The rows are the truth: no end of a connection frees the name, only the lease's.
    let mut waits = request("a");
    let larger = loop {
        match other.try_acquire(&waits).await.expect("asked") {
            AcquireReply::Granted { token, .. } => break token,
            AcquireReply::Queued { next_look, .. } => {
                waits.known = true;
                tokio::time::sleep(next_look).await; // event: as long as the store has said
            }
            // It was silent for too long, on a machine that was paused.
            AcquireReply::Unknown => waits = request("a"),
            reply => panic!("{reply:?}"),
        }
    };
    assert!(larger > token);
    proxy.accept();
    let answer = loop {
        if let Ok(answer) = renew(&cut_off, &held, Purpose::Keep(hold)).await {
            break answer;
        }
    };
    assert_eq!(answer, RenewReply::Unknown);
}

#[test]
fn a_forked_process_is_refused_and_needs_an_engine_of_its_own() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let engine = runtime.block_on(engine(&server));
    let asked = request("a");
    if fork::fork().expect("forked") == fork::Fork::Child {
        let reply = engine.try_acquire(&asked);
        let reply = reply.into_future().now_or_never();
        let good =
            matches!(&reply, Some(Err(error)) if error.to_string().contains("copied by fork"));
        rustix::process::kill_process(
            rustix::process::getpid(),
            if good { rustix::process::Signal::KILL } else { rustix::process::Signal::ABORT },
        )
        .expect("ended");
    }
    let (_, status) = rustix::process::wait(rustix::process::WaitOptions::empty())
        .expect("waited")
        .expect("a child");
    let killed = status.terminating_signal();
    assert_eq!(killed, Some(rustix::process::Signal::KILL.as_raw()), "{status:?}");
    runtime.block_on(async {
        take(&engine, &asked).await;
        let_go(&engine, &asked).await;
    });
}
