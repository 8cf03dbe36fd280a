//! The native dialect: our own keys, and one script for each verb.
//!
//! A script executes one atomic step of the lock table, including settling and hand-off.
//! `scripts/common.lua` states the rules; the conformance suite compares them with the table.

mod engine;
pub(crate) mod listing;
pub(crate) mod record;
pub(crate) mod replies;
pub(crate) mod requests;
pub(crate) mod trail;

use std::time::Duration;

use crate::keys::Layout;
use crate::link::Script;
use crate::lua_constants;

pub use engine::RedisEngine;
pub(crate) use engine::capabilities;
pub(crate) use replies::{acquired, inspected, listed, operated, released, renewal, renewed};
pub(crate) use requests::{acquire, inspect, lock_key_only, operate, release, renew};

macro_rules! script {
    ($name:literal, constants, $($part:literal),+) => {
        Script::with_constants(
            $name,
            lua_constants::native,
            concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+),
        )
    };
    ($name:literal, $($part:literal),+) => {
        Script::new($name, concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+))
    };
}

/// What all requests share: how keys are made, the inbox of this process, and the deadline.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) layout: Layout,
    pub(crate) scripts: &'static Scripts,
    /// Sixteen hex digits; zeros stand for no inbox.
    pub(crate) inbox: String,
    pub(crate) deadline: Duration,
}

/// The scripts of all verbs.
#[derive(Debug)]
pub(crate) struct Scripts {
    acquire: Script,
    release: Script,
    renew: Script,
    inspect: Script,
    operate: Script,
    raise: Script,
    latch: Script,
    audit: Script,
    lock_key_only: LockKeyScripts,
}

/// The scripts that use the lock key only, for a cluster.
#[derive(Debug)]
struct LockKeyScripts {
    release: Script,
    renew: Script,
}

/// Builds the scripts from fragments. The first two arguments name the fragments that read the
/// keys: for scripts about one name, and for scripts about many. They also set `CLUSTER`, which is
/// true in a cluster; the other fragments read it.
macro_rules! scripts {
    ($one:literal, $many:literal) => {
        Scripts {
            acquire: script!(
                "acquire",
                constants,
                "head",
                $one,
                "native",
                "acquire_fast",
                "draw",
                "common",
                "acquire"
            ),
            release: script!(
                "release",
                constants,
                "head",
                $one,
                "native",
                "release_fast",
                "draw",
                "common",
                "release"
            ),
            renew: script!(
                "renew",
                constants,
                "head",
                $many,
                "native",
                "renew_each",
                "renew_fast",
                "draw",
                "common",
                "renew"
            ),
            inspect: script!(
                "inspect", constants, "head", $many, "native", "draw", "common", "inspect"
            ),
            operate: script!(
                "operate", constants, "head", $one, "native", "draw", "common", "operate"
            ),
            raise: script!("raise", "raise"),
            latch: script!("latch", "latch"),
            audit: script!("audit", "audit"),
            lock_key_only: LockKeyScripts {
                release: script!("release_lock_key", "head", $one, "release_lock_key"),
                renew: script!("renew_lock_key", "head", "renew_each", "renew_fast"),
            },
        }
    };
}

/// For one server.
pub(crate) static SERVER: Scripts = scripts!("server_one", "server_many");

/// For the nodes of a cluster.
///
/// Three things differ there. Each name has a counter of its own, which expires a day after its
/// last use. `PUBLISH` counts the subscribers of the *node* only, so its result says nothing about
/// the cluster's. And the last key of each call never exists.
pub(crate) static CLUSTER: Scripts = scripts!("cluster_one", "cluster_many");

impl Scripts {
    /// Returns the script of the audit trail, which knows no lock.
    pub(crate) fn audit(&self) -> &Script {
        &self.audit
    }
}

#[cfg(test)]
impl Scripts {
    /// Returns the texts of all scripts but `raise`, which a cluster never runs, and those that
    /// draw no token: `latch` and `audit`.
    pub(crate) fn texts(&self) -> String {
        self.of_names().map(Script::text).join("\n")
    }

    fn of_names(&self) -> [&Script; 7] {
        let Scripts { acquire, release, renew, inspect, operate, lock_key_only, .. } = self;
        let LockKeyScripts { release: end, renew: keep } = lock_key_only;
        [acquire, release, renew, inspect, operate, end, keep]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::ContractTimes;

    use super::*;

    /// Without its first line a script would find no times.
    #[test]
    fn scripts_that_use_times_begin_with_those_of_the_contract() {
        let queue_silence = Duration::from_secs(17);
        let times = ContractTimes { queue_silence, ..ContractTimes::DEFAULT };
        let first_line = lua_constants::native(&times);
        let (_, names) = first_line.split_once("local ").expect("a declaration");
        let (names, _) = names.split_once(" = ").expect("values");
        for scripts in [&SERVER, &CLUSTER] {
            for script in scripts.of_names() {
                let text = script.text_with(&times);
                let is_used = |name: &str| {
                    let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
                    let no_word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                    code.flat_map(|line| line.split(no_word)).any(|word| word == name)
                };
                let uses_times = names.split(", ").any(is_used);
                assert_eq!(text.starts_with(&first_line), uses_times, "{}", script.name());
            }
        }
    }

    /// In a cluster a counter is never written without an expiry, but where its old value, which is
    /// not ours or is drawn from next, is restored.
    #[test]
    fn each_write_of_a_counter_has_its_form_for_a_cluster() {
        let texts = CLUSTER.texts();
        let lines: Vec<&str> = texts.lines().map(str::trim).collect();
        let mut writes = 0;
        for (at, line) in lines.iter().enumerate() {
            let writes_counter =
                line.contains("'SET', COUNTER") || line.contains("'GETSET', COUNTER");
            if !writes_counter || line.contains("COUNTER, last)") {
                continue;
            }
            writes += 1;
            if line.starts_with("if CLUSTER then") {
                assert!(line.contains("'PX', COUNTER_LIFE"), "{line}");
            } else {
                assert!(line.starts_with("else "), "{line}");
                assert!(lines[at - 1].starts_with("if CLUSTER then"), "{line}");
            }
        }
        assert!(writes > 6, "{writes}");
    }
}
