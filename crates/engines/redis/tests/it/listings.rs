//! Listings: all names, in order, with few scans of the keys.

use holdline_core::{Engine, ListRequest, Purpose, RenewReply};
use holdline_redis::RedisEngine;
use holdline_services::{RedisConfig, RedisServer};

use crate::checkup::{of, run_checkup};
use crate::support::{HOLD, engine, let_go, name, raw, renew, request, take};

/// Returns all names, page by page.
async fn pages(engine: &RedisEngine, limit: usize) -> Vec<String> {
    let mut asked = ListRequest { prefix: String::new(), after: None, limit };
    let mut listed = Vec::new();
    loop {
        let page = engine.list(&asked).await.expect("listed");
        assert!(page.names.len() == limit || page.after.is_none());
        listed.extend(page.names.into_iter().map(|shown| shown.name.to_string()));
        asked.after = page.after;
        if asked.after.is_none() {
            return listed;
        }
    }
}

/// Returns the number of `SCAN` calls of the server.
fn scans(server: &RedisServer) -> usize {
    let stats = raw(server, &["INFO", "commandstats"]).text().expect("text");
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_scan:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Copies one holder to many names.
fn copy(server: &RedisServer, from: &str, count: usize) {
    const AT_ONCE: usize = 50_000;
    let script = "local value = redis.call('GET', KEYS[1])
        for number = ARGV[1], ARGV[2] do
          redis.call('SET', string.format('holdline:{n%07d}', number), value, 'PX', 600000)
        end";
    let lock = format!("holdline:{{{from}}}");
    for first in (1..=count).step_by(AT_ONCE) {
        let last = count.min(first + AT_ONCE - 1);
        raw(server, &["EVAL", script, "1", &lock, &first.to_string(), &last.to_string()]);
    }
}

#[tokio::test]
async fn a_listing_skips_foreign_keys_and_misses_no_name() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for number in 0..300 {
        take(&engine, &request(&format!("n{number:03}"))).await;
        raw(&server, &["SET", &format!("holdline:{{m{number:03}}}"), "foreign"]);
    }
    let all: Vec<String> = (0..300).map(|number| format!("n{number:03}")).collect();
    assert_eq!(pages(&engine, 100).await, all);
}

#[tokio::test]
async fn the_pages_of_a_listing_scan_all_keys_once() {
    const COUNT: usize = 5_000;
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("a")).await;
    copy(&server, "a", COUNT);
    let listed = pages(&engine, 100).await;
    assert!(listed.is_sorted() && listed.len() == COUNT + 1, "{}", listed.len());
    // A step of a scan reads about a thousand keys.
    assert!(scans(&server) < 10, "{} for 51 pages", scans(&server));
    // A new listing sees new names.
    take(&engine, &request("b")).await;
    assert_eq!(pages(&engine, 1_000).await[..3], ["a", "b", "n0000001"]);
}

/// More names than are cached for the following pages.
#[tokio::test]
async fn a_listing_of_very_many_names_misses_none() {
    const COUNT: usize = 40_000;
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("a")).await;
    copy(&server, "a", COUNT);
    let listed = pages(&engine, 1_000).await;
    assert!(listed.is_sorted() && listed.len() == COUNT + 1, "{}", listed.len());
    assert_eq!(listed.last().map(String::as_str), Some(name("n0040000").as_str()));
    assert!(scans(&server) < 100, "{} for 41 pages", scans(&server));
}

/// They cost only memory: no command for another name, no page and no checkup reads more keys.
#[tokio::test]
async fn a_million_locks_cost_memory_and_little_else() {
    const COUNT: usize = 1_000_000;
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("a")).await;
    copy(&server, "a", COUNT);
    let info = raw(&server, &["INFO", "memory"]).text().expect("text");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a reply");
    let each = used.trim().parse::<usize>().expect("a number") / COUNT;
    assert!(each < 600, "{each} bytes for each");
    let other = request("b");
    take(&engine, &other).await;
    let mut asked = ListRequest { prefix: String::new(), after: None, limit: 100 };
    for _ in 0..10 {
        let page = engine.list(&asked).await.expect("listed");
        assert_eq!(page.names.len(), 100);
        asked.after = page.after;
        let reply = renew(&engine, &other, Purpose::Keep(HOLD)).await;
        assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
    }
    assert!(scans(&server) < 1_200, "{} for ten pages", scans(&server));
    let_go(&engine, &other).await;
    let found = run_checkup(&server.url()).await;
    let keys = of(&found, "keys");
    assert!(keys.found().contains("and more that were not looked at"), "{}", keys.found());
}
