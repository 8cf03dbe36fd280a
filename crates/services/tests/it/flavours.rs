//! Every flavour of server really runs here, and is what it says.

use holdline_services::{Flavour, Raw, RedisConfig, RedisServer, Reply};

fn start(flavour: Flavour) -> (RedisServer, Raw) {
    let server = RedisServer::start(RedisConfig::default().with_flavour(flavour));
    let raw = server.raw();
    (server, raw)
}

fn info(raw: &mut Raw, field: &str) -> Option<String> {
    let text = raw.say("INFO server").expect("a reply").text()?;
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::to_owned)
}

#[test]
fn each_flavour_has_its_version() {
    for (flavour, field, version) in [
        (Flavour::Debian, "redis_version", "7."),
        (Flavour::Valkey, "valkey_version", "9.1."),
        (Flavour::Redis6, "redis_version", "6.2."),
        (Flavour::Redis8, "redis_version", "8.2."),
    ] {
        let (_server, mut raw) = start(flavour);
        let found = info(&mut raw, field).unwrap();
        assert!(found.starts_with(version), "{flavour:?} is {found}");
    }
}

#[test]
fn valkey_alone_compares_and_deletes() {
    for (flavour, compares) in [(Flavour::Valkey, true), (Flavour::Redis8, false)] {
        let (_server, mut raw) = start(flavour);
        raw.say("SET a 1").unwrap();
        let wrong = raw.say("DELIFEQ a 2").unwrap();
        let right = raw.say("DELIFEQ a 1").unwrap();
        if compares {
            assert_eq!((wrong, right), (Reply::Integer(0), Reply::Integer(1)));
        } else {
            assert!(right.error().unwrap().contains("unknown command"), "{right:?}");
        }
    }
}

#[test]
fn a_newer_server_stops_dies_and_moves_its_clock_too() {
    for flavour in [Flavour::Valkey, Flavour::Redis8] {
        let config = RedisConfig::default().with_flavour(flavour).with_clock();
        let server = RedisServer::start(config.with_appendonly("always"));
        server.raw().say("SET a 1 PX 1000000").unwrap();
        server.stop();
        server.cont();
        server.kill();
        server.restart();
        assert_eq!(server.raw().say("GET a").unwrap().text().as_deref(), Some("1"));
        server.clock().step_forward(std::time::Duration::from_secs(3600));
        server.await_clock();
        assert_eq!(server.raw().say("GET a").unwrap(), Reply::Nil);
    }
}
