//! The engine of a Holdline server: the contract over HTTP, for machines that have no rights on
//! the store.
//!
//! Each command is one request to `/v1/engine/…`, and each watch is one open response. The server
//! forwards both to the engine of its store and decides nothing.
//!
//! # Guarantees
//! It keeps the promises of the engine behind the server: what that engine can do is what this one
//! can do, but for live grants, which a descriptor keeps. A grant outlives the death of the server,
//! because leases live in the store. Behind `memory:` they live in the server and die with it.
//!
//! A request without an answer has an unknown outcome, as with every other engine. The engine never
//! repeats a request that may have been sent.
//!
//! # Read next
//! `wire` for the messages, `store` for the commands, `client` for requests, `pool` for
//! connections, `watch` for notifications, `options` for the settings.

mod checkup;
mod client;
mod engine;
mod error;
pub mod in_place;
mod keys;
mod options;
mod pool;
mod store;
mod watch;
pub mod wire;

pub use checkup::checkup;
pub use engine::HttpEngine;
pub use keys::PROTOCOL;
pub use options::HttpOptions;
