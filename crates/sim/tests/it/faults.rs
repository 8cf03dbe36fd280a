//! Faults: what a client sees of them, and what is left.

use std::time::Duration;

use holdline_sim::{Memory, RedisOptions, ServerCondition};

use crate::time::TestServer;
use holdline_services::resp::command as request;

fn bytes(line: &str) -> Vec<u8> {
    request(&line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
}

#[test]
fn a_crash_keeps_or_loses_data_as_asked() {
    let mut server = TestServer::new();
    server.ask("set k old");
    let copy = server.server.snapshot();
    server.ask("set k new");
    let first = server.server.run_id();
    for (memory, left) in
        [(Memory::Kept, "$3 new"), (Memory::Restored(copy), "$3 old"), (Memory::Lost, "_")]
    {
        let id = server.id;
        server.server.crash();
        assert!(!server.server.is_open(id) && server.server.connect().is_err());
        server.server.restart(memory);
        server.id = server.server.connect().expect("it is up again");
        assert_eq!(server.ask("get k"), left);
    }
    assert_ne!(server.server.run_id(), first);
    assert_eq!(
        server.ask("evalsha e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0"),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
}

#[test]
fn a_stopped_server_runs_later_what_arrived_even_of_closed_connections() {
    let mut server = TestServer::new();
    let (gone, stays) =
        (server.server.connect().expect("up"), server.server.connect().expect("up"));
    server.server.freeze();
    server.server.receive(gone, &bytes("set gone 1"));
    server.server.receive(stays, &bytes("set stays 1"));
    server.server.close(gone);
    let late = server.server.connect().expect("connections are still accepted");
    server.server.receive(late, &bytes("ping"));
    assert_eq!(server.server.take_output(stays, 100), b"");
    server.server.thaw();
    assert_eq!(server.server.take_output(stays, 100), b"+OK\r\n");
    assert_eq!(server.server.take_output(late, 100), b"+PONG\r\n");
    assert!(!server.server.is_open(gone));
    assert_eq!(server.ask("mget gone stays"), "*2 $1 1 $1 1");
}

#[test]
fn a_pause_of_clients_forgets_what_closed_connections_asked() {
    let mut server = TestServer::new();
    let (gone, stays) =
        (server.server.connect().expect("up"), server.server.connect().expect("up"));
    assert_eq!(server.ask("client pause 800 write"), "+OK");
    server.server.receive(gone, &bytes("set gone 1"));
    server.server.receive(stays, &[bytes("get stays"), bytes("set stays 1")].concat());
    assert_eq!(server.server.take_output(stays, 100), b"$-1\r\n");
    server.server.close(gone);
    server.clock.advance(Duration::from_millis(800));
    server.server.tick();
    assert_eq!(server.server.take_output(stays, 100), b"+OK\r\n");
    assert_eq!(server.ask("mget gone stays"), "*2 _ $1 1");
}

#[test]
fn a_sleep_delays_its_own_reply_and_everybody_elses() {
    let mut server = TestServer::new();
    let other = server.server.connect().expect("up");
    let id = server.id;
    server.server.receive(id, &bytes("debug sleep 1"));
    server.server.receive(other, &bytes("ping"));
    server.clock.advance(Duration::from_millis(999));
    server.server.tick();
    assert_eq!(server.server.take_output(other, 100), b"");
    server.clock.advance(Duration::from_millis(1));
    server.server.tick();
    assert_eq!(server.server.take_output(id, 100), b"+OK\r\n");
    assert_eq!(server.server.take_output(other, 100), b"+PONG\r\n");
}

#[test]
fn conditions_reject_with_the_servers_messages() {
    let table = [
        (ServerCondition::Loading, "get k", "-LOADING Redis is loading the dataset in memory"),
        (ServerCondition::Busy, "get k", "-BUSY Redis is busy running a script"),
        (
            ServerCondition::CannotPersist,
            "del k",
            "-MISCONF Redis is configured to save RDB snapshots",
        ),
        (
            ServerCondition::Replica,
            "set k v",
            "-READONLY You can't write against a read only replica.",
        ),
        (ServerCondition::MasterDown, "get k", "-MASTERDOWN Link with MASTER is down"),
        (
            ServerCondition::TooFewReplicas,
            "set k v",
            "-NOREPLICAS Not enough good replicas to write.",
        ),
    ];
    let mut server = TestServer::new();
    for (condition, command, text) in table {
        assert!(!server.ask(command).starts_with('-'), "{condition:?}");
        server.server.begin(condition);
        assert!(server.ask(command).starts_with(text), "{condition:?}");
        server.server.end(condition);
        assert!(!server.ask(command).starts_with('-'), "{condition:?}");
    }
    server.server.begin(ServerCondition::Replica);
    assert!(server.ask("info replication").contains("role:slave"));
    let id = server.id;
    let reply = server.server.execute(id, &[b"eval", b"return redis.call('set','k',1)", b"0"]);
    assert!(crate::time::resp3_text(&reply[0]).starts_with("-READONLY You can't write against"));
}

#[test]
fn a_full_memory_refuses_or_evicts_by_its_policy() {
    let mut server = TestServer::new();
    server.ask("set lock 1 px 100000");
    server.server.configure("maxmemory", "950kb").expect("a setting");
    let mut last = String::new();
    for number in 0..2000 {
        last = server.ask(&format!("set filler:{number} {}", "x".repeat(100)));
        if last.starts_with('-') {
            break;
        }
    }
    assert_eq!(last, "-OOM command not allowed when used memory > 'maxmemory'.");
    let id = server.id;
    let reply = server.server.execute(id, &[b"eval", b"return redis.call('set','k',1)", b"0"]);
    let text = crate::time::resp3_text(&reply[0]);
    assert!(text.starts_with("-OOM command not allowed when used memory > 'maxmemory'. script: "));
    assert_eq!(server.ask("pexpire lock 200000"), ":1");
    server.server.configure("maxmemory-policy", "volatile-ttl").expect("a setting");
    server.ask("set k 1");
    assert_eq!(server.ask("exists lock"), ":0");
}

#[test]
fn messages_are_lost_by_the_seed_unnoticed_by_the_publisher() {
    let received = |seed: u64| {
        let mut server = TestServer::with(RedisOptions::default().with_seed(seed));
        let subscriber = server.server.connect().expect("up");
        server.ask_on(subscriber, "subscribe c");
        server.server.lose_messages(500_000);
        for number in 0..200 {
            assert_eq!(server.ask(&format!("publish c {number:03}")), ":1");
        }
        server.server.take_output(subscriber, usize::MAX)
    };
    let each = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$3\r\n000\r\n".len();
    let count = received(1).len() / each;
    assert!((50..150).contains(&count), "{count} of 200");
    assert_eq!(received(1), received(1));
    assert_ne!(received(1), received(2));
}

#[test]
fn one_client_too_many_gets_an_error_and_is_closed() {
    let mut server = TestServer::new();
    server.server.configure("maxclients", "1").expect("a setting");
    let extra = server.server.connect().expect("it is accepted first");
    let text = server.server.take_output(extra, 100);
    assert_eq!(text, b"-ERR max number of clients reached\r\n");
    assert!(!server.server.is_open(extra));
    let garbage = server.id;
    server.server.receive(garbage, b"*1\r\n!\r\n");
    let text = server.server.take_output(garbage, 100);
    assert_eq!(text, b"-ERR Protocol error: expected '$', got '!'\r\n");
    assert!(!server.server.is_open(garbage));
}

#[test]
fn a_flush_deletes_everything_and_keeps_the_run_id() {
    let mut server = TestServer::new();
    let before = server.server.run_id();
    server.ask("set k v");
    server.server.flush();
    assert_eq!(server.server.key_count(0), 0);
    assert_eq!(server.server.run_id(), before);
}

#[test]
fn a_password_is_enforced() {
    let mut server = TestServer::with(RedisOptions::default().with_password("secret"));
    assert_eq!(server.ask("get k"), "-NOAUTH Authentication required.");
    assert!(server.ask("auth wrong").starts_with("-WRONGPASS"));
    assert!(server.ask("hello 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(server.ask("hello 3 auth default secret").starts_with("%7"));
}
