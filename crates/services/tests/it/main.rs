//! The test ground against real servers.

mod proxy;
mod server;
