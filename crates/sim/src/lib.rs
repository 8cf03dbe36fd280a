//! Seeded worlds for Holdline: fake servers in virtual time.
//!
//! A [`FakeRedis`] is the memory of one server process as a value. It runs our real Lua, its keys
//! expire by a clock that a test can make wrong, and a test can crash it, stop it and lose its
//! data. A test of its own compares it, byte for byte, with a real server. It has only the commands
//! that our engine uses.
//!
//! Read next: `server` (one server), `transport` (connections that a client crate can use),
//! `world` (tasks in virtual time).

mod call;
mod checks;
mod clock;
mod commands;
mod config;
mod data;
mod dispatch;
mod errors;
mod faults;
mod glob;
mod number;
mod options;
mod pubsub;
mod resp;
mod script;
mod server;
mod session;
mod state;
mod transport;
mod world;

pub use clock::WallClock;
pub use faults::{Memory, Snapshot};
pub use options::RedisOptions;
pub use resp::{Protocol, Reply};
pub use server::{FakeRedis, IsDown, Replies};
pub use session::ConnectionId;
pub use state::ServerCondition;
pub use transport::{RedisHost, RedisStream};
pub use world::{Spawner, Stuck, World};
