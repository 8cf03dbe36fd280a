//! Holders that are stopped past their lease, against fences on real servers: PostgreSQL, MariaDB,
//! Redis, an HTTP service; and replicas that migrate a database.

#[path = "../redis/children.rs"]
mod children;
mod migrate;
mod paused;
#[allow(dead_code, reason = "the tests of the fences use all of it")]
#[path = "../../../fence/tests/it/support.rs"]
mod support;
#[allow(dead_code, reason = "the tests of the fences use all of it")]
#[path = "../../../fence/tests/it/web_server.rs"]
mod web_server;
