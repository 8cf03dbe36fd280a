//! Runs the built binary as a user would.

#[cfg(all(feature = "redis", feature = "server"))]
mod alerts;
mod any_of;
mod audit;
#[cfg(all(feature = "etcd", feature = "mysql", feature = "postgres", feature = "redis"))]
mod changed_passwords;
mod child;
mod clock;
mod connection_strings;
#[cfg(all(feature = "postgres", feature = "redis", feature = "server"))]
mod demo;
mod elect;
#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod elections;
#[cfg(feature = "etcd")]
mod etcd;
mod faults;
mod fence;
mod hostile;
mod json;
mod kleppmann;
mod latch;
mod leases;
mod lost_url;
#[cfg(feature = "mcp")]
mod mcp;
mod metrics;
#[cfg(feature = "mysql")]
mod mysql;
mod nested;
mod operators;
#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod paused_jobs;
#[cfg(feature = "postgres")]
mod postgres;
mod recipes;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_cluster;
#[cfg(feature = "redis")]
mod redlock;
mod run;
mod secrets;
#[cfg(feature = "redis")]
mod sentinel;
#[cfg(feature = "server")]
mod serve;
#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod slot_faults;
mod slots;
mod stalls;
#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod stores;
#[cfg(all(feature = "redis", feature = "top"))]
mod top;
#[cfg(feature = "torture")]
mod torture;
mod transcript;
mod usage;
mod watch;
mod world;
#[cfg(feature = "zookeeper")]
mod zookeeper;
