//! Count-down latches: a number that only falls, and waiters that wait for zero.
//!
//! A latch is no lock: nobody holds it, and it has no lease. One name may be a lock and a latch,
//! and the two know nothing of each other. A latch whose count is zero is not stored, so one that
//! was never set is open.
//! Invariant T1: the count of a latch that is set only falls, and it is set again only from zero.

use serde::{Deserialize, Serialize};

use crate::capabilities::Capabilities;
use crate::error::LockError;

/// The largest count of a latch.
pub const MAX_COUNT: u64 = 1_000_000_000;

/// A command to a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatchCommand {
    /// Sets the count, unless it is above zero.
    Set(u64),
    /// Lowers the count by as much, at most to zero.
    CountDown(u64),
    /// Asks for the count.
    Count,
}

/// How a latch stands after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LatchReply {
    /// The count.
    pub count: u64,
    /// Whether the command changed it.
    pub changed: bool,
}

impl LatchCommand {
    /// Checks what no store need be asked for.
    ///
    /// # Errors
    /// `Unsupported` where the engine has no latches, `Invalid` for a count that is out of range.
    pub fn check(self, capabilities: &Capabilities) -> Result<(), LockError> {
        if !capabilities.latch {
            return Err(capabilities.lacks("latches"));
        }
        match self {
            LatchCommand::Set(count) | LatchCommand::CountDown(count)
                if !(1..=MAX_COUNT).contains(&count) =>
            {
                let message = format_args!("must be from 1 to {MAX_COUNT}, not {count}");
                Err(LockError::invalid(capabilities.engine, "count", message))
            }
            _ => Ok(()),
        }
    }

    /// Applies the command to a count; zero is a latch that is not stored.
    pub fn apply(self, count: u64) -> LatchReply {
        let after = match self {
            LatchCommand::Set(to) if count == 0 => to,
            LatchCommand::Set(_) | LatchCommand::Count => count,
            LatchCommand::CountDown(by) => count.saturating_sub(by),
        };
        LatchReply { count: after, changed: after != count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_only_falls_and_is_set_from_zero() {
        use LatchCommand::{Count, CountDown, Set};
        for (command, before, count, changed) in [
            (Count, 0, 0, false),
            (Count, 3, 3, false),
            (Set(3), 0, 3, true),
            (Set(5), 3, 3, false),
            (CountDown(1), 3, 2, true),
            (CountDown(5), 3, 0, true),
            (CountDown(1), 0, 0, false),
        ] {
            assert_eq!(
                command.apply(before),
                LatchReply { count, changed },
                "{command:?} {before}"
            );
        }
    }

    #[test]
    fn counts_out_of_range_and_engines_without_latches_are_refused() {
        let mut capabilities = Capabilities::reference("e", "test");
        assert!(LatchCommand::Count.check(&capabilities).is_err());
        capabilities.latch = true;
        assert!(LatchCommand::Count.check(&capabilities).is_ok());
        assert!(LatchCommand::Set(MAX_COUNT).check(&capabilities).is_ok());
        for bad in [0, MAX_COUNT + 1, u64::MAX] {
            for command in [LatchCommand::Set(bad), LatchCommand::CountDown(bad)] {
                let error = command.check(&capabilities).expect_err("refused").to_string();
                assert!(error.contains("count: must be from 1 to 1000000000"), "{error}");
            }
        }
    }
}
