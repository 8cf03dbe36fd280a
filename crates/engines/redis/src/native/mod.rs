//! The native dialect: our own keys, one script a verb.
//!
//! A script carries out one step of the lock table, settling and handing over included, while the
//! server does nothing else. `scripts/common.lua` states the rules; what they share with the
//! table is what the conformance suite compares.

mod record;
pub(crate) mod replies;
pub(crate) mod requests;

use std::sync::LazyLock;

use crate::node::Script;

pub(crate) use replies::{acquired, inspected, listed, operated, released, renewed};
pub(crate) use requests::{Asker, acquire, alone, inspect, operate, release, renew};

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
    alone: Alone,
}

/// The scripts that touch the lock key alone; only a cluster needs them.
#[derive(Debug)]
struct Alone {
    acquire: Script,
    release: Script,
    renew: Script,
}

/// For one server.
pub(crate) static SERVER: Scripts = Scripts {
    acquire: script!("acquire", "head", "of_one", "acquire.fast", "draw", "common", "acquire"),
    release: script!("release", "head", "of_one", "release.fast", "draw", "common", "release"),
    renew: script!("renew", "head", "of_many", "renew.fast", "draw", "common", "renew"),
    inspect: script!("inspect", "head", "of_many", "draw", "common", "inspect"),
    operate: script!("operate", "head", "of_one", "draw", "common", "operate"),
    raise: script!("raise", "raise"),
    latch: script!("latch", "latch"),
    alone: Alone {
        acquire: script!("acquire_alone", "head", "of_one", "acquire_alone"),
        release: script!("release_alone", "head", "of_one", "release_alone"),
        renew: script!("renew_alone", "head", "renew.fast"),
    },
};

/// What differs in a cluster: the rules are the same.
///
/// A name's counter is its own and ends a day after it was last drawn from (what is put back there
/// is nobody's, or is drawn from next). Channels stand under what is before it, and how many of the
/// *node* hear a message says nothing about who hears it in the cluster. The last key of a script
/// about many names is the one that is never written.
const IN_CLUSTER: [(&str, &str); 7] = [
    ("'GETSET', COUNTER, since)", "'SET', COUNTER, since, 'PX', '86400000', 'GET')"),
    ("call('SET', COUNTER, token)", "call('SET', COUNTER, token, 'PX', '86400000')"),
    ("sub(COUNTER, 1, -6) .. 'inbox:'", INBOX),
    ("'l' .. sub(id, 1, 8)) ~= 0 then", "'l' .. sub(id, 1, 8)) then"),
    ("return heard ~= 0 or asking[sub(record, 1, 32)]", "return heard ~= nil"),
    ("KEYS[2] or 'holdline:fence'", "KEYS[2]"),
    ("for at = 2, #KEYS do", "for at = 2, #KEYS - 1 do"),
];
const INBOX: &str = "string.match(COUNTER, '^(.-)fence:{') .. 'inbox:'";

/// For the nodes of a cluster.
pub(crate) static CLUSTER: LazyLock<Scripts> = LazyLock::new(|| {
    let of = |script: &Script| script.with(&IN_CLUSTER);
    Scripts {
        acquire: of(&SERVER.acquire),
        release: of(&SERVER.release),
        renew: of(&SERVER.renew),
        inspect: of(&SERVER.inspect),
        operate: of(&SERVER.operate),
        raise: of(&SERVER.raise),
        latch: of(&SERVER.latch),
        alone: Alone {
            acquire: of(&SERVER.alone.acquire),
            release: of(&SERVER.alone.release),
            renew: of(&SERVER.alone.renew),
        },
    }
});

#[cfg(test)]
impl Scripts {
    /// All but the one that a cluster never runs, and that one.
    fn all(&self) -> ([&Script; 8], &Script) {
        let Scripts { acquire, release, renew, inspect, operate, raise, alone, .. } = self;
        let Alone { acquire: claim, release: end, renew: keep } = alone;
        ([acquire, release, renew, inspect, operate, claim, end, keep], raise)
    }
}

/// What the nodes of a cluster are asked to run.
#[cfg(test)]
pub(crate) fn texts_of_cluster() -> String {
    CLUSTER.all().0.map(Script::text).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phrase_that_differs_in_a_cluster_is_in_the_scripts_and_none_is_left() {
        let (server, cluster) = (SERVER.all().0.map(Script::text).join("\n"), texts_of_cluster());
        for (phrase, other) in IN_CLUSTER {
            assert!(server.contains(phrase), "{phrase}");
            let left = cluster.replace(other, "").contains(phrase);
            assert!(!left && cluster.contains(other), "{phrase}");
        }
        assert!(!cluster.contains("GETSET"));
        // The counter is written with an end, but where what was there is put back, and nothing but
        // what is named so far makes channels.
        let back = cluster.matches("call('SET', COUNTER, last)").count();
        let ends = cluster.matches("'SET', COUNTER,").count() - back;
        assert_eq!(ends, cluster.matches("'PX', '86400000'").count());
        assert_eq!(cluster.matches("inbox:").count(), cluster.matches(INBOX).count());
    }
}
