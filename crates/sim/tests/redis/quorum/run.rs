//! One world: five servers, clients, operators, faults, and an observer that looks after every
//! step.
//!
//! Everything is drawn from the seed. First come faults, then peace, in which what the faults left
//! must mend; then nobody wants locks any more, and nothing may be left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, ClientOptions, ManualClock};
use holdline_core::{Clock, Engine, HolderFields, Moment};
use holdline_redis::{QuorumEngine, QuorumOptions, Environment};
use parking_lot::Mutex;

use super::book::{Book, Broken, Life, SharedBook};
use super::client::{Actor, CROWDED, NAMES};
use super::heat::Heat;
use super::nodes::{NODES, Node, SKEW_PPM};
use super::operators::is_to_be_parted;
use super::orphans::Orphans;
use super::planted::Bug;
use super::slow::OwnClock;
use super::watched::Watched;
use crate::world::dice::Dice;
use crate::world::net::{Inside, Net, SharedNet};
use crate::world::tasks::{Boxed, Process, Tasks};

pub(crate) const CLIENTS: usize = 4;
const ACTORS: usize = 2;
/// The longest lease of the set; whoever forgot waits as long.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(10);
/// When faults end, when nobody begins an attempt any more, and when nothing may be left.
pub(crate) const PEACE: Duration = Duration::from_secs(40);
pub(crate) const STOP: Duration = Duration::from_secs(75);
pub(crate) const END: Duration = Duration::from_secs(150);
/// From when on all has mended: waits of the last that forgot are over, and so are old leases.
pub(crate) const MENDED: Duration = Duration::from_secs(65);
/// In how many of a hundred worlds each has most names for itself.
const ROOMY: u64 = 50;
/// No world takes more steps.
const STEPS: u64 = 6_000_000;
/// The server that both of two rivals name.
pub(crate) const SHARED: usize = 2;
const URL: &str = "redlock://n0,n1,n2,n3,n4";

/// What may happen in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No more than a minority forgets at a time, and no clock is set: all is promised.
    Tame,
    /// Clocks are set as well, which excuses what was held meanwhile.
    Clocks,
    /// Any number may forget, which excuses what was held meanwhile. The servers' clocks agree, as
    /// tokens lean on them where no majority remembers.
    Wild,
    /// Two groups name other servers, three each, of which one is in both: only one of them may
    /// ever have a set. Nobody forgets.
    Rivals,
}

impl Kind {
    fn drawn(dice: &mut Dice) -> Kind {
        match dice.below(10) {
            0..=5 => Kind::Tame,
            6 => Kind::Clocks,
            7 | 8 => Kind::Wild,
            _ => Kind::Rivals,
        }
    }

    /// Returns what the world of a seed is.
    pub(crate) fn of(seed: u64) -> Kind {
        Kind::drawn(&mut Dice::new(seed))
    }
}

/// How a world ended.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) log: String,
    pub(crate) kind: Kind,
    pub(crate) broken: Option<Broken>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) scripts: u64,
    pub(crate) passed: Duration,
    /// A digest of all that reached the servers, and when.
    pub(crate) trace: u64,
    pub(crate) planted: bool,
}

/// FNV-1a over what happened: tells two runs apart.
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

pub(crate) struct Slot {
    pub(crate) process: Process,
    pub(crate) alive: bool,
}

pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) heat: Option<Heat>,
    /// Each has most names for itself: names are had often.
    roomy: bool,
    pub(crate) clock: ManualClock,
    pub(crate) book: SharedBook,
    pub(crate) dice: Dice,
    pub(crate) tasks: Tasks,
    pub(crate) net: SharedNet,
    pub(crate) nodes: Vec<Node>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) events: BTreeMap<(Moment, u64), super::happens::Event>,
    pub(crate) next: u64,
    /// How many operators there were.
    pub(crate) operators: u64,
    /// How many acquisitions there were when all should have mended.
    pub(crate) before_mended: Option<u64>,
    pub(crate) orphans: Orphans,
    trace: TraceHash,
    pub(crate) bug: Option<Bug>,
}

pub(crate) fn at(after: Duration) -> Moment {
    Moment::ORIGIN.after(after)
}

/// Which world is played.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scene {
    pub(crate) seed: u64,
    /// What makes it hotter than those that are drawn.
    pub(crate) heat: Option<Heat>,
    /// What is left out in it.
    pub(crate) bug: Option<Bug>,
}

impl Scene {
    /// The world that is drawn from a seed.
    pub(crate) fn of(seed: u64) -> Scene {
        Scene { seed, ..Scene::default() }
    }

    /// Names its sort.
    pub(crate) fn name(&self) -> &'static str {
        self.heat.map_or("drawn", |heat| heat.name)
    }

    /// Plays it, to its end or to the first broken promise. `trace`: and writes down what happens.
    pub(crate) fn play(self, trace: bool) -> Story {
        World::new(self, trace).run()
    }
}

impl World {
    fn new(scene: Scene, trace: bool) -> World {
        let Scene { seed, heat, bug } = scene;
        let mut dice = Dice::new(seed);
        let clock = ManualClock::new();
        let drawn = Kind::drawn(&mut dice);
        let kind = heat.map_or(drawn, |heat| heat.kind);
        let off_ms = match (heat, kind) {
            (Some(heat), _) => heat.off_ms,
            (None, Kind::Wild) => dice.one_of(&[1, 100]),
            (None, Kind::Tame | Kind::Clocks | Kind::Rivals) => dice.one_of(&[1, 100, 3_000]),
        };
        let nodes: Vec<Node> = (0..NODES).map(|_| Node::new(&clock, &mut dice, off_ms)).collect();
        if heat.is_some_and(|heat| heat.one_rate) {
            nodes.iter().for_each(|node| node.host.server().clock().set_skew_ppm(0));
        }
        let hosts = nodes.iter().map(|node| node.host.clone()).collect();
        let mutation = bug.and_then(Bug::mutation);
        let mut net = Net::new(Arc::new(clock.clone()), hosts, dice.fork(), mutation);
        net.late = heat.and_then(|heat| heat.late);
        net.reach = heat.map(|heat| (heat.reach, CLIENTS as u64));
        let log = trace.then(String::new);
        let roomy = dice.percent(ROOMY) && heat.is_none();
        let mut world = World {
            kind,
            heat,
            roomy,
            clock,
            book: Arc::new(Mutex::new(Book::new(log))),
            dice,
            tasks: Tasks::default(),
            net: Arc::new(Mutex::new(net)),
            nodes,
            slots: Vec::new(),
            events: BTreeMap::new(),
            next: 0,
            operators: 0,
            before_mended: None,
            orphans: Orphans::default(),
            trace: TraceHash::default(),
            bug,
        };
        let name = heat.map_or("drawn", |heat| heat.name);
        world.note(format_args!(
            "seed {seed}, {name}, {kind:?}, clocks up to {off_ms} ms apart, roomy: {roomy}"
        ));
        world.plan_all();
        for slot in 0..CLIENTS {
            world.slots.push(Slot { process: slot as u64, alive: false });
            world.begin(slot);
        }
        world
    }

    /// Plans what happens in every world.
    fn plan_all(&mut self) {
        use super::happens::Event;
        let first = self.after(0, 400);
        self.plan(first, Event::Init);
        if self.kind == Kind::Rivals {
            let soon = first.after(self.dice.between(0, 40));
            self.plan(soon, Event::Init);
        }
        if self.heat.is_some_and(|heat| heat.raised) {
            self.plan(at(Duration::from_secs(2)), Event::Raise);
        }
        self.plan(at(Duration::from_secs(3)), Event::Fault);
        // In peace operators help where nobody else may.
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
        self.book.lock().note(self.now(), line);
    }

    /// Notes that something of a kind happens.
    pub(crate) fn happens(&self, what: &'static str, more: std::fmt::Arguments<'_>) {
        let mut book = self.book.lock();
        book.count(what);
        book.note(self.now(), format_args!("{what}: {more}"));
    }

    pub(crate) fn plan(&mut self, at: Moment, event: super::happens::Event) {
        self.next += 1;
        self.events.insert((at, self.next), event);
    }

    pub(crate) fn after(&mut self, least_ms: u64, most_ms: u64) -> Moment {
        let pause = self.dice.between(least_ms, most_ms);
        self.now().after(pause)
    }

    /// Returns the settings with which a process reaches the servers.
    pub(crate) fn options(&mut self, process: Process) -> QuorumOptions {
        let mut inside = |node: usize| -> Arc<dyn Environment> {
            Arc::new(Inside {
                process,
                node,
                net: self.net.clone(),
                spawner: self.tasks.spawner(),
                dice: Mutex::new(self.dice.fork()),
                clock: Arc::new(self.clock.clone()),
            })
        };
        let (url, nodes) = match (self.kind, process % 2) {
            (Kind::Rivals, 0) => ("redlock://n0,n1,n2", 0..=SHARED),
            (Kind::Rivals, _) => ("redlock://n2,n3,n4", SHARED..=NODES - 1),
            _ => (URL, 0..=NODES - 1),
        };
        let all: Vec<_> = nodes.map(&mut inside).collect();
        let Some(heat) = self.heat else {
            let options = QuorumOptions::from_url(url).expect("a good URL");
            return options.with_max_lease(MAX_LEASE).with_environment(all);
        };
        let url = format!("{url}?command_timeout_ms={}", heat.patience_ms);
        let options = QuorumOptions::from_url(&url).expect("a good URL");
        options.with_max_lease(Duration::from_secs(heat.max_lease_s)).with_environment(all)
    }

    /// Starts a process in a slot.
    pub(crate) fn begin(&mut self, slot: usize) {
        let process = self.slots[slot].process + CLIENTS as u64;
        self.slots[slot] = Slot { process, alive: true };
        let ppm = self.dice.below(2 * SKEW_PPM + 1) as i64 - SKEW_PPM as i64;
        let clock: Arc<dyn Clock> = Arc::new(OwnClock { common: self.clock.clone(), ppm });
        let mut book = self.book.lock();
        book.note(self.clock.now(), format_args!("{process} begins, its clock {ppm} ppm fast"));
        book.lives.insert(process, Life::default());
        drop(book);
        let options = self.options(process);
        let other = self.bug.is_some_and(Bug::is_between).then(|| self.options(process));
        let dice = self.dice.fork();
        let start = start(Start {
            process,
            options,
            other,
            bug: self.bug,
            clock,
            common: self.clock.clone(),
            book: self.book.clone(),
            spawner: self.tasks.spawner(),
            dice,
            kind: self.kind,
            heat: self.heat,
            roomy: self.roomy,
        });
        self.tasks.spawner().spawn(process, start);
    }

    fn run(mut self) -> Story {
        let mut more = true;
        for _ in 0..STEPS {
            more = self.step();
            if !more || self.book.lock().broken.is_some() {
                break;
            }
        }
        if more && self.book.lock().broken.is_none() {
            let now = self.now();
            self.book.lock().break_promise(now, "P7", "the world came to no end".into());
        }
        let (planted, scripts) = {
            let net = self.net.lock();
            (net.is_planted(), net.scripts)
        };
        // Whatever is left vanishes as by a kill, and says nothing more.
        let mut book = self.book.lock();
        let story = Story {
            log: book.log.take().unwrap_or_default(),
            kind: self.kind,
            broken: book.broken.clone(),
            counts: std::mem::take(&mut book.counts),
            scripts,
            passed: Moment::ORIGIN.until(self.clock.now()),
            trace: self.trace.0,
            planted,
        };
        book.forget_holds();
        drop(book);
        let processes: Vec<Process> = self.slots.iter().map(|slot| slot.process).collect();
        processes.into_iter().for_each(|process| self.tasks.kill(process));
        (1..=self.operators).for_each(|one| self.tasks.kill(super::operators::process(one)));
        story
    }

    /// Does one thing; false when it is all over.
    fn step(&mut self) -> bool {
        let ran = self.tasks.run_one(&mut self.dice);
        // What arrives changes nothing of what anybody believes, until they run.
        if !ran && self.deliver() {
            return true;
        }
        let went_on = ran || self.advance();
        let now = self.now();
        self.book.lock().check(now, !ran);
        went_on
    }

    /// Lets one packet arrive.
    fn deliver(&mut self) -> bool {
        let delivered = self.net.lock().deliver();
        let Some(delivered) = delivered else { return false };
        let Some(delivered) = delivered else { return true };
        let (process, node) = (delivered.process, delivered.node);
        self.trace.add(&self.now().as_nanos().to_le_bytes());
        self.trace.add(&[process as u8, node as u8]);
        if delivered.frame.is_some() {
            self.orphans.heard(process, node, self.clock.now());
        }
        // What a connection says first names the process that runs the test.
        if let Some(frame) = delivered.frame.as_ref().filter(|frame| frame.is_script()) {
            self.trace.add(frame.bytes());
        }
        match &delivered.frame {
            None => self.note(format_args!("{process} -> n{node} closes")),
            Some(_) if self.book.lock().log.is_none() => {}
            Some(frame) => {
                let verb = super::happens::verb_of(frame);
                self.note(format_args!("{process} -> n{node} {verb}"));
            }
        }
        true
    }

    /// Moves time on to the next thing that happens, and lets it happen.
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

/// What a process begins with.
struct Start {
    process: Process,
    options: QuorumOptions,
    other: Option<QuorumOptions>,
    bug: Option<Bug>,
    clock: Arc<dyn Clock>,
    common: ManualClock,
    book: SharedBook,
    spawner: crate::world::tasks::Spawner,
    dice: Dice,
    kind: Kind,
    heat: Option<Heat>,
    roomy: bool,
}

/// Connects, and lets the process's tasks begin.
fn start(mut with: Start) -> Boxed {
    Box::pin(async move {
        let engine = QuorumEngine::connect(&with.options, with.clock.clone()).await;
        let engine: Arc<dyn Engine> = match engine {
            Ok(engine) => Arc::new(engine),
            Err(error) => {
                let now = with.common.now();
                let what = format!("{} could not begin: {error}", with.process);
                let mut book = with.book.lock();
                if with.kind == Kind::Rivals {
                    // The others were there first.
                    return book.note(now, format_args!("{what}"));
                }
                if is_to_be_parted(with.kind, &error) {
                    book.two_sets = true;
                    return book.note(now, format_args!("{what}"));
                }
                return book.break_promise(now, "P7", what);
            }
        };
        let mut other: Option<Arc<dyn Engine>> = None;
        if let Some(options) = &with.other {
            let engine = QuorumEngine::connect(options, with.clock.clone()).await;
            other = Some(Arc::new(engine.expect("as the first")));
        }
        let (bug, book, clock) = (with.bug, with.book.clone(), with.clock.clone());
        let watched = Watched { engine, other, bug, book, clock };
        let (process, own) = (with.process, with.spawner.clone());
        let options = ClientOptions::default()
            .with_clock(with.clock.clone())
            .with_entropy(with.dice.fork())
            .with_holder(HolderFields::default())
            .with_spawner(move |work| own.spawn(process, work));
        let client = Client::with_options(Arc::new(watched), options).expect("good options");
        let id = format!("{:016x}", client.id().as_u64());
        with.book.lock().clients.insert(id, process);
        if with.bug == Some(Bug::ValidityFromReply) {
            client.plant_validity_from_reply();
        }
        let wants = with.heat.is_none_or(|heat| heat.reach.wants(process, CLIENTS as u64));
        if !wants {
            // It is there, and looks after the set.
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
            let own = with.roomy.then(|| NAMES[CROWDED + place % (NAMES.len() - CROWDED)]);
            let actor = Actor {
                own,
                heat: with.heat,
                process,
                client: client.clone(),
                clock: Arc::new(with.common.clone()),
                book: with.book.clone(),
                dice: with.dice.fork(),
            };
            with.spawner.spawn(process, Box::pin(actor.live()));
        }
    })
}
