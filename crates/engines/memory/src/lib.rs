//! The in-process engine: the lock table behind a mutex.
//!
//! # Guarantees
//! It is the reference for every other engine, so it keeps every promise of the lock table exactly.
//! All clients of one [`MemoryEngine`] share its names, which end with the process. Its tokens
//! start again with the next process, so they must not guard anything that outlives it.
//!
//! It needs no runtime, answers at once, and wakes a task only if somebody waits for the freed
//! name. The clock is passed in: with a manual clock, tests of expiry need no real waiting.
//!
//! Read next: `engine`, then [`holdline_core::table`].

mod engine;
mod error;
mod keys;
mod options;
mod trail;

pub use engine::MemoryEngine;
pub use options::MemoryOptions;
