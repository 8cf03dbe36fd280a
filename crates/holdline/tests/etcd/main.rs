//! The library on real etcd clusters whose members die, stand still, or are too few.

mod clocks;
mod contenders;
#[path = "../redis/copies.rs"]
mod copies;
mod faults;
mod forks;
mod inputs;
mod network;
mod stores;
mod support;
