//! The quorum engine on five real servers.

mod checkup;
mod conformance;
mod hostile;
mod latency;
mod leaks;
mod operators;
mod plain;
mod rights;
mod sets;
mod support;
mod votes;
