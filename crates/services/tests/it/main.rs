//! The test ground against real servers.

mod clock;
mod proxy;
mod server;
mod tls;
