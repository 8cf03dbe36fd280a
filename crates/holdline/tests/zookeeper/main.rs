//! The library on real ZooKeeper servers that stand still, die, forget, or have other clocks.

#[path = "../redis/children.rs"]
mod children;
mod clocks;
#[path = "../etcd/contenders.rs"]
mod contenders;
#[path = "../redis/copies.rs"]
mod copies;
mod faults;
mod forks;
mod inputs;
mod soft;
mod stores;
mod support;
