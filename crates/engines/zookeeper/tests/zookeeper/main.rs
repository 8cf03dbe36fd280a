//! The ZooKeeper engine on real servers: what the suite cannot see from outside.

mod access;
mod checkup;
mod counts;
mod curator;
mod ensemble;
mod homes;
mod kazoo;
mod peer;
mod relay;
mod support;
mod traps;
