//! Long queues, queues behind an old snapshot, and many readers: what a command reads does not grow
//! with them.
//!
//! Work is counted in entries that the server read from the index of the queue, or of the readers:
//! that number is the same on every machine.

use holdline_postgres::tokio_postgres::{Client, IsolationLevel};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{connect, request, sign_in, take};

/// How many wait, and how many items a batch of heartbeats has.
const WAITERS: usize = 10_000;
const BATCH: usize = 128;

/// A session that plans as ours do.
async fn session(server: &PostgresServer) -> Client {
    let session = sign_in(server.address(), "postgres").await;
    let plans = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off";
    session.batch_execute(plans).await.expect("set");
    session
}

/// A server with the schema on it.
async fn server() -> PostgresServer {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&connect(&server.url()).await.expect("connected"), &request("other")).await;
    server
}

/// How many entries of the queue's index this server has read.
async fn read_so_far(session: &Client) -> i64 {
    read_from(session, "indexrelname = 'waiters_pkey'").await
}

/// How many entries of these indexes this server has read.
async fn read_from(session: &Client, indexes: &str) -> i64 {
    session.batch_execute("select pg_stat_force_next_flush()").await.expect("asked");
    let ask = "select sum(idx_tup_read)::bigint from pg_stat_user_indexes where";
    session.query_one(&format!("{ask} {indexes}"), &[]).await.expect("a row").get(0)
}

/// A lease id as it is written in a statement.
fn id(number: usize) -> String {
    format!(r"'\x{number:032x}'::bytea")
}

/// Creates a held name with this many waiters, of which every hundredth was then removed.
fn crowd(server: &PostgresServer) {
    let held = id(0);
    server.sql(&format!(
        "select holdline.acquire_1('crowd', {held}, 1, 0, 'x', 0, 0, 'd', 86400000000, 1000000, \
            '', true, false, 100); \
         insert into holdline.waiters select 'crowd', n - 1, \
            decode(lpad(to_hex(n), 32, '0'), 'hex'), n, 0, 'x', 0, 0, 'l', 10000000, 1000000, \
            holdline.now_1(), holdline.now_1() + 3600000000, '' \
            from generate_series(1, {WAITERS}) n; \
         delete from holdline.waiters where place % 100 = 50; \
         update holdline.names set queued = (select count(*) from holdline.waiters), \
            next_place = {WAITERS}, heard_since = holdline.now_1() + 3600000000 \
            where name = 'crowd'; analyze holdline.waiters"
    ));
}

/// One heartbeat of all who wait costs each of them a bounded piece of work, far from the head too.
#[tokio::test]
async fn heartbeats_of_ten_thousand_waiters_read_a_bounded_part_of_the_queue() {
    let server = server().await;
    crowd(&server);
    let session = session(&server).await;
    let before = read_so_far(&session).await;
    let waiting: Vec<usize> = (1..=WAITERS).filter(|n| (n - 1) % 100 != 50).collect();
    let mut places = Vec::new();
    for batch in waiting.chunks(BATCH) {
        let ids: Vec<String> = batch.iter().map(|number| id(*number)).collect();
        let many = |of: &str| format!("array_fill({of}, array[{}])", batch.len());
        let beat = format!(
            "select outcome, place, look from holdline.renew_1({}, array[{}], {}, 0, {}, {}) \
             order by line",
            many("'crowd'::bytea"),
            ids.join(", "),
            many("1::bigint"),
            many("'w'::text"),
            many("0::bigint"),
        );
        for row in session.query(&beat, &[]).await.expect("rows") {
            assert_eq!(row.get::<_, &str>(0), "queued");
            assert_eq!(row.get::<_, i64>(2), 1_000_000);
            places.push(usize::try_from(row.get::<_, i32>(1)).expect("a position"));
        }
    }
    let read = read_so_far(&session).await - before;
    let most = i64::try_from(places.len()).expect("small") * 100;
    assert!(read < most, "{read} entries were read for {} heartbeats", places.len());
    // Near the head it is exact; behind it is no less than it is, and in order.
    for (ahead, reply) in places.iter().enumerate() {
        assert!(*reply >= ahead && (*reply == ahead || ahead >= 32), "{reply} in place of {ahead}");
    }
    assert!(places.is_sorted());
}

/// One queues, the holder hands over: what that reads of the queue's index.
async fn hand_over(session: &Client, round: usize) {
    let (held, next) = (id(round), id(round + 1));
    for command in [
        format!(
            "select (holdline.acquire_1('a', {next}, 1, 0, 'x', 0, 0, 'l', 30000000, 10000000, '', \
             true, false, 100)).outcome"
        ),
        format!("select outcome from holdline.release_1('a', {held}, 0)"),
    ] {
        session.query_one(&command, &[]).await.expect("done");
    }
}

/// A dump, or an idle transaction: what left the queue since it began stays in the index.
#[tokio::test]
async fn a_hand_off_behind_an_old_snapshot_reads_no_more_than_the_first() {
    let server = server().await;
    let mut dump = sign_in(server.address(), "postgres").await;
    let snapshot = dump.build_transaction();
    let snapshot =
        snapshot.isolation_level(IsolationLevel::RepeatableRead).start().await.expect("begun");
    snapshot.query("select count(*) from holdline.waiters", &[]).await.expect("a snapshot");
    let session = session(&server).await;
    let first = format!(
        "select holdline.acquire_1('a', {}, 1, 0, 'x', 0, 0, 'l', 30000000, 1000000, '', true, \
         false, 100)",
        id(1)
    );
    session.query_one(&first, &[]).await.expect("taken");
    let mut reads = Vec::new();
    for part in 0..3 {
        let before = read_so_far(&session).await;
        for round in 1..=100 {
            hand_over(&session, part * 100 + round).await;
        }
        reads.push(read_so_far(&session).await - before);
    }
    assert_eq!(
        server.sql("select (holder).token is not null from holdline.names where name = 'a'"),
        ["t"]
    );
    assert!(reads[2] < 2 * reads[0] + 100, "{reads:?} entries were read for 100 hand-offs each");
    drop(snapshot);
}

/// One reader among this many renews, and one more comes and goes: what 100 of these commands read.
async fn read_among(session: &Client, readers: usize) -> i64 {
    let name = format!("'readers/{readers}'::bytea");
    let acquire = |id: &str| {
        format!(
            "(holdline.acquire_1({name}, {id}, 1, 0, 's', 0, 0, 'l', 3600000000, 10000000, '', \
             true, false, 100)).outcome"
        )
    };
    let all = acquire("decode(lpad(to_hex(n), 32, '0'), 'hex')");
    let all = format!("select {all} from generate_series(1, {readers}) n");
    session.query(&all, &[]).await.expect("granted");
    let before = read_from(session, "relname in ('names', 'shared_holders')").await;
    for round in 0..100 {
        let one = id(1 + round * 7 % readers);
        let other = id(readers + 1 + round);
        for (command, outcome) in [
            (
                format!(
                    "select outcome from holdline.renew_1(array[{name}], array[{one}], \
                     array[1::bigint], 0, array['l'], array[3600000000])"
                ),
                "renewed",
            ),
            (format!("select {}", acquire(&other)), "granted"),
            (format!("select outcome from holdline.release_1({name}, {other}, 0)"), "released"),
        ] {
            let row = session.query_one(&command, &[]).await.expect("done");
            assert_eq!(row.get::<_, &str>(0), outcome);
        }
    }
    read_from(session, "relname in ('names', 'shared_holders')").await - before
}

#[tokio::test]
async fn a_command_of_one_of_thousands_of_readers_reads_as_much_as_among_ten() {
    let server = server().await;
    let session = session(&server).await;
    let few = read_among(&session, 10).await;
    let many = read_among(&session, 3_000).await;
    assert!(many < 2 * few, "{few} entries were read among 10 readers, {many} among 3,000");
}
