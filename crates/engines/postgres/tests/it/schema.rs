//! How the schema comes into being, and what is not ours.

use holdline_core::{Engine, ErrorKind, Purpose, RenewReply};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{HOLD, connect, engine, let_go, name, renew, request, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_find_nothing_make_it_once() {
    let server = PostgresServer::start(PostgresConfig::default());
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
    assert_eq!(server.sql("select count(*) from holdline.about"), ["1"]);
}

#[tokio::test]
async fn a_client_that_came_before_the_schema_sees_what_others_hold() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (early, holder) = (engine(&server).await, engine(&server).await);
    assert!(!early.inspect(&name("a")).await.expect("shown").is_held());
    let held = request("a");
    take(&holder, &held).await;
    assert!(early.inspect(&name("a")).await.expect("shown").is_held());
    assert!(matches!(
        renew(&early, &held, Purpose::Keep(HOLD)).await,
        Ok(RenewReply::Renewed { .. })
    ));
    let_go(&early, &held).await;
}

#[tokio::test]
async fn schemas_are_stores_of_their_own() {
    let server = PostgresServer::start(PostgresConfig::default());
    let odd = format!("{}?schema={}", server.url(), "My%20%22locks%22;%20drop");
    let (one, other) = (engine(&server).await, connect(&odd).await.expect("connected"));
    assert_ne!(one.capabilities().identity, other.capabilities().identity);
    let (first, second) = (request("a"), request("a"));
    take(&one, &first).await;
    take(&other, &second).await;
    let_go(&other, &second).await;
    assert!(one.inspect(&name("a")).await.expect("shown").is_held());
    assert_eq!(
        server.sql("select nspname from pg_namespace where nspname like 'My%'"),
        ["My \"locks\"; drop"]
    );
}

#[tokio::test]
async fn what_others_keep_there_is_foreign_and_left() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql(
        "create schema theirs; create table theirs.heads (a int); insert into theirs.heads values \
         (7); create schema like_ours; create table like_ours.about (format int)",
    );
    for schema in ["theirs", "like_ours"] {
        let url = format!("{}?schema={schema}", server.url());
        let error = connect(&url).await.expect_err("foreign");
        assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("name one of our own by `schema`"), "{error}");
    }
    assert_eq!(server.sql("select a from theirs.heads"), ["7"]);
    let ours = "select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
        where n.nspname in ('theirs', 'like_ours')";
    assert_eq!(server.sql(ours), ["0"]);
}

#[tokio::test]
async fn a_newer_format_is_refused_and_an_older_client_changes_nothing() {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&engine(&server).await, &request("a")).await;
    server.sql("update holdline.about set format = 2");
    let error = connect(&server.url()).await.expect_err("newer");
    assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[tokio::test]
async fn functions_that_are_missing_are_put_back_and_the_rows_stay() {
    let server = PostgresServer::start(PostgresConfig::default());
    let held = request("a");
    take(&engine(&server).await, &held).await;
    server.sql("drop function holdline.sweep_1(bytea, int)");
    let_go(&engine(&server).await, &held).await;
}

#[tokio::test]
async fn a_schema_that_was_dropped_is_made_anew_and_the_holder_is_told() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    take(&engine, &held).await;
    server.sql("drop schema holdline cascade");
    let error = engine.inspect(&name("a")).await.expect_err("gone");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    let told = renew(&engine, &held, Purpose::Keep(HOLD)).await;
    assert_eq!(told.expect("asked"), RenewReply::Unknown);
    take(&engine, &request("a")).await;
}

#[tokio::test]
async fn names_that_nobody_uses_leave_no_rows() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    for number in 0..300 {
        let asked = request(&format!("name {number}"));
        take(&engine, &asked).await;
        let_go(&engine, &asked).await;
    }
    assert_eq!(server.sql("select count(*) from holdline.heads"), ["300"]);
    // A minute later; one more is held, one has run out, and one is frozen.
    let held = request("held");
    take(&engine, &held).await;
    take(&engine, &request("over")).await;
    server.sql(
        "update holdline.heads set used = used - 61000000; \
         update holdline.heads h set holders[1].deadline = 1 where name = 'over'",
    );
    let sweep = "with recursive s(after, step) as (select null::bytea, 0 union all \
        select holdline.sweep_1(s.after, 100), s.step + 1 from s \
        where s.step = 0 or s.after is not null) select count(*) from s";
    server.sql(sweep);
    // What has run out was settled by the first round; the second finds it unused.
    server.sql("update holdline.heads set used = used - 61000000 where name = 'over'");
    server.sql(sweep);
    assert_eq!(server.sql("select name from holdline.heads"), ["\\x68656c64"]);
    let_go(&engine, &held).await;
}

/// The server reads the text of each check anew for every statement that writes: that doubled what
/// a cycle costs.
#[tokio::test]
async fn no_table_of_locks_has_a_check() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("a")).await;
    let checks = server.sql(
        "select count(*) from pg_constraint where contype = 'c' \
         and conrelid in ('holdline.heads'::regclass, 'holdline.waiters'::regclass)",
    );
    assert_eq!(checks, ["0"]);
}
