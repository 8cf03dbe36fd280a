//! The Redis engine on real servers.

mod checkup;
mod scripts;
mod support;
