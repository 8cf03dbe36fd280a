//! The plain dialect on a real server: the conformance suite, and the specifics of this dialect.

mod cluster;
mod conformance;
mod hangs;
mod leaks;
mod sentinel;
mod shared;
mod support;
