//! The Redisson dialect on real servers: the conformance suite, and the specifics of this dialect.

mod cluster;
mod conformance;
mod counting;
mod doctor;
mod fair;
mod faults;
mod leaks;
mod library;
mod moving;
mod one_kind;
mod redlock;
mod shared;
mod support;
