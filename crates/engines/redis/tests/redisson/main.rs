//! The Redisson dialect on real servers: the conformance suite, and the specifics of this dialect.

mod conformance;
mod counting;
mod fair;
mod one_kind;
mod redlock;
mod shared;
mod support;
