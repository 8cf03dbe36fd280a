//! The Redis engine on real servers.
