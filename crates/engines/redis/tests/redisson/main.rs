//! The Redisson dialect on real servers: the conformance suite, and the specifics of this dialect.

mod cluster;
mod conformance;
mod doctor;
mod library;
mod one_kind;
mod shared;
mod support;
