//! The first line of a script: the times of the contract as locals of Lua.
//!
//! A script is built from fragments of text, which cannot name a constant of Rust. So the loader
//! writes the constants in front of the fragments.

use std::time::Duration;

use holdline_core::contract::{HAND_OVER_BATCH, MAX_HAND_OFF_LEASE, QUEUE_SILENCE};
use holdline_core::quorum::SKEW;
use holdline_core::quorum::configuration::MAX_LEASE_CAP;
use holdline_core::{ContractTimes, FencingToken};

/// How much longer than its contents a key lasts, so that a command can still see who expired.
const KEY_MARGIN: Duration = Duration::from_secs(5);

/// The default of Redisson's `fairLockWaitTimeout`.
const FAIR_LOCK_WAIT: Duration = Duration::from_secs(300);

// In a record, the lease of a hand-off has five digits of milliseconds.
const _: () = assert!(MAX_HAND_OFF_LEASE.as_millis() < 100_000);
// The scripts compute with the whole seconds of the server's clock.
const _: () = assert!(QUEUE_SILENCE.subsec_nanos() == 0);

/// Returns the constants of the native dialect: times in ms, or in seconds where the name ends with
/// `_S`, and a number.
///
/// - A waiter that sends no heartbeat for `SILENCE_S` is removed from the queue.
/// - Queue and data last for `KEEP`, which is renewed when less than `KEEP_LEAST` is left.
/// - A revoked lease id is remembered for at least `MIN_MEMORY`.
/// - A command hands off at most `MAX_HANDED` grants.
pub(crate) fn native(times: &ContractTimes) -> String {
    let silence = times.queue_silence.as_secs();
    let margin = KEY_MARGIN.as_millis();
    let keep_least = times.queue_silence.as_millis() + margin;
    format!(
        "local SILENCE_S, HEARTBEAT, MARGIN, KEEP, KEEP_LEAST, MIN_MEMORY, \
         MAX_LEASE, MAX_HANDED \
         = {silence}, {}, {margin}, '{}', {keep_least}, {}, {}, {HAND_OVER_BATCH}\n",
        times.queue_heartbeat.as_millis(),
        keep_least + 2 * margin,
        times.min_tombstone.as_millis(),
        times.max_lease.as_millis(),
    )
}

/// Returns the constants of the plain dialect, in ms.
pub(crate) fn plain(times: &ContractTimes) -> String {
    format!("local MAX_LEASE = {}\n", times.max_lease.as_millis())
}

/// Returns the constants of the Redisson dialect: in ms, but `MAX_TOKEN`, the largest token.
///
/// - Records last for `MARGIN` longer than their grant.
/// - `NEVER` is the end of a permit without a lease, as Redisson writes it.
pub(crate) fn redisson(times: &ContractTimes) -> String {
    format!(
        "local MAX_LEASE, MARGIN, NEVER, MAX_TOKEN = {}, {}, {}, {}\n",
        times.max_lease.as_millis(),
        KEY_MARGIN.as_millis(),
        i64::MAX / 10_000,
        FencingToken::MAX,
    )
}

/// Returns the constants of the Redisson dialect that a fair lock needs besides, in ms.
///
/// - A waiter of ours that sends no heartbeat for `SILENCE` is removed from the queue.
/// - `WAIT` is for how long Redisson takes a waiter for alive: its `fairLockWaitTimeout`.
pub(crate) fn redisson_fair(times: &ContractTimes) -> String {
    format!(
        "{}local SILENCE, HEARTBEAT, WAIT = {}, {}, {}\n",
        redisson(times),
        times.queue_silence.as_millis(),
        times.queue_heartbeat.as_millis(),
        FAIR_LOCK_WAIT.as_millis(),
    )
}

/// Returns the constants of a quorum's scripts: in ms, and `SKEW` in µs. `MAX_LEASE` is the longest
/// lease of any set, and a mark lasts for at least `MIN_MEMORY`.
pub(crate) fn quorum(times: &ContractTimes) -> String {
    format!(
        "local MAX_LEASE, MIN_MEMORY, SKEW = {}, {}, {}\n",
        MAX_LEASE_CAP.as_millis(),
        times.min_tombstone.as_millis(),
        SKEW.as_micros(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_follow_the_contract() {
        let second = Duration::from_secs(1);
        let times = ContractTimes {
            queue_silence: 17 * second,
            queue_heartbeat: 18 * second,
            min_tombstone: 19 * second,
            max_lease: 21 * second,
            ..ContractTimes::DEFAULT
        };
        let native = native(&times);
        assert!(native.ends_with(" = 17, 18000, 5000, '32000', 22000, 19000, 21000, 64\n"));
        assert_eq!(plain(&times), "local MAX_LEASE = 21000\n");
        assert!(redisson(&times).ends_with(" = 21000, 5000, 922337203685477, 9007199254740991\n"));
        assert!(
            redisson_fair(&times)
                .ends_with("\nlocal SILENCE, HEARTBEAT, WAIT = 17000, 18000, 300000\n")
        );
        assert!(quorum(&times).ends_with(" = 600000, 19000, 1000000\n"));
    }
}
