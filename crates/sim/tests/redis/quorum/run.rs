//! One world: five servers, clients, operators, faults, and an observer that checks every step.
//!
//! The seed decides everything. First come faults, then a time without faults, in which everything
//! must recover. Then no client acquires locks any more, and no grant may remain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline::{Client, ClientOptions};
use holdline_core::{Clock, Engine, HolderFields, Moment};
use holdline_redis::{Environment, QuorumEngine, QuorumOptions};
use parking_lot::Mutex;

use super::bugs::Bug;
use super::client::{Actor, CONTENDED, NAMES};
use super::clock::SkewedClock;
use super::nodes::{NODES, SKEW_PPM, SimNode};
use super::observed::ObservedEngine;
use super::operators::{is_mislisted, is_several_sets};
use super::orphans::Orphans;
use super::recorder::{ProcessState, Recorder, SharedRecorder, Violation};
use super::stress::Stress;
use crate::world::net::{SharedNetwork, SimEnvironment, SimNetwork};
use crate::world::rng::SeededRng;
use crate::world::tasks::{Boxed, Process, Tasks};

pub(crate) const CLIENTS: usize = 4;
const ACTORS: usize = 2;
/// The longest lease of the set. The quarantine of a node that lost its data is a quarter longer.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(10);
/// When faults end, when no attempt starts any more, and when no grant may remain.
pub(crate) const PEACE: Duration = Duration::from_secs(40);
pub(crate) const STOP: Duration = Duration::from_secs(75);
pub(crate) const END: Duration = Duration::from_secs(150);
/// When everything has recovered: the last quarantine is over, and so are old leases.
pub(crate) const MENDED: Duration = Duration::from_secs(65);
/// In how many percent of the worlds each client has most names for itself.
const ROOMY: u64 = 50;
/// No world takes more steps.
const STEPS: u64 = 6_000_000;
/// The server in the lists of both rivals.
pub(crate) const SHARED: usize = 2;
const URL: &str = "redlock://n0,n1,n2,n3,n4";

/// The kind of faults in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScenarioKind {
    /// At most a minority loses its data at a time, and no clock is set: all promises hold.
    Tame,
    /// Clocks are set as well, which excuses the grants held meanwhile.
    Clocks,
    /// Any number may lose their data, which excuses the grants held meanwhile. The servers' clocks
    /// agree, since tokens rely on them where no majority has its data.
    Wild,
    /// Two groups of clients list three servers each and share one: only one group may ever have a
    /// set. No server loses its data.
    Rivals,
}

impl ScenarioKind {
    fn drawn(rng: &mut SeededRng) -> ScenarioKind {
        match rng.below(10) {
            0..=5 => ScenarioKind::Tame,
            6 => ScenarioKind::Clocks,
            7 | 8 => ScenarioKind::Wild,
            _ => ScenarioKind::Rivals,
        }
    }

    /// Returns the kind of the world of a seed.
    pub(crate) fn of(seed: u64) -> ScenarioKind {
        ScenarioKind::drawn(&mut SeededRng::new(seed))
    }
}

/// The result of a world.
#[derive(Debug)]
pub(crate) struct WorldResult {
    pub(crate) log: String,
    pub(crate) kind: ScenarioKind,
    pub(crate) violation: Option<Violation>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) scripts: u64,
    pub(crate) passed: Duration,
    /// A digest of all messages to the servers, with their times.
    pub(crate) trace: u64,
    pub(crate) planted: bool,
}

/// FNV-1a over the events, to compare two runs.
pub(crate) struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> TraceHash {
        TraceHash(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    fn add(&mut self, bytes: &[u8]) {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.0 = bytes.iter().fold(self.0, step);
    }
}

pub(crate) struct ProcessSlot {
    pub(crate) process: Process,
    pub(crate) alive: bool,
}

pub(crate) struct World {
    pub(crate) kind: ScenarioKind,
    pub(crate) stress: Option<Stress>,
    /// Each client has most names for itself, so acquisitions are frequent.
    roomy: bool,
    pub(crate) clock: ManualClock,
    pub(crate) recorder: SharedRecorder,
    pub(crate) rng: SeededRng,
    pub(crate) tasks: Tasks,
    pub(crate) net: SharedNetwork,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) slots: Vec<ProcessSlot>,
    pub(crate) events: BTreeMap<(Moment, u64), super::events::Event>,
    pub(crate) next: u64,
    /// The number of operators so far.
    pub(crate) operators: u64,
    /// How often an operator raised the fence far above all clocks.
    pub(crate) raises: u32,
    /// The number of acquisitions when everything should have recovered.
    pub(crate) before_mended: Option<u64>,
    pub(crate) orphans: Orphans,
    trace: TraceHash,
    pub(crate) bug: Option<Bug>,
}

pub(crate) fn at(after: Duration) -> Moment {
    Moment::ORIGIN.after(after)
}

/// A world to play.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// Its stress, if it is not a random world.
    pub(crate) stress: Option<Stress>,
    /// Its planted bug.
    pub(crate) bug: Option<Bug>,
}

impl Scenario {
    /// Returns the random world of a seed.
    pub(crate) fn of(seed: u64) -> Scenario {
        Scenario { seed, ..Scenario::default() }
    }

    /// Returns the name of its stress.
    pub(crate) fn name(&self) -> &'static str {
        self.stress.map_or("drawn", |stress| stress.name)
    }

    /// Plays it to its end, or to the first violation. `trace`: also writes a log.
    pub(crate) fn play(self, trace: bool) -> WorldResult {
        World::new(self, trace).run()
    }
}

impl World {
    fn new(scenario: Scenario, trace: bool) -> World {
        let Scenario { seed, stress, bug } = scenario;
        let mut rng = SeededRng::new(seed);
        let clock = ManualClock::new();
        let drawn = ScenarioKind::drawn(&mut rng);
        let kind = stress.map_or(drawn, |stress| stress.kind);
        let off_ms = match (stress, kind) {
            (Some(stress), _) => stress.off_ms,
            (None, ScenarioKind::Wild) => rng.one_of(&[1, 100]),
            (None, ScenarioKind::Tame | ScenarioKind::Clocks | ScenarioKind::Rivals) => {
                rng.one_of(&[1, 100, 3_000])
            }
        };
        let nodes: Vec<SimNode> =
            (0..NODES).map(|_| SimNode::new(&clock, &mut rng, off_ms)).collect();
        if stress.is_some_and(|stress| stress.one_rate) {
            nodes.iter().for_each(|node| node.host.server().clock().set_skew_ppm(0));
        }
        let hosts = nodes.iter().map(|node| node.host.clone()).collect();
        let mutation = bug.and_then(Bug::mutation);
        let mut net = SimNetwork::new(Arc::new(clock.clone()), hosts, rng.fork(), mutation);
        net.late = stress.and_then(|stress| stress.late);
        net.reach = stress.map(|stress| (stress.reach, CLIENTS as u64));
        let log = trace.then(String::new);
        let roomy = rng.percent(ROOMY) && stress.is_none();
        let mut world = World {
            kind,
            stress,
            roomy,
            clock,
            recorder: Arc::new(Mutex::new(Recorder::new(log))),
            rng,
            tasks: Tasks::default(),
            net: Arc::new(Mutex::new(net)),
            nodes,
            slots: Vec::new(),
            events: BTreeMap::new(),
            next: 0,
            operators: 0,
            raises: 0,
            before_mended: None,
            orphans: Orphans::default(),
            trace: TraceHash::default(),
            bug,
        };
        let name = stress.map_or("drawn", |stress| stress.name);
        world.note(format_args!(
            "seed {seed}, {name}, {kind:?}, clocks up to {off_ms} ms apart, roomy: {roomy}"
        ));
        world.plan_all();
        for slot in 0..CLIENTS {
            world.slots.push(ProcessSlot { process: slot as u64, alive: false });
            world.begin(slot);
        }
        world
    }

    /// Plans the events of every world.
    fn plan_all(&mut self) {
        use super::events::Event;
        let first = self.after(0, 400);
        self.plan(first, Event::Init);
        if self.kind == ScenarioKind::Rivals {
            let soon = first.after(self.rng.between(0, 40));
            self.plan(soon, Event::Init);
        }
        if self.stress.is_some_and(|stress| stress.raised) {
            self.plan(at(Duration::from_secs(2)), Event::Raise);
        }
        self.plan(at(Duration::from_secs(3)), Event::Fault);
        // After the faults, operators repair what clients cannot.
        for seconds in [1, 4, 8] {
            self.plan(at(PEACE + Duration::from_secs(seconds)), Event::Repair);
        }
        self.plan(at(PEACE), Event::Peace);
        self.plan(at(MENDED), Event::Mended);
        self.plan(at(Duration::from_secs(1)), Event::Look);
        self.plan(at(STOP), Event::Stop);
        self.plan(at(END), Event::End);
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn note(&self, line: std::fmt::Arguments<'_>) {
        self.recorder.lock().note(self.now(), line);
    }

    /// Logs and counts an event.
    pub(crate) fn happens(&self, what: &'static str, more: std::fmt::Arguments<'_>) {
        let mut recorder = self.recorder.lock();
        recorder.count(what);
        recorder.note(self.now(), format_args!("{what}: {more}"));
    }

    pub(crate) fn plan(&mut self, at: Moment, event: super::events::Event) {
        self.next += 1;
        self.events.insert((at, self.next), event);
    }

    pub(crate) fn after(&mut self, least_ms: u64, most_ms: u64) -> Moment {
        let pause = self.rng.between(least_ms, most_ms);
        self.now().after(pause)
    }

    /// Returns a process's options for the servers.
    pub(crate) fn options(&mut self, process: Process) -> QuorumOptions {
        let mut inside = |node: usize| -> Arc<dyn Environment> {
            Arc::new(SimEnvironment {
                process,
                node,
                net: self.net.clone(),
                spawner: self.tasks.spawner(),
                rng: Mutex::new(self.rng.fork()),
                clock: Arc::new(self.clock.clone()),
            })
        };
        let (url, nodes) = match (self.kind, process % 2) {
            (ScenarioKind::Rivals, 0) => ("redlock://n0,n1,n2", 0..=SHARED),
            (ScenarioKind::Rivals, _) => ("redlock://n2,n3,n4", SHARED..=NODES - 1),
            _ => (URL, 0..=NODES - 1),
        };
        let all: Vec<_> = nodes.map(&mut inside).collect();
        let Some(stress) = self.stress else {
            let options = QuorumOptions::from_url(url).expect("a good URL");
            return options.with_max_lease(MAX_LEASE).with_environment(all);
        };
        let url = format!("{url}?command_timeout_ms={}", stress.patience_ms);
        let options = QuorumOptions::from_url(&url).expect("a good URL");
        options.with_max_lease(Duration::from_secs(stress.max_lease_s)).with_environment(all)
    }

    /// Starts a process in a slot.
    pub(crate) fn begin(&mut self, slot: usize) {
        let process = self.slots[slot].process + CLIENTS as u64;
        self.slots[slot] = ProcessSlot { process, alive: true };
        let ppm = self.rng.below(2 * SKEW_PPM + 1) as i64 - SKEW_PPM as i64;
        let clock: Arc<dyn Clock> = Arc::new(SkewedClock { common: self.clock.clone(), ppm });
        let mut recorder = self.recorder.lock();
        recorder.note(self.clock.now(), format_args!("{process} begins, its clock {ppm} ppm fast"));
        recorder.lives.insert(process, ProcessState::default());
        drop(recorder);
        let options = self.options(process);
        let other = self.bug.is_some_and(Bug::is_between).then(|| self.options(process));
        let rng = self.rng.fork();
        let start = start(ProcessStart {
            process,
            options,
            other,
            bug: self.bug,
            clock,
            common: self.clock.clone(),
            recorder: self.recorder.clone(),
            spawner: self.tasks.spawner(),
            rng,
            kind: self.kind,
            stress: self.stress,
            roomy: self.roomy,
        });
        self.tasks.spawner().spawn(process, start);
    }

    fn run(mut self) -> WorldResult {
        let mut more = true;
        for _ in 0..STEPS {
            more = self.step();
            if !more || self.recorder.lock().violation.is_some() {
                break;
            }
        }
        if more && self.recorder.lock().violation.is_none() {
            let now = self.now();
            self.recorder.lock().record_violation(now, "P7", "the world came to no end".into());
        }
        let (planted, scripts) = {
            let net = self.net.lock();
            (net.is_planted(), net.scripts)
        };
        // The remaining tasks end as by a kill.
        let mut recorder = self.recorder.lock();
        let result = WorldResult {
            log: recorder.log.take().unwrap_or_default(),
            kind: self.kind,
            violation: recorder.violation.clone(),
            counts: std::mem::take(&mut recorder.counts),
            scripts,
            passed: Moment::ORIGIN.until(self.clock.now()),
            trace: self.trace.0,
            planted,
        };
        recorder.forget_holds();
        drop(recorder);
        let processes: Vec<Process> = self.slots.iter().map(|slot| slot.process).collect();
        processes.into_iter().for_each(|process| self.tasks.kill(process));
        (1..=self.operators).for_each(|one| self.tasks.kill(super::operators::process(one)));
        result
    }

    /// Executes one step; false at the end.
    fn step(&mut self) -> bool {
        let ran = self.tasks.run_one(&mut self.rng);
        // A delivery changes no client's state until the client runs.
        if !ran && self.deliver() {
            return true;
        }
        let went_on = ran || self.advance();
        let now = self.now();
        self.recorder.lock().check(now, !ran);
        went_on
    }

    /// Delivers one packet.
    fn deliver(&mut self) -> bool {
        let delivered = self.net.lock().deliver();
        let Some(delivered) = delivered else { return false };
        let Some(delivered) = delivered else { return true };
        let (process, node) = (delivered.process, delivered.node);
        self.trace.add(&self.now().as_nanos().to_le_bytes());
        self.trace.add(&[process as u8, node as u8]);
        if delivered.frame.is_some() {
            self.orphans.note_request(process, node, self.clock.now());
        }
        // A handshake names the process of the test.
        if let Some(frame) = delivered.frame.as_ref().filter(|frame| frame.is_script()) {
            self.trace.add(frame.bytes());
        }
        match &delivered.frame {
            None => self.note(format_args!("{process} -> n{node} closes")),
            Some(_) if self.recorder.lock().log.is_none() => {}
            Some(frame) => {
                let verb = super::events::verb_of(frame);
                self.note(format_args!("{process} -> n{node} {verb}"));
            }
        }
        true
    }

    /// Advances the time to the next event, and executes it.
    fn advance(&mut self) -> bool {
        let wakes: [Option<Moment>; NODES] =
            std::array::from_fn(|node| self.nodes[node].host.server().next_wake());
        let event = self.events.keys().next().map(|(at, _)| *at);
        let all = [self.clock.next_wake(), self.net.lock().next_event(), event];
        let all = all.into_iter().chain(wakes);
        let Some(next) = all.flatten().min() else { return false };
        if next > self.now() {
            self.clock.advance(self.now().until(next));
        }
        let now = self.now();
        for (node, at) in wakes.into_iter().enumerate() {
            if at.is_some_and(|at| at <= now) {
                self.nodes[node].host.server().tick();
                self.net.lock().collect();
            }
        }
        let due = self.events.first_key_value().filter(|((at, _), _)| *at <= now);
        let Some((key, event)) = due.map(|(key, event)| (*key, *event)) else { return true };
        self.events.remove(&key);
        self.happen(event)
    }
}

/// The inputs of a new process.
struct ProcessStart {
    process: Process,
    options: QuorumOptions,
    other: Option<QuorumOptions>,
    bug: Option<Bug>,
    clock: Arc<dyn Clock>,
    common: ManualClock,
    recorder: SharedRecorder,
    spawner: crate::world::tasks::Spawner,
    rng: SeededRng,
    kind: ScenarioKind,
    stress: Option<Stress>,
    roomy: bool,
}

/// Connects, and starts the process's tasks.
fn start(mut with: ProcessStart) -> Boxed {
    Box::pin(async move {
        let engine = QuorumEngine::connect(&with.options, with.clock.clone()).await;
        let engine: Arc<dyn Engine> = match engine {
            Ok(engine) => Arc::new(engine),
            Err(error) => {
                let now = with.common.now();
                let what = format!("{} could not begin: {error}", with.process);
                let mut recorder = with.recorder.lock();
                if with.kind == ScenarioKind::Rivals {
                    // The other group was first.
                    return recorder.note(now, format_args!("{what}"));
                }
                if is_several_sets(with.kind, &error) {
                    recorder.two_sets = true;
                    return recorder.note(now, format_args!("{what}"));
                }
                if is_mislisted(with.kind, &error) {
                    recorder.could_not_begin.push(with.process);
                    return recorder.note(now, format_args!("{what}"));
                }
                return recorder.record_violation(now, "P7", what);
            }
        };
        let mut other: Option<Arc<dyn Engine>> = None;
        if let Some(options) = &with.other {
            let engine = QuorumEngine::connect(options, with.clock.clone()).await;
            other = Some(Arc::new(engine.expect("as the first")));
        }
        let (bug, recorder, clock) = (with.bug, with.recorder.clone(), with.clock.clone());
        let observed = ObservedEngine { engine, other, bug, recorder, clock };
        let (process, own) = (with.process, with.spawner.clone());
        let options = ClientOptions::default()
            .with_clock(with.clock.clone())
            .with_entropy(with.rng.fork())
            .with_holder(HolderFields::default())
            .with_spawner(move |work| own.spawn(process, work));
        let client = Client::with_options(Arc::new(observed), options).expect("good options");
        let id = format!("{:016x}", client.admin().client_id().as_u64());
        with.recorder.lock().clients.insert(id, process);
        if with.bug == Some(Bug::ValidityFromReply) {
            client.admin().plant_validity_from_reply();
        }
        let wants = with.stress.is_none_or(|stress| stress.reach.wants(process, CLIENTS as u64));
        if !wants {
            // It only maintains the set.
            with.spawner.spawn(
                process,
                Box::pin(async move {
                    let _client = client;
                    std::future::pending::<()>().await;
                }),
            );
            return;
        }
        for one in 0..ACTORS {
            let place = process as usize * ACTORS + one;
            let own = with.roomy.then(|| NAMES[CONTENDED + place % (NAMES.len() - CONTENDED)]);
            let actor = Actor {
                own,
                stress: with.stress,
                process,
                client: client.clone(),
                clock: Arc::new(with.common.clone()),
                recorder: with.recorder.clone(),
                rng: with.rng.fork(),
            };
            with.spawner.spawn(process, Box::pin(actor.live()));
        }
    })
}
