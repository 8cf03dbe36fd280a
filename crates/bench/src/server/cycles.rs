//! Cycles over HTTP: a bare server, the API and the engine `http://` on memory and on Redis, the
//! same engines in process, and etcd's JSON gateway.

use std::time::Duration;

use holdline::Client;
use holdline_services::{EtcdConfig, EtcdServer, RedisConfig, RedisServer};

use super::host::Host;
use super::raw::Http;
use crate::contend::cycle;
use crate::redis::cycles::{TIME, many_tasks};
use crate::rounds::{Failure, Peer, Round, each, median, middle, report, report_beside};

const ROUNDS: usize = 7;
const CYCLES: usize = 2_000;
const NAMES: usize = 16;
const MANY: usize = 64;
/// A longer wait than any of these; a request without a wait takes the shorter path.
const ACQUIRE: &str = r#"{"wait_ms":60000}"#;

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let floor = Host::floor()?;
    let memory = Host::serve("memory:bench", 1_000, 1_000)?;
    let etcd = EtcdServer::try_start(EtcdConfig::default())?;
    runtime.block_on(on_memory(&floor, &memory, &etcd))?;
    drop((floor, etcd, memory));
    let redis = RedisServer::try_start(RedisConfig::default())?;
    let host = Host::serve(&redis.url(), 1_000, 1_000)?;
    runtime.block_on(on_redis(&host, &redis))
}

async fn on_memory(floor: &Host, memory: &Host, etcd: &EtcdServer) -> Result<(), Failure> {
    let url = format!("http://{}", memory.address);
    let client = Client::connect(&url).await?;
    let local = Client::connect("memory:local").await?;
    let mut etcd = Http::connect(etcd.address()).await?;
    let mut bare = Http::connect(floor.address).await?;
    let mut ours = Http::connect(memory.address).await?;
    let mut api = Vec::new();
    let mut engine = Vec::new();
    let mut direct = Vec::new();
    let mut gateway: Peer = ("etcd's gateway", Vec::new());
    let mut busy = Vec::new();
    for _ in 0..ROUNDS {
        let floor = api_cycles(&mut bare).await?;
        let before = memory.processor_time()?;
        api.push(Round { floor, subject: api_cycles(&mut ours).await? });
        busy.push((memory.processor_time()? - before) * 1e9 / to_f64(CYCLES));
        engine.push(Round { floor, subject: cycle(&client, CYCLES).await? });
        direct.push(cycle(&local, CYCLES).await?);
        gateway.1.push(gateway_cycles(&mut etcd).await?);
    }
    let peers = [gateway];
    let budget = "at most 150 us";
    report_beside("server, memory: API, one connection, p50", &api, &peers, budget);
    println!("    of the server's processor time a cycle takes {}", time(&busy));
    report_beside("server, memory: engine http://, one task, p50", &engine, &peers, budget);
    println!("    the same engine in process {}", time(&direct));
    Ok(())
}

async fn on_redis(host: &Host, redis: &RedisServer) -> Result<(), Failure> {
    let client = async || Client::connect(&format!("http://{}", host.address)).await;
    let local = async || Client::connect(&redis.url()).await;
    let over = client().await?;
    let direct = local().await?;
    let mut connection = Http::connect(host.address).await?;
    let mut api = Vec::new();
    let mut engine = Vec::new();
    let mut many = Vec::new();
    for _ in 0..ROUNDS {
        let floor = cycle(&direct, CYCLES).await?;
        api.push(Round { floor, subject: api_cycles(&mut connection).await? });
        engine.push(Round { floor, subject: cycle(&over, CYCLES).await? });
        let floor = each(TIME, many_tasks(local().await?, MANY).await?);
        let subject = each(TIME, many_tasks(client().await?, MANY).await?);
        many.push(Round { floor, subject });
    }
    report("server, redis: API beside the engine in process, p50", &api, "at most 3");
    report("server, redis: http:// beside the engine in process", &engine, "at most 3");
    let title = format!("server, redis: http://, a cycle of {MANY} tasks");
    report(&title, &many, "reported");
    Ok(())
}

/// The median of a `POST` that acquires and a `DELETE` that releases.
async fn api_cycles(http: &mut Http) -> Result<f64, Failure> {
    middle(CYCLES, async |done| {
        let path = format!("/v1/locks/cycle-{}", done % NAMES);
        let lease = http.ask("POST", &path, ACQUIRE).await?.done()?;
        let path = format!("{path}/leases/{}", lease.field("lease_id")?);
        http.ask("DELETE", &path, "").await?.done()?;
        Ok(())
    })
    .await
}

/// The median of a lease, a lock under it, and its unlock and end.
async fn gateway_cycles(http: &mut Http) -> Result<f64, Failure> {
    middle(CYCLES / 4, async |_| {
        let lease = http.ask("POST", "/v3/lease/grant", r#"{"TTL":"30"}"#).await?.done()?;
        let id = lease.field("ID")?;
        let body = format!(r#"{{"name":"Y3ljbGU=","lease":"{id}"}}"#);
        let lock = http.ask("POST", "/v3/lock/lock", &body).await?.done()?;
        let body = format!(r#"{{"key":"{}"}}"#, lock.field("key")?);
        http.ask("POST", "/v3/lock/unlock", &body).await?.done()?;
        http.ask("POST", "/v3/lease/revoke", &format!(r#"{{"ID":"{id}"}}"#)).await?.done()?;
        Ok(())
    })
    .await
}

fn time(figures: &[f64]) -> String {
    crate::rounds::time(median(figures.iter().copied()))
}

fn to_f64(count: usize) -> f64 {
    1.0 / each(Duration::from_nanos(1), count)
}
