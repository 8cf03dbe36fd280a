//! Fences on real servers: a PostgreSQL and a MariaDB database, a Redis server, an HTTP service;
//! writers at once on each kind of resource; and the statements of the documents.
//!
//! Stopped holders of a real lock are in the library's tests, in `tests/fence`.

#[allow(dead_code, reason = "the unit tests use all of it")]
#[path = "../../src/tests/home.rs"]
mod home;
mod http;
mod local_writers;
mod mysql;
mod postgres;
mod redis;
mod snippets;
mod sql_fences;
mod support;
mod web_server;
mod writers;
