//! Locks on a real Redis server while everything goes wrong: messages, connections, the server
//! itself, clocks. At the level of what users import; each test has one expected outcome.
//!
//! Nothing here waits for luck: tests wait for what the proxy between us and the server saw, for
//! what the server shows behind the engine's back, and for what guards report.

mod children;
mod clocks;
mod cluster;
mod connections;
mod copies;
mod crowds;
mod elections;
mod forks;
mod holders;
mod inputs;
mod messages;
mod network;
mod quorum;
#[path = "../it/recorder.rs"]
mod recorder;
mod replies;
mod sentinel;
mod servers;
#[cfg(feature = "postgres")]
mod several;
mod support;
mod watch;
mod weather;
