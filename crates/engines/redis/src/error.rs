//! What can go wrong with a Redis server, and what the library is told about it.
//!
//! An error of the server says that its command did nothing. An error from *inside* a script is
//! another matter: what the script wrote before it stays. The server refuses a first write for
//! want of memory, disk, replicas or the right role, never a later one; so only those leave
//! nothing behind.

use std::fmt;

use holdline_core::{Certainty, ErrorKind, LockError};

/// The engine's short name.
pub(crate) const ENGINE: &str = "redis";

/// How much of the server's own words is kept.
const LONGEST_WORDS: usize = 300;

/// What the server puts between an error inside a script and the sum of that script.
const IN_SCRIPT: &str = " script: ";

/// An error of the server: its first word and the rest, without what it quotes of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerWords {
    pub(crate) code: String,
    pub(crate) rest: String,
}

impl ServerWords {
    pub(crate) fn new(code: &str, rest: &str) -> ServerWords {
        if let Some((code, rest)) = inside_script(code, rest) {
            return ServerWords::new(code, &format!("{rest}{IN_SCRIPT}before 7.0"));
        }
        // The server quotes arguments of what it does not understand: lease ids, passwords.
        let quoted = ["with args beginning with", ", with args"];
        let end = quoted.iter().filter_map(|mark| rest.find(mark)).min().unwrap_or(rest.len());
        let rest = if code == "ERR" { &rest[..end] } else { rest };
        let rest = rest.trim_end_matches([' ', ',']).chars().take(LONGEST_WORDS).collect();
        ServerWords { code: code.to_owned(), rest }
    }

    /// The text of an error that a script caught.
    pub(crate) fn caught(text: &str) -> ServerWords {
        let (code, rest) = match text.trim_start_matches('-').split_once(' ') {
            Some((code, rest)) if code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                (code, rest)
            }
            _ => ("ERR", text),
        };
        // Enough room for the mark by which an error of a script is known.
        let rest: String = rest.chars().take(LONGEST_WORDS / 2).collect();
        ServerWords::new(code, &format!("{rest}{IN_SCRIPT}caught"))
    }

    /// Whether a script raised it.
    pub(crate) fn in_script(&self) -> bool {
        self.rest.contains(IN_SCRIPT) || self.rest.contains("@user_script")
    }
}

/// Returns the error that stopped a script, as Redis before 7.0 wraps it:
/// `ERR Error running script (…): @user_script:41: @user_script: 41: -OOM command not allowed …`.
fn inside_script<'a>(code: &str, rest: &'a str) -> Option<(&'a str, &'a str)> {
    let (line, error) = rest.split_once("@user_script: ")?.1.split_once(": -")?;
    let (inner, text) = error.split_once(' ')?;
    let is_code = inner.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_line = line.bytes().all(|byte| byte.is_ascii_digit());
    (code == "ERR" && is_line && is_code).then_some((inner, text))
}

impl fmt::Display for ServerWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The sum of a script and its line tell a user nothing.
        let rest = self.rest.split(IN_SCRIPT).next().unwrap_or_default();
        let shown = format!("{} {rest}", self.code);
        write!(f, "{}", holdline_core::Escaped(shown.trim_end()))
    }
}

impl std::error::Error for ServerWords {}

/// No answer; `certainty` tells whether the request may have been carried out.
pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

/// No master answers, or it has too few replicas, while others of its group are there: so there
/// may be one again by itself.
pub(crate) fn masterless(message: &str, certainty: Certainty) -> LockError {
    let nodes = vec![format!("no master takes it: {message}")];
    LockError::new(ENGINE, ErrorKind::NoQuorum { nodes }, certainty)
}

/// What a master answers that has fewer replicas than `min-replicas-to-write`.
pub(crate) const LONELY: &str = "NOREPLICAS";

/// A master that has lost its replicas may have been replaced: that passes, or an operator sees to
/// it. The server says so before it writes anything.
pub(crate) fn lonely(words: ServerWords) -> LockError {
    let message = format!(
        "it has too few replicas: it may have been replaced, and the others are asked; if it was \
         not, see to its replicas or to min-replicas-to-write ({words})"
    );
    masterless(&message, Certainty::NotApplied).with_source(words)
}

/// The server answered what it must not. What the request did is unknown.
pub(crate) fn protocol(message: impl Into<String>) -> LockError {
    LockError::new(ENGINE, ErrorKind::Protocol { message: message.into() }, Certainty::Unknown)
}

/// What an error of the server means.
pub(crate) fn refusal(words: ServerWords) -> LockError {
    let (kind, first_write) = kind_of(&words);
    let certainty = match (words.in_script(), first_write) {
        (true, false) => Certainty::Unknown,
        _ => Certainty::NotApplied,
    };
    let error = LockError::new(ENGINE, kind, certainty);
    // What stopped a script is told in our words: its own name a line of its text.
    let stumbled = words.code == "ERR" && words.in_script();
    if stumbled { error } else { error.with_source(words) }
}

/// The kind, and whether the server checks for it before a script's first write only.
fn kind_of(words: &ServerWords) -> (ErrorKind, bool) {
    let refused = |advice: &str| ErrorKind::Refused { message: format!("{advice} ({words})") };
    let later = |advice: &str| ErrorKind::Unavailable { message: format!("{advice} ({words})") };
    match words.code.as_str() {
        "OOM" => (refused("the server's memory is full: raise maxmemory"), true),
        "MISCONF" => (refused("the server cannot save to disk, so it takes no writes"), true),
        "READONLY" => (refused("the server is a replica: name its master"), true),
        "NOREPLICAS" => (refused("the server has too few replicas, so it takes no writes"), true),
        "LOADING" => (later("the server is still loading its data"), false),
        "BUSY" => (later("the server is busy with a script of somebody"), false),
        "MASTERDOWN" => (later("the server is a replica that has lost its master"), false),
        "CLUSTERDOWN" => (later("the server's cluster is down"), false),
        "TRYAGAIN" => (later("the server's cluster is moving the keys"), false),
        "MOVED" | "ASK" => {
            (refused("the server is a node of a Redis Cluster: write `redis-cluster://`"), false)
        }
        "CROSSSLOT" => (refused("the keys of one lock lie on several nodes of a cluster"), false),
        "NOAUTH" => (refused("the server wants a password"), false),
        "WRONGPASS" => (refused("user or password is wrong"), false),
        "NOPERM" => (refused(&lacks_right(&words.rest)), false),
        "WRONGTYPE" => (foreign("a key of another type stands there"), false),
        "ERR" => kind_of_general(words),
        _ => (unexpected(words), false),
    }
}

/// How a script stumbles over data that it did not write.
const STUMBLES: &[&str] =
    &["attempt to ", "bad argument", "not an integer", "not a valid float", "too many results"];

/// `ERR` stands for much: its text tells what.
fn kind_of_general(words: &ServerWords) -> (ErrorKind, bool) {
    let says = |text: &str| words.rest.contains(text);
    let refused = |advice: &str| ErrorKind::Refused { message: format!("{advice} ({words})") };
    let kind = if says("max number of clients") {
        let message = format!("the server has as many clients as it takes ({words})");
        ErrorKind::Unavailable { message }
    } else if says("executing the script can't") {
        refused(&lacks_right(&words.rest))
    } else if says("without any password configured") {
        refused("the server knows no password: leave it out")
    } else if says("invalid password") {
        refused("user or password is wrong")
    } else if says("DB index is out of range") {
        refused("the server has no such database: change `db`")
    } else if says("cluster support disabled") {
        refused("the server is of no Redis Cluster: write `redis://`, or name a cluster's nodes")
    } else if says("access a non local key") || says("while the cluster is down") {
        let message = format!("the slot was moved while a script ran ({words})");
        ErrorKind::Unavailable { message }
    } else if says("unknown command") || says("Unknown Redis command") {
        refused("the server does not know a command that we need")
    } else if says("HOLDLINE-FOREIGN") {
        foreign("the counter of fencing tokens is no number of ours")
    } else if says("HOLDLINE-SPENT") {
        let message = "no fencing token is left: the counter stands at the largest there is";
        ErrorKind::Refused { message: message.to_owned() }
    } else if says("WRONGTYPE") {
        foreign("a key of another type stands there")
    } else if words.in_script() && STUMBLES.iter().any(|text| says(text)) {
        foreign("the keys of the name hold what we do not write there")
    } else {
        unexpected(words)
    };
    (kind, false)
}

fn foreign(found: &str) -> ErrorKind {
    ErrorKind::Foreign { found: found.to_owned() }
}

fn unexpected(words: &ServerWords) -> ErrorKind {
    ErrorKind::Protocol { message: format!("the server refused what it should know: {words}") }
}

/// Names the rule that the server's ACL lacks, from the server's words.
fn lacks_right(rest: &str) -> String {
    let quoted = || rest.split_once("run the '")?.1.split_once('\'').map(|(command, _)| command);
    if rest.contains("channel") {
        "the user may not use our channels: its ACL lacks &CHANNELS".to_owned()
    } else if rest.contains("key") {
        "the user may not use our keys: its ACL lacks ~KEYS".to_owned()
    } else if let Some(command) = quoted() {
        format!("the user may not run a command: its ACL lacks +{command}")
    } else {
        "the user may not run a command that a script needs: its ACL lacks it".to_owned()
    }
}

#[cfg(test)]
mod tests;
