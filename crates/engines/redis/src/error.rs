//! The error replies of a Redis server, and the errors of the library that they become.
//!
//! An error reply to a command means that the command did nothing. An error from *inside* a script
//! differs: what the script wrote before it remains. If memory, disk, replicas or the role do not
//! allow writes, the server refuses the first write of a script and never a later one. So only
//! these errors of a script leave nothing behind.

use std::fmt;

use holdline_core::{Certainty, ErrorKind, LockError};

/// The engine's short name.
pub(crate) const ENGINE: &str = "redis";

/// How many characters of an error reply are kept.
const MAX_TEXT: usize = 300;

/// What the server puts between an error inside a script and the SHA-1 of that script.
const IN_SCRIPT: &str = " script: ";

/// An error reply: its code and the rest, without the arguments that it quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerError {
    pub(crate) code: String,
    pub(crate) rest: String,
}

impl ServerError {
    pub(crate) fn new(code: &str, rest: &str) -> ServerError {
        if let Some((code, rest)) = inside_script(code, rest) {
            return ServerError::new(code, &format!("{rest}{IN_SCRIPT}before 7.0"));
        }
        // The server quotes arguments of unknown commands: lease ids, passwords.
        let quoted = ["with args beginning with", ", with args"];
        let end = quoted.iter().filter_map(|mark| rest.find(mark)).min().unwrap_or(rest.len());
        let rest = if code == "ERR" { &rest[..end] } else { rest };
        let rest = rest.trim_end_matches([' ', ',']).chars().take(MAX_TEXT).collect();
        ServerError { code: code.to_owned(), rest }
    }

    /// Reads the text of an error that a script has caught.
    pub(crate) fn from_script(text: &str) -> ServerError {
        let (code, rest) = match text.trim_start_matches('-').split_once(' ') {
            Some((code, rest)) if code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                (code, rest)
            }
            _ => ("ERR", text),
        };
        // Leaves room for the mark of an error inside a script.
        let rest: String = rest.chars().take(MAX_TEXT / 2).collect();
        ServerError::new(code, &format!("{rest}{IN_SCRIPT}caught"))
    }

    /// Returns whether it was raised inside a script.
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

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The SHA-1 of a script and a line number mean nothing to a user.
        let rest = self.rest.split(IN_SCRIPT).next().unwrap_or_default();
        let shown = format!("{} {rest}", self.code);
        write!(f, "{}", holdline_core::Escaped(shown.trim_end()))
    }
}

impl std::error::Error for ServerError {}

/// No reply; `certainty` says whether the request may have been carried out.
pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

/// No master answers, or it has too few replicas, while other servers of its group answer: a new
/// master may come without an operator.
pub(crate) fn masterless(message: &str, certainty: Certainty) -> LockError {
    let nodes = vec![format!("no master accepts it: {message}")];
    LockError::new(ENGINE, ErrorKind::NoQuorum { nodes }, certainty)
}

/// The code of a master that has fewer replicas than `min-replicas-to-write`.
pub(crate) const NOREPLICAS: &str = "NOREPLICAS";

/// A master that has lost its replicas may have been replaced. The server says so before it writes
/// anything.
pub(crate) fn too_few_replicas(reply: ServerError) -> LockError {
    let message = format!(
        "it has too few replicas: it may have been replaced, and the others are queried; if it was \
         not, check its replicas or min-replicas-to-write ({reply})"
    );
    masterless(&message, Certainty::NotApplied).with_source(reply)
}

/// The reply is invalid. What the request did is unknown.
pub(crate) fn protocol(message: impl Into<String>) -> LockError {
    LockError::new(ENGINE, ErrorKind::Protocol { message: message.into() }, Certainty::Unknown)
}

/// Explains an error reply.
pub(crate) fn refusal(reply: ServerError) -> LockError {
    let (kind, first_write) = kind_of(&reply);
    let certainty = match (reply.in_script(), first_write) {
        (true, false) => Certainty::Unknown,
        _ => Certainty::NotApplied,
    };
    let error = LockError::new(ENGINE, kind, certainty);
    // The server's text of a failed script names a line of it, which helps no user.
    let script_failed = reply.code == "ERR" && reply.in_script();
    if script_failed { error } else { error.with_source(reply) }
}

/// Returns the kind, and whether the server checks for it only before a script's first write.
fn kind_of(reply: &ServerError) -> (ErrorKind, bool) {
    let refused = |advice: &str| ErrorKind::Refused { message: format!("{advice} ({reply})") };
    let later = |advice: &str| ErrorKind::Unavailable { message: format!("{advice} ({reply})") };
    match reply.code.as_str() {
        "OOM" => (refused("the server's memory is full: raise maxmemory"), true),
        "MISCONF" => (refused("the server cannot save to disk, so it accepts no writes"), true),
        "READONLY" => (refused("the server is a replica: name its master"), true),
        "NOREPLICAS" => (refused("the server has too few replicas, so it accepts no writes"), true),
        "LOADING" => (later("the server is still loading its data"), false),
        "BUSY" => (later("the server is busy with a script of another client"), false),
        "MASTERDOWN" => (later("the server is a replica that has lost its master"), false),
        "CLUSTERDOWN" => (later("the server's cluster is down"), false),
        "TRYAGAIN" => (later("the server's cluster is moving the keys"), false),
        "MOVED" | "ASK" => {
            (refused("the server is a node of a Redis Cluster: write `redis-cluster://`"), false)
        }
        "CROSSSLOT" => (refused("the keys of one lock are on several nodes of a cluster"), false),
        "NOAUTH" => {
            let advice =
                "the server requires a password: set it by `password_file` or `password_env`";
            (refused(advice), false)
        }
        "WRONGPASS" => (refused("user or password is wrong"), false),
        "NOPERM" => (refused(&lacks_right(&reply.rest)), false),
        "WRONGTYPE" => (foreign("a key of another type is there"), false),
        "ERR" => kind_of_general(reply),
        _ => (unexpected(reply), false),
    }
}

/// How a script fails on data that it did not write.
const SCRIPT_FAILURES: &[&str] =
    &["attempt to ", "bad argument", "not an integer", "not a valid float", "too many results"];

/// Explains `ERR` by its text.
fn kind_of_general(reply: &ServerError) -> (ErrorKind, bool) {
    let says = |text: &str| reply.rest.contains(text);
    let refused = |advice: &str| ErrorKind::Refused { message: format!("{advice} ({reply})") };
    let kind = if says("max number of clients") {
        let message = format!("the server accepts no more clients ({reply})");
        ErrorKind::Unavailable { message }
    } else if says("executing the script can't") {
        refused(&lacks_right(&reply.rest))
    } else if says("without any password configured") {
        refused("the server has no password: leave it out")
    } else if says("invalid password") {
        refused("user or password is wrong")
    } else if says("DB index is out of range") {
        refused("the server has no such database: change `db`")
    } else if says("cluster support disabled") {
        refused("the server is of no Redis Cluster: write `redis://`, or name a cluster's nodes")
    } else if says("access a non local key") || says("while the cluster is down") {
        let message = format!("the slot was moved while a script ran ({reply})");
        ErrorKind::Unavailable { message }
    } else if says("unknown command") || says("Unknown Redis command") {
        refused("the server does not know a command that we need")
    } else if says("HOLDLINE-FOREIGN") {
        foreign("the counter of fencing tokens holds no number of ours")
    } else if says("HOLDLINE-SPENT") {
        let message = "no fencing token is left: the counter is at its maximum";
        ErrorKind::Refused { message: message.to_owned() }
    } else if says("WRONGTYPE") {
        foreign("a key of another type is there")
    } else if reply.in_script() && SCRIPT_FAILURES.iter().any(|text| says(text)) {
        foreign("the keys of the name hold data of another program")
    } else {
        unexpected(reply)
    };
    (kind, false)
}

fn foreign(found: &str) -> ErrorKind {
    ErrorKind::Foreign { found: found.to_owned() }
}

fn unexpected(reply: &ServerError) -> ErrorKind {
    ErrorKind::Protocol {
        message: format!("the server refused a command that it should accept: {reply}"),
    }
}

/// Names the ACL rule that the user lacks, from the server's text.
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
