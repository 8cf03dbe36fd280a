//! The ZooKeeper engine on real servers: what the suite cannot see from outside.

mod access;
mod checkup;
mod costs;
mod counts;
mod curator;
mod ensemble;
mod kazoo;
mod learned;
mod peer;
mod relay;
mod runtimes;
mod support;
mod tls;
mod traps;
