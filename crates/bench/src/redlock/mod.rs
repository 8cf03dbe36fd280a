//! A quorum of five Redis servers: cycles, one of them lost, contenders, beside the raw floor.
//!
//! All share this machine's cores, so only ratios within a round mean anything. A floor decides at
//! three answers of five, as the lock does.

mod raw;

use std::cell::Cell;
use std::hint::black_box;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdline::{Client, redlock};
use holdline_services::{RedisConfig, RedisServer};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::redis::peers::{Contended, Peers};
use crate::rounds::{Failure, Peer, Round, each, median, report_beside, time};
use raw::Raws;

const SERVERS: usize = 5;
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(1_500);
/// The names of one task, used again and again.
const NAMES: usize = 16;
const CONTENDERS: usize = 16;
/// Long enough that who pauses for a fifth of a second between two tries has many.
const CONTENDED: Duration = Duration::from_secs(6);
const WAITING_PEERS: [&str; 2] = ["rslock", "npm redlock"];
const PEERS: [&str; 2] = ["rslock", "redis-lock"];

/// A dialect, and how many times its floor a cycle may cost: of one task, of 64.
struct Side {
    title: &'static str,
    parameters: &'static str,
    budgets: [&'static str; 2],
}

const FENCED: Side =
    Side { title: "redlock, fenced", parameters: "", budgets: ["at most 1.65", "at most 4"] };
const BARE: Side = Side {
    title: "redlock, plain, no token",
    parameters: "?dialect=plain&fencing=off",
    budgets: ["the best peer", "the best peer"],
};

struct World {
    servers: Vec<RedisServer>,
    runtime: Runtime,
    peers: Peers,
}

pub(crate) fn section() -> Result<(), Failure> {
    let world = World::start()?;
    for tasks in [1, 64] {
        world.cycles(tasks)?;
    }
    world.one_round()?;
    world.contenders()?;
    world.one_lost("one node frozen", RedisServer::stop)?;
    world.one_lost("one node refused", RedisServer::kill)
}

impl World {
    fn start() -> Result<World, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let servers: Result<Vec<_>, _> =
            (0..SERVERS).map(|_| RedisServer::try_start(RedisConfig::default())).collect();
        let world = World { servers: servers?, runtime, peers: Peers::find() };
        let admin = redlock::admin(&world.url(""))?;
        world.runtime.block_on(admin.init())?;
        world.runtime.block_on(async { admin.vouch(&admin.plan_vouch().await?).await })?;
        Ok(world)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(RedisServer::address).collect()
    }

    fn url(&self, parameters: &str) -> String {
        let hosts: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        format!("redlock://{}{parameters}", hosts.join(","))
    }

    /// The floor, the peers, and ours in turn.
    fn cycles(&self, tasks: usize) -> Result<(), Failure> {
        let sides = [&FENCED, &BARE];
        let mut ours: Vec<Vec<Round>> = vec![Vec::new(); sides.len()];
        let mut peers: Vec<Peer> = PEERS.iter().map(|name| (*name, Vec::new())).collect();
        let urls: Vec<String> = self.servers.iter().map(RedisServer::url).collect();
        for _ in 0..ROUNDS {
            let floor = self.runtime.block_on(self.floor(tasks))?;
            for (name, figures) in &mut peers {
                figures.extend(self.peers.cycle(name, &urls.join(","), tasks, TIME)?);
            }
            for (side, rounds) in sides.iter().zip(&mut ours) {
                let taken = self.runtime.block_on(self.subject(side, tasks, TIME))?;
                rounds.push(Round { floor, subject: figure(tasks, taken, TIME) });
            }
        }
        for (side, rounds) in sides.iter().zip(&ours) {
            let (title, budget) = match tasks {
                1 => (format!("{}: lock + release, one task, p50", side.title), side.budgets[0]),
                _ => (format!("{}: a cycle of {tasks} tasks", side.title), side.budgets[1]),
            };
            report_beside(&title, rounds, &peers, budget);
        }
        Ok(())
    }

    async fn floor(&self, tasks: usize) -> Result<f64, Failure> {
        let mut raws = Raws::connect(&self.addresses()).await?;
        Ok(figure(tasks, raws.cycles(tasks, TIME).await?, TIME))
    }

    async fn subject(
        &self,
        side: &Side,
        tasks: usize,
        time: Duration,
    ) -> Result<Vec<Duration>, Failure> {
        let client = Client::connect(&self.url(side.parameters)).await?;
        cycles_of(&client, tasks, time).await
    }

    /// Of how many grants the token was proven by the first answers: by what the servers ran.
    fn one_round(&self) -> Result<(), Failure> {
        for (title, tasks, fresh) in [
            ("names used again, one task", 1, false),
            ("names used again, 64 tasks", 64, false),
            ("fresh names, 64 tasks", 64, true),
        ] {
            for server in &self.servers {
                server.raw().send(&["CONFIG", "RESETSTAT"])?;
            }
            let cycles = self.runtime.block_on(async {
                let client = Client::connect(&self.url("")).await?;
                let ran = if fresh {
                    fresh_names(&client, tasks, TIME).await?
                } else {
                    cycles_of(&client, tasks, TIME).await?.len()
                };
                Ok::<_, Failure>(ran)
            })?;
            let scripts = self.scripts()?;
            // Each node runs an acquire and a release for each cycle; all else is a second round.
            let second = scripts.saturating_sub(2 * SERVERS * cycles);
            let share = 100.0 - 100.0 * ratio(second, SERVERS * cycles);
            println!("  one round trip, {title}: {share:.1} % of {cycles} grants (to reach: 99 %)");
        }
        Ok(())
    }

    fn scripts(&self) -> Result<usize, Failure> {
        let mut calls = 0;
        for server in &self.servers {
            let reply = server.raw().send(&["INFO", "commandstats"])?;
            let text = reply.text().unwrap_or_default();
            let lines = text.lines().filter(|line| line.starts_with("cmdstat_eval"));
            let count =
                |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<usize>().ok();
            calls += lines.filter_map(count).sum::<usize>();
        }
        Ok(calls)
    }

    /// Many on one name, in one process; the others on the same servers after us.
    fn contenders(&self) -> Result<(), Failure> {
        let (mut waits, counts) = self.runtime.block_on(async {
            let client = Rc::new(Client::connect(&self.url("")).await?);
            contend(&client, CONTENDERS, CONTENDED).await
        })?;
        waits.sort_unstable();
        let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
        let ours = Contended {
            acquisitions: counts.iter().sum(),
            p99: usize::try_from(p99.as_nanos())?,
            most: counts.iter().max().copied().unwrap_or(0),
            least: counts.iter().min().copied().unwrap_or(0),
        };
        report_contended("ours", &ours);
        let urls: Vec<String> = self.servers.iter().map(RedisServer::url).collect();
        for peer in WAITING_PEERS {
            let seen = self.peers.contend(peer, &urls.join(","), CONTENDERS, CONTENDED)?;
            seen.iter().for_each(|seen| report_contended(peer, seen));
        }
        Ok(())
    }

    /// One task on five nodes of which one is lost, in turn with the same on five healthy ones.
    fn one_lost(&self, title: &str, lose: impl Fn(&RedisServer)) -> Result<(), Failure> {
        let hurt = World::start()?;
        let open = |world: &World| self.runtime.block_on(Client::connect(&world.url("")));
        let well = open(self)?;
        let lost = open(&hurt)?;
        self.runtime.block_on(cycles_of(&lost, 1, TIME))?;
        lose(&hurt.servers[SERVERS - 1]);
        let mut rounds: [Vec<Round>; 2] = Default::default();
        for _ in 0..ROUNDS {
            let well = self.runtime.block_on(cycles_of(&well, 1, TIME))?;
            let lost = self.runtime.block_on(cycles_of(&lost, 1, TIME))?;
            for (rounds, part) in rounds.iter_mut().zip([50, 99]) {
                rounds.push(Round {
                    floor: percentile(&well, part),
                    subject: percentile(&lost, part),
                });
            }
        }
        for (rounds, part) in rounds.iter().zip(["p50", "p99"]) {
            report_beside(&format!("{title}, {part} beside all well"), rounds, &[], "at most 1.15");
        }
        Ok(())
    }
}

/// The percentile, in nanoseconds.
fn percentile(taken: &[Duration], part: usize) -> f64 {
    let mut taken = taken.to_vec();
    taken.sort_unstable();
    each(taken.get(taken.len() * part / 100).copied().unwrap_or_default(), 1)
}

fn report_contended(who: &str, seen: &Contended) {
    let Contended { acquisitions, p99, most, least } = seen;
    println!(
        "  {CONTENDERS} contenders, {who}: {:.0} acquisitions/s, p99 wait {}, most {most} least \
         {least}",
        1e9 / each(CONTENDED, *acquisitions),
        time(each(Duration::from_nanos(*p99 as u64), 1)),
    );
}

/// One figure of what was taken: the median of one task, what a cycle of many costs.
fn figure(tasks: usize, taken: Vec<Duration>, time: Duration) -> f64 {
    match tasks {
        1 => median(taken.into_iter().map(|one| each(one, 1))),
        _ => each(time, taken.len()),
    }
}

#[allow(clippy::cast_precision_loss)]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Cycles of tasks with names of their own, of one task with several; returns how long each took.
async fn cycles_of(
    client: &Client,
    tasks: usize,
    time: Duration,
) -> Result<Vec<Duration>, Failure> {
    let set = LocalSet::new();
    let deadline = Instant::now() + time;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let names = if tasks == 1 { NAMES } else { 1 };
            let locks = (0..names).map(|name| client.mutex(format!("cycle/{task}/{name}")));
            let locks: Result<Vec<_>, _> = locks.collect();
            set.spawn_local(async move {
                let locks = locks?;
                let mut taken = Vec::new();
                while Instant::now() < deadline {
                    let start = Instant::now();
                    let guard = locks[taken.len() % names].lock().await?;
                    let _ = black_box(guard.release().await);
                    taken.push(start.elapsed());
                }
                Ok::<_, Failure>(taken)
            })
        })
        .collect();
    set.await;
    let mut all = Vec::new();
    for task in running {
        all.extend(task.await??);
    }
    Ok(all)
}

/// Cycles with a name each that was never used before; returns how many ended.
async fn fresh_names(client: &Client, tasks: usize, time: Duration) -> Result<usize, Failure> {
    let set = LocalSet::new();
    let deadline = Instant::now() + time;
    let next = Rc::new(Cell::new(0_u64));
    let client = Rc::new(client.clone());
    for _ in 0..tasks {
        let client = client.clone();
        let next = next.clone();
        set.spawn_local(async move {
            while Instant::now() < deadline {
                let lock = client.mutex(format!("fresh/{}", next.replace(next.get() + 1)))?;
                let _ = black_box(lock.lock().await?.release().await);
            }
            Ok::<_, Failure>(())
        });
    }
    set.await;
    Ok(usize::try_from(next.get())?)
}

/// Contenders for one name; returns how long each acquisition was waited for, and how many each
/// had.
async fn contend(
    client: &Rc<Client>,
    contenders: usize,
    time: Duration,
) -> Result<(Vec<Duration>, Vec<usize>), Failure> {
    let set = LocalSet::new();
    let deadline = Instant::now() + time;
    let running: Vec<_> = (0..contenders)
        .map(|_| {
            let client = client.clone();
            set.spawn_local(async move {
                let lock = client.mutex("contended")?;
                let mut waits = Vec::new();
                while Instant::now() < deadline {
                    let start = Instant::now();
                    let guard = lock.lock().await?;
                    waits.push(start.elapsed());
                    let _ = black_box(guard.release().await);
                }
                Ok::<_, Failure>(waits)
            })
        })
        .collect();
    set.await;
    let mut all = Vec::new();
    let mut counts = Vec::new();
    for task in running {
        let waits = task.await??;
        counts.push(waits.len());
        all.extend(waits);
    }
    Ok((all, counts))
}
