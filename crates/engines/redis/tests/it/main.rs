//! The Redis engine on real servers.

mod scripts;
mod support;
