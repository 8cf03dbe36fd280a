//! The Redis engine on real servers.

mod checkup;
mod failovers;
mod fast_paths;
mod hostile;
mod listings;
mod many_waiters;
mod rights;
mod scripts;
mod support;
