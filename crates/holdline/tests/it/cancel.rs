//! Futures dropped at every await point.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline::admin::ListRequest;
use holdline::clock::{Clock, ManualClock};
use holdline::{Client, Guard, Held, LockError, LockOptions, Owner};
use holdline_services::cut;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{drive, engine, locked, look, options, settle};

async fn is_clean(client: &Client, clock: &ManualClock) {
    let shut = client.clone();
    let report = drive(clock, async move { shut.shutdown(Duration::from_secs(90)).await }).await;
    assert!(report.is_clean(), "{report:?}");
    settle().await;
    let request = ListRequest { limit: 100, ..ListRequest::default() };
    let left = client.admin().list(&request).await.expect("memory answers").names;
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Cuts one contended cycle after `polls` polls of its lock, or else of its release. The holder
/// before it is of the same client or of another one.
async fn cut_once(polls: usize, at_release: bool, same: bool) -> bool {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = Client::with_options(Arc::new(faulty.clone()), options(&clock, 1)).expect("made");
    let other = Client::with_options(Arc::new(faulty.clone()), options(&clock, 2)).expect("made");
    let mutex = client.mutex("a").expect("good name");
    let holder = if same { &client } else { &other }.mutex("a").expect("good name");
    let first = drive(&clock, locked(holder)).await.expect("free");
    let freed = async {
        settle().await;
        let _ = first.release().await;
        settle().await;
    };
    let cutting = async {
        if at_release {
            let guard = mutex.lock().await.expect("handed over");
            cut(polls, guard.release()).await.is_some()
        } else {
            cut(polls, mutex.lock()).await.is_some()
        }
    };
    let (done, ()) = {
        let driven = Arc::new(Mutex::new(None));
        let (result, clock) = (driven.clone(), clock.clone());
        let both = futures_util::future::join(cutting, freed);
        let mut both = Box::pin(both);
        // The futures borrow the mutex, so they run here, and the clock moves beside them.
        let run = poll_fn(|context| both.as_mut().poll(context));
        let outcome = futures_util::future::select(Box::pin(run), Box::pin(ticks(&clock))).await;
        if let futures_util::future::Either::Left((outcome, _)) = outcome {
            *result.lock() = Some(outcome);
        }
        driven.lock().take().expect("the clock never ends")
    };
    is_clean(&client, &clock).await;
    done
}

/// Moves the clock whenever everybody sleeps.
async fn ticks(clock: &ManualClock) {
    loop {
        settle().await;
        if let Some(at) = clock.next_wake() {
            clock.advance(clock.now().until(at));
        }
    }
}

#[tokio::test]
async fn every_await_point_can_be_the_last() {
    for (at_release, same) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut polls = 0;
        while !cut_once(polls, at_release, same).await {
            polls += 1;
            assert!(polls < 1_000, "it ends");
        }
        // A release is polled twice when it is sent, and one of the same client saves the wait for
        // the hint.
        let least = if same || at_release { 2 } else { 3 };
        assert!(
            polls >= least,
            "await points to cut at: {polls}, release {at_release}, same client {same}"
        );
    }
}

/// What the random contenders share.
struct World {
    clients: Vec<Client>,
    believers: Mutex<Vec<Held>>,
    cancelled: AtomicUsize,
    granted: AtomicUsize,
}

const CANCELLATIONS: usize = 10_000;

impl World {
    fn is_done(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) >= CANCELLATIONS
    }

    /// Cuts a future at a random poll, and counts if that came before its end.
    async fn cut<T>(&self, random: &mut StdRng, future: impl Future<Output = T>) -> Option<T> {
        let polls = if random.random_bool(0.2) { 1_000 } else { random.random_range(0..14) };
        let output = cut(polls, future).await;
        self.cancelled.fetch_add(usize::from(output.is_none()), Ordering::Relaxed);
        output
    }

    /// Notes a new exclusive guard, and looks whether another believes.
    fn note(&self, guard: &Guard) {
        self.granted.fetch_add(1, Ordering::Relaxed);
        let mut believers = self.believers.lock();
        believers.retain(Held::is_valid);
        let rival = believers
            .iter()
            .find(|held| held.name() == guard.name() && held.lease_id() != guard.lease_id());
        assert!(rival.is_none(), "two believe in {}: {guard:?} and {rival:?}", guard.name());
        believers.push(guard.held());
    }
}

/// Takes something at random; the future may be cut anywhere.
async fn take(
    client: &Client,
    owner: &Owner,
    verb: u32,
    name: &str,
    wait: Duration,
) -> Result<(Vec<Guard>, bool), LockError> {
    let options = LockOptions::default().with_wait(wait);
    let one = |guard| (vec![guard], true);
    match verb {
        0 => client.mutex_with(name, &options)?.lock().await.map(one),
        1 => client.mutex_with(name, &options)?.try_lock().await.map(one),
        2 => client.rwlock_with(name, &options)?.read().await.map(|guard| (vec![guard], false)),
        3 => client.rwlock_with(name, &options)?.write().await.map(one),
        4 => {
            let semaphore = client.semaphore_with("permits", 3, &options)?;
            semaphore.acquire_many(2).await.map(|guard| (vec![guard], false))
        }
        5 => client.mutex_with(name, &options)?.lock_as(owner).await.map(one),
        6 => {
            let mutex = client.mutex_with(name, &options)?;
            mutex.run(async |_held| tokio::task::yield_now().await).await?;
            Ok((Vec::new(), false))
        }
        _ => {
            let guards = client.lock_all_with(["a", "b"], &options).await?;
            Ok((guards.into_guards(), true))
        }
    }
}

/// Ends a guard at random.
async fn end(world: &World, random: &mut StdRng, client: &Client, guard: Guard) {
    match random.random_range(0..6) {
        0 => drop(guard),
        1 => {
            world.cut(random, guard.renew()).await;
        }
        2 => {
            if let Some(Ok(lease)) = world.cut(random, guard.detach()).await {
                let _ = client.leases().release(&lease).await.expect("a good lease");
            }
        }
        3 => {
            world.cut(random, guard.run(tokio::task::yield_now())).await;
        }
        _ => {
            world.cut(random, guard.release()).await;
        }
    }
}

async fn contend(world: Arc<World>, seed: u64, clock: ManualClock) {
    let mut random = StdRng::seed_from_u64(seed);
    let owner = Owner::new();
    while !world.is_done() {
        let client = &world.clients[random.random_range(0..world.clients.len())];
        let verb = random.random_range(0..8);
        let name = ["a", "b", "c"][random.random_range(0..3)];
        let wait = Duration::from_millis(random.random_range(0..6_000));
        let taking = take(client, &owner, verb, name, wait);
        let Some(Ok((guards, exclusive))) = world.cut(&mut random, taking).await else { continue };
        for guard in &guards {
            if exclusive && guard.is_valid() {
                world.note(guard);
            }
        }
        if random.random_bool(0.1) {
            let pause = Duration::from_millis(random.random_range(0..15_000));
            clock.sleep_until(clock.now().after(pause)).await;
        }
        for guard in guards {
            end(&world, &mut random, client, guard).await;
        }
    }
}

/// Ten thousand cancellations over a line that is good, or bad one time in ten.
async fn cancel_at_random(seed: u64, bad: f64) {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let clients: Vec<Client> = (0..3)
        .map(|n| {
            let options = options(&clock, seed * 10 + n);
            Client::with_options(Arc::new(faulty.clone()), options).expect("made")
        })
        .collect();
    let fates = Mutex::new(StdRng::seed_from_u64(seed));
    faulty.line.judge(move |_: Call, _| {
        let mut fates = fates.lock();
        if fates.random_bool(bad) { Fate::BAD[fates.random_range(0..5)] } else { Fate::Good }
    });
    let world = Arc::new(World {
        clients,
        believers: Mutex::default(),
        cancelled: AtomicUsize::new(0),
        granted: AtomicUsize::new(0),
    });
    let contenders: Vec<_> =
        (0..8).map(|n| contend(world.clone(), seed * 100 + n, clock.clone())).collect();
    drive(&clock, async { futures_util::future::join_all(contenders).await }).await;
    faulty.line.judge(|_, _| Fate::Good);
    for client in &world.clients {
        let client = client.clone();
        let shut = async move { client.shutdown(Duration::from_secs(90)).await };
        let report = drive(&clock, shut).await;
        assert!(report.left() == 0 && report.held() == 0 && report.under_way() == 0, "{report:?}");
        // What could not be confirmed within its lease has expired by now as well.
        assert!(bad > 0.0 || report.unconfirmed() == 0, "{report:?}");
    }
    is_free(&world.clients[0]).await;
    assert!(world.granted.load(Ordering::Relaxed) > 500, "too few grants to mean anything");
}

async fn is_free(client: &Client) {
    for name in ["a", "b", "c", "permits"] {
        let left = look(client, name).await;
        assert_eq!((left.holder_count, left.queue_length), (0, 0), "{left:?}");
    }
}

#[tokio::test]
async fn ten_thousand_cancellations_leave_nothing() {
    cancel_at_random(1, 0.0).await;
}

#[tokio::test]
async fn ten_thousand_cancellations_over_a_bad_network_leave_nothing() {
    cancel_at_random(2, 0.1).await;
}
