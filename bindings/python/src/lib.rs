//! The native half of the Python package `holdline`: the library's futures as Python objects.
//!
//! The package in `python/holdline` is what users import. This module has only what Python cannot
//! do: it starts requests (`operation`), wakes event loops (`notifier`), keeps events and metrics
//! until Python reads them (`observing`, `metrics`, `logs`), and turns arguments and errors of one
//! language into those of the other (`options`, `errors`, `views`).
//!
//! Invariant P1: no thread of the library ever waits for the interpreter. A waker only writes to a
//! file descriptor, so leases are renewed while Python code runs for minutes without a pause.
//! Invariant P2: what waits does so detached from the interpreter, and looks for signals.
//! Invariant P3: in a forked process nothing of the parent is used, not even to drop it (`own`).

mod client;
mod errors;
mod fence;
mod grant;
mod layers;
mod lock;
mod logs;
mod metrics;
mod notifier;
mod observing;
mod operation;
mod options;
mod own;
mod views;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _holdline {
    #[pymodule_export]
    use super::client::{Client, connect};
    #[pymodule_export]
    use super::fence::{FenceRules, NativeRedisCall, NativeRedisFence, fence_sql};
    #[pymodule_export]
    use super::grant::{Grant, Lease};
    #[pymodule_export]
    use super::layers::{Latch, Leaders, Once};
    #[pymodule_export]
    use super::lock::{Lock, Owner};
    #[pymodule_export]
    use super::logs::{set_log_level, take_logs};
    #[pymodule_export]
    use super::metrics::{forget_metrics, metric_buckets, read_metrics, start_metrics};
    #[pymodule_export]
    use super::notifier::Notifier;
    #[pymodule_export]
    use super::observing::Events;
    #[pymodule_export]
    use super::operation::Operation;
}
