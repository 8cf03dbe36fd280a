//! Error replies of servers, and the errors that they become.

use super::*;
use Certainty::{NotApplied, Unknown};
use Kind::{Foreign, Protocol, Refused, Unavailable};

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Refused,
    Unavailable,
    Foreign,
    Protocol,
}

fn explained(line: &str) -> (Kind, Certainty, String) {
    let (code, rest) = line.split_once(' ').unwrap_or((line, ""));
    let error = refusal(ServerError::new(code, rest));
    let kind = match error.kind() {
        ErrorKind::Refused { .. } => Kind::Refused,
        ErrorKind::Unavailable { .. } => Kind::Unavailable,
        ErrorKind::Foreign { .. } => Kind::Foreign,
        ErrorKind::Protocol { .. } => Kind::Protocol,
        other => panic!("{other:?}"),
    };
    (kind, error.certainty(), error.to_string())
}

/// The server's line, and the kind, the certainty and a part of the message that it becomes.
const REPLIES: &[(&str, Kind, Certainty, &str)] = &[
    ("OOM command not allowed when used memory > 'maxmemory'.", Refused, NotApplied, "full"),
    (
        "OOM command not allowed when used memory > 'maxmemory'. script: \
         e0e1f9fabfc9d4800c877a703b823ac0578ff8db, on @user_script:1.",
        Refused,
        NotApplied,
        "memory is full",
    ),
    (
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to \
         persist to disk.",
        Refused,
        NotApplied,
        "cannot save to disk",
    ),
    ("READONLY You can't write against a read only replica.", Refused, NotApplied, "replica"),
    ("NOREPLICAS Not enough good replicas to write.", Refused, NotApplied, "few replicas"),
    ("LOADING Redis is loading the dataset in memory", Unavailable, NotApplied, "still loading"),
    (
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN \
         NOSAVE.",
        Unavailable,
        NotApplied,
        "busy with a script",
    ),
    (
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        Unavailable,
        NotApplied,
        "lost its master",
    ),
    ("CLUSTERDOWN The cluster is down", Unavailable, NotApplied, "cluster is down"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable, NotApplied, "moving"),
    ("MOVED 12182 127.0.0.1:7303", Refused, NotApplied, "node of a Redis Cluster"),
    ("ASK 12182 127.0.0.1:7303", Refused, NotApplied, "node of a Redis Cluster"),
    ("CROSSSLOT Keys in request don't hash to the same slot", Refused, NotApplied, "several nodes"),
    ("NOSCRIPT No matching script. Please use EVAL.", Protocol, NotApplied, "NOSCRIPT"),
    ("NOAUTH Authentication required.", Refused, NotApplied, "requires a password"),
    (
        "WRONGPASS invalid username-password pair or user is disabled.",
        Refused,
        NotApplied,
        "password is wrong",
    ),
    (
        "ERR AUTH <password> called without any password configured for the default user. \
         Are you sure your configuration is correct?",
        Refused,
        NotApplied,
        "has no password",
    ),
    (
        "NOPERM this user has no permissions to run the 'evalsha' command",
        Refused,
        NotApplied,
        "lacks +evalsha",
    ),
    (
        "NOPERM User locker has no permissions to run the 'client|setinfo' command",
        Refused,
        NotApplied,
        "lacks +client|setinfo",
    ),
    (
        "NOPERM this user has no permissions to access one of the keys used as arguments",
        Refused,
        NotApplied,
        "lacks ~KEYS",
    ),
    (
        "NOPERM this user has no permissions to access one of the channels used as arguments",
        Refused,
        NotApplied,
        "lacks &CHANNELS",
    ),
    (
        "ERR The user executing the script can't run this command or subcommand script: \
         e0e1f9fabfc9d4800c877a703b823ac0578ff8db, on @user_script:1.",
        Refused,
        Unknown,
        "a command that a script needs",
    ),
    (
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        Foreign,
        NotApplied,
        "another type",
    ),
    (
        "WRONGTYPE Operation against a key holding the wrong kind of value script: \
         e0e1f9fabfc9d4800c877a703b823ac0578ff8db, on @user_script:1.",
        Foreign,
        Unknown,
        "another type",
    ),
    (
        "ERR Error running script (call to f_e0e1): @user_script:12: WRONGTYPE Operation against a \
         key holding the wrong kind of value",
        Foreign,
        Unknown,
        "another type",
    ),
    (
        "ERR user_script:12: HOLDLINE-FOREIGN holdline:fence script: e0e1, on @user_script:12.",
        Foreign,
        Unknown,
        "counter of fencing tokens holds no number",
    ),
    (
        "ERR user_script:12: HOLDLINE-SPENT script: e0e1, on @user_script:12.",
        Refused,
        Unknown,
        "no fencing token is left",
    ),
    (
        "ERR user_script:12: attempt to compare nil with number script: e0e1, on @user_script:12.",
        Foreign,
        Unknown,
        "hold data of another program",
    ),
    (
        "ERR Unknown Redis command called from script script: e0e1, on @user_script:12.",
        Refused,
        Unknown,
        "does not know a command",
    ),
    (
        "ERR Error running script (call to f_e0e1): @user_script:41: @user_script: 41: -OOM \
         command not allowed when used memory > 'maxmemory'.",
        Refused,
        NotApplied,
        "memory is full",
    ),
    (
        "ERR Error running script (call to f_e0e1): @user_script:41: @user_script: 41: -READONLY \
         You can't write against a read only replica.",
        Refused,
        NotApplied,
        "is a replica",
    ),
    (
        "ERR Error running script (call to f_e0e1): @user_script:1: @user_script: 1: Wrong \
         number of args calling Redis command From Lua script",
        Protocol,
        Unknown,
        "Wrong number of args",
    ),
    ("ERR max number of clients reached", Unavailable, NotApplied, "accepts no more clients"),
    ("ERR DB index is out of range", Refused, NotApplied, "no such database"),
    ("ERR unknown command 'EVALSHA'", Refused, NotApplied, "does not know a command"),
    ("ERR syntax error", Protocol, NotApplied, "syntax error"),
    ("SOMETHING new", Protocol, NotApplied, "SOMETHING new"),
    ("", Protocol, NotApplied, "refused"),
];

#[test]
fn each_reply_has_its_kind_and_certainty() {
    for (line, kind, certainty, says) in REPLIES {
        let (its_kind, its_certainty, text) = explained(line);
        assert_eq!((&its_kind, &its_certainty), (kind, certainty), "{line}");
        assert!(text.contains(says), "{line}: {text}");
    }
}

#[test]
fn arguments_that_the_server_quotes_are_removed() {
    for line in [
        "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `u`, `canary`, ",
        "ERR Unknown command 'EVALX', with args beginning with: 'canary' ",
    ] {
        let (_, _, text) = explained(line);
        assert!(!text.contains("canary"), "{text}");
    }
    let long = format!("ERR {}", "x".repeat(100_000));
    assert!(explained(&long).2.len() < 1_000);
    assert!(!explained("ERR a\u{1b}[31mb").2.contains('\u{1b}'));
}

#[test]
fn an_error_that_a_script_caught_is_read_like_one_that_it_raised() {
    for (text, says) in [
        ("WRONGTYPE Operation against a key", "another type"),
        ("-WRONGTYPE Operation against a key", "another type"),
        ("user_script:12: attempt to index a nil value", "hold data of another program"),
        ("user_script:12: HOLDLINE-SPENT", "no fencing token is left"),
    ] {
        let error = refusal(ServerError::from_script(text));
        assert!(error.to_string().contains(says), "{error}");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert!(source.is_none_or(|source| !source.contains("user_script")), "{error}");
        assert_eq!(error.certainty(), Unknown);
    }
    let long = ServerError::from_script(&"x".repeat(100_000));
    assert!(long.in_script() && long.to_string().len() < 1_000);
    assert!(!explained("ERR odd script: e0e1, on @user_script:1.").2.contains("e0e1"));
}
