//! Stores that are far away: what a lock takes over round trips of 10, 50 and 150 ms.
//!
//! Relays delay all bytes, also those between the members of etcd; each member, and each server of
//! a quorum, is a region of its own. A client stands in one of these regions. The delays are so
//! long that a busy machine hardly changes the figures.

use std::time::{Duration, Instant};

use holdline::{Client, redlock};
use holdline_services::{Distance, EtcdCluster, EtcdConfig, RedisConfig, RedisServer};
use tokio::task::LocalSet;

use crate::redis::cycles::many_tasks;
use crate::rounds::{Failure, each, median, time};

const ROUND_TRIPS: [u64; 3] = [10, 50, 150];
const CYCLES: usize = 15;
const HAND_OFFS: usize = 12;
const MANY: usize = 64;
const REGIONS: usize = 3;

/// Prints a table in Markdown.
pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!(
        "| store | round trip | lock, p50 | release, p50 | hand-off, p50 | 64 names, grants/s |"
    );
    println!("|---|---|---|---|---|---|");
    for millis in ROUND_TRIPS {
        let round_trip = Duration::from_millis(millis);
        let run = async {
            far_redis(round_trip).await?;
            regions_of_redlock(round_trip).await?;
            regions_of_etcd(round_trip).await
        };
        runtime.block_on(LocalSet::new().run_until(run))?;
    }
    Ok(())
}

async fn far_redis(round_trip: Duration) -> Result<(), Failure> {
    let server = RedisServer::try_start(RedisConfig::default())?;
    let far = Distance::try_start(server.address(), round_trip)?;
    let url = format!("redis://{}", far.address());
    row("Redis in another region", round_trip, &url, &url).await
}

/// The client has a server in its own region; the next one decides.
async fn regions_of_redlock(round_trip: Duration) -> Result<(), Failure> {
    let mut servers = Vec::with_capacity(REGIONS);
    let mut relays = Vec::with_capacity(REGIONS);
    for region in 0..REGIONS {
        let server = RedisServer::try_start(RedisConfig::default())?;
        let far = if region == 0 { Duration::ZERO } else { round_trip };
        relays.push(Distance::try_start(server.address(), far)?);
        servers.push(server);
    }
    let hosts: Vec<String> = relays.iter().map(|relay| relay.address().to_string()).collect();
    let limit = (4 * round_trip).as_millis().max(200);
    let url = format!("redlock://{}?command_timeout_ms={limit}", hosts.join(","));
    let admin = redlock::admin(&url)?;
    admin.init().await?;
    admin.vouch(&admin.plan_vouch().await?).await?;
    row("Redlock, a server in each of 3 regions", round_trip, &url, &url).await
}

/// A follower passes writes on to the leader.
async fn regions_of_etcd(round_trip: Duration) -> Result<(), Failure> {
    let cluster = EtcdCluster::try_start(EtcdConfig::default().with_distance(round_trip))?;
    let leader = cluster.leader_seen_by(0);
    let near = cluster.url_of(leader);
    let far = cluster.url_of((leader + 1) % REGIONS);
    row("etcd, a member in each of 3 regions, at the leader", round_trip, &near, &far).await?;
    row("etcd, in another region than the leader", round_trip, &far, &near).await
}

/// Measures from the client of `url`; its hand-offs alternate with a client of `other`.
async fn row(title: &str, round_trip: Duration, url: &str, other: &str) -> Result<(), Failure> {
    let client = Client::connect(url).await?;
    let (lock, release) = cycles(&client).await?;
    let hand_off = hand_offs(&client, &Client::connect(other).await?).await?;
    let start = Instant::now();
    let many = many_tasks(client, MANY).await?;
    let many = each(start.elapsed(), many);
    println!(
        "| {title} | {} ms | {} | {} | {} | {:.0} |",
        round_trip.as_millis(),
        time(lock),
        time(release),
        time(hand_off),
        1e9 / many,
    );
    Ok(())
}

/// The middle times of a lock and of its release.
async fn cycles(client: &Client) -> Result<(f64, f64), Failure> {
    let lock = client.mutex("distance")?;
    let mut locks = Vec::with_capacity(CYCLES);
    let mut releases = Vec::with_capacity(CYCLES);
    for _ in 0..CYCLES {
        let start = Instant::now();
        let guard = lock.lock().await?;
        locks.push(each(start.elapsed(), 1));
        let start = Instant::now();
        guard.release().await.into_result()?;
        releases.push(each(start.elapsed(), 1));
    }
    Ok((median(locks.into_iter()), median(releases.into_iter())))
}

/// The middle time from the call of a release to the grant of the other client, which waits.
async fn hand_offs(one: &Client, other: &Client) -> Result<f64, Failure> {
    let locks = [one.mutex("handed")?, other.mutex("handed")?];
    let mut guard = locks[0].lock().await?;
    let mut taken = Vec::with_capacity(HAND_OFFS);
    for turn in 1..=HAND_OFFS {
        let next = locks[turn % 2].clone();
        let waiting = tokio::task::spawn_local(async move {
            let guard = next.lock().await?;
            Ok::<_, Failure>((guard, Instant::now()))
        });
        // event: the next one has to be in the queue, which a second reaches by far
        tokio::time::sleep(Duration::from_secs(1)).await;
        let released = Instant::now();
        guard.release().await.into_result()?;
        let (next, granted) = waiting.await??;
        taken.push(each(granted.duration_since(released), 1));
        guard = next;
    }
    guard.release().await.into_result()?;
    Ok(median(taken.into_iter()))
}
