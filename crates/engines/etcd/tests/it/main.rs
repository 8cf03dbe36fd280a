//! The etcd engine on real servers: what the suite cannot see from outside.

mod access;
mod checkup;
mod concurrency;
mod costs;
mod elections;
mod go;
mod members;
mod requests;
mod runtimes;
mod support;
mod traps;
mod turns;
mod watches;
