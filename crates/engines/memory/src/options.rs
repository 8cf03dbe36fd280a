//! The options of a memory engine.

/// The settings of a memory engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    max_waiters: usize,
}

impl MemoryOptions {
    /// Sets how many contenders may queue for one name; 10,000 unless set.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> MemoryOptions {
        self.max_waiters = max_waiters;
        self
    }

    /// Returns how many contenders may queue for one name.
    pub fn max_waiters(&self) -> usize {
        self.max_waiters
    }
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        MemoryOptions { max_waiters: 10_000 }
    }
}
