//! What a node of a quorum runs.
//!
//! A script carries out one step of what the core defines (`quorum::node` for what a node keeps of
//! its set, `quorum::register` for what it keeps of a name) while the server does nothing else.
//! `scripts/quorum_common.lua` and `scripts/quorum_node.lua` state the rules; the tests beside
//! this file hold them against the definition.
//!
//! - S1: a vote is given only to who shows the pass that the node keeps, which is there exactly
//!   while its gate is open.
//! - S2: what is not ours is never overwritten: a script looks before it writes, or writes only
//!   where nothing is.

use crate::keys::Layout;
use crate::node::Script;

macro_rules! script {
    ($name:literal, $($part:literal),+) => {
        Script::new($name, concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+))
    };
}

pub(super) static GREET: Script = script!(
    "quorum_greet",
    "head",
    "quorum_of_node",
    "quorum_common",
    "quorum_node",
    "quorum_greet"
);
pub(super) static TELL: Script =
    script!("quorum_tell", "head", "quorum_of_node", "quorum_common", "quorum_node", "quorum_tell");
pub(super) static RAISE: Script = script!(
    "quorum_raise",
    "head",
    "quorum_of_node",
    "quorum_common",
    "quorum_node",
    "quorum_raise"
);

/// The scripts of one dialect about names.
#[derive(Debug)]
pub(super) struct Verbs {
    pub(super) acquire: Script,
    pub(super) write_back: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) record: Script,
    pub(super) heal: Script,
    pub(super) inspect: Script,
    pub(super) revoke: Script,
}

/// Makes the scripts of which the first parts tell the keys, and the last what the rules are.
macro_rules! verbs {
    ($of_one:literal, $of_node:literal, $($rules:literal),+) => {
        Verbs {
            acquire: script!(
                "quorum_acquire",
                "head",
                $of_one,
                "quorum_acquire_fast",
                $($rules,)+
                "quorum_acquire"
            ),
            write_back: script!(
                "quorum_write_back",
                "head",
                $of_one,
                $($rules,)+
                "quorum_write_back"
            ),
            release: script!(
                "quorum_release",
                "head",
                $of_one,
                "quorum_release_fast",
                $($rules,)+
                "quorum_release"
            ),
            renew: script!(
                "quorum_renew",
                "head",
                $of_node,
                "quorum_renew_fast",
                $($rules,)+
                "quorum_renew"
            ),
            record: script!("quorum_record", "head", $of_one, $($rules,)+ "quorum_record"),
            heal: script!("quorum_heal", "head", $of_one, $($rules,)+ "quorum_heal"),
            inspect: script!("quorum_inspect", "head", $of_node, $($rules,)+ "quorum_inspect"),
            revoke: script!("quorum_revoke", "head", $of_one, $($rules,)+ "quorum_revoke"),
        }
    };
}

static NATIVE: Verbs = verbs!("quorum_of_one", "quorum_of_node", "quorum_common");
/// Where what is not ours is somebody's lock like ours.
static PLAIN: Verbs =
    verbs!("quorum_plain_of_one", "quorum_plain_of_node", "quorum_common", "quorum_plain");

/// Returns the scripts for keys that look so.
pub(super) fn verbs(layout: &Layout) -> &'static Verbs {
    if layout.is_plain() { &PLAIN } else { &NATIVE }
}
