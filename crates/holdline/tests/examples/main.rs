//! The examples, against real servers. Those of `migrate_once` stand in `tests/fence`: its
//! replicas are processes of their own.

#[allow(dead_code, unreachable_pub, reason = "the tests call what `main` of each calls")]
#[path = "../../examples"]
mod examples {
    pub(crate) mod axum_handler;
    pub(crate) mod blocking;
    pub(crate) mod cron_once;
    pub(crate) mod fenced_update;
    pub(crate) mod leader_election;
    pub(crate) mod otlp;
    pub(crate) mod redis_mutex;
    pub(crate) mod semaphore_pool;
}

#[path = "../it/callsites.rs"]
mod callsites;
mod otlp;

use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use holdline::fence::FenceError;
use holdline::once::{OnceOutcome, Slot};
use holdline::{Client, LockName};
use holdline_services::{PostgresConfig, PostgresServer, RedisConfig, RedisServer};
use tower::ServiceExt;

use examples::{
    axum_handler, blocking, cron_once, fenced_update, leader_election, redis_mutex, semaphore_pool,
};

/// A server, and two clients as two processes would have them.
async fn redis() -> (RedisServer, [Client; 2]) {
    let server = RedisServer::start(RedisConfig::default());
    let first = Client::connect(&server.url()).await.expect("connected");
    let second = Client::connect(&server.url()).await.expect("connected");
    (server, [first, second])
}

async fn is_held(client: &Client, name: &str) -> bool {
    let name = LockName::new(name).expect("a name");
    client.admin().inspect(&name).await.expect("an answer").holder_count > 0
}

#[tokio::test]
async fn redis_mutex_waits_and_releases() {
    let (_server, [holder, client]) = redis().await;
    let guard = holder.mutex("nightly-report").expect("a name").lock().await.expect("free");
    let mut report = Box::pin(redis_mutex::report(&client));
    // Nobody else releases here, so it is in the queue when it is pending and the queue has one.
    let queued = async {
        let name = LockName::new("nightly-report").expect("a name");
        while holder.admin().inspect(&name).await.expect("an answer").queue_length == 0 {}
    };
    tokio::select! {
        ended = &mut report => panic!("it held what another holds: {ended:?}"),
        () = queued => {}
    }
    let _ = guard.release().await;
    report.await.expect("its turn");
    assert!(!is_held(&holder, "nightly-report").await);
}

#[tokio::test]
async fn axum_handler_answers_423_while_another_request_holds_the_order() {
    let (_server, [other, client]) = redis().await;
    let service = axum_handler::service(client);
    let ship = async |order: &str| {
        let request = Request::post(format!("/orders/{order}/ship")).body(Body::empty());
        service.clone().oneshot(request.expect("a request")).await.expect("a response").status()
    };
    let guard = other.mutex("orders/17").expect("a name").lock().await.expect("free");
    assert_eq!(ship("17").await, StatusCode::LOCKED);
    assert_eq!(ship("18").await, StatusCode::OK);
    let _ = guard.release().await;
    assert_eq!(ship("17").await, StatusCode::OK);
    assert!(!is_held(&other, "orders/17").await);
    assert_eq!(ship("%00").await, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn fenced_update_refuses_the_late_holder() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (left, late) = fenced_update::demonstrate(&server.url()).await.expect("a database");
    assert_eq!(left, 9);
    assert!(matches!(late, Err(FenceError::Stale(_))), "{late:?}");
    assert_eq!(server.sql("SELECT apples FROM stock"), ["9"]);
}

#[tokio::test]
async fn cron_once_runs_in_each_slot_on_one_machine() {
    let (_server, [first, second]) = redis().await;
    let ran = AtomicU32::new(0);
    let job = async || {
        ran.fetch_add(1, Ordering::Relaxed);
        Ok::<(), &str>(())
    };
    // So long that no slot ends during the test.
    let year = || Slot::every(std::time::Duration::from_secs(365 * 24 * 3600));
    let failed = cron_once::report(&first, year(), async || Err("no disk")).await;
    assert!(matches!(failed, Ok(OnceOutcome::Failed("no disk"))), "{failed:?}");
    let done = cron_once::report(&second, year(), job).await;
    assert!(matches!(done, Ok(OnceOutcome::Ran(()))), "{done:?}");
    // The slot is tied to no process.
    assert!(second.shutdown(std::time::Duration::from_secs(60)).await.is_clean());
    let again = cron_once::report(&first, year(), job).await;
    assert!(matches!(again, Ok(OnceOutcome::AlreadyRan(_))), "{again:?}");
    assert_eq!(ran.into_inner(), 1);
}

#[tokio::test]
async fn leader_election_hands_the_work_to_an_instance_that_stands_by() {
    let (_server, clients) = redis().await;
    let [first, second] = clients.each_ref().map(leader_election::election);
    let (first, second) = (first.expect("a name"), second.expect("a name"));
    let (worked, mut terms) = tokio::sync::mpsc::unbounded_channel();
    let (done, is_done) = tokio::sync::watch::channel(false);
    let lead = |election: holdline::Election, address: &'static str| {
        let (worked, is_done) = (worked.clone(), is_done.clone());
        let work = async move |term: holdline::FencingToken| {
            worked.send((address, term.get())).expect("it is read");
            is_done.clone().wait_for(|done| *done).await.expect("the sender lives");
        };
        async move { leader_election::lead(&election, address, work).await.expect("it leads") }
    };
    let mut seen = Vec::new();
    let leads = async {
        let (_, term) = terms.recv().await.expect("one leads");
        done.send(true).expect("they listen");
        let (_, next) = terms.recv().await.expect("the other leads");
        assert!(next > term, "{next} follows {term}");
    };
    let first_seen = |term: u64, address: &str| seen.push((term, address.to_owned()));
    let all = async { tokio::join!(lead(first.clone(), "one"), lead(second, "two"), leads) };
    tokio::select! {
        ended = leader_election::follow(&first, first_seen) => panic!("{ended:?}"),
        _ = all => {}
    }
    assert!(seen.iter().is_sorted() && seen.len() <= 2, "{seen:?}");
}

#[tokio::test]
async fn semaphore_pool_makes_three_calls_at_a_time() {
    let (_server, clients) = redis().await;
    let (go, went) = tokio::sync::watch::channel(false);
    let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let calls = (0..12).map(|number| {
        let (now, most, mut went) = (&now, &most, went.clone());
        let work = async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            went.wait_for(|go| *go).await.expect("the sender lives");
            now.fetch_sub(1, Ordering::SeqCst);
        };
        semaphore_pool::call(&clients[number % 2], work)
    });
    let name = LockName::new("payments-api").expect("a name");
    let all_are_there = async {
        loop {
            let seen = clients[0].admin().inspect(&name).await.expect("an answer");
            if seen.holder_count + seen.queue_length == 12 {
                go.send(true).expect("somebody waits");
                return Ok(());
            }
        }
    };
    let answers = futures_util::future::try_join_all(calls);
    futures_util::future::try_join(answers, all_are_there).await.expect("all had their turn");
    assert_eq!(most.into_inner(), semaphore_pool::AT_MOST);
}

#[test]
fn blocking_loses_no_count() {
    let server = RedisServer::start(RedisConfig::default());
    let file = std::env::temp_dir().join(format!("holdline-counter-{}", std::process::id()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = holdline::blocking::Client::connect(&server.url()).expect("connected");
                for _ in 0..25 {
                    blocking::count(&client, &file).expect("counted");
                }
            });
        }
    });
    let counted = std::fs::read_to_string(&file).expect("a file");
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(counted.trim(), "100");
}
