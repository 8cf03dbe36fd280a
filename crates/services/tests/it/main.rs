//! The test ground against real servers.

mod server;
