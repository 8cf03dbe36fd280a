//! The Redis engine on real servers.

mod ahead;
mod checkup;
mod crowd;
mod hostile;
mod listings;
mod rights;
mod scripts;
mod support;
