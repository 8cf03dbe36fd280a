//! The plain dialect on a real server: the conformance suite, and the specifics of this dialect.

mod conformance;
mod hangs;
mod leaks;
mod shared;
mod support;
