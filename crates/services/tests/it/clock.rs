//! A server whose wall clock is moved really sees it, and expires keys by it.

use holdline_services::{Raw, RedisConfig, RedisServer, Reply};
use std::time::{Duration, SystemTime};

const SECOND: i64 = 1_000_000;
/// The server is asked within this, or the machine is too slow for the test.
const MARGIN: i64 = 20 * SECOND;

/// How far the server's clock is ahead of ours, in microseconds.
fn ahead(raw: &mut Raw) -> i64 {
    let reply = raw.say("TIME").expect("a reply");
    let parts = reply.items().expect("two numbers").iter().filter_map(Reply::text);
    let parts: Vec<i64> = parts.filter_map(|text| text.parse().ok()).collect();
    let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    parts[0] * SECOND + parts[1] - i64::try_from(ours.as_micros()).expect("before 292,000")
}

fn assert_near(found: i64, wanted: i64) {
    assert!((found - wanted).abs() < MARGIN, "{found} µs is not near {wanted}");
}

#[test]
fn a_step_is_seen_by_the_server_and_expires_its_keys() {
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let mut raw = server.raw();
    assert_near(ahead(&mut raw), 0);
    raw.say("SET a 1 PX 1000000").unwrap();
    server.clock().step_forward(Duration::from_secs(3600));
    assert_near(ahead(&mut raw), 3600 * SECOND);
    assert_eq!(raw.say("GET a").unwrap(), Reply::Nil);
    raw.say("SET a 1 PX 1000000").unwrap();
    server.clock().step_back(Duration::from_secs(7200));
    server.await_clock();
    assert_near(ahead(&mut raw), -3600 * SECOND);
    // The sign of a clock that was set back: more is left than was ever granted.
    assert!(raw.say("PTTL a").unwrap().integer().unwrap() > 1_000_000);
    server.restart();
    assert_near(ahead(&mut server.raw()), -3600 * SECOND);
}

#[test]
fn a_rate_changes_how_fast_the_server_ages_and_nothing_jumps() {
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let mut raw = server.raw();
    server.clock().set_rate(1000.0);
    let early = ahead(&mut raw);
    // At a thousand times our speed 40 s pass in 40 ms of ours.
    let moved = (0..1_000_000).map(|_| ahead(&mut raw)).find(|now| now - early > 40 * SECOND);
    assert!(moved.is_some());
    server.clock().set_rate(0.0);
    let stopped = |raw: &mut Raw| raw.say("TIME").unwrap();
    let time = stopped(&mut raw);
    for _ in 0..100 {
        assert_eq!(stopped(&mut raw), time);
    }
    server.clock().set_rate(1.0);
    let kept = ahead(&mut raw);
    assert!(kept > 40 * SECOND - MARGIN, "{kept}");
    assert_ne!(stopped(&mut raw), time);
}
