//! The test ground against real servers.

mod browser;
mod clock;
mod etcd;
mod flavours;
mod mariadb;
mod person;
mod postgres;
mod proxy;
mod server;
mod steady;
mod tls;
mod zookeeper;
