//! Fences on real servers: a PostgreSQL and a MariaDB database, a Redis server, an HTTP service;
//! holders that are stopped past their lease; and the statements of the documents.

#[path = "../redis/children.rs"]
mod children;
mod http;
mod migrate;
mod mysql;
mod paused;
mod postgres;
mod redis;
mod snippets;
mod support;
mod writers;
