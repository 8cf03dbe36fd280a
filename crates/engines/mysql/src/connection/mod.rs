//! One connection: how it is opened, and how a statement is sent and its reply comes back.
//!
//! Read next: `dial` and `handshake` for a new connection, `driver` for how statements are sent,
//! `wire` for packets. `link` opens a connection again when it is lost.

mod dial;
mod driver;
mod handshake;
mod wire;

pub(crate) use dial::open;
pub(crate) use driver::{ConnectionHandle, on};
pub(crate) use handshake::{Facts, SQL_MODE, handshake};
pub(crate) use wire::Statement;
