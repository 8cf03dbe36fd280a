//! Holdline's figures, each beside a raw floor of the same run.
//!
//! One-task latencies on a small machine have two modes (client and server on one core, or on
//! two), so absolute figures of two runs cannot be compared. Each section therefore runs its
//! floor and its subject in turn, in several rounds, and reports the median of the ratios of
//! each round. `cargo xtask bench` builds this as it is shipped and runs it.

mod contend;
mod cycle;
mod distance;
mod etcd;
mod floor;
mod handoff;
mod memory;
mod mysql;
mod peers;
mod postgres;
mod redis;
mod redis_cluster;
mod redisson;
mod redlock;
mod rounds;
mod run;
mod server;
mod waiters;
mod zookeeper;

use std::process::ExitCode;

const CROWD: &str = "server-crowd";
const USUAL_CROWD: &str = "10000x1000";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["worker", "http", rest @ ..] => server::worker(rest),
        ["worker", "spin"] => peers::spin(),
        ["worker", "peers", rest @ ..] => peers::worker(rest),
        ["worker", "bare", rest @ ..] => peers::bare_worker(rest),
        ["peers", stores @ ..] => peers::section(stores),
        ["many-names", stores @ ..] => peers::many_names(stores),
        ["worker", rest @ ..] => handoff::worker(rest),
        [] => all(),
        ["memory"] => memory::section(),
        ["cycle"] => cycle::section(),
        ["distance"] => distance::section(),
        ["hand-off"] => handoff::section(),
        ["run"] => run::section(),
        ["etcd"] => etcd::section(),
        ["etcd-costs"] => etcd::costs(),
        ["zookeeper"] => zookeeper::section(),
        ["zookeeper-costs"] => zookeeper::costs(),
        ["mysql"] => mysql::section(),
        ["postgres"] => postgres::section(),
        ["postgres-readers"] => postgres::readers(),
        ["redis"] => redis::section(),
        ["redis-cluster"] => redis_cluster::section(),
        ["sentinel"] => redis::sentinel(),
        ["redisson"] => redisson::section(),
        ["redlock"] => redlock::section(),
        ["redis-leases"] => redis::leases(),
        ["redis-scripts"] => redis::scripts(),
        ["server"] => server::section(),
        ["dashboard"] => server::pages(),
        [word] if word.starts_with(CROWD) => {
            let counts = word[CROWD.len()..].strip_prefix('=');
            server::crowd(counts.unwrap_or(USUAL_CROWD))
        }
        _ => {
            let sections = "memory | cycle | distance | hand-off | run | etcd | etcd-costs | \
                zookeeper | zookeeper-costs | many-names [STORE...] | mysql | peers [STORE...] | \
                postgres | postgres-readers | redis | redis-cluster | redis-leases | \
                redis-scripts | redisson | redlock | sentinel | server | dashboard | \
                server-crowd[=WAITERSxSTREAMS]";
            Err(format!("usage: holdline-bench [{sections}]").into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdline-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all() -> Result<(), rounds::Failure> {
    memory::section()?;
    cycle::section()?;
    handoff::section()?;
    run::section()?;
    etcd::section()?;
    zookeeper::section()?;
    mysql::section()?;
    postgres::section()?;
    redis::section()?;
    server::section()?;
    server::pages()?;
    server::crowd(USUAL_CROWD)
}
