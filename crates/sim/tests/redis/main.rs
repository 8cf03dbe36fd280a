//! The Redis engine on a fake server: the conformance suite, and simulated worlds with faults.

mod conformance;
mod costs;
mod quorum;
mod world;
