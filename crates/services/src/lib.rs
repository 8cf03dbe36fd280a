//! The test ground: real servers that a test starts, breaks and looks behind.
//!
//! For tests, benchmarks and `cargo xtask services`; nothing that we ship may use it. Everything
//! here blocks and is made of threads of the standard library, so that it works the same under
//! every runtime and keeps its own time when a test's runtime is stuck.
//!
//! S1: a missing server program fails the test that asks for it and names the Debian package; no
//! test is ever skipped for it.
//! S2: a server listens on loopback and in a private directory only. Its port is reserved for as
//! long as the [`RedisServer`], [`PostgresServer`], [`MariaDbServer`] or [`EtcdServer`] lives, over
//! kills and restarts.
//! S3: no server outlives the process that started it, however that process ends.
//! S4: nothing sleeps for luck: each wait is for an observed event and has a deadline.
//!
//! Read next: [`RedisServer`] and [`PostgresServer`], and [`Raw`] to look behind an engine's back.

mod balancer;
mod browser;
mod certificates;
mod clock;
mod cluster;
mod config;
mod cut;
mod demo;
mod distance;
mod etcd;
mod failure;
mod flavour;
mod foreign;
mod hosts;
mod mariadb;
mod network;
mod npm;
mod ports;
mod postgres;
mod programs;
mod prometheus;
mod proxy;
mod raw;
mod redis;
pub mod resp;
mod scratch;
mod sentinel;
mod server_process;
mod spawner;
mod steady;
mod vdso;
mod wait;
mod wheel;
mod zookeeper;

pub use balancer::{Balance, LoadBalancer};
pub use browser::{Browser, Media, Tab, axe};
pub use certificates::Certificates;
pub use clock::ServerClock;
pub use cluster::{ClusterConfig, RedisCluster};
pub use config::RedisConfig;
pub use cut::cut;
pub use demo::Demo;
pub use distance::Distance;
pub use etcd::{EtcdCluster, EtcdConfig, EtcdFlavour, EtcdServer};
pub use failure::Failure;
pub use flavour::Flavour;
pub use foreign::Foreign;
pub use hosts::Cut;
pub use mariadb::{MariaDbConfig, MariaDbServer};
pub use network::{Loss, PrivateNetwork};
pub use postgres::{ChangeStream, PgBouncer, PostgresConfig, PostgresFlavour, PostgresServer};
pub use prometheus::{Prometheus, promtool};
pub use proxy::{Event, Fault, FaultProxy, Frames, Traffic, What};
pub use raw::Raw;
pub use redis::RedisServer;
pub use resp::Reply;
use scratch::Scratch;
pub use sentinel::{Sentinel, SentinelConfig, SentinelGroup};
pub use steady::steady;
pub use zookeeper::{ZooKeeper, ZooKeeperConfig};
