//! The plain dialect: a lock is one string key, as with other libraries that use `SET key value NX
//! PX`.
//!
//! A client that knows the value is the holder. Our value is the lease id in the chosen format;
//! with fencing, the other data of a grant follow it (`scripts/plain_common.lua`). With
//! `fencing=off`, acquire and release are exactly the two commands of those libraries.
//!
//! - Invariant D1: a value that is not ours is never overwritten, extended or deleted: every script
//!   compares it in the same atomic step.
//! - Invariant D2: there are no notifications and no queue, as holders of other libraries publish
//!   nothing: waiters poll. The exception is the list on which python-redis-lock's waiters block,
//!   if the options name it.
//!
//! Read next: `engine` for the verbs, the module `plain_record` for how a value is read.

mod engine;
mod given_up;
mod keys;
mod replies;
mod requests;

use crate::link::Script;
use crate::lua_constants;

pub(crate) use engine::NoHints;
pub use engine::PlainEngine;
pub(crate) use given_up::GivenUp;
pub(crate) use keys::Keys;
pub(crate) use replies::ValueReader;
pub(crate) use requests::RequestContext;

macro_rules! script {
    ($name:literal, constants, $($part:literal),+) => {
        Script::with_constants(
            $name,
            lua_constants::plain,
            concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+),
        )
    };
    ($name:literal, $($part:literal),+) => {
        Script::new($name, concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+))
    };
}

static ACQUIRE: Script = script!(
    "plain_acquire",
    constants,
    "head",
    "server_many",
    "draw",
    "plain_acquire_fast",
    "plain_common",
    "plain_acquire"
);
/// For clusters, where each request is a script.
static SET_NX: Script = script!("plain_set_nx", "plain_set_nx");
static RELEASE: Script =
    script!("plain_release", constants, "plain_release_fast", "plain_common", "plain_release");
static RENEW: Script = script!("plain_renew", constants, "plain_common", "plain_renew");
static INSPECT: Script = script!("plain_inspect", constants, "plain_common", "plain_inspect");
static FORCE: Script = script!("plain_force", constants, "plain_common", "plain_force");
static REVOKE: Script = script!("plain_revoke", constants, "plain_common", "plain_revoke");
static RAISE: Script = script!("raise", "raise");
