//! The Redisson dialect beside Redisson itself: cycles, hand-offs and a mixed fleet, in turn on one
//! server, in the same rounds.
//!
//! Redisson runs in a process of its own with its own defaults, warmed up for as long as its
//! compiler needs. The watchdog renews its locks, as ours are renewed.

mod java;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer};

use crate::redis::raw::Raw;
use crate::rounds::{Failure, median, time};
use java::Java;
use turns::{Crowd, Turn, hand_offs, middle, per_second, percentile};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(1_500);
/// How long Redisson runs before the first round, in each of the two ways.
const WARM_UP: Duration = Duration::from_secs(4);
/// The monitor slows the server, so its run is one of its own.
const MONITORED: Duration = Duration::from_millis(1_000);
const MANY: usize = 64;
const CONTENDERS: usize = 16;

/// A lock on both sides.
struct Pair {
    title: &'static str,
    kind: &'static str,
    parameters: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair { title: "RLock", kind: "lock", parameters: "&fencing=off" },
    Pair { title: "RFencedLock", kind: "fenced", parameters: "" },
];

struct World {
    server: RedisServer,
    runtime: tokio::runtime::Runtime,
    java: Java,
}

/// The figures of ours and of Redisson, one of each round.
#[derive(Default)]
struct Figures {
    ours: Vec<f64>,
    java: Vec<f64>,
}

pub(crate) fn section() -> Result<(), Failure> {
    let peers = std::env::var_os("HOLDLINE_PEERS").map(PathBuf::from);
    let peers = peers.ok_or("run this by `cargo xtask bench redisson`, which prepares Redisson")?;
    let server = RedisServer::try_start(RedisConfig::default())?;
    let java = Java::start(&peers, &server.url())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut world = World { server, runtime, java };
    println!("redisson {}: each line has the medians of {ROUNDS} rounds", world.java.version);
    for pair in &PAIRS {
        world.java.run(pair.kind, Crowd { size: MANY, own: true }, WARM_UP)?;
        world.java.run(pair.kind, Crowd { size: CONTENDERS, own: false }, WARM_UP)?;
        world.pair(pair)?;
    }
    Ok(())
}

impl World {
    fn ours(&self, pair: &Pair, crowd: Crowd, time: Duration) -> Result<Vec<Turn>, Failure> {
        let url = format!("{}?dialect=redisson{}", self.server.url(), pair.parameters);
        self.runtime.block_on(async {
            let client = Client::connect(&url).await?;
            turns::run(client, crowd, time).await
        })
    }

    /// Cycles on a bare connection that write Redisson's keys and check nothing.
    fn floor(&self) -> Result<usize, Failure> {
        self.runtime.block_on(async {
            let mut raw = Raw::redisson(self.server.address()).await?;
            raw.cycles(&crate::redis::raw::keys(MANY), TIME).await
        })
    }

    fn pair(&mut self, pair: &Pair) -> Result<(), Failure> {
        let (mut one, mut many, mut contended) = <(Figures, Figures, Figures)>::default();
        let (mut grants, mut floor) = <(Figures, Figures)>::default();
        for _ in 0..ROUNDS {
            let java = self.java.run(pair.kind, Crowd { size: 1, own: true }, TIME)?;
            let ours = self.ours(pair, Crowd { size: 1, own: true }, TIME)?;
            one.add(middle(&ours, Turn::cycle), middle(&java, Turn::cycle));
            let java = self.java.run(pair.kind, Crowd { size: MANY, own: true }, TIME)?.len();
            let ours = self.ours(pair, Crowd { size: MANY, own: true }, TIME)?.len();
            many.add(per_second(ours, TIME), per_second(java, TIME));
            floor.add(per_second(self.floor()?, TIME), per_second(java, TIME));
            let mut java =
                self.java.run(pair.kind, Crowd { size: CONTENDERS, own: false }, TIME)?;
            let mut ours = self.ours(pair, Crowd { size: CONTENDERS, own: false }, TIME)?;
            grants.add(per_second(ours.len(), TIME), per_second(java.len(), TIME));
            let ours = hand_offs(&mut ours);
            let java = hand_offs(&mut java);
            contended.add(per_second(ours, TIME), per_second(java, TIME));
        }
        let title = |what: &str| format!("{}: {what}", pair.title);
        one.report(&title("lock + release, one task, p50"), time, "at most 0.6");
        many.report(&title("cycles/s of 64 tasks"), count, "at least 6");
        floor.report(&title("  the least scripts for that, bare"), count, "reported");
        contended.report(&title("hand-offs/s among 16"), count, "at least 3");
        grants.report(&title("  grants/s, to the same contender too"), count, "reported");
        self.commands(pair)?;
        self.mixed(pair)
    }

    /// Counts what clients send, and what scripts run, for each hand-off among 16.
    fn commands(&mut self, pair: &Pair) -> Result<(), Failure> {
        // Sums: Redisson has rounds without a hand-off, in which one thread takes all grants.
        let mut ours = [0_usize; 3];
        let mut java = [0_usize; 3];
        for _ in 0..ROUNDS {
            for (sums, is_ours) in [(&mut java, false), (&mut ours, true)] {
                let monitor = Monitor::start(&self.server)?;
                let mut turns = if is_ours {
                    self.ours(pair, Crowd { size: CONTENDERS, own: false }, MONITORED)?
                } else {
                    self.java.run(pair.kind, Crowd { size: CONTENDERS, own: false }, MONITORED)?
                };
                let (sent, run) = monitor.end(&self.server)?;
                sums[0] += hand_offs(&mut turns);
                sums[1] += sent;
                sums[2] += run;
            }
        }
        let (mut sent, mut run) = <(Figures, Figures)>::default();
        let ratio = crate::redis::handoff::ratio;
        sent.add(ratio(ours[1], ours[0]), ratio(java[1], java[0]));
        run.add(ratio(ours[2], ours[0]), ratio(java[2], java[0]));
        let title = |what: &str| format!("{}: {what}", pair.title);
        let shown = |value: f64| format!("{value:.1}");
        sent.report(&title("requests a hand-off"), shown, "at most 0.5");
        run.report(&title("  commands in scripts"), shown, "reported");
        Ok(())
    }

    /// Half of the contenders are Redisson's, half ours.
    fn mixed(&mut self, pair: &Pair) -> Result<(), Failure> {
        let mut all = Vec::new();
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            self.java.begin(pair.kind, Crowd { size: CONTENDERS / 2, own: false }, TIME)?;
            let mut turns = self.ours(pair, Crowd { size: CONTENDERS / 2, own: false }, TIME)?;
            turns.extend(self.java.end()?);
            rates.push(per_second(hand_offs(&mut turns), TIME));
            all.extend(turns);
        }
        let rate = count(median(rates.into_iter()));
        println!("{:<50} {rate} hand-offs/s", format!("{}: 8 of ours, 8 of Java's", pair.title));
        for (who, ours) in [("ours", true), ("Redisson", false)] {
            let of: Vec<&Turn> = all.iter().filter(|turn| turn.ours == ours).collect();
            let share = crate::redis::handoff::ratio(100 * of.len(), all.len());
            let wait = |percent| time(percentile(of.iter().map(|turn| turn.wait()), percent));
            let half = wait(50);
            let most = wait(99);
            println!("    {who}: {share:.0} % of the grants, waits p50 {half}, p99 {most}");
        }
        Ok(())
    }
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

impl Figures {
    fn add(&mut self, ours: f64, java: f64) {
        self.ours.push(ours);
        self.java.push(java);
    }

    /// Prints both medians, and the median of the ratios with its range.
    fn report(&self, title: &str, shown: impl Fn(f64) -> String, budget: &str) {
        let pairs = self.ours.iter().zip(&self.java);
        let mut ratios: Vec<f64> = pairs.map(|(ours, java)| ours / java).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = |values: &[f64]| shown(median(values.iter().copied()));
        println!(
            "{title:<50} Redisson {:>10}  ours {:>10}  ratio {:.2} [{:.2}..{:.2}]  \
             (to reach: {budget})",
            middle(&self.java),
            middle(&self.ours),
            median(ratios.iter().copied()),
            ratios.first().copied().unwrap_or(f64::NAN),
            ratios.last().copied().unwrap_or(f64::NAN),
        );
    }
}

/// Counts commands while it runs: those of clients, and those of scripts.
struct Monitor {
    counting: std::thread::JoinHandle<()>,
    over: Arc<AtomicBool>,
    counts: Arc<[AtomicUsize; 2]>,
}

impl Monitor {
    /// What ends the count.
    const LAST: &str = "the count ends here";

    fn start(server: &RedisServer) -> Result<Monitor, Failure> {
        let mut raw = server.raw();
        raw.say("MONITOR")?;
        let over = Arc::new(AtomicBool::new(false));
        let counts: Arc<[AtomicUsize; 2]> = Arc::default();
        let ended = over.clone();
        let shared = counts.clone();
        let counting = std::thread::spawn(move || {
            while let Ok(reply) = raw.read() {
                let line = reply.text().unwrap_or_default();
                if line.contains(Monitor::LAST) {
                    ended.store(true, Ordering::Release);
                    return;
                }
                let of_script = line.split(']').next().is_some_and(|from| from.ends_with(" lua"));
                shared[usize::from(of_script)].fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Monitor { counting, over, counts })
    }

    fn end(self, server: &RedisServer) -> Result<(usize, usize), Failure> {
        server.raw().send(&["ECHO", Monitor::LAST])?;
        self.counting.join().map_err(|_| "the monitor panicked")?;
        if !self.over.load(Ordering::Acquire) {
            return Err("the monitor ended early".into());
        }
        let count = |at: usize| self.counts[at].load(Ordering::Relaxed);
        Ok((count(0), count(1)))
    }
}
