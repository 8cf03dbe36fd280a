//! A server that is killed during a command, and commits whose replies are lost.

use holdline_core::{
    Certainty, Engine, ErrorKind, FencingToken, LockError, Purpose, ReleaseReply, RenewReply,
};
use holdline_mysql::MysqlEngine;
use holdline_mysql::mysql_async::prelude::Queryable;
use holdline_services::{Fault, FaultProxy, Frames, MariaDbConfig, MariaDbServer};

use crate::rows::until_a_row_is_waited_for;
use crate::support::{
    HOLD, connect, ending, engine, eventually, let_go, queue, renew, request, sign_in, take, url_at,
};

fn is_unknown(error: &LockError) {
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
}

/// An engine behind a proxy, which swallows the answer to its next command.
async fn behind(server: &MariaDbServer) -> (MysqlEngine, FaultProxy) {
    let proxy = FaultProxy::start(server.address());
    let engine = connect(&url_at(proxy.address())).await.expect("connected");
    take(&engine, &request("known")).await;
    (engine, proxy)
}

fn swallow(proxy: &FaultProxy) {
    proxy.inject(Frames::replies(), Fault::SwallowThenReset);
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_is_unknown_and_succeeds_when_repeated() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (engine, proxy) = behind(&server).await;
    let held = request("a");
    let token = take(&engine, &held).await;
    let deadline = "select deadline from holdline_holders where name = 'a' and slot = 0";
    let deadline = || server.sql(deadline)[0].parse::<i64>().expect("a moment");
    let before = deadline();
    swallow(&proxy);
    is_unknown(&renew(&engine, &held, Purpose::Keep(HOLD)).await.expect_err("no answer"));
    // Its answer was on the way before the server had committed it.
    eventually("it was renewed", || deadline() > before).await;
    proxy.pass();
    let again = renew(&engine, &held, Purpose::Keep(HOLD)).await;
    assert!(matches!(again, Ok(RenewReply::Renewed { .. })), "{again:?}");
    assert_eq!(take(&engine, &held).await, token);
    let_go(&engine, &held).await;
}

/// The second release finds that the first was done, and takes nothing from the next one.
#[tokio::test]
async fn a_release_whose_reply_was_lost_is_unknown_and_applied_once() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (engine, proxy) = behind(&server).await;
    let watcher = self::engine(&server).await;
    let (held, mut waits) = (request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&watcher, &waits).await;
    swallow(&proxy);
    let release = ending(&held, false);
    is_unknown(&engine.release(&release).await.expect_err("no answer"));
    waits.known = true;
    assert!(take(&watcher, &waits).await > token, "it was released");
    proxy.pass();
    let again = engine.release(&release).await.expect("a reply");
    assert_eq!(again, ReleaseReply::NotHeld { revoked: None });
    let_go(&watcher, &waits).await;
}

/// What a server had begun when it was killed is undone when it recovers.
#[tokio::test]
async fn a_server_that_is_killed_in_the_middle_of_a_command_did_nothing_of_it() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    let engine = engine(&server).await;
    let held = request("a");
    let token = take(&engine, &held).await;
    for verb in ["acquire", "renew", "release"] {
        let mut keeper = sign_in(server.address()).await;
        keeper.query_drop("begin").await.expect("begun");
        // A renewal skips a name whose first row is locked; it waits for the holder's.
        let table = if verb == "renew" { "holdline_holders" } else { "holdline_heads" };
        let row = format!("select 1 from {table} where name = 'a' for update");
        keeper.query_drop(row).await.expect("kept");
        let newcomer = request("a");
        let (end, kept) = (ending(&held, false), Purpose::Keep(HOLD));
        let asked = async {
            match verb {
                "acquire" => engine.try_acquire(&newcomer).await.map(drop),
                "renew" => renew(&engine, &held, kept).await.map(drop),
                _ => engine.release(&end).await.map(drop),
            }
        };
        let killed = async {
            until_a_row_is_waited_for(&server).await;
            server.kill();
        };
        let (reply, ()) = tokio::join!(asked, killed);
        is_unknown(&reply.expect_err(verb));
        server.restart();
        is_as_before(&engine, &held, token).await;
    }
    let_go(&engine, &held).await;
}

async fn is_as_before(
    engine: &MysqlEngine,
    held: &holdline_core::AcquireRequest,
    token: FencingToken,
) {
    let shown = loop {
        if let Ok(shown) = engine.inspect(&held.name).await {
            break shown;
        }
    };
    assert_eq!((shown.holder_count, shown.queue_length), (1, 0), "{shown:?}");
    assert_eq!(shown.holders[0].summary.lease_id, held.lease_id.short(), "{shown:?}");
    let reply = renew(engine, held, Purpose::Keep(HOLD)).await;
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
    assert_eq!(take(engine, held).await, token);
}
