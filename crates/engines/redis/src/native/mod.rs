//! The native dialect: our own keys, and one script for each verb.
//!
//! A script executes one atomic step of the lock table, including settling and hand-off.
//! `scripts/common.lua` states the rules; the conformance suite compares them with the table.

mod record;
pub(crate) mod replies;
pub(crate) mod requests;

use crate::node::Script;

pub(crate) use replies::{acquired, inspected, listed, operated, released, renewed};
pub(crate) use requests::{
    RequestContext, acquire, inspect, lock_key_only, operate, release, renew,
};

macro_rules! script {
    ($name:literal, $($part:literal),+) => {
        Script::new($name, concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+))
    };
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
    lock_key_only: LockKeyScripts,
}

/// The scripts that use the lock key only, for a cluster.
#[derive(Debug)]
struct LockKeyScripts {
    acquire: Script,
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
                "head",
                $many,
                "native",
                "renew_fast",
                "draw",
                "common",
                "renew"
            ),
            inspect: script!("inspect", "head", $many, "native", "draw", "common", "inspect"),
            operate: script!("operate", "head", $one, "native", "draw", "common", "operate"),
            raise: script!("raise", "raise"),
            latch: script!("latch", "latch"),
            lock_key_only: LockKeyScripts {
                acquire: script!("acquire_lock_key", "head", $one, "native", "acquire_lock_key"),
                release: script!("release_lock_key", "head", $one, "release_lock_key"),
                renew: script!("renew_lock_key", "head", "renew_fast"),
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

#[cfg(test)]
impl Scripts {
    /// Returns the texts of all scripts but `raise`, which a cluster never runs, and `latch`, which
    /// draws no token.
    pub(crate) fn texts(&self) -> String {
        let Scripts { acquire, release, renew, inspect, operate, lock_key_only, .. } = self;
        let LockKeyScripts { acquire: claim, release: end, renew: keep } = lock_key_only;
        let all = [acquire, release, renew, inspect, operate, claim, end, keep];
        all.map(Script::text).join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            match line.starts_with("if CLUSTER then") {
                true => assert!(line.contains("'PX', COUNTER_LIFE"), "{line}"),
                false => {
                    assert!(line.starts_with("else "), "{line}");
                    assert!(lines[at - 1].starts_with("if CLUSTER then"), "{line}");
                }
            }
        }
        assert!(writes > 6, "{writes}");
    }
}
