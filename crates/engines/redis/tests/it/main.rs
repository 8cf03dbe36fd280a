//! The Redis engine on real servers.

mod checkup;
mod rights;
mod scripts;
mod support;
