//! Contenders under the faults of the servers themselves, judged by the checker.
//!
//! While many ask, hold, outstay and let go, members are killed, stopped, restarted and cut off.
//! Who saw what goes to the checker of the conformance suite; a resource refuses what comes late.
//! The seed chooses the faults and what contenders do; how they meet is up to the machine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline::fence::{FenceError, Fenced, FencedCell, Proof};
use holdline::{Client, ClientOptions, Guard, Keep, LockOptions};
use holdline_conformance::checker::{Event, Rules, Violation, ViolationKind, check};
use holdline_conformance::clock::MachineClock;
use holdline_conformance::recorder::Recorder;
use holdline_core::{Engine, ErrorKind, LockError, LockName, Mode};
use holdline_etcd::{EtcdEngine, EtcdOptions};
use holdline_services::{Cut, EtcdCluster, EtcdConfig, EtcdServer, PrivateNetwork};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

/// Set to replay what a run chose.
const SEED: &str = "HOLDLINE_STRESS_SEED";
/// Set for a longer run: how often each fault comes.
const ROUNDS: &str = "HOLDLINE_STRESS_ROUNDS";
/// What must happen happens within this time, on any machine.
const LONG: Duration = Duration::from_secs(60);
const CLIENTS: usize = 3;
const TASKS: usize = 12;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Short enough that a member that stands still outlives it.
const LEASE: Duration = Duration::from_secs(2);

fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The servers, and what is done to them.
enum Ground {
    One(EtcdServer),
    Three(EtcdCluster),
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    KillLeader,
    StopLeader,
    CutLeaderFromPeers,
    CutLeaderFromClients,
    KillFollower,
    CutFollowerFromPeers,
    KillMajority,
}

impl Ground {
    fn url(&self) -> String {
        match self {
            Ground::One(server) => server.url(),
            Ground::Three(cluster) => cluster.url(),
        }
    }

    /// What can be done to them.
    fn harms(&self) -> Vec<Harm> {
        use Harm::{
            CutFollowerFromPeers, CutLeaderFromClients, CutLeaderFromPeers, KillFollower,
            KillLeader, KillMajority, StopLeader,
        };
        match self {
            Ground::One(_) => vec![KillLeader, StopLeader, StopLeader],
            Ground::Three(_) => vec![
                KillLeader,
                StopLeader,
                CutLeaderFromPeers,
                CutLeaderFromClients,
                KillFollower,
                CutFollowerFromPeers,
                KillMajority,
            ],
        }
    }

    /// Does harm for a while, and mends it.
    fn suffer(&self, harm: Harm, witness: usize, pause: Duration) {
        match (self, harm) {
            (Ground::One(server), Harm::StopLeader) => {
                server.stop();
                last(pause);
                server.cont();
            }
            (Ground::One(server), _) => {
                server.kill();
                last(pause);
                server.restart();
            }
            (Ground::Three(cluster), _) => {
                let leader = cluster.leader_seen_by(witness);
                suffer_among_three(cluster, harm, leader, pause);
            }
        }
    }
}

/// The length of a fault: what happens meanwhile is what the contenders see.
fn last(pause: Duration) {
    std::thread::sleep(pause); // event: none is waited for, the fault lasts so long
}

fn suffer_among_three(cluster: &EtcdCluster, harm: Harm, leader: usize, pause: Duration) {
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let cut = |member: usize, from: Cut| {
        cluster.cut(member, from);
        last(pause);
        cluster.heal(member);
    };
    let kill = |members: &[usize]| {
        members.iter().for_each(|member| cluster.kill(*member));
        last(pause);
        members.iter().for_each(|member| cluster.relaunch(*member));
        members.iter().for_each(|member| cluster.await_ready(*member));
    };
    match harm {
        Harm::KillLeader => kill(&[leader]),
        Harm::KillFollower => kill(&[follower]),
        Harm::KillMajority => kill(&[follower, other]),
        Harm::CutLeaderFromPeers => cut(leader, Cut::Peers),
        Harm::CutLeaderFromClients => cut(leader, Cut::Clients),
        Harm::CutFollowerFromPeers => cut(follower, Cut::Peers),
        Harm::StopLeader => {
            cluster.stop(leader);
            last(pause);
            cluster.cont(leader);
        }
    }
}

/// Does all harm that there is, in an order of the seed.
fn harm(ground: &Ground, seed: u64) -> Vec<Harm> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut done = Vec::new();
    for _ in 0..set(ROUNDS).unwrap_or(1) {
        let mut harms = ground.harms();
        while !harms.is_empty() {
            let harm = harms.swap_remove(random.random_range(0..harms.len()));
            let pause = Duration::from_millis(random.random_range(300..2_500));
            ground.suffer(harm, random.random_range(0..3), pause);
            done.push(harm);
            last(Duration::from_millis(random.random_range(0..800)));
        }
    }
    done
}

/// What all contenders share.
struct Stress {
    seed: u64,
    over: AtomicBool,
    recorder: Arc<Recorder>,
    attempts: AtomicU64,
    grants: AtomicUsize,
    unavailable: AtomicUsize,
    lost: AtomicUsize,
    refused: AtomicUsize,
    resources: BTreeMap<LockName, FencedCell<u64>>,
}

/// How an attempt goes about it.
#[derive(Clone, Copy, PartialEq)]
enum Way {
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
            let way = match random.random_range(0..80) {
                0 => Way::Outstay,
                1..=8 => Way::Drop,
                9..=16 => Way::GiveUp,
                _ => Way::Hold,
            };
            let mode = match random.random_range(0..10) {
                0..=2 => Mode::Shared,
                _ => Mode::Exclusive,
            };
            // Some hold for longer than a lease, and have to renew it.
            let longest = if random.random_bool(0.05) { 3_000 } else { 30 };
            let pause = Duration::from_millis(random.random_range(0..longest));
            self.attempt(client, &name, mode, way, pause).await;
        }
    }

    async fn attempt(
        &self,
        client: &Client,
        name: &LockName,
        mode: Mode,
        way: Way,
        pause: Duration,
    ) {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        self.recorder.called(attempt, name, mode);
        let limit = if way == Way::GiveUp { pause } else { LONG };
        match tokio::time::timeout(limit, acquire(client, name, mode, way)).await {
            Ok(Ok(guard)) => self.hold(attempt, guard, way, pause).await,
            Ok(Err(error)) => {
                assert!(may_fail(&error), "{error:?}");
                self.unavailable.fetch_add(1, Ordering::Relaxed);
                self.recorder.failed(attempt);
                tokio::time::sleep(pause).await; // event: none, or it would ask without end
            }
            Err(_) if way == Way::GiveUp => self.recorder.failed(attempt),
            // It is left without an end, which the checker tells.
            Err(_) => {}
        }
    }

    async fn hold(&self, attempt: u64, guard: Guard, way: Way, pause: Duration) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        self.recorder.granted(attempt, &guard);
        self.write(attempt, &guard);
        if way == Way::Outstay {
            let told = tokio::time::timeout(LONG, guard.lost()).await;
            assert!(told.is_ok(), "a lease ran out, and its holder was not told");
            self.recorder.lost(attempt);
            tokio::time::sleep(LEASE).await; // event: somebody else takes the name meanwhile
            return self.write(attempt, &guard);
        }
        tokio::time::sleep(pause).await; // event: none, it holds for so long
        self.recorder.renewed(attempt, &guard);
        self.write(attempt, &guard);
        if !guard.is_valid() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.recorder.released(attempt);
        match way {
            Way::Drop => drop(guard),
            _ => drop(tokio::time::timeout(LONG, guard.release()).await.expect("an answer")),
        }
    }

    /// Writes to the name's resource, which only an exclusive holder may.
    fn write(&self, attempt: u64, guard: &Guard) {
        if guard.mode() != Mode::Exclusive {
            return;
        }
        let (token, sent) = (guard.fencing_token(), self.recorder.now());
        let resource = &self.resources[guard.name()];
        match resource.check_and_write(&Proof::exclusive(token), |count| {
            *count += 1;
            Ok(())
        }) {
            Ok(()) => self.recorder.wrote(attempt, sent, token, true),
            Err(FenceError::Stale(_)) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.recorder.wrote(attempt, sent, token, false);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// While the servers are away nobody is granted anything, and says why.
fn may_fail(error: &LockError) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable { .. } | ErrorKind::TimedOut { .. })
}

async fn acquire(
    client: &Client,
    name: &LockName,
    mode: Mode,
    way: Way,
) -> Result<Guard, LockError> {
    let keep = if way == Way::Outstay { Keep::Fixed } else { Keep::default() };
    let options = LockOptions::default().with_lease_duration(LEASE).with_keep(keep);
    let options = options.with_wait(LONG / 2);
    match mode {
        Mode::Shared => client.rwlock_with(name, &options)?.read().await,
        _ => client.mutex_with(name, &options)?.lock().await,
    }
}

async fn connect(url: &str, recorder: Arc<Recorder>) -> Client {
    let url = format!("{url}?command_timeout_ms=1000&connect_timeout_ms=1000");
    let options = EtcdOptions::from_url(&url).expect("a good URL");
    let engine = EtcdEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected");
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let options = ClientOptions::default().with_observer(recorder);
    Client::with_options(engine, options).expect("a client")
}

/// Lets contenders and faults loose for a while; returns what the checker says.
async fn rage(test: &str, ground: Ground) -> Vec<Violation> {
    let seed = set(SEED).unwrap_or(1);
    println!("replay: {SEED}={seed} cargo test -p holdline-etcd --test stress {test}");
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let sink = events.clone();
    let recorder = Recorder::new(move |event| sink.lock().expect("whole").push(event));
    let name = |name| (LockName::new(name).expect("good"), FencedCell::new(0));
    let stress = Arc::new(Stress {
        seed,
        over: AtomicBool::new(false),
        recorder: Arc::new(recorder.expect("a timer")),
        attempts: AtomicU64::new(0),
        grants: AtomicUsize::new(0),
        unavailable: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        resources: NAMES.into_iter().map(name).collect(),
    });
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect(&ground.url(), stress.recorder.clone()).await);
    }
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (stress, client) = (stress.clone(), clients[task % CLIENTS].clone());
        tasks.spawn(async move { stress.contend(&client, task).await });
    }
    let harming = tokio::task::spawn_blocking(move || {
        let harms = harm(&ground, seed);
        (ground, harms)
    });
    let (ground, harms) = harming.await.expect("no panic");
    stress.over.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    calm(&ground, &clients).await;
    let events = std::mem::take(&mut *events.lock().expect("whole"));
    let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    println!(
        "{test}, seed {seed}: {} attempts, {} grants, {} unavailable, {} lost, {} late writes \
         refused, {} events; {harms:?}",
        stress.attempts.load(Ordering::Relaxed),
        count(&stress.grants),
        count(&stress.unavailable),
        count(&stress.lost),
        count(&stress.refused),
        events.len(),
    );
    assert!(count(&stress.grants) > 0, "nobody was granted anything");
    let rules = Rules { fair: true, without_tokens: false };
    check(&events, rules).expect("a history that makes sense")
}

/// Waits until nobody holds or waits: nothing of anybody is left.
async fn calm(ground: &Ground, clients: &[Client]) {
    for client in clients {
        let ended = tokio::time::timeout(LONG, client.shutdown(LONG)).await;
        assert!(ended.is_ok(), "a client does not end");
    }
    let recorder = Recorder::new(|_| ()).expect("a timer");
    let client = connect(&ground.url(), Arc::new(recorder)).await;
    for name in NAMES {
        let name = LockName::new(name).expect("good");
        let end = Instant::now() + LONG;
        loop {
            let shown = client.inspect(&name).await;
            if shown.as_ref().is_ok_and(|it| (it.holder_count, it.queue_length) == (0, 0)) {
                break;
            }
            assert!(Instant::now() < end, "something is left: {shown:?}");
            tokio::time::sleep(Duration::from_millis(20)).await; // event: looked for until seen
        }
    }
}

/// Nothing that must not be was seen; overlaps apart, where a stopped leader may wake.
fn judge(violations: &[Violation], promised: bool) {
    let (overlaps, rest): (Vec<_>, Vec<_>) =
        violations.iter().partition(|found| found.kind == ViolationKind::Overlap);
    for overlap in &overlaps {
        println!("not promised before etcd 3.5.13: {overlap}");
    }
    let told: Vec<String> = rest.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    assert!(!promised || overlaps.is_empty(), "exclusion is promised here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_that_is_killed_and_stopped() {
    let server = EtcdServer::start(EtcdConfig::default());
    let violations = rage("one_member_that_is_killed_and_stopped", Ground::One(server)).await;
    judge(&violations, false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_that_are_killed_stopped_and_cut() {
    let test = "three_members_that_are_killed_stopped_and_cut";
    let Some(network) = PrivateNetwork::enter(test) else { return };
    let cluster = EtcdCluster::start_apart(EtcdConfig::default(), &network);
    judge(&rage(test, Ground::Three(cluster)).await, false);
}
