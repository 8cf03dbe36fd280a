//! Users, passwords, rights, and a server that is full.

use super::*;
use crate::link::{Call, Script};
use holdline_services::RedisConfig;

const CANARY: &str = "canary-91c2";
/// What the security notes allow a client of locks, for servers before 7.2.
const LEAST: &str = "reset on ~lock:* &lock:* +eval +evalsha +script|load +set +get +del +pexpire \
                     +pttl +incr +publish +subscribe +unsubscribe +ping +hello +auth \
                     +client|setname";

static SET: Script = Script::new("set", "return redis.call('SET', KEYS[1], ARGV[1])");
static TIME: Script = Script::new("time", "return redis.call('TIME')");

fn run(script: &'static Script, key: &str) -> Call {
    let (keys, arguments) = (Args::from([key]), Args::from(["v"]));
    Call { script, keys, arguments, routing: RoutingPolicy::Any, deadline: LONG }
}

fn with_user(rule: &str) -> RedisServer {
    RedisServer::start(RedisConfig::default().with_user(&format!("locker {rule} >{CANARY}")))
}

fn locker(server: &RedisServer) -> Link {
    link(&format!("redis://locker:{CANARY}@{}", server.address()))
}

fn assert_hidden(error: &LockError) {
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(CANARY), "{shown}");
}

#[tokio::test]
async fn the_least_rights_are_enough() {
    let server = with_user(LEAST);
    let link = locker(&server);
    assert_eq!(link.call(|| run(&SET, "lock:a")).await.expect("an answer"), ok());
    let mut inbox = link.subscribe(b"lock:c".to_vec());
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    let facts = link.last_facts().expect("a connection");
    assert_eq!((&facts.run_id, facts.resp), (&None, 3));
    let list = ask_server(&server, "CLIENT LIST").text().expect("text");
    assert!(list.contains(" name=holdline-"), "{list}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let server = with_user(LEAST);
    let link = locker(&server);
    let error = say(&link, "FLUSHALL").await.expect_err("no right");
    assert!(refused(&error).contains("lacks +flushall"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    let error = link.call(|| run(&SET, "other")).await.expect_err("no right");
    assert!(refused(&error).contains("lacks ~KEYS"), "{error}");
    let error = link.call(|| run(&TIME, "lock:a")).await.expect_err("no right");
    assert!(refused(&error).contains("that a script needs"), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown, "what the script did before stays");
    let error = say(&link, "PUBLISH other x").await.expect_err("no right");
    assert!(refused(&error).contains("lacks &CHANNELS"), "{error}");
}

#[tokio::test]
async fn a_server_without_hello_is_used_with_resp2() {
    // Servers before 6.0 do not know `HELLO`, and quote its password in their refusal.
    let config = RedisConfig::default().with_user(&format!("locker on ~* &* +@all >{CANARY}"));
    let server = RedisServer::start(config.with_line("rename-command HELLO \"\""));
    let link = locker(&server);
    assert_eq!(say(&link, "SET k v").await.expect("an answer"), ok());
    assert_eq!(link.last_facts().map(|facts| facts.resp), Some(2));
    let mut inbox = link.subscribe(b"c".to_vec());
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
}

#[tokio::test]
async fn a_wrong_password_is_reported_at_once_and_retried_rarely() {
    for (rule, protocol) in [("on ~* +@all >right", "resp3"), ("on ~* +@all >right", "resp2")] {
        let server =
            RedisServer::start(RedisConfig::default().with_user(&format!("locker {rule}")));
        let url = format!("redis://locker:{CANARY}@{}?protocol={protocol}", server.address());
        let link = link(&url);
        for _ in 0..200 {
            let error = say(&link, "PING").await.expect_err("refused");
            assert!(refused(&error).contains("password is wrong"), "{error}");
            assert_hidden(&error);
        }
        let stats = ask_server(&server, "INFO stats").text().expect("text");
        let received =
            stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        let received: u32 = received.expect("a line").trim().parse().expect("a number");
        assert!(received < 30, "{received} connections: a storm");
        assert!(!format!("{link:?}").contains(CANARY));
    }
}

#[tokio::test]
async fn a_missing_password_is_reported() {
    let server = RedisServer::start(RedisConfig::default().with_password(CANARY));
    for protocol in ["resp3", "resp2"] {
        let link = link(&format!("redis://{}/1?protocol={protocol}", server.address()));
        let error = say(&link, "PING").await.expect_err("refused");
        assert!(refused(&error).contains("requires a password"), "{error}");
    }
}

#[tokio::test]
async fn a_password_changed_while_connected_is_noticed_at_the_next_connection() {
    let server = RedisServer::start(RedisConfig::default().with_password(CANARY));
    let link = link(&server.url());
    assert_eq!(say(&link, "SET k v").await.expect("an answer"), ok());
    ask_server(&server, "CONFIG SET requirepass another");
    assert_eq!(say(&link, "GET k").await.expect("still connected"), bytes("v"));
    for id in connections(&server) {
        ask_server(&server, &format!("CLIENT KILL ID {id}"));
    }
    let error = async {
        loop {
            match say(&link, "GET k").await {
                Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let error = in_time(error).await;
    assert!(refused(&error).contains("password is wrong"), "{error}");
    assert_hidden(&error);
    ask_server(&server, &format!("CONFIG SET requirepass {CANARY}"));
    let mended = async {
        while say(&link, "GET k").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time(mended).await;
}

#[tokio::test]
async fn a_server_without_free_connections_is_reported_and_retried() {
    let server = RedisServer::start(RedisConfig::default().with_maxclients(3));
    let raws = [server.raw(), server.raw(), server.raw()];
    let link = link_at(server.address());
    // The refusal can be overtaken by the reset that follows it.
    let full = async {
        loop {
            let error = say(&link, "PING").await.expect_err("full");
            let message = unavailable(&error, Certainty::NotApplied);
            if message.contains("accepts no more clients") {
                return;
            }
            assert!(message.contains("broke off"), "{message}");
        }
    };
    in_time(full).await;
    drop(raws);
    in_time(async { while say(&link, "PING").await.is_err() {} }).await;
}
