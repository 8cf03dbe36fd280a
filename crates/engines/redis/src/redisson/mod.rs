//! The dialect of Redisson, the Java library: a lock of ours is the Redisson object of its name.
//!
//! A mutex is an `RLock` (with fencing, an `RFencedLock`), a read/write lock an `RReadWriteLock`, a
//! semaphore an `RPermitExpirableSemaphore`, a latch an `RCountDownLatch`. A mutex that is to be
//! fair is an `RFairLock`, and a counting semaphore an `RSemaphore`. Keys, fields, channels
//! and messages are Redisson's; the scripts are ours. `docs/redisson.md` has the table.
//!
//! - Invariant J1: what is no Redisson object of the kind that was requested is reported as
//!   `Foreign` and never changed. Redisson's own read/write lock takes a held `RLock` for a free
//!   one, and then both clients hold it.
//! - Invariant J2: the owner of a lock is our lease id, written as Redisson's `uuid:id`. So a late
//!   or repeated request is distinguished from the next one.
//! - Invariant J3: each full release, and no other, publishes Redisson's message.
//! - Invariant J4: a message is a hint. Waiters also poll, as an expiry and a spin lock publish
//!   nothing.
//!
//! Read next: `engine` for the verbs, `names` for the keys, `scripts/redisson_common.lua` for the
//! rules.

mod calls;
mod counting;
mod engine;
mod fair;
mod moving;
mod names;
mod node;
mod owner;
mod replies;
mod requests;
mod wakes;

use crate::link::Script;
use crate::lua_constants;

pub use engine::RedissonEngine;
pub(crate) use names::Names;
pub(crate) use node::NodeRequests;
use owner::JavaOwner;

macro_rules! script {
    ($name:literal, fair, $($part:literal),+) => {
        script!(@ $name, lua_constants::redisson_fair, $($part),+)
    };
    ($name:literal, $($part:literal),+) => {
        script!(@ $name, lua_constants::redisson, $($part),+)
    };
    (@ $name:literal, $constants:path, $($part:literal),+) => {
        Script::with_constants(
            $name,
            $constants,
            concat!($(include_str!(concat!("../../scripts/", $part, ".lua"))),+),
        )
    };
}

/// The field of a lock's hash that has the record of our grant.
pub(crate) const RECORD: &str = "holdline";

/// The length of a client's UUID.
const UUID_LENGTH: usize = 36;

/// Returns whether the hash of a mutex or of a read/write lock may have this field.
pub(crate) fn is_field_of_lock(field: &str) -> bool {
    let is_owner = || JavaOwner::parse(field).is_some_and(|one| one.uuid.len() == UUID_LENGTH);
    field == RECORD || field == "mode" || is_owner()
}

static LOCK: Script = script!(
    "redisson_lock",
    fair,
    "redisson_lock_fast",
    "redisson_common",
    "redisson_fair_queue",
    "redisson_lock"
);
static FAIR: Script =
    script!("redisson_fair", fair, "redisson_common", "redisson_fair_queue", "redisson_fair");
static FAIR_WAIT: Script = script!(
    "redisson_fair_wait",
    fair,
    "redisson_common",
    "redisson_fair_queue",
    "redisson_fair_wait"
);
static READ_WRITE: Script =
    script!("redisson_read_write", "redisson_common", "redisson_read_write");
static PERMITS: Script = script!("redisson_permits", "redisson_common", "redisson_permits");
static RELEASE: Script = script!(
    "redisson_release",
    fair,
    "redisson_release_fast",
    "redisson_common",
    "redisson_fair_queue",
    "redisson_grants",
    "redisson_release"
);
static RENEW: Script = script!(
    "redisson_renew",
    fair,
    "redisson_common",
    "redisson_fair_queue",
    "redisson_grants",
    "redisson_extend_permits",
    "redisson_renew"
);
/// The same by the lock's own key, while its slot migrates.
static RELEASE_LOCK: Script = script!("redisson_release_lock", "redisson_release_fast");
static RENEW_LOCK: Script =
    script!("redisson_renew_lock", "redisson_common", "redisson_renew_lock");
static RENEW_KEY: Script = script!(
    "redisson_renew_key",
    "redisson_common",
    "redisson_extend_permits",
    "redisson_renew_key"
);
static REVOKE: Script = script!(
    "redisson_revoke",
    fair,
    "redisson_common",
    "redisson_fair_queue",
    "redisson_grants",
    "redisson_revoke"
);
static FORCE: Script =
    script!("redisson_force", fair, "redisson_common", "redisson_fair_queue", "redisson_force");
static INSPECT: Script = script!("redisson_inspect", "redisson_common", "redisson_inspect");
static COUNTING: Script =
    Script::new("redisson_counting", include_str!("../../scripts/redisson_counting.lua"));
static LATCH: Script = Script::new("latch", include_str!("../../scripts/redisson_latch.lua"));
