//! Counting semaphores without leases: a number of permits, which anybody takes and gives back.
//!
//! Nobody owns a permit, and no permit has a lease: what a process took stays taken when the
//! process dies. Where permits must come back by themselves, use permits of a lock
//! ([`Mode::Permits`](crate::Mode::Permits)).
//! Invariant S1: the number of available permits rises only by a release, or when it is set for the
//! first time; an acquire never lowers it below zero. Other programs may leave it below zero.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capabilities::Capabilities;
use crate::error::LockError;

/// The largest number of available permits.
pub const MAX_PERMITS: u64 = i32::MAX as u64;
/// The longest [`CountingCommand::Await`].
pub const MAX_AWAIT: Duration = Duration::from_secs(10);

/// A command to a counting semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountingCommand {
    /// Makes as many permits available, unless the semaphore was set or released to before.
    Set(u64),
    /// Takes as many permits if they are available, all or none. If the caller drops the future,
    /// the engine gives back what the request took.
    Acquire(u64),
    /// Gives back as many permits. Nothing checks that the caller took them.
    Release(u64),
    /// Takes all permits that are available.
    Drain,
    /// Asks how many permits are available.
    Available,
    /// Takes nothing, and answers as soon as as many permits may be available, or after `at_most`.
    Await {
        /// How many permits the caller waits for.
        permits: u64,
        /// How long the answer may take, at most [`MAX_AWAIT`].
        at_most: Duration,
    },
}

/// How many permits were available before and after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CountingReply {
    /// Before the command.
    pub before: i64,
    /// After it.
    pub after: i64,
}

impl CountingReply {
    /// Returns whether the command changed the number.
    pub fn is_changed(self) -> bool {
        self.before != self.after
    }
}

impl CountingCommand {
    /// Checks what no store need be asked for.
    ///
    /// # Errors
    /// `Unsupported` where the engine has no counting semaphores, `Invalid` for a number or a
    /// duration out of range.
    pub fn check(self, capabilities: &Capabilities) -> Result<(), LockError> {
        if !capabilities.counting {
            return Err(capabilities.lacks_counting());
        }
        match self {
            CountingCommand::Set(permits)
            | CountingCommand::Acquire(permits)
            | CountingCommand::Release(permits)
            | CountingCommand::Await { permits, .. }
                if !(1..=MAX_PERMITS).contains(&permits) =>
            {
                let message = format_args!("must be from 1 to {MAX_PERMITS}, not {permits}");
                Err(LockError::invalid(capabilities.engine, "permits", message))
            }
            CountingCommand::Await { at_most, .. } if at_most > MAX_AWAIT => {
                let message = format_args!("must be at most {MAX_AWAIT:?}, not {at_most:?}");
                Err(LockError::invalid(capabilities.engine, "at_most", message))
            }
            _ => Ok(()),
        }
    }

    /// Applies the command to the stored number, which is `None` before the semaphore is set or
    /// released to. `None`: too many permits would be available, and nothing is changed.
    pub fn apply(self, stored: Option<i64>) -> Option<CountingReply> {
        let before = stored.unwrap_or(0);
        let number = |permits: u64| i64::try_from(permits).ok();
        let after = match self {
            CountingCommand::Set(permits) if stored.is_none() => number(permits)?,
            CountingCommand::Acquire(permits) if before >= number(permits)? => {
                before - number(permits)?
            }
            CountingCommand::Release(permits) => before.checked_add(number(permits)?)?,
            CountingCommand::Drain if before > 0 => 0,
            _ => before,
        };
        let most = number(MAX_PERMITS)?;
        (after <= most.max(before)).then_some(CountingReply { before, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAIT: CountingCommand =
        CountingCommand::Await { permits: 1, at_most: Duration::from_secs(1) };

    #[test]
    fn permits_are_taken_all_or_none_and_set_once() {
        use CountingCommand::{Acquire, Available, Drain, Release, Set};
        let most = MAX_PERMITS as i64;
        for (command, stored, expected) in [
            (Available, None, Some((0, 0))),
            (Available, Some(3), Some((3, 3))),
            (AWAIT, Some(3), Some((3, 3))),
            (Set(3), None, Some((0, 3))),
            (Set(3), Some(0), Some((0, 0))),
            (Set(3), Some(2), Some((2, 2))),
            (Acquire(1), None, Some((0, 0))),
            (Acquire(2), Some(3), Some((3, 1))),
            (Acquire(3), Some(3), Some((3, 0))),
            (Acquire(4), Some(3), Some((3, 3))),
            (Acquire(1), Some(-2), Some((-2, -2))),
            (Release(2), None, Some((0, 2))),
            (Release(2), Some(-3), Some((-3, -1))),
            (Release(1), Some(most), None),
            (Release(1), Some(most - 1), Some((most - 1, most))),
            (Drain, None, Some((0, 0))),
            (Drain, Some(5), Some((5, 0))),
            (Drain, Some(-5), Some((-5, -5))),
        ] {
            let expected = expected.map(|(before, after)| CountingReply { before, after });
            assert_eq!(command.apply(stored), expected, "{command:?} {stored:?}");
        }
    }

    #[test]
    fn numbers_out_of_range_and_engines_without_counting_semaphores_are_refused() {
        use CountingCommand::{Acquire, Available, Await, Release, Set};
        let mut capabilities = Capabilities::reference("e", "test");
        let error = Available.check(&capabilities).expect_err("refused").to_string();
        assert!(error.contains("dialect=redisson"), "{error}");
        capabilities.counting = true;
        for good in [Available, AWAIT, Set(MAX_PERMITS), Acquire(1), Release(1)] {
            assert!(good.check(&capabilities).is_ok(), "{good:?}");
        }
        for bad in [0, MAX_PERMITS + 1, u64::MAX] {
            let at_most = Duration::ZERO;
            for command in [Set(bad), Acquire(bad), Release(bad), Await { permits: bad, at_most }] {
                let error = command.check(&capabilities).expect_err("refused").to_string();
                assert!(error.contains("permits: must be from 1 to 2147483647"), "{error}");
            }
        }
        let long = Await { permits: 1, at_most: MAX_AWAIT + Duration::from_nanos(1) };
        let error = long.check(&capabilities).expect_err("refused").to_string();
        assert!(error.contains("at_most: must be at most 10s"), "{error}");
    }
}
