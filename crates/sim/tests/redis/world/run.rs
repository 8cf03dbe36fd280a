//! One world: a server, clients, faults, and an observer that checks every step.
//!
//! The seed decides everything. First come faults, then a time without faults, in which everything
//! must recover. Then no client acquires locks any more, and no grant may remain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline::{Client, ClientOptions};
use holdline_core::{Clock, Engine, HolderFields, Moment};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_sim::{RedisHost, Snapshot};
use parking_lot::Mutex;

use super::bugs::{Bug, BuggyEngine};
use super::client::{Actor, NAMES};
use super::net::{SharedNetwork, SimEnvironment, SimNetwork};
use super::recorder::{ProcessState, Recorder, SharedRecorder, Violation};
use super::rng::SeededRng;
use super::rules::Rules;
use super::tasks::{Process, Tasks};
use super::view::{NameView, Operator};

pub(super) const CLIENTS: usize = 4;
const ACTORS: usize = 3;
/// When faults end, when no attempt starts any more, and when no grant may remain.
pub(super) const PEACE: Duration = Duration::from_secs(16);
const STOP: Duration = Duration::from_secs(27);
/// When, after the faults, the server closes all connections, which alone must cost nothing.
const CUTS: [Duration; 3] =
    [Duration::from_secs(20), Duration::from_secs(22), Duration::from_secs(24)];
/// Of so many worlds one has a quarantine after a restart, and leases that are as short.
const QUARANTINED: u64 = 4;
/// Of so many worlds one has copies of the data, which a restart may bring back.
const RESTORED: u64 = 8;
const SHORT_LEASE: Duration = Duration::from_secs(3);
pub(super) const END: Duration = Duration::from_secs(110);
/// The largest number of steps.
const STEPS: u64 = 3_000_000;

/// The result of a world.
#[derive(Debug)]
pub(crate) struct WorldResult {
    pub(crate) log: String,
    pub(crate) violation: Option<Violation>,
    pub(crate) grants: u64,
    pub(crate) planted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Fault,
    Pause(Process),
    Resume(Process),
    Begin(usize),
    Reset(Process),
    Thaw,
    Restart(DataAfter),
    CutAll,
    Calm,
    Loud,
    Stop,
}

/// What a server has after a restart.
#[derive(Clone, Copy, Debug)]
pub(super) enum DataAfter {
    All,
    None,
    /// That of the last copy.
    Old,
}

pub(super) struct ProcessSlot {
    pub(super) process: Process,
    pub(super) alive: bool,
    pub(super) client: Option<Client>,
}

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) host: RedisHost,
    pub(crate) recorder: SharedRecorder,
    pub(crate) operator: Operator,
    pub(crate) views: BTreeMap<&'static str, NameView>,
    pub(super) rules: Rules,
    pub(super) rng: SeededRng,
    pub(super) tasks: Tasks,
    pub(super) net: SharedNetwork,
    pub(super) slots: Vec<ProcessSlot>,
    pub(super) events: BTreeMap<(Moment, u64), Event>,
    pub(super) next: u64,
    pub(super) bug: Option<Bug>,
    pub(super) lose_data: bool,
    /// The server's data are copied now and then, and a restart may bring them back.
    pub(super) restores: bool,
    pub(super) copy: Option<Snapshot>,
    /// The longest lease, in a world with a quarantine.
    pub(super) longest_lease: Option<Duration>,
    /// The server is stopped or down: it cannot be observed, and its data does not change.
    pub(super) frozen: bool,
}

pub(super) fn at(after: Duration) -> Moment {
    Moment::ORIGIN.after(after)
}

/// Plays the world of a seed to its end, or to the first violation.
pub(crate) fn play(seed: u64, bug: Option<Bug>) -> WorldResult {
    World::new(seed, bug).run()
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let mut rng = SeededRng::new(seed);
        let clock = ManualClock::new();
        let common: Arc<dyn Clock> = Arc::new(clock.clone());
        let options = holdline_sim::RedisOptions::default().with_seed(rng.roll());
        let host = RedisHost::new(common.clone(), options);
        // The rates of both clocks differ by less than the drift of one percent.
        let skew = rng.below(19_001) as i64 - 9_500;
        host.server().clock().set_skew_ppm(skew);
        let mutation = bug.and_then(Bug::mutation);
        let net = SimNetwork::new(common, vec![host.clone()], rng.fork(), mutation);
        let operator = Operator { id: host.server().connect().expect("it is up") };
        let lose_data = rng.percent(25);
        let mut world = World {
            clock,
            host,
            recorder: Arc::new(Mutex::new(Recorder::default())),
            operator,
            views: BTreeMap::new(),
            rules: Rules::default(),
            lose_data,
            restores: seed.is_multiple_of(RESTORED) && !lose_data,
            copy: None,
            longest_lease: seed.is_multiple_of(QUARANTINED).then_some(SHORT_LEASE),
            rng,
            tasks: Tasks::default(),
            net: Arc::new(Mutex::new(net)),
            slots: Vec::new(),
            events: BTreeMap::new(),
            next: 0,
            bug,
            frozen: false,
        };
        world.recorder.lock().skew_ppm = skew;
        world.note(&format!("seed {seed}, skew {skew} ppm"));
        for slot in 0..CLIENTS {
            world.slots.push(ProcessSlot { process: slot as u64, alive: false, client: None });
            world.begin(slot);
        }
        world.plan(at(Duration::from_millis(500)), Event::Fault);
        for cut in CUTS {
            world.plan(at(cut), Event::CutAll);
        }
        world.plan(at(STOP), Event::Stop);
        world.plan(at(END), Event::Stop);
        world
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn note(&self, line: &str) {
        self.recorder.lock().note(self.now(), line);
    }

    pub(super) fn plan(&mut self, at: Moment, event: Event) {
        self.next += 1;
        self.events.insert((at, self.next), event);
    }

    pub(super) fn after(&mut self, least_ms: u64, most_ms: u64) -> Moment {
        let pause = self.rng.between(least_ms, most_ms);
        self.now().after(pause)
    }

    /// Starts a process in a slot.
    pub(super) fn begin(&mut self, slot: usize) {
        let process = self.slots[slot].process + CLIENTS as u64;
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let engine = self.engine(process);
        let engine: Arc<dyn Engine> = match self.bug.filter(|bug| bug.mutation().is_none()) {
            None => engine,
            Some(bug) => {
                let other = self.engine(process);
                Arc::new(BuggyEngine { engine, other, bug })
            }
        };
        let spawner = self.tasks.spawner();
        let own = spawner.clone();
        let options = ClientOptions::default()
            .with_clock(clock.clone())
            .with_entropy(self.rng.fork())
            .with_holder(HolderFields::default())
            .with_spawner(move |work| own.spawn(process, work));
        let client = Client::with_options(engine, options).expect("good options");
        if self.bug == Some(Bug::ValidityFromReply) {
            client.admin().plant_validity_from_reply();
        }
        self.slots[slot] = ProcessSlot { process, alive: true, client: Some(client.clone()) };
        let life = ProcessState {
            paused_since: None,
            paused_for: Duration::ZERO,
            awake_since: self.now(),
            killed: None,
        };
        let mut recorder = self.recorder.lock();
        recorder.note(self.clock.now(), &format!("{process} begins"));
        recorder.lives.insert(process, life);
        recorder.clients.insert(format!("{:016x}", client.admin().client_id().as_u64()), process);
        drop(recorder);
        for _ in 0..ACTORS {
            let actor = Actor {
                process,
                client: client.clone(),
                clock: clock.clone(),
                recorder: self.recorder.clone(),
                spawner: spawner.clone(),
                rng: Arc::new(Mutex::new(self.rng.fork())),
                longest_lease: self.longest_lease,
            };
            spawner.spawn(process, Box::pin(actor.live()));
        }
    }

    fn engine(&mut self, process: Process) -> Arc<dyn Engine> {
        let inside = SimEnvironment {
            process,
            node: 0,
            net: self.net.clone(),
            spawner: self.tasks.spawner(),
            rng: Mutex::new(self.rng.fork()),
            clock: Arc::new(self.clock.clone()),
        };
        // With RESP2, subscriptions need a runtime, which a world does not have. Such a process
        // gets no messages and relies on its heartbeat.
        let url = match self.rng.percent(20) {
            true => "&protocol=resp2",
            false => "",
        };
        let failover = match self.longest_lease {
            Some(longest) => {
                format!("old_master_ms=0&max_lease_duration_ms={}", longest.as_millis())
            }
            None => "quarantine=off".to_owned(),
        };
        let url = format!("redis://fake?{failover}{url}");
        let options = RedisOptions::from_url(&url).expect("a good URL");
        let options = options.with_environment(Arc::new(inside));
        let clock = Arc::new(self.clock.clone());
        Arc::new(RedisEngine::new(&options, clock).expect("good options"))
    }

    fn run(mut self) -> WorldResult {
        for _ in 0..STEPS {
            if !self.step() || self.recorder.lock().violation.is_some() {
                break;
            }
        }
        if self.now() < at(END) && self.recorder.lock().violation.is_none() {
            let now = self.now();
            self.recorder.lock().record_violation(now, "P7", "the world came to no end".into());
        }
        let planted = self.net.lock().is_planted();
        // The remaining tasks end as by a kill.
        let processes: Vec<Process> = self.slots.iter().map(|slot| slot.process).collect();
        let mut recorder = self.recorder.lock();
        let result = WorldResult {
            log: std::mem::take(&mut recorder.log),
            violation: recorder.violation.clone(),
            grants: recorder.grants,
            planted,
        };
        recorder.holds.clear();
        drop(recorder);
        processes.into_iter().for_each(|process| self.tasks.kill(process));
        result
    }

    /// Executes one step; false at the end.
    fn step(&mut self) -> bool {
        if !self.tasks.run_one(&mut self.rng) && !self.deliver() && !self.advance() {
            return false;
        }
        let server_ms = self.server_ms();
        let now = self.now();
        self.recorder.lock().check(now, server_ms, &self.views);
        let mut recorder = self.recorder.lock();
        self.rules.check(now, server_ms, &self.views, &mut recorder);
        true
    }

    fn server_ms(&self) -> i64 {
        self.host.server().clock().now_us().div_euclid(1_000)
    }

    /// Delivers one packet.
    fn deliver(&mut self) -> bool {
        let delivered = self.net.lock().deliver();
        let Some(delivered) = delivered else { return false };
        let Some(delivered) = delivered else { return true };
        let (now, process) = (self.now(), delivered.process);
        match &delivered.frame {
            None => self.note(&format!("{process} is closed")),
            Some(frame) => {
                let verb = String::from_utf8_lossy(&frame[0]).into_owned();
                let bytes: usize = frame.words().map(<[u8]>::len).sum();
                self.note(&format!("{process} -> {verb} of {} words, {bytes} bytes", frame.len()));
            }
        }
        if self.is_stopped() {
            return true;
        }
        let before = self.observe();
        let server_ms = self.server_ms();
        if let Some(frame) = &delivered.frame {
            let host = self.host.clone();
            let mut is_subscribed =
                |inbox: &str| self.operator.has_subscriber(&mut host.server(), inbox);
            let mut recorder = self.recorder.lock();
            super::rules::compare(
                now,
                server_ms,
                &before,
                &self.views,
                frame,
                &mut is_subscribed,
                &mut recorder,
            );
        }
        self.disturb_hand_off(&before);
        true
    }

    /// Returns whether the server is stopped or down.
    pub(super) fn is_stopped(&self) -> bool {
        self.frozen || self.rules.paused_until > self.now()
    }

    /// Observes the server's keys. Returns what they were at the last look.
    fn observe(&mut self) -> BTreeMap<&'static str, NameView> {
        let all_before = std::mem::take(&mut self.views);
        let mut server = self.host.server();
        let mut handed = Vec::new();
        for name in NAMES {
            let view = self.operator.observe(&mut server, name);
            let before = all_before.get(name);
            for record in &view.holders {
                let waited = before.is_some_and(|before| before.waiter(&record.id).is_some());
                if waited || self.rules.is_handed(name, &record.id) {
                    let is_subscribed = self.operator.has_subscriber(&mut server, &record.inbox);
                    handed.push((name, record.id.clone(), is_subscribed));
                }
            }
            self.views.insert(name, view);
        }
        drop(server);
        self.rules.note_handed(self.clock.now(), handed);
        all_before
    }

    /// Advances the time to the next event, and executes it.
    fn advance(&mut self) -> bool {
        let server_wakes = self.host.server().next_wake();
        let event = self.events.keys().next().map(|(at, _)| *at);
        let all = [self.clock.next_wake(), self.net.lock().next_event(), server_wakes, event];
        let Some(next) = all.into_iter().flatten().min() else { return false };
        if next > self.now() {
            self.clock.advance(self.now().until(next));
        }
        let now = self.now();
        if server_wakes.is_some_and(|at| at <= now) {
            self.host.server().tick();
            self.mark_unobserved();
        }
        let due = self.events.first_key_value().filter(|((at, _), _)| *at <= now);
        let Some((key, event)) = due.map(|(key, event)| (*key, *event)) else { return true };
        self.events.remove(&key);
        self.happen(event)
    }

    /// Discards the last observation, since much may have changed.
    pub(super) fn mark_unobserved(&mut self) {
        self.net.lock().collect();
        if !self.is_stopped() {
            drop(self.observe());
        }
    }

    fn happen(&mut self, event: Event) -> bool {
        let now = self.now();
        match event {
            Event::Fault if now >= at(PEACE) => {}
            Event::Fault => {
                self.fault();
                let next = self.after(100, 2_500);
                self.plan(next, Event::Fault);
            }
            Event::Pause(process) => self.pause(process),
            Event::Resume(process) => self.resume(process),
            Event::Begin(slot) => self.begin(slot),
            Event::Reset(process) => {
                self.note(&format!("{process} is cut off"));
                self.net.lock().reset(process, None);
                self.rules.disturbed(now);
            }
            Event::Thaw => {
                self.note("the server thaws");
                self.frozen = false;
                self.host.server().thaw();
                self.rules.disturbed(now);
                self.mark_unobserved();
            }
            Event::Restart(data) => self.restart(data),
            Event::CutAll => self.cut_all(),
            Event::Calm => {
                self.net.lock().slowest_ms = 3;
                self.rules.disturbed(now);
            }
            Event::Loud => {
                self.host.server().lose_messages(0);
                self.rules.loses_messages = false;
                self.rules.disturbed(now);
            }
            Event::Stop if now < at(END) => self.recorder.lock().stopping = true,
            Event::Stop => {
                self.check_nothing_left();
                return false;
            }
        }
        true
    }

    /// When all clients have stopped, only the counter and the master term may remain.
    fn check_nothing_left(&mut self) {
        let now = self.now();
        let left = self.host.server().key_count(0);
        let mut recorder = self.recorder.lock();
        if left > 2 {
            recorder.record_violation(now, "P5", format!("{left} keys are left"));
        }
        if let Some(attempt) = recorder.attempts.values().next() {
            let what = format!("{}: {} never ended", attempt.name, attempt.what);
            recorder.record_violation(now, "P7", what);
        }
    }
}
