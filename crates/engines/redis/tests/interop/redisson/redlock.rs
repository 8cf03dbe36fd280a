//! `RedissonRedLock` over three servers, and our quorum on the same.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_redis::{QuorumEngine, QuorumOptions};
use holdline_services::{RedisConfig, RedisServer};

use super::history::{Party, Storm, Wanted};
use super::java::Java;
use super::world::{LONG, SHORT, SOON, acquired, long, release, waiting};
use crate::ours::{Ours, message_of};

const NAME: &str = "quorum";

async fn both_ways(servers: &[RedisServer], major: &str) -> Result<(), String> {
    let hosts: Vec<String> = servers.iter().map(|one| one.address().to_string()).collect();
    let parameters = "dialect=redisson&fencing=off&command_timeout_ms=5000";
    let options = QuorumOptions::from_url(&format!("redlock://{}?{parameters}", hosts.join(",")));
    let options = options.map_err(message_of)?;
    let engine = QuorumEngine::connect(&options, Arc::new(MachineClock)).await;
    let ours = Ours::of(Arc::new(engine.map_err(message_of)?))?;
    let urls = servers.iter().map(RedisServer::url);
    let arguments: Vec<String> = ["redlock".to_owned()].into_iter().chain(urls).collect();
    let java = Java::start(major, &arguments)?;
    let object = format!("redlock {NAME}");
    let (mut holder, mut waiter) = (java.thread("holder"), java.thread("waiter"));
    let mutex = ours.client.mutex_with(NAME, &long()).map_err(message_of)?;
    // Ours holds, Java waits.
    let guard = mutex.try_lock().await.map_err(message_of)?;
    waiter.is_refused(&object).await?;
    waiter.wait_for(&object, LONG)?;
    release(guard).await?;
    waiter.gets(4 * SOON).await?;
    ensure!(mutex.try_lock().await.is_err(), "we got what Java holds");
    // Java holds, ours waits.
    let attempt = waiting(&ours.client, NAME)?;
    waiter.release(&object).await?;
    let guard = acquired(attempt).await?;
    holder.is_refused(&object).await?;
    release(guard).await?;
    // A lease of Java's that ends.
    holder.take(&object, SHORT).await?;
    release(acquired(waiting(&ours.client, NAME)?).await?).await?;
    let storm = Storm { lasts: Duration::from_secs(3), lease: LONG, may_fail: true };
    let party =
        Party { kind: "redlock", ours: Wanted::Mutex(Box::new(mutex)), count: 3, weight: 1 };
    let history = storm.run(&java, NAME, &[party]).await?;
    let (mine, theirs) = history.shares();
    println!("redlock, Redisson {}: {mine} holds of ours, {theirs} of Java's", java.version);
    ensure!(mine + theirs > 5, "{mine} holds of ours, {theirs} of Java's");
    history.fits(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_is_shared_both_ways() {
    let start = |_| RedisServer::start(RedisConfig::default());
    for major in ["3", "4"] {
        let servers: Vec<RedisServer> = (0..3).map(start).collect();
        both_ways(&servers, major).await.expect("one holder at a time");
    }
}
