//! Numbers that look random, and are the same for the same seed.

use std::time::Duration;

use holdline_core::Entropy;

/// A sequence of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Draws a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit.max(1)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Draws a time between two, in microseconds.
    pub(crate) fn between(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_micros(least_ms * 1_000 + self.below((most_ms - least_ms) * 1_000))
    }

    /// Returns a sequence of its own.
    pub(crate) fn fork(&mut self) -> SeededRng {
        SeededRng(self.roll())
    }
}

impl Entropy for SeededRng {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.roll().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}
