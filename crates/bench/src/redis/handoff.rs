//! Hand-offs between many contenders for one name, and one wake-up.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdline::Client;
use holdline_services::Raw as Observer;
use tokio::task::LocalSet;

use super::raw::Raw;
use super::{NATIVE, World};
use crate::rounds::{Failure, Peer, Round, each, median, report, report_beside};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(1_500);
/// In less time many contenders have so few grants each that one more makes a tenth.
const TIME_EACH: Duration = Duration::from_millis(4);
const WAKE_UPS: usize = 300;
/// The list of the floor.
pub(crate) const TOKEN: &str = "token";
/// More threads than this the peer does not bear.
const MOST_OF_PEER: usize = 128;

/// Everybody wants the same name, and gives it back at once.
pub(crate) fn section(world: &World, contenders: usize) -> Result<(), Failure> {
    let mut rounds = Vec::new();
    let mut spreads = Vec::new();
    let mut commands = Vec::new();
    let mut peers: [Peer; 1] = [("python-redis-lock", Vec::new())];
    let time = TIME.max(TIME_EACH * u32::try_from(contenders)?);
    for _ in 0..ROUNDS {
        let floor = world.runtime.block_on(floor(world.server.address(), contenders, time))?;
        if contenders <= MOST_OF_PEER {
            let peer = world.peers.hand_off(&world.server.url(), contenders, time)?;
            peers[0].1.extend(peer);
        }
        let mut observer = world.server.raw();
        let before = commands_so_far(&mut observer)?;
        let client = world.runtime.block_on(world.client(&NATIVE))?;
        let ours = world.runtime.block_on(contend(client, contenders, time))?;
        let after = commands_so_far(&mut observer)?;
        let total: usize = ours.iter().sum();
        rounds.push(Round { floor: each(time, floor), subject: each(time, total) });
        let most = ours.iter().max().copied();
        let least = ours.iter().min().copied();
        spreads.push(ratio(most.unwrap_or(0), least.unwrap_or(0)));
        commands.push(ratio(after - before, total));
    }
    let title = format!("redis: a hand-off among {contenders}");
    report_beside(&title, &rounds, &peers, "at most 2.5");
    println!(
        "    most to least grants of a contender {:.2}, scripts and messages a hand-off {:.2}",
        median(spreads.into_iter()),
        median(commands.into_iter())
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn ratio(above: usize, below: usize) -> f64 {
    above as f64 / below as f64
}

/// How many scripts were run and how many messages were sent: all that we ask a server for.
pub(crate) fn commands_so_far(observer: &mut Observer) -> Result<usize, Failure> {
    let reply = observer.send(&["INFO", "commandstats"])?;
    let text = reply.text().unwrap_or_default();
    let calls = |command: &str| {
        let begins = format!("{command}:calls=");
        let rest = text.lines().find_map(|line| line.strip_prefix(begins.as_str()))?;
        rest.split(',').next()?.parse().ok()
    };
    let kinds = ["cmdstat_eval", "cmdstat_evalsha", "cmdstat_publish"];
    Ok(kinds.into_iter().map(|kind| calls(kind).unwrap_or(0)).sum::<usize>())
}

/// A token in a list: who pops it pushes it back.
pub(crate) async fn floor(
    address: SocketAddr,
    contenders: usize,
    time: Duration,
) -> Result<usize, Failure> {
    let set = LocalSet::new();
    Raw::connect(address).await?.ask(&["DEL", TOKEN]).await?;
    let deadline = Instant::now() + time;
    let mut running = Vec::new();
    for _ in 0..contenders {
        let mut raw = Raw::connect(address).await?;
        running.push(set.spawn_local(async move {
            let mut hops = 0_usize;
            while Instant::now() < deadline {
                // The one that has it at the end keeps it; the others' waits run out.
                let reply = raw.ask(&["BLPOP", TOKEN, "0.2"]).await?;
                if reply.starts_with(b"*2") {
                    hops += 1;
                    raw.ask(&["RPUSH", TOKEN, "1"]).await?;
                }
            }
            Ok::<_, Failure>(hops)
        }));
    }
    Raw::connect(address).await?.ask(&["RPUSH", TOKEN, "1"]).await?;
    set.await;
    let mut hops = 0;
    for task in running {
        hops += task.await??;
    }
    Ok(hops)
}

/// Grants of each contender.
pub(crate) async fn contend(
    client: Client,
    contenders: usize,
    time: Duration,
) -> Result<Vec<usize>, Failure> {
    let client = Rc::new(client);
    let set = LocalSet::new();
    let deadline = Instant::now() + time;
    let running: Vec<_> = (0..contenders)
        .map(|_| {
            let client = client.clone();
            set.spawn_local(async move {
                let lock = client.mutex("hand-off")?;
                let mut grants = 0_usize;
                while Instant::now() < deadline {
                    let guard = lock.lock().await?;
                    let _ = guard.release().await;
                    grants += 1;
                }
                Ok::<_, Failure>(grants)
            })
        })
        .collect();
    set.await;
    let mut grants = Vec::with_capacity(contenders);
    for task in running {
        grants.push(task.await??);
    }
    Ok(grants)
}

/// From just before the release is sent until another contender has the name.
pub(crate) fn wake_up(world: &World) -> Result<(), Failure> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let floor = world.runtime.block_on(raw_wake_ups(world.server.address()))?;
        let subject = world.runtime.block_on(our_wake_ups(world))?;
        rounds.push(Round { floor, subject });
    }
    report("redis: a wake-up, p50", &rounds, "at most 2.5");
    Ok(())
}

async fn raw_wake_ups(address: SocketAddr) -> Result<f64, Failure> {
    let mut holder = Raw::connect(address).await?;
    let mut times = Vec::new();
    let set = LocalSet::new();
    let mut waiter = Raw::connect(address).await?;
    let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();
    set.spawn_local(async move {
        for _ in 0..WAKE_UPS {
            waiter.ask(&["BLPOP", "wake", "1"]).await?;
            let _ = sender.send(Instant::now());
        }
        Ok::<_, Failure>(())
    });
    set.run_until(async {
        for _ in 0..WAKE_UPS {
            // Two round trips, in which the waiter's request has arrived as well.
            holder.ask(&["PING"]).await?;
            holder.ask(&["PING"]).await?;
            let start = Instant::now();
            holder.ask(&["RPUSH", "wake", "1"]).await?;
            let end = woken.recv().await.ok_or("the waiter is gone")?;
            times.push(each(end.duration_since(start), 1));
        }
        Ok::<_, Failure>(())
    })
    .await?;
    Ok(median(times.into_iter()))
}

async fn our_wake_ups(world: &World) -> Result<f64, Failure> {
    let holder = world.client(&NATIVE).await?;
    let waiter = world.client(&NATIVE).await?;
    let lock = holder.mutex("wake-up")?;
    let theirs = waiter.mutex("wake-up")?;
    let mut times = Vec::new();
    for _ in 0..WAKE_UPS {
        let guard = lock.lock().await?;
        let wait = async {
            let guard = theirs.lock().await?;
            let end = Instant::now();
            let _ = guard.release().await;
            Ok::<_, Failure>(end)
        };
        let release = async {
            while holder.admin().inspect(lock.name()).await?.queue_length == 0 {}
            let start = Instant::now();
            let _ = guard.release().await;
            Ok::<_, Failure>(start)
        };
        let (end, start) = tokio::try_join!(wait, release)?;
        times.push(each(end.duration_since(start), 1));
    }
    Ok(median(times.into_iter()))
}
