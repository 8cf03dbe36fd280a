//! The in-process engine: the lock table behind a mutex.
//!
//! # Guarantees
//! It is the reference that every other engine is held against, so it keeps every promise of
//! the lock table exactly. Its names are shared by all clients of one [`MemoryEngine`] and die
//! with the process; its tokens start again with the next process, so they must not guard
//! anything that outlives it.
//!
//! It needs no runtime, answers at once, and wakes a task only when somebody waits for what
//! was freed. The clock is passed in: a hand-driven one makes tests of lease ends instant.
//!
//! Read next: `engine`, then [`holdline_core::table`].

mod engine;
mod error;
mod keys;
mod options;

pub use engine::MemoryEngine;
pub use options::MemoryOptions;
