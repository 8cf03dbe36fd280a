//! Faults: what a client sees of them, and what is left.

use std::time::Duration;

use holdline_sim::{Memory, RedisOptions, Trouble};

use crate::real::request;
use crate::time::Bench;

fn bytes(line: &str) -> Vec<u8> {
    request(&line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
}

#[test]
fn a_crash_keeps_or_loses_what_it_is_told_to() {
    let mut bench = Bench::new();
    bench.ask("set k old");
    let copy = bench.server.snapshot();
    bench.ask("set k new");
    let first = bench.server.run_id();
    for (memory, left) in
        [(Memory::Kept, "$3 new"), (Memory::Restored(copy), "$3 old"), (Memory::Lost, "_")]
    {
        let id = bench.id;
        bench.server.crash();
        assert!(!bench.server.is_open(id) && bench.server.connect().is_err());
        bench.server.restart(memory);
        bench.id = bench.server.connect().expect("it is up again");
        assert_eq!(bench.ask("get k"), left);
    }
    assert_ne!(bench.server.run_id(), first);
    assert_eq!(
        bench.ask("evalsha e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0"),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
}

#[test]
fn a_stopped_server_runs_later_what_arrived_even_of_closed_connections() {
    let mut bench = Bench::new();
    let (gone, stays) = (bench.server.connect().expect("up"), bench.server.connect().expect("up"));
    bench.server.freeze();
    bench.server.receive(gone, &bytes("set gone 1"));
    bench.server.receive(stays, &bytes("set stays 1"));
    bench.server.close(gone);
    let late = bench.server.connect().expect("connections are still accepted");
    bench.server.receive(late, &bytes("ping"));
    assert_eq!(bench.server.take_output(stays, 100), b"");
    bench.server.thaw();
    assert_eq!(bench.server.take_output(stays, 100), b"+OK\r\n");
    assert_eq!(bench.server.take_output(late, 100), b"+PONG\r\n");
    assert!(!bench.server.is_open(gone));
    assert_eq!(bench.ask("mget gone stays"), "*2 $1 1 $1 1");
}

#[test]
fn a_pause_of_clients_forgets_what_closed_connections_asked() {
    let mut bench = Bench::new();
    let (gone, stays) = (bench.server.connect().expect("up"), bench.server.connect().expect("up"));
    assert_eq!(bench.ask("client pause 800 write"), "+OK");
    bench.server.receive(gone, &bytes("set gone 1"));
    bench.server.receive(stays, &[bytes("get stays"), bytes("set stays 1")].concat());
    assert_eq!(bench.server.take_output(stays, 100), b"$-1\r\n");
    bench.server.close(gone);
    bench.clock.advance(Duration::from_millis(800));
    bench.server.tick();
    assert_eq!(bench.server.take_output(stays, 100), b"+OK\r\n");
    assert_eq!(bench.ask("mget gone stays"), "*2 _ $1 1");
}

#[test]
fn a_sleep_delays_its_own_reply_and_everybody_elses() {
    let mut bench = Bench::new();
    let other = bench.server.connect().expect("up");
    let id = bench.id;
    bench.server.receive(id, &bytes("debug sleep 1"));
    bench.server.receive(other, &bytes("ping"));
    bench.clock.advance(Duration::from_millis(999));
    bench.server.tick();
    assert_eq!(bench.server.take_output(other, 100), b"");
    bench.clock.advance(Duration::from_millis(1));
    bench.server.tick();
    assert_eq!(bench.server.take_output(id, 100), b"+OK\r\n");
    assert_eq!(bench.server.take_output(other, 100), b"+PONG\r\n");
}

#[test]
fn troubles_refuse_in_the_servers_words() {
    let table = [
        (Trouble::Loading, "get k", "-LOADING Redis is loading the dataset in memory"),
        (Trouble::Busy, "get k", "-BUSY Redis is busy running a script"),
        (Trouble::CannotPersist, "del k", "-MISCONF Redis is configured to save RDB snapshots"),
        (Trouble::Replica, "set k v", "-READONLY You can't write against a read only replica."),
        (Trouble::MasterDown, "get k", "-MASTERDOWN Link with MASTER is down"),
        (Trouble::TooFewReplicas, "set k v", "-NOREPLICAS Not enough good replicas to write."),
    ];
    let mut bench = Bench::new();
    for (trouble, command, says) in table {
        assert!(!bench.ask(command).starts_with('-'), "{trouble:?}");
        bench.server.begin(trouble);
        assert!(bench.ask(command).starts_with(says), "{trouble:?}");
        bench.server.end(trouble);
        assert!(!bench.ask(command).starts_with('-'), "{trouble:?}");
    }
    bench.server.begin(Trouble::Replica);
    assert!(bench.ask("info replication").contains("role:slave"));
    let id = bench.id;
    let reply = bench.server.execute(id, &[b"eval", b"return redis.call('set','k',1)", b"0"]);
    assert!(crate::time::shown(&reply[0]).starts_with("-READONLY You can't write against"));
}

#[test]
fn a_full_memory_refuses_or_evicts_by_its_policy() {
    let mut bench = Bench::new();
    bench.ask("set lock 1 px 100000");
    bench.server.configure("maxmemory", "950kb").expect("a setting");
    let mut last = String::new();
    for number in 0..2000 {
        last = bench.ask(&format!("set filler:{number} {}", "x".repeat(100)));
        if last.starts_with('-') {
            break;
        }
    }
    assert_eq!(last, "-OOM command not allowed when used memory > 'maxmemory'.");
    let id = bench.id;
    let reply = bench.server.execute(id, &[b"eval", b"return redis.call('set','k',1)", b"0"]);
    let says = crate::time::shown(&reply[0]);
    assert!(says.starts_with("-OOM command not allowed when used memory > 'maxmemory'. script: "));
    assert_eq!(bench.ask("pexpire lock 200000"), ":1");
    bench.server.configure("maxmemory-policy", "volatile-ttl").expect("a setting");
    bench.ask("set k 1");
    assert_eq!(bench.ask("exists lock"), ":0");
}

#[test]
fn messages_are_lost_by_the_seed_and_the_publisher_does_not_notice() {
    let heard = |seed: u64| {
        let mut bench = Bench::with(RedisOptions::default().with_seed(seed));
        let listener = bench.server.connect().expect("up");
        bench.ask_on(listener, "subscribe c");
        bench.server.lose_messages(500_000);
        for number in 0..200 {
            assert_eq!(bench.ask(&format!("publish c {number:03}")), ":1");
        }
        bench.server.take_output(listener, usize::MAX)
    };
    let each = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$3\r\n000\r\n".len();
    let count = heard(1).len() / each;
    assert!((50..150).contains(&count), "{count} of 200");
    assert_eq!(heard(1), heard(1));
    assert_ne!(heard(1), heard(2));
}

#[test]
fn a_reply_can_be_withheld_or_lost_while_its_command_ran() {
    let mut bench = Bench::new();
    let other = bench.server.connect().expect("up");
    bench.server.withhold_replies(other);
    bench.server.receive(other, &bytes("incr n"));
    assert_eq!(bench.server.take_output(other, 100), b"");
    assert_eq!(bench.ask("get n"), "$1 1");
    bench.server.release_replies(other);
    assert_eq!(bench.server.take_output(other, 100), b":1\r\n");
    bench.server.receive(other, &bytes("incr n"));
    bench.server.drop_replies(other);
    bench.server.kill_connection(other);
    assert!(!bench.server.is_open(other));
    assert_eq!(bench.ask("get n"), "$1 2");
}

#[test]
fn one_client_too_many_is_told_and_closed() {
    let mut bench = Bench::new();
    bench.server.configure("maxclients", "1").expect("a setting");
    let extra = bench.server.connect().expect("it is accepted first");
    let says = bench.server.take_output(extra, 100);
    assert_eq!(says, b"-ERR max number of clients reached\r\n");
    assert!(!bench.server.is_open(extra));
    let garbage = bench.id;
    bench.server.receive(garbage, b"*1\r\n!\r\n");
    let says = bench.server.take_output(garbage, 100);
    assert_eq!(says, b"-ERR Protocol error: expected '$', got '!'\r\n");
    assert!(!bench.server.is_open(garbage));
}

#[test]
fn a_flush_takes_everything_and_leaves_the_run_id() {
    let mut bench = Bench::new();
    let before = bench.server.run_id();
    bench.ask("set k v");
    bench.server.flush();
    assert_eq!(bench.server.key_count(0), 0);
    bench.ask("set k v");
    bench.server.delete_everything();
    assert_eq!(bench.ask("dbsize"), ":0");
    assert_eq!(bench.server.run_id(), before);
}

#[test]
fn passwords_and_forbidden_commands_refuse() {
    let mut bench = Bench::with(RedisOptions::default().with_password("secret"));
    assert_eq!(bench.ask("get k"), "-NOAUTH Authentication required.");
    assert!(bench.ask("auth wrong").starts_with("-WRONGPASS"));
    assert!(bench.ask("hello 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(bench.ask("hello 3 auth default secret").starts_with("%7"));
    bench.server.forbid("evalsha");
    bench.server.forbid("set");
    let says = "-NOPERM this user has no permissions to run the 'evalsha' command";
    assert_eq!(bench.ask("evalsha x 0"), says);
    let id = bench.id;
    let reply = bench.server.execute(id, &[b"eval", b"return redis.call('set','k',1)", b"0"]);
    let says = "-ERR The user executing the script can't run this command or subcommand script: ";
    assert!(crate::time::shown(&reply[0]).starts_with(says));
    let says = "This user has no permissions to run the 'set' command";
    assert!(bench.ask("acl dryrun default set k v").contains(says));
    assert_eq!(bench.ask("acl dryrun default get k"), "+OK");
    bench.server.allow_all();
    assert_eq!(bench.ask("set k v"), "+OK");
}

#[test]
fn newer_versions_compare_before_they_write() {
    let mut bench = Bench::new();
    assert!(bench.ask("delex k ifeq v").starts_with("-ERR unknown command 'delex'"));
    assert_eq!(bench.ask("command info delex"), "*1 _");
    let mut bench = Bench::with(RedisOptions::default().with_version(8, 4, 0));
    bench.ask("set k v");
    assert_eq!(bench.ask("set k w ifeq x"), "_");
    assert_eq!(bench.ask("set k w ifeq v px 1000"), "+OK");
    assert_eq!(bench.ask("delex k ifeq v"), ":0");
    assert_eq!(bench.ask("delex k ifeq w"), ":1");
    assert!(bench.ask("command info delex").starts_with("*1 *10 $5 delex"));
}
