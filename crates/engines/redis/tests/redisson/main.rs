//! The Redisson dialect on real servers: the conformance suite, and the specifics of this dialect.

mod conformance;
mod one_kind;
mod shared;
mod support;
