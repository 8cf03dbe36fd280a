//! Functions and operators that a stranger planted in `public` are never called, whatever the
//! search path of the connecting role is.

use holdline_conformance::clock::MachineClock;
use holdline_core::{AcquireRequest, Engine, FencingToken, ListRequest, Operation, Purpose};
use holdline_postgres::tokio_postgres::Transaction;
use holdline_postgres::{RowLock, RowLockError, RowWait, row_lock};
use holdline_services::{PgBouncer, PostgresConfig, PostgresServer};

use crate::checkup::look;
use crate::support::{PATIENCE, connect, let_go, name, queue, renew, request, sign_in, take};

/// A server on which `public` is full of traps.
fn trapped() -> PostgresServer {
    let server = PostgresServer::start(PostgresConfig::default());
    server.plant_traps();
    server
}

#[tokio::test]
async fn planted_functions_do_not_run_while_a_client_connects_and_works() {
    let server = trapped();
    let pooler = PgBouncer::start(&server, 2);
    // The first makes the schema, the others find it.
    for url in [server.url(), pooler.url(), server.url()] {
        look(&url).await;
        let engine = connect(&url).await.expect("connected");
        let (held, waits) = (request("a"), request("a"));
        let token = take(&engine, &held).await;
        queue(&engine, &waits).await;
        renew(&engine, &held, Purpose::Keep(held.hold)).await.expect("renewed");
        renew(&engine, &waits, Purpose::Wait).await.expect("a reply");
        engine.inspect(&name("a")).await.expect("shown");
        let all = ListRequest { limit: 10, ..ListRequest::default() };
        engine.list(&all).await.expect("listed");
        let (of, reason) = (name("a"), "because".to_owned());
        let revoke = Operation::Revoke { name: of, token, reason, now: true };
        engine.operate(&revoke).await.expect("revoked");
        let to = FencingToken::new(1_000).expect("a token");
        engine.operate(&Operation::RaiseFence { to }).await.expect("raised");
        take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
        let_go(&engine, &waits).await;
        look(&url).await;
    }
    assert_eq!(server.sprung(), [""; 0]);
}

/// The empty schema is made by one and left for another.
#[tokio::test]
async fn planted_functions_do_not_run_while_older_functions_are_replaced() {
    let server = trapped();
    server.sql("create schema holdline");
    take(&connect(&server.url()).await.expect("connected"), &request("a")).await;
    server.sql("comment on function holdline.audit_read_1 is null");
    take(&connect(&server.url()).await.expect("connected"), &request("b")).await;
    assert_eq!(server.sprung(), [""; 0]);
}

/// The rows are the caller's, and so is the query; what we add to it is qualified.
#[tokio::test]
async fn planted_functions_do_not_run_for_row_locks() {
    let server = trapped();
    server.sql("create table jobs (id int)");
    let mut client = sign_in(server.address(), "postgres").await;
    client.batch_execute("set application_name = 'holdline'").await.expect("set");
    for wait in [RowWait::Never, RowWait::SkipLocked, RowWait::AtMost(PATIENCE)] {
        let rows = RowLock::new("select id from public.jobs", &[]).with_wait(wait);
        let nothing = async |_: &mut Transaction<'_>, _| Ok::<(), std::fmt::Error>(());
        let missing = row_lock(&mut client, &rows, &MachineClock, nothing).await;
        assert!(matches!(missing, Err(RowLockError::Missing)), "{missing:?}");
    }
    server.sql("insert into jobs values (1)");
    let rows = RowLock::new("select id from public.jobs", &[]);
    let nothing = async |_: &mut Transaction<'_>, _| Ok::<(), std::fmt::Error>(());
    row_lock(&mut client, &rows, &MachineClock, nothing).await.expect("committed");
    assert_eq!(server.sprung(), [""; 0]);
}

/// What sets its own search path can be called by anybody; what does not, by the owner alone.
#[tokio::test]
async fn functions_without_a_search_path_of_their_own_are_called_only_by_the_owner() {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&connect(&server.url()).await.expect("connected"), &request("a")).await;
    let open = "select proname from pg_proc where pronamespace = 'holdline'::regnamespace \
        and has_function_privilege('public', oid, 'execute') \
        and not coalesce(proconfig::text like '%search_path=%', false)";
    assert_eq!(server.sql(open), [""; 0]);
    let all = "select count(*) > 10 from pg_proc where pronamespace = 'holdline'::regnamespace \
        and has_function_privilege('public', oid, 'execute')";
    assert_eq!(server.sql(all), ["t"]);
}
