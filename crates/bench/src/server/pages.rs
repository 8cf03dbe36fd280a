//! The pages of the dashboard over a store of 10,000 locks, each beside a bare server that sends a
//! text of the same length. The server lists the store meanwhile, as it does while somebody looks.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use holdline::{Client, Guard};
use holdline_services::{RedisConfig, RedisServer};

use super::host::Host;
use super::raw::Http;
use crate::rounds::{Failure, in_turn, report};

const LOCKS: usize = 10_000;
/// How often floor and page take turns in a round.
const TIMES: usize = 10;
const PAGES: [(&str, &str); 7] = [
    ("Overview", "/dashboard"),
    ("Locks", "/dashboard/locks"),
    ("Locks, by time", "/dashboard/locks?sort=since"),
    ("Locks, a filter that fits all, by host", "/dashboard/locks?q=bench&sort=host"),
    ("a lock", "/dashboard/lock?name=bench%2F05000"),
    ("Timeline", "/dashboard/timeline"),
    ("Contention", "/dashboard/contention"),
];

pub(crate) fn section() -> Result<(), Failure> {
    let redis = RedisServer::try_start(RedisConfig::default())?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let _guards = runtime.block_on(hold(&redis.url(), LOCKS))?;
    let floor = Host::floor()?;
    let host = Host::serve(&redis.url(), 1_000, 1_000)?;
    runtime.block_on(measure(&floor, &host))
}

async fn measure(floor: &Host, host: &Host) -> Result<(), Failure> {
    let mut bare = Http::connect(floor.address).await?;
    let mut ours = Http::connect(host.address).await?;
    loop {
        let page = ours.ask("GET", "/dashboard/locks", "").await?.done()?;
        if page.body.contains(&format!("{LOCKS} names")) {
            break;
        }
    }
    for (title, path) in PAGES {
        let length = ours.ask("GET", path, "").await?.done()?.body.len();
        let same = format!("/text/{length}");
        let rounds = in_turn(
            TIMES,
            async || bare.ask("GET", &same, "").await?.done().map(drop),
            async || ours.ask("GET", path, "").await?.done().map(drop),
        )
        .await?;
        let title = format!("page {title}, {LOCKS} locks, {} kB", length.div_ceil(1_000));
        report(&title, &rounds, "at most 100 ms");
    }
    Ok(())
}

/// Holds so many names, `bench/00000` and so on. The guards renew their leases as long as they are
/// kept.
async fn hold(url: &str, names: usize) -> Result<Vec<Guard>, Failure> {
    let client = Client::connect(url).await?;
    let lock = |at: usize| {
        let client = client.clone();
        async move { client.mutex(format!("bench/{at:05}"))?.lock().await }
    };
    let guards = stream::iter(0..names).map(lock).buffer_unordered(64);
    Ok(guards.try_collect().await?)
}
