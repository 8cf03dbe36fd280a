//! Pauses between tries: exponential with full jitter.
//!
//! Full jitter (a pause drawn evenly between nothing and the ceiling) spreads contenders better
//! than a fixed part with a little noise (Brooker, "Exponential Backoff And Jitter", 2015). Callers
//! that must not ask too often raise the drawn pause to a minimum.

use std::time::Duration;

/// A pause that doubles with each try, up to a limit, drawn evenly below that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    tries: u32,
}

impl Backoff {
    /// Starts with pauses of at most `first`, which grow up to `limit`.
    pub fn new(first: Duration, limit: Duration) -> Backoff {
        Backoff { first, limit: limit.max(first), tries: 0 }
    }

    /// Returns the next pause; `random` is any number, drawn evenly over all of `u32`.
    pub fn next_pause(&mut self, random: u32) -> Duration {
        let ceiling = self.first.saturating_mul(1 << self.tries.min(20)).min(self.limit);
        self.tries = self.tries.saturating_add(1);
        let nanos = ceiling.as_nanos().saturating_mul(u128::from(random)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Starts again with the first pause.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_the_limit_and_starts_again() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(35));
        let mut ceilings = Vec::new();
        for _ in 0..4 {
            ceilings.push(backoff.next_pause(u32::MAX).as_millis());
        }
        assert_eq!(ceilings, [9, 19, 34, 34]);
        assert_eq!(backoff.next_pause(0), Duration::ZERO);
        backoff.reset();
        assert_eq!(backoff.next_pause(u32::MAX).as_millis(), 9);
    }

    #[test]
    fn many_tries_never_overflow() {
        let mut backoff = Backoff { tries: u32::MAX, ..Backoff::new(Duration::MAX, Duration::MAX) };
        assert!(backoff.next_pause(u32::MAX) > Duration::from_secs(1));
    }
}
