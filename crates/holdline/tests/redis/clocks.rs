//! Clocks that are set, run at another rate, and go on while a machine sleeps.
//!
//! A Redis server ends keys by its wall clock. While its *rate* stays within the drift that is
//! allowed for, nobody believes too long; where it is set forward, exclusion ends and the fencing
//! token is what is left.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdline::admin::Operation;
use holdline::clock::{Clock, ClockKind, Moment, SystemClock};
use holdline::{Client, ClientOptions, ErrorKind, Keep, LockName, LockOptions, LostReason};
use holdline_services::{RedisConfig, RedisServer};
use tokio::sync::Notify;

use crate::support::{
    Referee, behind, clean, client_at, lease, let_go, patient, queued, renewed, server, soon, take,
    try_take, url_of,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn server_with_clock() -> RedisServer {
    RedisServer::start(RedisConfig::default().with_clock())
}

/// A lease that nobody renews.
fn fixed(millis: u64) -> LockOptions {
    lease(millis).with_keep(Keep::Fixed)
}

/// The machine's clock, and a hand that sets it forward, as a suspend does.
#[derive(Clone)]
struct Suspendable(Arc<Inner>);

struct Inner {
    machine: SystemClock,
    slept: AtomicU64,
    woken: Notify,
}

impl Suspendable {
    fn new() -> Suspendable {
        let machine = SystemClock::new(ClockKind::Boottime).expect("the machine gives a timer");
        Suspendable(Arc::new(Inner { machine, slept: AtomicU64::new(0), woken: Notify::new() }))
    }

    fn slept(&self) -> Duration {
        Duration::from_nanos(self.0.slept.load(Ordering::SeqCst))
    }

    fn suspend(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a short sleep");
        self.0.slept.fetch_add(nanos, Ordering::SeqCst);
        self.0.woken.notify_waiters();
    }
}

impl fmt::Debug for Suspendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suspendable").field("slept", &self.slept()).finish_non_exhaustive()
    }
}

impl Clock for Suspendable {
    fn now(&self) -> Moment {
        self.0.machine.now().after(self.slept())
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let mut woken = std::pin::pin!(clock.0.woken.notified());
                woken.as_mut().enable();
                if clock.now() >= at {
                    return;
                }
                let sleep = clock.0.machine.sleep_until(at.before(clock.slept()));
                futures_util::future::select(woken, sleep).await;
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_suspended_longer_than_the_lease_has_lost_it() {
    let server = server();
    let clock = Suspendable::new();
    let options = ClientOptions::default().with_clock(Arc::new(clock.clone()));
    let url = url_of(server.address());
    let client = soon("a client", Client::connect_with(&url, options)).await.expect("connected");
    let short = take(&client, "short", &lease(20_000)).await;
    let long = take(&client, "long", &lease(3_600_000)).await;
    clock.suspend(Duration::from_secs(21));
    // At once, before any task has run.
    assert!(!short.is_valid(), "the server's timer ran on");
    assert_eq!(soon("the loss", short.lost()).await, LostReason::Expired);
    assert!(long.is_valid(), "a sleep within the lease costs nothing");
    drop(short);
    let_go(long).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_back_keeps_exclusion_and_operators_can_free_the_name() {
    let server = server_with_clock();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let guard = take(&holder, "a", &patient()).await;
    server.clock().step_back(HOUR);
    server.await_clock();
    renewed(&guard).await;
    assert!(guard.remaining() <= Duration::from_secs(20), "{:?}", guard.remaining());
    let busy = try_take(&other, "a", &patient()).await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    // The holder is gone, and its lock would stay for an hour.
    let token = guard.fencing_token();
    std::mem::forget(guard);
    drop(holder);
    let stuck = behind(&server, "PTTL holdline:{a}").integer();
    assert!(stuck > Some(3_500_000), "{stuck:?}");
    let name = LockName::new("a").expect("a good name");
    let revoke = Operation::Revoke { name, token, reason: "its holder is gone".into(), now: true };
    soon("an answer", other.admin().operate(&revoke)).await.expect("revoked");
    let next = take(&other, "a", &patient()).await;
    assert!(next.fencing_token() > token, "tokens are counted on while the clock is behind");
    let_go(next).await;
}

/// As on a machine without a battery for its clock: the time has fewer digits than today's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_in_the_year_1971_grants_hands_off_and_orders_tokens() {
    let server = server_with_clock();
    server.clock().step_back(HOUR * 24 * 365 * 55);
    server.await_clock();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let guard = take(&holder, "a", &patient()).await;
    let token = guard.fencing_token();
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { take(&other, "a", &patient()).await }
    });
    queued(&server, "a", 1).await;
    renewed(&guard).await;
    let_go(guard).await;
    let next = soon("the next", waiting).await.expect("no panic");
    assert!(next.fencing_token() > token);
    renewed(&next).await;
    let_go(next).await;
    clean(&server, &[&holder, &other]).await;
}

/// Outside the promise of exclusion: the token shows who came later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_forward_ends_leases_and_tokens_order_the_holders() {
    let server = server_with_clock();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let guard = take(&holder, "a", &patient()).await;
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { take(&other, "a", &patient()).await }
    });
    queued(&server, "a", 1).await;
    server.clock().step_forward(Duration::from_secs(60));
    let next = soon("the next", waiting).await.expect("no panic");
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Missing);
    drop(guard);
    renewed(&next).await;
    let_go(next).await;
    clean(&server, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_within_the_drift_end_validity_before_the_lease() {
    for rate in [0.991, 1.009] {
        let server = server_with_clock();
        let at = server.address();
        let (holder, other) = (client_at(at).await, client_at(at).await);
        server.clock().set_rate(rate);
        server.await_clock();
        let referee = Referee::default();
        let guard = take(&holder, "a", &fixed(2_000)).await;
        referee.granted(&guard);
        // The referee looks whether the first still believes when the second is granted.
        let next = take(&other, "a", &patient()).await;
        referee.granted(&next);
        assert_eq!(soon("the loss", guard.lost()).await, LostReason::RanOut);
        drop(guard);
        let_go(next).await;
        clean(&server, &[&holder, &other]).await;
    }
}

/// The control: a clock far outside the drift breaks exclusion, and this ground shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_far_outside_the_drift_breaks_exclusion_and_not_the_order_of_tokens() {
    let server = server_with_clock();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    server.clock().set_rate(200.0);
    server.await_clock();
    let guard = take(&holder, "a", &fixed(20_000)).await;
    let next = soon("the next", async {
        loop {
            if let Ok(next) = try_take(&other, "a", &fixed(20_000)).await {
                return next;
            }
        }
    });
    let next = next.await;
    assert!(guard.is_valid(), "two believe: what no lock can keep when clocks run so");
    assert!(next.fencing_token() > guard.fencing_token());
    let outcome = soon("a release", guard.release()).await;
    assert!(!outcome.is_released(), "{outcome:?}");
    drop(next);
}
