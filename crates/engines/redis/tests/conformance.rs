//! The Redis engine on a real server.
