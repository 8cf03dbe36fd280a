//! The plain dialect on a real server: the conformance suite, and what only this dialect does.

mod conformance;
mod hangs;
mod shared;
mod support;
