//! The fast paths of the scripts: each answers as the rules would, or falls back to them.

use std::time::Duration;

use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{AcquireReply, Engine, ErrorKind, Hold, Mode, Purpose, RenewReply};
use holdline_services::{RedisConfig, RedisServer};

use crate::support::{engine, keys, let_go, queue, raw, renew, request, take};

const COUNTER: &str = "holdline:fence";

#[tokio::test]
async fn a_repeated_request_after_the_lease_of_a_hand_off_is_rejected() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (holder, mut late) = (request("a"), request("a"));
    late.hand_off_lease = MIN_HAND_OFF_LEASE;
    take(&engine, &holder).await;
    queue(&engine, &late).await;
    let_go(&engine, &holder).await;
    tokio::time::sleep(late.hand_off_lease).await; // event: its end
    late.known = true;
    let reply = engine.try_acquire(&late).await;
    assert!(matches!(reply, Ok(AcquireReply::Unknown)), "{reply:?}");
    assert_eq!(keys(&server), [COUNTER]);
}

#[tokio::test]
async fn a_repeated_request_with_other_terms_is_invalid_and_the_hand_off_stays() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (holder, mut next) = (request("a"), request("a"));
    take(&engine, &holder).await;
    queue(&engine, &next).await;
    let_go(&engine, &holder).await;
    next.known = true;
    let mut other = next.clone();
    other.hold = Hold::Leased(Duration::from_secs(29));
    let reported = engine.try_acquire(&other).await.expect_err("other terms");
    assert!(matches!(reported.kind(), ErrorKind::Invalid { .. }), "{reported}");
    take(&engine, &next).await;
}

#[tokio::test]
async fn a_waiter_without_heartbeats_gets_no_hand_off_though_it_is_subscribed() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (holder, silent, next) = (request("a"), request("a"), request("a"));
    take(&engine, &holder).await;
    queue(&engine, &silent).await;
    queue(&engine, &next).await;
    // As if it had sent no heartbeat for long.
    let member = format!("t{}", silent.lease_id.to_hex());
    raw(&server, &["ZADD", "holdline:{a}:1q", "1000000000000001", &member]);
    let_go(&engine, &holder).await;
    let reply = renew(&engine, &next, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    let reply = renew(&engine, &silent, Purpose::Wait).await.expect("answered");
    assert_eq!(reply, RenewReply::Unknown);
}

#[tokio::test]
async fn a_writers_release_hands_the_name_to_all_readers_behind_it() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let writer = request("a");
    take(&engine, &writer).await;
    let readers = [request("a"), request("a")].map(|mut reader| {
        reader.mode = Mode::Shared;
        reader
    });
    for reader in &readers {
        queue(&engine, reader).await;
    }
    let_go(&engine, &writer).await;
    for reader in &readers {
        let reply = renew(&engine, reader, Purpose::Wait).await;
        assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    }
}
