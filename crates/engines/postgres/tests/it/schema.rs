//! How the schema is created, and what happens to foreign ones.

use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Engine, ErrorKind, Mode, Operation, Purpose,
    RenewReply,
};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{HOLD, connect, engine, let_go, name, queue, renew, request, sign_in, take};

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
async fn a_client_that_came_before_the_schema_sees_other_holders() {
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
async fn foreign_data_is_reported_and_left() {
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
    server.sql("update holdline.about set format = 3");
    let error = connect(&server.url()).await.expect_err("newer");
    assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("format 3"), "{error}");
    server.sql("update holdline.about set format = 1");
    let error = connect(&server.url()).await.expect_err("older");
    assert!(error.to_string().contains("stop all clients and drop the schema"), "{error}");
}

#[tokio::test]
async fn functions_that_are_missing_are_put_back_and_the_rows_stay() {
    let server = PostgresServer::start(PostgresConfig::default());
    for function in ["sweep_1", "unfreeze_1"] {
        let held = request("a");
        take(&engine(&server).await, &held).await;
        server.sql(&format!("drop function holdline.{function}"));
        let_go(&engine(&server).await, &held).await;
        assert_eq!(server.sql(&format!("select count(*) {WHERE} '{function}'")), ["1"]);
    }
}

const WHERE: &str =
    "from pg_proc p where p.pronamespace = 'holdline'::regnamespace and p.proname =";

/// Makes the schema, with a function in it as an older version may have made it: what is released
/// was not held.
fn made_by_an_older_version(server: &PostgresServer) {
    server.sql(
        "create or replace function holdline.release_1(n bytea, id bytea, remembered bigint, \
            out outcome text, out held bigint, out note bytea) language plpgsql as \
            $$ begin outcome := 'nothing'; end $$; \
         comment on function holdline.audit_read_1 is null",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_an_older_version_are_brought_up_to_date_by_many_at_once() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (early, held) = (engine(&server).await, request("held"));
    take(&early, &held).await;
    made_by_an_older_version(&server);
    let url = server.url();
    let at_work = (0..8).map(|number| {
        let url = url.clone();
        tokio::spawn(async move {
            let engine = connect(&url).await.expect("connected");
            let asked = request(&format!("name {number}"));
            take(&engine, &asked).await;
            let_go(&engine, &asked).await;
        })
    });
    for one in at_work.collect::<Vec<_>>() {
        one.await.expect("no panic");
    }
    // Connected clients continue, and the rows stay.
    let_go(&early, &held).await;
    let definer = format!("select p.prosecdef {WHERE} 'release_1'");
    assert_eq!(server.sql(&definer), ["t"]);
}

/// One that was corrected without a new revision.
#[tokio::test]
async fn functions_of_the_same_revision_with_another_text_are_replaced() {
    let server = PostgresServer::start(PostgresConfig::default());
    let held = request("held");
    take(&engine(&server).await, &held).await;
    server.sql(
        "create role app login; grant usage on schema holdline to app; \
         create or replace function holdline.release_1(n bytea, id bytea, remembered bigint, \
            out outcome text, out held bigint, out note bytea) language plpgsql as \
            $$ begin outcome := 'nothing'; end $$; \
         comment on function holdline.now_1() is 'Holdline: text 0123456789abcdef'",
    );
    // A role that may not replace them uses them: they are of its revision.
    let app = connect(&server.url_of("app", "postgres")).await.expect("let in");
    take(&app, &request("b")).await;
    let definer = format!("select p.prosecdef {WHERE} 'release_1'");
    assert_eq!(server.sql(&definer), ["f"]);
    let repaired = engine(&server).await;
    take(&repaired, &request("c")).await;
    assert_eq!(server.sql(&definer), ["t"]);
    let_go(&repaired, &held).await;
}

#[tokio::test]
async fn functions_of_a_newer_version_are_used_as_they_are() {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&engine(&server).await, &request("made")).await;
    server.sql(
        "comment on function holdline.audit_read_1 is 'Holdline: revision 999'; \
         alter function holdline.release_1 set work_mem = '5MB'",
    );
    let newer = engine(&server).await;
    let held = request("a");
    take(&newer, &held).await;
    let_go(&newer, &held).await;
    let kept = server.sql(&format!("select p.proconfig::text {WHERE} 'release_1'")).concat();
    assert!(kept.contains("work_mem=5MB"), "{kept}");
    // What is missing there, only the newer version knows how to put back.
    server.sql("drop function holdline.sweep_1");
    let error = connect(&server.url()).await.expect_err("newer, and not whole");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("take a lock once by the newer version"), "{error}");
}

#[tokio::test]
async fn a_role_that_may_not_replace_functions_learns_which_role_may() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql(
        "create role owner login; alter database postgres owner to owner; \
         create role app login; create role deputy login in role owner noinherit",
    );
    let [owner, app, deputy] =
        ["owner", "app", "deputy"].map(|role| server.url_of(role, "postgres"));
    take(&connect(&owner).await.expect("let in"), &request("made")).await;
    server.sql("grant usage on schema holdline to app, deputy");
    made_by_an_older_version(&server);
    let error = connect(&app).await.expect_err("older");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("by this version as the role `owner`"), "{error}");
    // A member acts for the owner: all objects keep one owner.
    let held = request("a");
    let repaired = connect(&deputy).await.expect("let in");
    take(&repaired, &held).await;
    let_go(&repaired, &held).await;
    let owners = "select distinct pg_get_userbyid(p.proowner) from pg_proc p \
        where p.pronamespace = 'holdline'::regnamespace";
    assert_eq!(server.sql(owners), ["owner"]);
    take(&connect(&app).await.expect("let in"), &request("b")).await;
}

/// Its functions run with the rights of every client.
#[tokio::test]
async fn a_schema_that_a_stranger_made_is_foreign() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql(
        "create role mallory login; grant create on database postgres to mallory; \
         create role app login; grant create on database postgres to app",
    );
    let [mallory, app] = ["mallory", "app"].map(|role| server.url_of(role, "postgres"));
    take(&connect(&mallory).await.expect("let in"), &request("made")).await;
    server.sql("set role mallory; grant usage, create on schema holdline to public");
    for url in [&app, &server.url()] {
        let error = connect(url).await.expect_err("a stranger's");
        assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("PUBLIC, mallory"), "{error}");
    }
    // An empty one too: its owner could remove what is put there, and put things beside it.
    let empty = "set role mallory; create schema early; grant usage, create on schema early to app";
    server.sql(empty);
    let early = format!("{app}?schema=early");
    let refused = connect(&early).await.expect_err("a stranger's");
    assert!(matches!(refused.kind(), ErrorKind::Foreign { .. }), "{refused}");
    assert_eq!(
        server.sql(
            "select relname from pg_class \
        where relnamespace = 'early'::regnamespace"
        ),
        [""; 0]
    );
    // To trust mallory, a role becomes a member of it.
    server.sql(
        "grant mallory to app; set role mallory; revoke create on schema holdline from public",
    );
    let (engine, held) = (connect(&app).await.expect("trusted"), request("a"));
    take(&engine, &held).await;
    let_go(&engine, &held).await;
    let engine = connect(&early).await.expect("trusted");
    take(&engine, &held).await;
    let owners = "select distinct pg_get_userbyid(c.relowner) from pg_class c \
        where c.relnamespace = 'early'::regnamespace";
    assert_eq!(server.sql(owners), ["mallory"]);
}

/// The tables as older versions have left them.
const OLD_LAYOUT: &str = include_str!("old_layout.sql");

fn of_mode(text: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest { mode, ..request(text) }
}

/// All holders keep their leases and tokens, and waiters their places.
#[tokio::test]
async fn rows_of_the_older_layout_are_moved() {
    let server = PostgresServer::start(PostgresConfig::default());
    let early = engine(&server).await;
    let permits = |count: u32| Mode::permits(count, 5).expect("a mode");
    let held = [
        request("one"),
        of_mode("readers", Mode::Shared),
        of_mode("readers", Mode::Shared),
        of_mode("permits", permits(1)),
        of_mode("permits", permits(2)),
    ];
    let mut tokens = Vec::new();
    for asked in &held {
        tokens.push(take(&early, asked).await);
    }
    let waits = request("one");
    queue(&early, &waits).await;
    let duration = std::time::Duration::from_secs(600);
    let reason = "because".to_owned();
    let freeze = Operation::Freeze { name: name("frozen"), duration, reason: reason.clone() };
    early.operate(&freeze).await.expect("frozen");
    let revoke = Operation::Revoke { name: name("readers"), token: tokens[1], reason, now: false };
    early.operate(&revoke).await.expect("revoked");
    server.sql(OLD_LAYOUT);
    // A dump: the move does not wait for it, because all commands would wait behind the move.
    let mut dump = sign_in(server.address(), "postgres").await;
    let dump = dump.transaction().await.expect("begun");
    dump.query("select from holdline.heads", &[]).await.expect("rows");
    let error = connect(&server.url()).await.expect("connected").try_acquire(&request("new")).await;
    let error = error.expect_err("the dump has the table");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    dump.commit().await.expect("over");
    let engine = engine(&server).await;
    take(&engine, &request("new")).await;
    for (at, asked) in held.iter().enumerate() {
        let shown = engine.inspect(&asked.name).await.expect("shown");
        let found = shown.holders.iter().find(|x| x.summary.lease_id == asked.lease_id.short());
        assert_eq!(found.expect("a holder").summary.token, Some(tokens[at]), "{shown:?}");
        let reply = renew(&engine, asked, Purpose::Keep(HOLD)).await.expect("a reply");
        match (at, reply) {
            (1, RenewReply::Revoked { reason, .. }) => assert_eq!(reason, "because"),
            (1, reply) => panic!("{reply:?}"),
            (_, RenewReply::Renewed { .. }) => {}
            (_, reply) => panic!("{asked:?}: {reply:?}"),
        }
    }
    assert!(engine.inspect(&name("frozen")).await.expect("shown").freeze.is_some());
    // The counts are right: two of five permits are left, and readers keep a writer out.
    let asks = |asked: AcquireRequest| AcquireRequest { queue: false, ..asked };
    for (asked, is_free) in [
        (of_mode("permits", permits(3)), false),
        (of_mode("permits", permits(2)), true),
        (request("readers"), false),
        (of_mode("readers", Mode::Shared), true),
    ] {
        let reply = engine.try_acquire(&asks(asked.clone())).await.expect("a reply");
        assert_eq!(matches!(reply, AcquireReply::Granted { .. }), is_free, "{asked:?}: {reply:?}");
    }
    let_go(&engine, &held[0]).await;
    let handed = take(&engine, &AcquireRequest { known: true, ..waits }).await;
    assert!(tokens.iter().all(|token| *token < handed), "{tokens:?}, {handed}");
}

#[tokio::test]
async fn a_dropped_schema_is_made_anew_and_the_holder_is_notified() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    take(&engine, &held).await;
    server.sql("drop schema holdline cascade");
    let error = engine.inspect(&name("a")).await.expect_err("gone");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    let reply = renew(&engine, &held, Purpose::Keep(HOLD)).await;
    assert_eq!(reply.expect("asked"), RenewReply::Unknown);
    take(&engine, &request("a")).await;
}

#[tokio::test]
async fn unused_names_leave_no_rows() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    for number in 0..300 {
        let asked = request(&format!("name {number}"));
        take(&engine, &asked).await;
        let_go(&engine, &asked).await;
    }
    assert_eq!(server.sql("select count(*) from holdline.names"), ["300"]);
    // A minute later; one more is held, one has run out, and one is frozen.
    let held = request("held");
    take(&engine, &held).await;
    take(&engine, &request("over")).await;
    server.sql(
        "update holdline.names set used = used - 61000000; \
         update holdline.names h set holder.deadline = 1 where name = 'over'",
    );
    let sweep = "select holdline.sweep_1(null, 100) from generate_series(1, 5)";
    server.sql(sweep);
    // What has run out was settled by the first round; the second finds it unused.
    server.sql("update holdline.names set used = used - 61000000 where name = 'over'");
    server.sql(sweep);
    assert_eq!(server.sql("select name from holdline.names"), ["\\x68656c64"]);
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
         and conrelid in ('holdline.names'::regclass, 'holdline.waiters'::regclass, \
            'holdline.shared_holders'::regclass)",
    );
    assert_eq!(checks, ["0"]);
}
