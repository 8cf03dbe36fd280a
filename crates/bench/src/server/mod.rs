//! The server: cycles over HTTP, and a crowd of waiting requests and event streams.
//!
//! The server runs in a process of its own, on the runtime of `holdline serve`: this program,
//! started again as a worker. Client and server share the machine's cores, so only ratios within
//! a round mean anything.

mod crowd;
mod cycles;
mod host;
mod pages;
mod raw;

pub(crate) use crowd::section as crowd;
pub(crate) use cycles::section;
pub(crate) use host::{Host, worker};
pub(crate) use pages::section as pages;
