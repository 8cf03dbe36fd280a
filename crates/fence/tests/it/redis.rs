//! The fence of Redis on real servers, by a client that has nothing to do with ours.

use std::num::NonZeroU64;
use std::time::Duration;

use holdline_fence::{
    Certainty, FenceError, FencingToken, Proof, REDIS_GUARD, RedisCall, RedisFence, Rules,
};
use holdline_services::{Flavour, Raw, RedisConfig, RedisServer, Reply};

use crate::support::{proof, token, word_of};
use crate::writers::{LARGEST, in_threads, judge_acknowledged};

fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

/// Sends a call as it is.
fn send(raw: &mut Raw, call: &RedisCall) -> Result<(), FenceError> {
    match raw.send(&call.words()).expect("an answer") {
        Reply::Error(words) => Err(call.server_error(&words)),
        reply => call.outcome(&reply.text().expect("a string")),
    }
}

fn mark(raw: &mut Raw, fence: &RedisFence) -> Option<String> {
    raw.send(&[b"GET".as_slice(), fence.mark_key()]).expect("an answer").text()
}

fn say(raw: &mut Raw, line: &str) -> Option<String> {
    let reply = raw.say(line).expect("an answer");
    assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    reply.text()
}

#[test]
fn a_mark_is_raised_by_seals_and_writes_and_never_falls() {
    let server = server();
    let mut raw = server.raw();
    let limit = NonZeroU64::new(1 << 40).expect("not zero");
    let fence = RedisFence::new("stock/17").expect("a key");
    let fence = fence.with_rules(Rules::default().max_jump(limit));
    let far = 34 + (1 << 40);
    let shared = fence.check(&Proof::shared(token(1))).expect("a call");
    assert_eq!(word_of(&send(&mut raw, &shared)), "yes");
    for (mine, says, stored) in [
        (33, "yes", 33),
        (33, "yes", 33),
        (32, "stale 32 33", 33),
        (34, "yes", 34),
        (33, "stale 33 34", 34),
        (far, "yes", far),
        (FencingToken::MAX.get(), "far", far),
    ] {
        let seal = fence.seal(&proof(mine)).expect("a call");
        assert_eq!(word_of(&send(&mut raw, &seal)), says, "seal {mine}");
        let before = say(&mut raw, "GET stock/17");
        let write = fence.check_and_set(&proof(mine), mine.to_string()).expect("a call");
        assert_eq!(word_of(&send(&mut raw, &write)), says, "write {mine}");
        let after = say(&mut raw, "GET stock/17");
        let expected = if says == "yes" { Some(mine.to_string()) } else { before };
        assert_eq!(after, expected, "what is refused was not written");
        assert_eq!(mark(&mut raw, &fence), Some(stored.to_string()));
    }
    assert_eq!(word_of(&send(&mut raw, &shared)), format!("stale 1 {far}"));
}

/// Doubles hold whole numbers up to 2^53: every digit of a token counts.
#[test]
fn the_largest_tokens_keep_all_their_digits() {
    let server = server();
    let mut raw = server.raw();
    let fence = RedisFence::new("stock").expect("a key");
    let largest = FencingToken::MAX.get();
    for (mine, says) in [
        (largest - 1, "yes".to_owned()),
        (largest - 2, format!("stale {} {}", largest - 2, largest - 1)),
        (largest, "yes".to_owned()),
        (largest - 1, format!("stale {} {largest}", largest - 1)),
    ] {
        let call = fence.check_and_set(&proof(mine), "value").expect("a call");
        assert_eq!(word_of(&send(&mut raw, &call)), says);
    }
    assert_eq!(mark(&mut raw, &fence), Some(largest.to_string()));
}

#[test]
fn a_value_that_is_no_mark_is_foreign_and_left_unchanged() {
    let server = server();
    let mut raw = server.raw();
    let fence = RedisFence::new("stock").expect("a key");
    let calls = |mine: u64| {
        [
            fence.seal(&proof(mine)).expect("a call"),
            fence.check(&proof(mine)).expect("a call"),
            fence.check_and_set(&proof(mine), "late").expect("a call"),
            fence.check_and_delete(&proof(mine)).expect("a call"),
        ]
    };
    say(&mut raw, "SET stock before");
    for text in [
        "9007199254740992",
        "9007199254740993",
        "99999999999999999999",
        "0",
        "034",
        "-1",
        "3.5",
        "1e3",
        "0x22",
        "nan",
        "inf",
        "many",
    ] {
        raw.send(&["SET", "{stock}:fence", text]).expect("stored");
        for call in calls(FencingToken::MAX.get()) {
            let answer = send(&mut raw, &call);
            assert_eq!(word_of(&answer), "foreign", "{text}: {answer:?}");
        }
        assert_eq!(mark(&mut raw, &fence).as_deref(), Some(text));
    }
    raw.send(&["SET", "{stock}:fence", ""]).expect("stored");
    assert_eq!(word_of(&send(&mut raw, &calls(34)[2])), "foreign", "an empty one");
    for make in [
        "LPUSH {stock}:fence 34",
        "HSET {stock}:fence mark 34",
        "SADD {stock}:fence 34",
        "ZADD {stock}:fence 34 a",
        "XADD {stock}:fence * a 34",
    ] {
        say(&mut raw, "DEL {stock}:fence");
        say(&mut raw, make);
        for call in calls(34) {
            let answer = send(&mut raw, &call);
            assert_eq!(word_of(&answer), "foreign", "{make}: {answer:?}");
        }
    }
    assert_eq!(say(&mut raw, "GET stock").as_deref(), Some("before"));
}

#[test]
fn data_of_another_type_are_foreign_and_the_mark_stays() {
    let server = server();
    let mut raw = server.raw();
    let fence = RedisFence::new("stock").expect("a key");
    say(&mut raw, "LPUSH stock apple");
    for call in [fence.check_and_set(&proof(34), "9"), fence.check_and_delete(&proof(34))] {
        let answer = send(&mut raw, &call.expect("a call"));
        assert_eq!(word_of(&answer), "foreign");
        assert!(answer.expect_err("foreign").to_string().contains("stock is a list"));
    }
    assert_eq!(mark(&mut raw, &fence), None, "what was not written raised nothing");
    assert_eq!(raw.say("LLEN stock").expect("an answer").integer(), Some(1));
}

#[test]
fn values_may_expire_and_be_deleted_and_marks_stay() {
    let server = server();
    let mut raw = server.raw();
    let fence = RedisFence::new("stock").expect("a key");
    let lasts = Duration::from_secs(3_600);
    let call = fence.check_and_set_for(&proof(34), "9", lasts).expect("a call");
    send(&mut raw, &call).expect("the first");
    let left = raw.say("PTTL stock").expect("an answer").integer().expect("a number");
    assert!((1..=3_600_000).contains(&left), "{left}");
    let ttl = |raw: &mut Raw| raw.say("PTTL {stock}:fence").expect("an answer").integer();
    assert_eq!(ttl(&mut raw), Some(-1), "a mark does not expire");

    // Somebody gave it an end: the next write takes that away.
    raw.say("PEXPIRE {stock}:fence 3600000").expect("an answer");
    let call = fence.check_and_set(&proof(34), "9").expect("a call");
    send(&mut raw, &call).expect("mine");
    assert_eq!(ttl(&mut raw), Some(-1));
    let data = raw.say("PTTL stock").expect("an answer").integer();
    assert_eq!(data, Some(-1), "a value that was set without an end has none");

    let call = fence.check_and_delete(&proof(35)).expect("a call");
    send(&mut raw, &call).expect("newer");
    assert_eq!(say(&mut raw, "GET stock"), None);
    let late = fence.check_and_set(&proof(34), "late").expect("a call");
    assert_eq!(word_of(&send(&mut raw, &late)), "stale 34 35", "also after the data are gone");
}

/// The server adds the time of day to how long a value lasts, and refuses what it cannot count.
#[test]
fn a_value_that_the_server_refuses_raises_no_mark() {
    let server = server();
    let mut raw = server.raw();
    let fence = RedisFence::new("stock").expect("a key");
    let longest = Duration::from_millis((1 << 53) - 1);
    let call = fence.check_and_set_for(&proof(33), "9", longest).expect("a call");
    assert_eq!(word_of(&send(&mut raw, &call)), "yes");
    let near = Duration::from_millis(i64::MAX.unsigned_abs());
    let refused = fence.check_and_set_for(&proof(34), "late", near);
    assert!(refused.is_err(), "before anything is sent: {refused:?}");
    // Nor by somebody else's hand.
    let call = fence.check_and_set_for(&proof(34), "late", longest).expect("a call");
    let mut words = call.words();
    let at = words.iter().position(|word| word == b"9007199254740991").expect("how long");
    words[at] = i64::MAX.to_string().into();
    let answer = raw.send(&words).expect("an answer").text().expect("a string");
    let error = call.outcome(&answer).expect_err("too long");
    assert!(error.to_string().contains("invalid expire"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert_eq!(mark(&mut raw, &fence).as_deref(), Some("33"));
    assert_eq!(say(&mut raw, "GET stock").as_deref(), Some("9"));
}

/// The user of a connection may raise marks and not write the data: what is reported as not done
/// was not done.
#[test]
fn a_user_who_may_not_write_the_data_raises_no_mark() {
    for flavour in [Flavour::default(), Flavour::Valkey] {
        let server = RedisServer::start(
            RedisConfig::default()
                .with_flavour(flavour)
                .with_user("keeper on nopass ~* +eval +type +get +set")
                .with_user("reader on nopass %RW~{stock}:fence %R~stock +@all"),
        );
        let mut admin = server.raw();
        let fence = RedisFence::new("stock").expect("a key");
        refused_users(&server, &fence, None);
        let call = fence.check_and_set(&proof(33), "9").expect("a call");
        send(&mut admin, &call).expect("newer");
        refused_users(&server, &fence, Some(33));
        assert_eq!(say(&mut admin, "GET stock").as_deref(), Some("9"));
    }
}

fn refused_users(server: &RedisServer, fence: &RedisFence, first_mark: Option<u64>) {
    let mut admin = server.raw();
    let delete = fence.check_and_delete(&proof(34)).expect("a call");
    let set = fence.check_and_set(&proof(34), "late").expect("a call");
    for (user, call, says) in [
        ("keeper", &delete, "writing the data of stock"),
        ("reader", &delete, "NOPERM"),
        ("reader", &set, "NOPERM"),
    ] {
        let mut raw = Raw::connect(server.address()).expect("connected");
        say(&mut raw, &format!("AUTH {user} any"));
        let error = send(&mut raw, call).expect_err("no right");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        let seen = |raw: &mut Raw| mark(raw, fence).and_then(|mark| mark.parse().ok());
        let end = std::time::Instant::now() + crate::support::LONG;
        while seen(&mut admin) != first_mark {
            assert!(std::time::Instant::now() < end, "{user}: {:?}", seen(&mut admin));
        }
    }
}

/// A server of a cluster refuses keys of two slots itself; ours are in one.
#[test]
fn in_a_cluster_mark_and_data_are_in_one_slot_and_two_are_refused() {
    let server = RedisServer::start(RedisConfig::default().with_line("cluster-enabled yes"));
    let mut raw = server.raw();
    say(&mut raw, "CLUSTER ADDSLOTSRANGE 0 16383");
    let ready = || server.raw().say("CLUSTER INFO").expect("an answer").text();
    let end = std::time::Instant::now() + crate::support::LONG;
    while !ready().is_some_and(|info| info.contains("cluster_state:ok")) {
        assert!(std::time::Instant::now() < end, "the cluster is never well");
        std::thread::yield_now();
    }
    for key in ["stock/17", "{stock}/17", "a{b", "x{y}}z", "äpfel"] {
        let fence = RedisFence::new(key).expect("a key");
        let slot = |raw: &mut Raw, key: &[u8]| {
            raw.send(&[b"CLUSTER".as_slice(), b"KEYSLOT", key]).expect("an answer").integer()
        };
        let data = slot(&mut raw, key.as_bytes());
        assert_eq!(slot(&mut raw, fence.mark_key()), data, "{key}");
        let call = fence.check_and_set(&proof(34), "9").expect("a call");
        send(&mut raw, &call).expect("one slot");
        let late = fence.check_and_set(&proof(33), "8").expect("a call");
        assert_eq!(word_of(&send(&mut raw, &late)), "stale 33 34");
    }
    let call = RedisFence::new("stock").expect("a key").check_and_set(&proof(34), "9");
    let mut words = call.as_ref().expect("a call").words();
    words[3] = b"elsewhere".to_vec();
    let Reply::Error(says) = raw.send(&words).expect("an answer") else { panic!("accepted") };
    let error = call.expect("a call").server_error(&says);
    assert!(says.starts_with("CROSSSLOT") && error.to_string().contains("CROSSSLOT"), "{error}");
}

/// A script of the user's own, with the guard in front of it.
const SELL: &str = concat!(
    include_str!("../../src/redis/guard.lua"),
    "local refusal = holdline_fence(KEYS[1], ARGV[1], ARGV[2])\n\
     if refusal then return refusal end\n\
     redis.call('HINCRBY', KEYS[2], 'apples', -tonumber(ARGV[3]))\n\
     return 'ok'\n"
);

#[test]
fn scripts_of_my_own_are_fenced_by_the_guard() {
    assert!(SELL.starts_with(REDIS_GUARD));
    let server = server();
    let mut raw = server.raw();
    say(&mut raw, "HSET stock:17 apples 10");
    let fence = RedisFence::new("{stock:17}").expect("a key");
    let fence = fence.with_mark("{stock:17}:fence").expect("one slot");
    let sell = |raw: &mut Raw, mine: u64| {
        let call = fence.call_script(SELL, &proof(mine), &[b"stock:17"], &[b"1"]);
        send(raw, &call.expect("a call"))
    };
    assert_eq!(word_of(&sell(&mut raw, 34)), "yes");
    assert_eq!(word_of(&sell(&mut raw, 33)), "stale 33 34");
    assert_eq!(say(&mut raw, "HGET stock:17 apples").as_deref(), Some("9"));
    say(&mut raw, "SET stock:17 text");
    let answer = sell(&mut raw, 35);
    assert_eq!(word_of(&answer), "failed Unknown", "WRONGTYPE of their own command: {answer:?}");
    assert_eq!(mark(&mut raw, &fence).as_deref(), Some("35"), "Redis undoes nothing by itself");
}

/// What is evicted is forgotten: the page says so, and this shows it.
#[test]
fn a_mark_that_is_gone_lets_late_holders_in() {
    let server = server();
    let mut raw = server.raw();
    let fence = RedisFence::new("stock").expect("a key");
    let newer = fence.check_and_set(&proof(34), "9").expect("a call");
    send(&mut raw, &newer).expect("the first");
    say(&mut raw, "DEL {stock}:fence");
    let late = fence.check_and_set(&proof(33), "late").expect("a call");
    assert_eq!(word_of(&send(&mut raw, &late)), "yes");
}

/// By the client that most have, and by the name of the script.
#[tokio::test]
async fn redis_rs_runs_the_calls() {
    let server = server();
    let client = redis::Client::open(format!("redis://{}", server.address())).expect("a URL");
    let mut db = client.get_multiplexed_async_connection().await.expect("connected");
    let fence = RedisFence::new("stock").expect("a key");
    for (mine, says) in [(34, "yes"), (33, "stale 33 34"), (35, "yes")] {
        let call = fence.check_and_set(&proof(mine), b"\x00\xff".as_slice()).expect("a call");
        let answer: String = redis::Script::new(call.script())
            .key(call.keys())
            .arg(call.arguments())
            .invoke_async(&mut db)
            .await
            .expect("an answer");
        assert_eq!(word_of(&call.outcome(&answer)), says);
    }
    let stored: Vec<u8> =
        redis::cmd("GET").arg("stock").query_async(&mut db).await.expect("an answer");
    assert_eq!(stored, b"\x00\xff", "any bytes");
}

/// Writers at once: what is stored last is what the largest token wrote.
#[test]
fn writers_at_once_end_with_the_largest_token() {
    let server = server();
    let acknowledged = in_threads(|_| {
        let mut raw = server.raw();
        let fence = RedisFence::new("stock").expect("a key");
        move |mine| {
            let call = fence.check_and_set(&proof(mine), mine.to_string());
            let answer = send(&mut raw, &call.expect("a call"));
            let seen = say(&mut raw, "GET stock").expect("stored");
            assert!(seen.parse::<u64>().expect("a number") >= mine);
            answer
        }
    });
    judge_acknowledged(&acknowledged);
    let stored = server.raw().say("GET stock").expect("an answer").text();
    assert_eq!(stored, Some(LARGEST.to_string()));
}

#[test]
fn valkey_runs_the_same_scripts() {
    let server = RedisServer::start(RedisConfig::default().with_flavour(Flavour::Valkey));
    let mut raw = server.raw();
    let fence = RedisFence::new("stock").expect("a key");
    for (mine, says) in [(34, "yes"), (33, "stale 33 34")] {
        let call = fence.check_and_set(&proof(mine), "9").expect("a call");
        assert_eq!(word_of(&send(&mut raw, &call)), says);
    }
}
