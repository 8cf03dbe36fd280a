//! How the tables are created, and what happens to foreign ones.

use holdline_core::{Engine, ErrorKind, Purpose, RenewReply};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{HOLD, connect, engine, let_go, name, renew, request, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_find_nothing_make_it_once() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let url = server.url();
    let tries = (0..20).map(|_| {
        let url = url.clone();
        tokio::spawn(async move {
            let engine = connect(&url).await.expect("connected");
            // More than one task of each engine.
            let (one, other) = (request("a"), request("b"));
            let both = tokio::join!(engine.try_acquire(&one), engine.try_acquire(&other));
            both.0.and(both.1).map(drop)
        })
    });
    for one in tries.collect::<Vec<_>>() {
        one.await.expect("no panic").expect("asked");
    }
    assert_eq!(server.sql("select count(*) from holdline_about"), ["1"]);
    let early = connect(&format!("{url}?prefix=late_")).await.expect("connected");
    let (holder, held) =
        (connect(&format!("{url}?prefix=late_")).await.expect("one"), request("a"));
    assert!(!early.inspect(&name("a")).await.expect("shown").is_held());
    take(&holder, &held).await;
    assert!(early.inspect(&name("a")).await.expect("shown").is_held(), "made by another");
    let renewed = renew(&early, &held, Purpose::Keep(HOLD)).await;
    assert!(matches!(renewed, Ok(RenewReply::Renewed { .. })));
    let_go(&early, &held).await;
}

#[tokio::test]
async fn prefixes_are_stores_of_their_own() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let other = format!("{}?prefix=b_", server.url());
    let (one, other) = (engine(&server).await, connect(&other).await.expect("connected"));
    assert_ne!(one.capabilities().identity, other.capabilities().identity);
    let (first, second) = (request("a"), request("a"));
    take(&one, &first).await;
    take(&other, &second).await;
    let_go(&other, &second).await;
    assert!(one.inspect(&name("a")).await.expect("shown").is_held());
}

/// An interrupted client left some of it; the next one creates the rest.
#[tokio::test]
async fn half_made_tables_are_completed() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    take(&engine(&server).await, &request("made")).await;
    for statement in [
        "drop table holdline_waiters",
        "delete from holdline_about",
        "drop table holdline_about",
        "drop procedure holdline_settle_11",
        "drop procedure holdline_acquire_11",
    ] {
        server.sql(statement);
        let engine = engine(&server).await;
        let asked = request("a");
        take(&engine, &asked).await;
        let_go(&engine, &asked).await;
    }
    assert_eq!(server.sql("select count(*) from holdline_holders where name = 'made'"), ["1"]);
}

#[tokio::test]
async fn foreign_tables_are_reported_and_left() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    for (prefix, statement, says) in [
        ("t_", "create table t_heads (a int) engine = InnoDB", "table `t_heads` is not ours"),
        ("v_", "create view v_about as select 1 as format", "table `v_about` is not ours"),
        ("p_", "create procedure p_renew_11() select 1", "procedure `p_renew_11` is not ours"),
        (
            "m_",
            "create table m_marks (a int) engine = MyISAM comment = 'Holdline: lease ids'",
            "no transactions",
        ),
    ] {
        server.sql(statement);
        let error = connect(&format!("{}?prefix={prefix}", server.url())).await;
        let error = error.expect_err("foreign");
        assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        let made = format!("show tables like '{prefix}%'");
        assert!(server.sql(&made).len() <= 1, "nothing was added");
    }
}

#[tokio::test]
async fn a_newer_format_is_refused_and_another_revision_is_worked_beside() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    take(&engine, &held).await;
    // As another version would make them, with a revision of its own.
    server.sql(
        "create procedure holdline_acquire_99() sql security invoker \
         comment 'Holdline: revision 99' select 1",
    );
    renew(&engine, &held, Purpose::Keep(HOLD)).await.expect("renewed");
    let_go(&self::engine(&server).await, &held).await;
    server.sql("update holdline_about set format = 7");
    let error = connect(&server.url()).await.expect_err("too new");
    assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("format 7, we know 3"), "{error}");
    server.sql("update holdline_about set format = 2");
    let error = connect(&server.url()).await.expect_err("too old");
    assert!(error.to_string().contains("stop all clients and drop the tables"), "{error}");
}

#[tokio::test]
async fn dropped_tables_are_made_anew_and_holders_are_notified() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    take(&engine, &held).await;
    server.sql(
        "drop table holdline_about, holdline_heads, holdline_holders, holdline_marks, \
         holdline_waiters",
    );
    let reply = loop {
        match renew(&engine, &held, Purpose::Keep(HOLD)).await {
            Ok(reply) => break reply,
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}"),
        }
    };
    assert_eq!(reply, RenewReply::Unknown);
    take(&engine, &request("a")).await;
}
