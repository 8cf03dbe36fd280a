//! Each fault of the proxy, against a real server.

use holdline_services::{
    Fault, FaultProxy, Frames, Raw, RedisConfig, RedisServer, Reply, Traffic, What,
};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn ground() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address());
    (server, proxy)
}

fn through(proxy: &FaultProxy) -> Raw {
    Raw::connect(proxy.address()).expect("the proxy accepts")
}

/// Nothing comes while we look, and the connection stays.
fn assert_silent(raw: &mut Raw) {
    raw.set_timeout(SHORT).expect("a time");
    assert_eq!(raw.read().err().map(|why| why.kind()), Some(ErrorKind::WouldBlock));
    raw.set_timeout(LONG).expect("a time");
}

fn value_of(server: &RedisServer, key: &str) -> Option<String> {
    server.raw().send(&["GET", key]).expect("a reply").text()
}

#[test]
fn all_passes_and_is_counted() {
    let (server, proxy) = ground();
    let mut raw = through(&proxy);
    assert_eq!(raw.say("SET a 1").unwrap(), ok());
    // Two requests in one piece, and one in two.
    raw.write_bytes(b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4").unwrap();
    raw.write_bytes(b"\r\nPING\r\n").unwrap();
    for _ in 0..3 {
        assert_eq!(raw.read().unwrap(), Reply::Simple("PONG".to_owned()));
    }
    let big = "x".repeat(1 << 20);
    assert_eq!(raw.send(&["SET", "b", &big]).unwrap(), ok());
    assert_eq!(raw.say("GET b").unwrap().text(), Some(big));
    proxy.await_seen(Traffic::Replies, 6);
    assert_eq!(proxy.seen(Traffic::Requests), 6);
    assert_eq!(proxy.seen_on(1, Traffic::Requests), 6);
    assert_eq!(proxy.seen_on(2, Traffic::Requests), 0);
    assert_eq!(value_of(&server, "a").as_deref(), Some("1"));
    proxy.forget();
    assert_eq!(proxy.seen(Traffic::Requests), 0);
    drop(raw);
    proxy.await_event(|event| event.what == What::Closed);
    assert_eq!(proxy.open_connections(), 0);
}

#[test]
fn messages_are_no_replies() {
    let (server, proxy) = ground();
    for hello in ["HELLO 3", "HELLO 2"] {
        let mut raw = through(&proxy);
        raw.say(hello).unwrap();
        proxy.forget();
        proxy.inject(Frames::pushes().containing("lost"), Fault::Swallow);
        raw.say("SUBSCRIBE c").unwrap();
        for text in ["one", "lost", "two"] {
            server.raw().send(&["PUBLISH", "c", text]).unwrap();
        }
        let mut texts = Vec::new();
        for _ in 0..2 {
            texts.extend(raw.read().unwrap().items().unwrap().last().and_then(Reply::text));
        }
        assert_eq!(texts, ["one", "two"]);
        raw.say("PING").unwrap();
        assert_eq!((proxy.seen(Traffic::Pushes), proxy.seen(Traffic::Replies)), (4, 1));
        proxy.pass();
    }
}

#[test]
fn a_delay_delays() {
    let (_server, proxy) = ground();
    let mut raw = through(&proxy);
    proxy.inject(Frames::requests(), Fault::Delay(SHORT));
    proxy.inject(Frames::replies(), Fault::Delay(SHORT));
    let start = Instant::now();
    // Frames that arrive together are late together, not one after the other.
    for _ in 0..2_000 {
        raw.write(&["PING"]).unwrap();
    }
    for _ in 0..2_000 {
        raw.read().unwrap();
    }
    let took = start.elapsed();
    assert!(took >= 2 * SHORT && took < 2_000 * SHORT, "{took:?}");
}

#[test]
fn a_swallowed_request_is_never_run() {
    let (server, proxy) = ground();
    let mut raw = through(&proxy);
    proxy.inject(Frames::requests().nth(2), Fault::Swallow);
    assert_eq!(raw.say("SET a 1").unwrap(), ok());
    raw.write(&["SET", "b", "1"]).unwrap();
    assert_silent(&mut raw);
    assert_eq!(raw.say("SET c 1").unwrap(), ok());
    assert_eq!(value_of(&server, "b"), None);
    assert_eq!(value_of(&server, "c").as_deref(), Some("1"));
}

#[test]
fn the_reply_to_one_script_is_swallowed_and_the_script_was_run() {
    let (server, proxy) = ground();
    let mut raw = through(&proxy);
    let script = "return redis.call('SET', KEYS[1], 1)";
    let sha = raw.send(&["SCRIPT", "LOAD", script]).unwrap().text().unwrap();
    proxy.inject(Frames::replies().containing(&sha).nth(2), Fault::Swallow);
    for key in ["a", "b", "c"] {
        raw.send(&["SET", key, "0"]).unwrap();
        raw.write(&["EVALSHA", &sha, "1", key]).unwrap();
        if key == "b" {
            let swallowed = |e: &holdline_services::Event| e.fault == Some(Fault::Swallow);
            assert_eq!(proxy.await_event(swallowed).what, What::Frame(Traffic::Replies));
        } else {
            assert_eq!(raw.read().unwrap(), ok());
        }
        assert_eq!(value_of(&server, key).as_deref(), Some("1"));
    }
}

#[test]
fn a_connection_is_reset_with_the_reply_or_with_the_request() {
    let (server, proxy) = ground();
    for (frames, ran) in [(Frames::replies(), Some("1")), (Frames::requests(), None)] {
        let (mut raw, mut other) = (through(&proxy), through(&proxy));
        raw.say("DEL a").unwrap();
        proxy.inject(frames.containing("SET"), Fault::SwallowThenReset);
        let why = raw.say("SET a 1").unwrap_err();
        assert_eq!(why.kind(), ErrorKind::ConnectionReset);
        assert_eq!(value_of(&server, "a").as_deref(), ran);
        assert_eq!(other.say("PING").unwrap(), Reply::Simple("PONG".to_owned()));
        proxy.pass();
    }
}

#[test]
fn what_is_held_comes_in_order_when_it_is_thawed() {
    let (server, proxy) = ground();
    let (mut raw, mut other) = (through(&proxy), through(&proxy));
    raw.say("PING").unwrap();
    proxy.inject(Frames::requests().on_connection(1), Fault::Hold);
    raw.write(&["APPEND", "a", "1"]).unwrap();
    raw.write(&["APPEND", "a", "2"]).unwrap();
    proxy.await_seen(Traffic::Requests, 3);
    assert_eq!(other.say("GET a").unwrap(), Reply::Nil);
    proxy.thaw();
    assert_eq!(raw.read().unwrap().integer(), Some(1));
    assert_eq!(raw.read().unwrap().integer(), Some(2));
    proxy.inject(Frames::replies().on_connection(1), Fault::Hold);
    raw.write(&["APPEND", "a", "3"]).unwrap();
    proxy.await_event(|event| event.is_frame(Traffic::Replies, ":3"));
    assert_eq!(value_of(&server, "a").as_deref(), Some("123"));
    assert_silent(&mut raw);
    proxy.thaw();
    assert_eq!(raw.read().unwrap().integer(), Some(3));
}

#[test]
fn what_is_held_reaches_the_server_even_after_its_client_has_gone() {
    let (server, proxy) = ground();
    let mut raw = through(&proxy);
    proxy.inject(Frames::requests(), Fault::Hold);
    raw.write(&["SET", "a", "1"]).unwrap();
    proxy.await_seen(Traffic::Requests, 1);
    drop(raw);
    proxy.thaw();
    proxy.await_event(|event| event.is_frame(Traffic::Replies, "OK"));
    assert_eq!(value_of(&server, "a").as_deref(), Some("1"));
}

#[test]
fn a_reset_breaks_all_connections_and_frees_what_is_held() {
    let (server, proxy) = ground();
    let mut held = through(&proxy);
    let mut idle = through(&proxy);
    proxy.inject(Frames::requests(), Fault::Hold);
    held.write(&["SET", "a", "1"]).unwrap();
    proxy.await_seen(Traffic::Requests, 1);
    proxy.await_open_connections(2);
    proxy.reset();
    for raw in [&mut held, &mut idle] {
        assert_eq!(raw.read().unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(proxy.open_connections(), 0);
    proxy.pass();
    assert_eq!(through(&proxy).say("PING").unwrap(), Reply::Simple("PONG".to_owned()));
    // The held request died with its connection.
    assert_eq!(value_of(&server, "a"), None);
}

#[test]
fn one_connection_is_reset() {
    let (_server, proxy) = ground();
    let mut first = through(&proxy);
    first.say("PING").unwrap();
    let mut second = through(&proxy);
    second.say("PING").unwrap();
    proxy.reset_connection(1);
    assert_eq!(first.read().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(second.say("PING").unwrap(), Reply::Simple("PONG".to_owned()));
}

#[test]
fn new_connections_are_refused_and_old_ones_stay() {
    let (_server, proxy) = ground();
    let mut old = through(&proxy);
    old.say("PING").unwrap();
    for _ in 0..3 {
        proxy.refuse();
        let refused = Raw::connect(proxy.address()).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(old.say("PING").unwrap(), Reply::Simple("PONG".to_owned()));
        proxy.accept();
        assert_eq!(through(&proxy).say("PING").unwrap(), Reply::Simple("PONG".to_owned()));
    }
}

#[test]
fn bytes_dribble_one_by_one() {
    let (_server, proxy) = ground();
    let mut raw = through(&proxy);
    let pause = Duration::from_millis(2);
    proxy.inject(Frames::requests(), Fault::Dribble(pause));
    proxy.inject(Frames::replies(), Fault::Dribble(pause));
    let start = Instant::now();
    assert_eq!(raw.say("SET a 1").unwrap(), ok());
    // 27 bytes there, 5 back; the last pause may follow the reading of its byte.
    assert!(start.elapsed() >= pause * 31);
}

#[test]
fn a_fault_is_armed_after_some_frames() {
    let (server, proxy) = ground();
    let mut raw = through(&proxy);
    proxy.inject(Frames::requests().after(2).times(2), Fault::Swallow);
    for key in ["a", "b", "c", "d", "e"] {
        raw.write(&["SET", key, "1"]).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(raw.read().unwrap(), ok());
    }
    let found = ["a", "b", "c", "d", "e"].map(|key| value_of(&server, key).is_some());
    assert_eq!(found, [true, true, false, false, true]);
}

#[test]
fn a_dead_server_shows_as_a_reset_and_a_moved_one_is_followed() {
    let (server, proxy) = ground();
    let mut raw = through(&proxy);
    raw.say("PING").unwrap();
    server.kill();
    assert!(raw.say("PING").is_err());
    // The reset may come before the client has even set up its socket.
    assert!(Raw::connect(proxy.address()).and_then(|mut raw| raw.read()).is_err());
    proxy.await_event(|event| event.what == What::Unreachable);
    let other = RedisServer::start(RedisConfig::default());
    proxy.set_upstream(other.address());
    assert_eq!(through(&proxy).say("SET a 1").unwrap(), ok());
    assert_eq!(value_of(&other, "a").as_deref(), Some("1"));
}
