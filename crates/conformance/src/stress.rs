//! Contenders under faults of the servers, judged by the checker.
//!
//! While many contenders request, hold, outlive and release, a test injects faults into the
//! servers, the connections or the network. The checker judges what they saw; a resource rejects
//! late writes. The seed chooses the faults and what contenders do; the timing depends on the
//! machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdline::{Client, Guard, Keep, LockOptions, by_mode};
use holdline_core::{Engine, ErrorKind, LockError, LockName, Mode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::checker::{Rules, Violation, check};
use crate::contenders::Contenders;

/// Set to replay what a run chose.
const SEED: &str = "HOLDLINE_STRESS_SEED";
/// Set for a longer run: how often each fault comes.
const ROUNDS: &str = "HOLDLINE_STRESS_ROUNDS";
/// What must happen happens within this time, on any machine.
const LONG: Duration = Duration::from_secs(60);
const TASKS: usize = 12;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The lease of all contenders: shorter than the stop of a server.
pub const LEASE: Duration = Duration::from_secs(2);

fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Injects each of `faults` once, or as often as the environment sets, in an order from the seed,
/// and returns them. `inject` injects one for about the given time, and heals it.
pub fn in_turn<H: Copy>(
    seed: u64,
    faults: &[H],
    mut inject: impl FnMut(H, &mut StdRng, Duration),
) -> Vec<H> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut done = Vec::new();
    for _ in 0..set(ROUNDS).unwrap_or(1) {
        let mut left = faults.to_vec();
        while !left.is_empty() {
            let fault = left.swap_remove(random.random_range(0..left.len()));
            let pause = Duration::from_millis(random.random_range(300..2_500));
            inject(fault, &mut random, pause);
            done.push(fault);
            last(Duration::from_millis(random.random_range(0..800)));
        }
    }
    done
}

/// The length of a fault: what happens meanwhile is what the contenders see.
pub fn last(pause: Duration) {
    std::thread::sleep(pause); // event: none is waited for, the fault lasts so long
}

/// One run of contenders under faults: what its tasks share.
struct Stress {
    seed: u64,
    over: AtomicBool,
    contenders: Contenders,
    grants: AtomicUsize,
    unavailable: AtomicUsize,
    lost: AtomicUsize,
}

/// How an attempt goes about it.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Hold,
    Drop,
    GiveUp,
    Outstay,
}

impl Stress {
    async fn contend(&self, client: &Client, task: usize) {
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_mul(31) + task as u64);
        while !self.over.load(Ordering::Relaxed) {
            let name = LockName::new(NAMES[random.random_range(0..NAMES.len())]).expect("good");
            let behaviour = match random.random_range(0..80) {
                0 => Behaviour::Outstay,
                1..=8 => Behaviour::Drop,
                9..=16 => Behaviour::GiveUp,
                _ => Behaviour::Hold,
            };
            let mode = match random.random_range(0..10) {
                0..=2 => Mode::Shared,
                _ => Mode::Exclusive,
            };
            // Some hold for longer than a lease, and have to renew it.
            let longest = if random.random_bool(0.05) { 3_000 } else { 30 };
            let pause = Duration::from_millis(random.random_range(0..longest));
            self.attempt(client, &name, mode, behaviour, pause).await;
        }
    }

    async fn attempt(
        &self,
        client: &Client,
        name: &LockName,
        mode: Mode,
        behaviour: Behaviour,
        pause: Duration,
    ) {
        let attempt = self.contenders.call(name, mode);
        let limit = if behaviour == Behaviour::GiveUp { pause } else { LONG };
        match tokio::time::timeout(limit, acquire(client, name, mode, behaviour)).await {
            Ok(Ok(guard)) => self.hold(attempt, guard, behaviour, pause).await,
            Ok(Err(error)) => {
                assert!(may_fail(&error), "{error:?}");
                self.unavailable.fetch_add(1, Ordering::Relaxed);
                self.contenders.recorder.failed(attempt);
                tokio::time::sleep(pause).await; // event: none, or it would ask without end
            }
            Err(_) if behaviour == Behaviour::GiveUp => self.contenders.recorder.failed(attempt),
            // Its record has no end, which the checker reports.
            Err(_) => {}
        }
    }

    async fn hold(&self, attempt: u64, guard: Guard, behaviour: Behaviour, pause: Duration) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        self.contenders.recorder.granted(attempt, &guard);
        self.contenders.write(attempt, &guard).expect("the write is judged");
        if behaviour == Behaviour::Outstay {
            let outstayed = self.contenders.outstay(attempt, &guard, LONG, LEASE).await;
            return outstayed.expect("the loss is noticed, and the write is judged");
        }
        tokio::time::sleep(pause).await; // event: none, it holds for so long
        self.contenders.recorder.renewed(attempt, &guard);
        self.contenders.write(attempt, &guard).expect("the write is judged");
        if !guard.is_valid() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.contenders.recorder.released(attempt);
        match behaviour {
            Behaviour::Drop => drop(guard),
            _ => drop(tokio::time::timeout(LONG, guard.release()).await.expect("an answer")),
        }
    }
}

/// While the servers are down, requests fail with a reason.
fn may_fail(error: &LockError) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable { .. } | ErrorKind::TimedOut { .. })
}

async fn acquire(
    client: &Client,
    name: &LockName,
    mode: Mode,
    behaviour: Behaviour,
) -> Result<Guard, LockError> {
    let keep = if behaviour == Behaviour::Outstay { Keep::Fixed } else { Keep::default() };
    let options = LockOptions::default().with_lease_duration(LEASE).with_keep(keep);
    let options = options.with_wait(LONG / 2);
    by_mode::lock(client, name, mode, &options).await
}

/// Runs contenders, as many clients as there are `engines`, while `inject` injects the seed's
/// faults; returns what the checker finds.
///
/// # Panics
/// A wait did not end, a loss was not reported, or something of a contender is left; `replay`
/// is printed as the command that does it again.
pub async fn stress<H: std::fmt::Debug + Send + 'static>(
    replay: &str,
    engines: Vec<Arc<dyn Engine>>,
    rules: Rules,
    fault: impl FnOnce(u64) -> Vec<H> + Send + 'static,
) -> Vec<Violation> {
    let seed = set(SEED).unwrap_or(1);
    println!("replay: {SEED}={seed} {replay}");
    let names = NAMES.map(|name| LockName::new(name).expect("good"));
    let stress = Arc::new(Stress {
        seed,
        over: AtomicBool::new(false),
        contenders: Contenders::new(&names).expect("a timer"),
        grants: AtomicUsize::new(0),
        unavailable: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
    });
    let client =
        |engine: &Arc<dyn Engine>| stress.contenders.client(engine.clone()).expect("a client");
    let clients: Vec<Client> = engines.iter().map(client).collect();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let stress = stress.clone();
        let client = clients[task % clients.len()].clone();
        tasks.spawn(async move { stress.contend(&client, task).await });
    }
    let injecting = tokio::task::spawn_blocking(move || fault(seed));
    let faults = injecting.await.expect("no panic");
    stress.over.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    calm(&engines, &clients).await;
    let events = stress.contenders.take_events();
    let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    println!(
        "seed {seed}: {} attempts, {} grants, {} unavailable, {} lost, {} late writes refused, {} \
         events; {faults:?}",
        stress.contenders.attempts(),
        count(&stress.grants),
        count(&stress.unavailable),
        count(&stress.lost),
        stress.contenders.refused(),
        events.len(),
    );
    assert!(count(&stress.grants) > 0, "no request was granted");
    check(&events, rules).expect("a history that makes sense")
}

/// Waits until there are no holders and waiters.
async fn calm(engines: &[Arc<dyn Engine>], clients: &[Client]) {
    for client in clients {
        let ended = tokio::time::timeout(LONG, client.shutdown(LONG)).await;
        assert!(ended.is_ok(), "a client does not end");
    }
    for name in NAMES {
        let name = LockName::new(name).expect("good");
        let end = Instant::now() + LONG;
        loop {
            let shown = engines[0].inspect(&name).await;
            if shown.as_ref().is_ok_and(|it| (it.holder_count, it.queue_length) == (0, 0)) {
                break;
            }
            assert!(Instant::now() < end, "something is left: {shown:?}");
            tokio::time::sleep(Duration::from_millis(20)).await; // event: looked for until seen
        }
    }
}
