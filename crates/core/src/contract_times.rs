//! The times that every engine keeps, for text that cannot name a constant of Rust.
//!
//! Rust code uses the constants of [`crate::lease`] and [`crate::contract`]. SQL, Lua, help texts
//! and descriptions are built from text with placeholders, by functions that take
//! [`ContractTimes`]. The product passes [`ContractTimes::DEFAULT`]; the tests pass other values,
//! and check that no number of the default is left.
//!
//! Invariant C1: each of these times is a number in one line of the product's source. `cargo xtask
//! tidy` (rule `one-constant`) finds a copy, also in Rust. An attribute takes no constant: there a
//! comment names it.

use std::time::Duration;

use crate::contract::{MIN_TOMBSTONE, QUEUE_HEARTBEAT, QUEUE_SILENCE};
use crate::lease::{DEFAULT_LEASE, MAX_FIRST_LEASE, MAX_LEASE};

/// The times that stand in SQL, Lua, help texts and descriptions.
///
/// The lease of a hand-off is not among them: each request carries it, and no text has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractTimes {
    /// [`DEFAULT_LEASE`].
    pub default_lease: Duration,
    /// [`MAX_FIRST_LEASE`].
    pub max_first_lease: Duration,
    /// [`MAX_LEASE`].
    pub max_lease: Duration,
    /// [`MIN_TOMBSTONE`].
    pub min_tombstone: Duration,
    /// [`QUEUE_SILENCE`].
    pub queue_silence: Duration,
    /// [`QUEUE_HEARTBEAT`].
    pub queue_heartbeat: Duration,
}

impl ContractTimes {
    /// The values of the constants, which the product uses.
    pub const DEFAULT: ContractTimes = ContractTimes {
        default_lease: DEFAULT_LEASE,
        max_first_lease: MAX_FIRST_LEASE,
        max_lease: MAX_LEASE,
        min_tombstone: MIN_TOMBSTONE,
        queue_silence: QUEUE_SILENCE,
        queue_heartbeat: QUEUE_HEARTBEAT,
    };

    /// Replaces each placeholder `@field@`, such as `@queue_silence@`, by what `write` makes of
    /// the time.
    pub fn fill(&self, text: &str, write: impl Fn(Duration) -> String) -> String {
        let ContractTimes {
            default_lease,
            max_first_lease,
            max_lease,
            min_tombstone,
            queue_silence,
            queue_heartbeat,
        } = *self;
        let fields = [
            ("@default_lease@", default_lease),
            ("@max_first_lease@", max_first_lease),
            ("@max_lease@", max_lease),
            ("@min_tombstone@", min_tombstone),
            ("@queue_silence@", queue_silence),
            ("@queue_heartbeat@", queue_heartbeat),
        ];
        fields.iter().fold(text.to_owned(), |text, (placeholder, time)| {
            if text.contains(placeholder) { text.replace(placeholder, &write(*time)) } else { text }
        })
    }

    /// Replaces the placeholders by whole microseconds, the unit of the SQL engines.
    pub fn fill_micros(&self, text: &str) -> String {
        self.fill(text, |time| time.as_micros().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_is_replaced_by_its_own_time() {
        let text = "@default_lease@ @max_first_lease@ @max_lease@ @min_tombstone@ \
                    @queue_silence@ @queue_heartbeat@ @p@ @schema@";
        let second = Duration::from_secs(1);
        let times = ContractTimes {
            default_lease: second,
            max_first_lease: 2 * second,
            max_lease: 3 * second,
            min_tombstone: 4 * second,
            queue_silence: 5 * second,
            queue_heartbeat: 6 * second,
        };
        let seconds = times.fill(text, |time| time.as_secs().to_string());
        assert_eq!(seconds, "1 2 3 4 5 6 @p@ @schema@");
        assert_eq!(times.fill_micros("x @queue_silence@"), "x 5000000");
    }
}
