//! The local engine on real files, sockets and processes.
//!
//! A test that needs other processes starts this same program again, as `role` describes.

mod crash;
mod databases;
mod engines;
mod grants;
mod many;
mod places;
mod processes;
mod reboots;
mod remote;
mod role;
mod support;
