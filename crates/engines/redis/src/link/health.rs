//! Whether a connection can be used.

use std::sync::atomic::{AtomicU8, Ordering};

/// The health of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// A reply is overdue.
    Suspect,
    Closed,
}

/// The health of a connection, which threads read without a lock; good at first.
#[derive(Default)]
pub(super) struct AtomicHealth(AtomicU8);

const GOOD: u8 = 0;
const SUSPECT: u8 = 1;
const CLOSED: u8 = 2;

impl AtomicHealth {
    pub(super) fn get(&self) -> Health {
        match self.0.load(Ordering::Acquire) {
            GOOD => Health::Good,
            SUSPECT => Health::Suspect,
            _ => Health::Closed,
        }
    }

    pub(super) fn set(&self, health: Health) {
        let health = match health {
            Health::Good => GOOD,
            Health::Suspect => SUSPECT,
            Health::Closed => CLOSED,
        };
        self.0.store(health, Ordering::Release);
    }
}
