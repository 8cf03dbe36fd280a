//! Seeded worlds for Holdline: fake servers in virtual time.
//!
//! A [`FakeRedis`] is one server process's memory as a value: it runs our real Lua, its keys end
//! by a clock that a test can make wrong, and it crashes, stops and loses what it is told to. A
//! test of its own compares it, byte for byte, with a real server.
//!
//! Read next: `server` (one server), `transport` (connections that a client crate can use),
//! `world` (tasks in virtual time).

mod call;
mod clock;
mod commands;
mod config;
mod data;
mod dispatch;
mod faults;
mod gate;
mod glob;
mod number;
mod options;
mod pubsub;
mod refusal;
mod resp;
mod script;
mod server;
mod session;
mod sha1;
mod state;
mod transport;
mod world;

pub use clock::WallClock;
pub use faults::{Memory, Snapshot};
pub use options::RedisOptions;
pub use resp::{DecodeError, Protocol, Reply, ReplyDecoder};
pub use server::{FakeRedis, IsDown, Replies};
pub use session::ConnectionId;
pub use state::Trouble;
pub use transport::{RedisHost, RedisStream};
pub use world::{Spawner, Stuck, World};
