//! The client against scripted servers.
