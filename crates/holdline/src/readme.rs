//! Compiles and runs the Rust examples of the documents, as doctests.
//!
//! Each document with a Rust block is included here by two lines, and `cargo xtask tidy` says
//! which one is missing:
//!
//! ```text
//! #[doc = include_str!("../../../README.md")]
//! pub struct Readme;
//! ```

#[doc = include_str!("../../../README.md")]
pub struct Readme;

#[doc = include_str!("../../../docs/metrics.md")]
#[cfg(feature = "metrics")]
pub struct Metrics;

#[doc = include_str!("../../../docs/traces.md")]
#[cfg(feature = "opentelemetry")]
pub struct Traces;

#[doc = include_str!("../../../docs/any-of.md")]
pub struct AnyOf;

#[doc = include_str!("../../../docs/election.md")]
pub struct Election;

#[doc = include_str!("../../../docs/fencing.md")]
pub struct Fencing;

#[doc = include_str!("../../../docs/latch.md")]
pub struct Latch;

#[doc = include_str!("../../../docs/redisson.md")]
pub struct Redisson;

#[doc = include_str!("../../../docs/once-per-slot.md")]
pub struct OncePerSlot;

#[doc = include_str!("../../../docs/migrate/redisson.md")]
pub struct GuideRedisson;

#[doc = include_str!("../../../docs/migrate/rslock.md")]
pub struct GuideRslock;

#[doc = include_str!("../../../docs/tasks/guard-data.md")]
pub struct TaskGuardData;

#[doc = include_str!("../../../docs/tasks/limit-an-api.md")]
pub struct TaskLimitAnApi;

#[doc = include_str!("../../../docs/tasks/rust.md")]
pub struct TaskRust;

#[doc = include_str!("../../../docs/testing.md")]
pub struct Testing;
