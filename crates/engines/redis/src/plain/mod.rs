//! The plain dialect: one string key a lock, as `SET key value NX PX` clients of other libraries
//! have it.
//!
//! Who holds is whoever can show the value. Ours is the lease id in the format that was chosen;
//! where tokens are given, what else we keep of a grant stands behind it
//! (`scripts/plain_common.lua`). With `fencing=off` taking and releasing are exactly the two
//! commands of those libraries.
//!
//! - Invariant D1: a value that is not ours is never overwritten, extended or deleted: every script
//!   compares it in the step in which it acts.
//! - Invariant D2: nobody is told anything. A holder of another library publishes nothing, so
//!   there is no queue and waiting is asking again; only the list that python-redis-lock's waiters
//!   block on is served, where it was named.
//!
//! Read next: `engine` for the verbs, `record` for what a value tells.

mod engine;
mod given_up;
mod keys;
mod lease;
mod record;
mod replies;
mod requests;

use crate::node::Script;

pub use engine::PlainEngine;
pub(crate) use engine::Silence;
pub(crate) use given_up::GivenUp;
pub(crate) use keys::Keys;
pub use lease::LeaseFormat;
pub(crate) use record::Record;
pub(crate) use replies::Reading;
pub(crate) use requests::Asker;

macro_rules! script {
    ($name:literal, $($part:literal),+) => {
        Script::new($name, concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+))
    };
}

static ACQUIRE: Script = script!(
    "plain_acquire",
    "head",
    "of_many",
    "draw",
    "plain_acquire_fast",
    "plain_common",
    "plain_acquire"
);
static RELEASE: Script =
    script!("plain_release", "plain_release_fast", "plain_common", "plain_release");
static RENEW: Script = script!("plain_renew", "plain_common", "plain_renew");
static INSPECT: Script = script!("plain_inspect", "plain_common", "plain_inspect");
static REVOKE: Script = script!("plain_revoke", "plain_common", "plain_revoke");
static RAISE: Script = script!("raise", "raise");
