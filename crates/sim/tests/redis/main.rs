//! The Redis engine as a whole on a fake server: the suite, and worlds of clients with faults.

mod conformance;
mod quorum;
mod world;
