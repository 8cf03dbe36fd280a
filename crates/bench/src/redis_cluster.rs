//! A Redis Cluster of three masters: cycles beside the bare commands at the master of each key, and
//! hand-offs beside a token in a list at one master.
//!
//! No replicas, since the floor would wait for none either. Masters and client share the machine's
//! cores, so only ratios within a round mean anything.

use std::time::{Duration, Instant};

use holdline::Client;
use holdline_services::{ClusterConfig, RedisCluster};

use crate::contend::cycle;
use crate::redis::cycles::{CYCLES, TIME, many_tasks};
use crate::redis::handoff::{TOKEN, commands_so_far, contend, floor, ratio};
use crate::redis::raw::{self, Raw};
use crate::rounds::{Failure, Round, each, median, report};

const ROUNDS: usize = 5;
const MASTERS: usize = 3;
const NAMES: usize = 16;
const MANY: usize = 64;
const HAND_OFFS: Duration = Duration::from_millis(1_500);

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let calm = ClusterConfig::default().with_node_timeout(Duration::from_secs(60));
    let cluster = RedisCluster::try_start(&calm.with_size(MASTERS, 0))?;
    for tasks in [1, MANY] {
        runtime.block_on(cycles(&cluster, tasks))?;
    }
    for contenders in [2, 16, 128] {
        runtime.block_on(hand_offs(&cluster, contenders))?;
    }
    Ok(())
}

async fn cycles(cluster: &RedisCluster, tasks: usize) -> Result<(), Failure> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let bare = bare_cycles(cluster, tasks).await?;
        let client = Client::connect(&cluster.url()).await?;
        let subject = match tasks {
            1 => cycle(&client, CYCLES).await?,
            _ => each(TIME, many_tasks(client, tasks).await?),
        };
        rounds.push(Round { floor: bare, subject });
    }
    match tasks {
        1 => report("redis cluster: lock + release, one task, p50", &rounds, "at most 1.35"),
        _ => {
            let title = format!("redis cluster: a cycle of {tasks} tasks");
            report(&title, &rounds, "at most 2.4");
        }
    }
    Ok(())
}

/// A connection to each master, and which of the keys it has.
async fn shards(cluster: &RedisCluster, keys: usize) -> Result<Vec<(Raw, Vec<String>)>, Failure> {
    let mut shards = Vec::with_capacity(MASTERS);
    for node in cluster.nodes() {
        shards.push((Raw::connect(node.address()).await?, Vec::new()));
    }
    for key in raw::keys(keys) {
        let owner = cluster.owner(cluster.slot_of(&key), 0).ok_or("a slot without a master")?;
        shards[owner].1.push(key);
    }
    Ok(shards)
}

async fn bare_cycles(cluster: &RedisCluster, tasks: usize) -> Result<f64, Failure> {
    let mut shards = shards(cluster, tasks.max(NAMES)).await?;
    if tasks > 1 {
        let [one, two, three] = &mut shards[..] else { return Err("three masters".into()) };
        let ended = tokio::try_join!(
            one.0.cycles(&one.1, TIME),
            two.0.cycles(&two.1, TIME),
            three.0.cycles(&three.1, TIME),
        )?;
        return Ok(each(TIME, ended.0 + ended.1 + ended.2));
    }
    let mut taken = Vec::with_capacity(CYCLES);
    for cycle in 0..CYCLES {
        let (raw, keys) = &mut shards[cycle % MASTERS];
        if keys.is_empty() {
            continue;
        }
        let key = &keys[cycle / MASTERS % keys.len()];
        let start = Instant::now();
        raw.cycle(key).await?;
        taken.push(each(start.elapsed(), 1));
    }
    Ok(median(taken.into_iter()))
}

async fn hand_offs(cluster: &RedisCluster, contenders: usize) -> Result<(), Failure> {
    let owner = cluster.owner(cluster.slot_of(TOKEN), 0).ok_or("a slot without a master")?;
    let address = cluster.nodes()[owner].address();
    let so_far = || {
        let nodes = cluster.nodes().iter();
        nodes.map(|node| commands_so_far(&mut node.raw())).sum::<Result<usize, Failure>>()
    };
    let mut rounds = Vec::new();
    let mut commands = Vec::new();
    for _ in 0..ROUNDS {
        let bare = floor(address, contenders, HAND_OFFS).await?;
        let client = Client::connect(&cluster.url()).await?;
        let before = so_far()?;
        let grants: usize = contend(client, contenders, HAND_OFFS).await?.iter().sum();
        commands.push(ratio(so_far()? - before, grants));
        rounds.push(Round { floor: each(HAND_OFFS, bare), subject: each(HAND_OFFS, grants) });
    }
    let title = format!("redis cluster: a hand-off among {contenders}");
    report(&title, &rounds, "at most 3");
    let commands = median(commands.into_iter());
    println!("    requests and messages a hand-off {commands:.2}: two, and a message");
    Ok(())
}
