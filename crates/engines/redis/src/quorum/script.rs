//! The scripts of a quorum's node.
//!
//! A script executes one atomic step of the definition in the core: `quorum::node` for the state of
//! a node in its set, `quorum::register` for the state of a name. `scripts/quorum_common.lua` and
//! `scripts/quorum_node.lua` state the rules; the tests beside this file compare them with the
//! definition.
//!
//! - S1: a vote needs the proof that the node keeps, which exists exactly while the node votes.
//! - S2: foreign data is never overwritten: a script reads before it writes, or writes only where
//!   there is no key.

use crate::keys::Layout;
use crate::link::Script;
use crate::lua_constants;

macro_rules! fragment {
    ($name:literal) => {
        include_str!(concat!("../../scripts/", $name, ".lua"))
    };
}

/// Makes a script of the file with its name, behind these fragments.
macro_rules! script {
    ($name:literal: $($fragment:literal),+) => {
        Script::with_constants(
            $name,
            lua_constants::quorum,
            concat!($(fragment!($fragment),)+ fragment!($name)),
        )
    };
}

/// Makes a script about the state of a node.
macro_rules! node_script {
    ($name:literal) => {
        script!($name: "head", "quorum_of_node", "quorum_common", "quorum_node")
    };
}

pub(super) static HANDSHAKE: Script = node_script!("quorum_handshake");
pub(super) static COMMAND: Script = node_script!("quorum_command");
pub(super) static RAISE: Script = node_script!("quorum_raise");

/// The scripts of one dialect for names.
#[derive(Debug)]
pub(super) struct Verbs {
    pub(super) acquire: Script,
    pub(super) write_back: Script,
    pub(super) release: Script,
    /// What `release` does, in so few bytes that it is sent as text.
    pub(super) undo: Script,
    pub(super) renew: Script,
    pub(super) record: Script,
    pub(super) heal: Script,
    pub(super) inspect: Script,
    pub(super) revoke: Script,
}

/// Makes the scripts: the first fragments read the keys, the last ones are the rules.
macro_rules! verbs {
    ($of_one:literal, $of_node:literal, $($rules:literal),+) => {
        Verbs {
            acquire: script!("quorum_acquire": "head", $of_one, "quorum_acquire_fast", $($rules),+),
            write_back: script!("quorum_write_back": "head", $of_one, $($rules),+),
            release: script!("quorum_release": "head", $of_one, "quorum_release_fast", $($rules),+),
            undo: script!("quorum_undo": "quorum_undo_head", $of_one),
            renew: script!(
                "quorum_renew": "head", $of_node, "quorum_renew_each", "renew_fast", $($rules),+
            ),
            record: script!("quorum_record": "head", $of_one, $($rules),+),
            heal: script!("quorum_heal": "head", $of_one, $($rules),+),
            inspect: script!("quorum_inspect": "head", $of_node, $($rules),+),
            revoke: script!("quorum_revoke": "head", $of_one, $($rules),+),
        }
    };
}

static NATIVE: Verbs = verbs!("quorum_of_one", "quorum_of_node", "quorum_common");
/// For keys where a foreign value is the lock of another client.
static PLAIN: Verbs =
    verbs!("quorum_plain_of_one", "quorum_plain_of_node", "quorum_common", "quorum_plain");

/// Returns the scripts for a key layout.
pub(super) fn verbs(layout: &Layout) -> &'static Verbs {
    if layout.is_plain() { &PLAIN } else { &NATIVE }
}
