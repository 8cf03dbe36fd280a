//! The durable counter of fencing tokens.
//!
//! Commits are not flushed to the disk, so a power cut may lose the last ones, but tokens must
//! never be granted twice. So they are drawn from a range that was reserved, and flushed, before
//! its first token was granted; the next boot starts after the range.
//!
//! - K1: every token that was ever granted is below a limit that is on the disk.
//! - K2: a boot grants no token below the limits of the boots before it.

use holdline_core::FencingToken;

use crate::error::Fault;
use crate::machine::BootId;

/// How many tokens are reserved at once.
pub(crate) const RANGE: u64 = 1 << 20;

const FORMAT: u8 = 1;
const LENGTH: usize = 1 + 8 + 8 + 16 + 8;

/// The counter's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// The next token.
    pub(crate) next: u64,
    /// Tokens below this may be granted.
    pub(crate) limit: u64,
    /// The boot of the database.
    pub(crate) boot: BootId,
    /// How often the log was restarted; its change makes the database write the log's head.
    pub(crate) restarts: u64,
}

impl Counter {
    /// The counter of a database that was never used.
    pub(crate) const FRESH: Counter =
        Counter { next: FencingToken::MIN.get(), limit: 0, boot: BootId::NONE, restarts: 0 };

    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0] = FORMAT;
        bytes[1..9].copy_from_slice(&self.next.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.limit.to_be_bytes());
        bytes[17..33].copy_from_slice(&self.boot.0);
        bytes[33..].copy_from_slice(&self.restarts.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(row: Option<&[u8]>) -> Result<Counter, Fault> {
        let foreign = || Fault::Foreign("the database's counter of tokens is not ours".into());
        let bytes: &[u8; LENGTH] = row.and_then(|row| row.try_into().ok()).ok_or_else(foreign)?;
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(number)
        };
        let mut boot = BootId::NONE;
        boot.0.copy_from_slice(&bytes[17..33]);
        if bytes[0] != FORMAT {
            return Err(foreign());
        }
        Ok(Counter { next: number(1), limit: number(9), boot, restarts: number(33) })
    }

    /// Draws the next token.
    pub(crate) fn draw(&mut self) -> Result<FencingToken, Fault> {
        let token = FencingToken::new(self.next).map_err(|_| Fault::CounterAtEnd)?;
        if self.next >= self.limit {
            return Err(Fault::TokensUsedUp);
        }
        self.next += 1;
        Ok(token)
    }

    /// Reserves the next range; the caller flushes it before it draws. A new boot cannot know how
    /// much of the last range was used, so it starts after it.
    pub(crate) fn reserve(&mut self, boot: BootId) {
        if self.boot != boot {
            self.next = self.next.max(self.limit);
            self.boot = boot;
        }
        self.limit = self.next.saturating_add(RANGE);
    }

    /// Makes all later tokens larger than `floor`; the caller flushes it as well.
    pub(crate) fn raise(&mut self, floor: FencingToken) {
        self.next = self.next.max(floor.get().saturating_add(1));
        self.limit = self.limit.max(self.next.saturating_add(RANGE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootId = BootId([1; 16]);
    const NEXT_BOOT: BootId = BootId([2; 16]);

    #[test]
    fn only_a_valid_row_is_decoded() {
        let counter = Counter { next: 7, limit: 9, boot: BOOT, restarts: 3 };
        assert_eq!(Counter::decode(Some(&counter.encode())).ok(), Some(counter));
        let mut newer = counter.encode();
        newer[0] = 2;
        for bad in [None, Some(&b""[..]), Some(&[1; 40]), Some(&[1; 42]), Some(&newer)] {
            assert!(matches!(Counter::decode(bad), Err(Fault::Foreign(_))));
        }
    }

    #[test]
    fn tokens_come_from_a_reserved_range_only() {
        let mut counter = Counter::FRESH;
        assert!(matches!(counter.draw(), Err(Fault::TokensUsedUp)));
        counter.reserve(BOOT);
        for wanted in 1..=RANGE {
            assert_eq!(counter.draw().expect("reserved").get(), wanted);
        }
        assert!(matches!(counter.draw(), Err(Fault::TokensUsedUp)));
        counter.reserve(BOOT);
        assert_eq!(counter.draw().expect("reserved").get(), RANGE + 1);
    }

    #[test]
    fn a_power_cut_that_loses_commits_repeats_no_token() {
        let mut counter = Counter::FRESH;
        counter.reserve(BOOT);
        let on_disk = counter;
        let given: Vec<u64> = (0..5).map(|_| counter.draw().expect("reserved").get()).collect();
        let mut after = on_disk;
        after.reserve(NEXT_BOOT);
        assert!(after.draw().expect("reserved").get() > given[4]);
    }

    #[test]
    fn raising_never_lowers_and_the_end_is_an_error() {
        let mut counter = Counter::FRESH;
        counter.reserve(BOOT);
        counter.raise(FencingToken::new(5_000_000).expect("in range"));
        assert_eq!(counter.draw().expect("reserved").get(), 5_000_001);
        counter.raise(FencingToken::MIN);
        assert_eq!(counter.draw().expect("reserved").get(), 5_000_002);
        counter.raise(FencingToken::MAX);
        assert!(matches!(counter.draw(), Err(Fault::CounterAtEnd)));
    }
}
