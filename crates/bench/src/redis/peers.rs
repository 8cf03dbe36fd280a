//! The fastest of the other libraries, each in a process of its own beside ours.
//!
//! `cargo xtask bench` builds them and passes their paths in a variable; without it the output has
//! the floor and ours only.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::rounds::{Failure, each};

/// The directory that holds what `cargo xtask bench` and `cargo xtask interop prepare` made.
const PLACE: &str = "HOLDLINE_PEERS";
/// The hand-offs of Python's `python-redis-lock`, whose waiters block on a list.
const HAND_OFFS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/bench/hand_offs.py");

/// The contenders of npm's `redlock`.
const CONTEND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/bench/contend.cjs");

/// What many contenders for one lock came to.
pub(crate) struct Contended {
    pub(crate) acquisitions: usize,
    /// In nanoseconds.
    pub(crate) p99: usize,
    pub(crate) most: usize,
    pub(crate) least: usize,
}

/// Where the peers are.
pub(crate) struct Peers(Option<PathBuf>);

impl Peers {
    pub(crate) fn find() -> Peers {
        Peers(std::env::var_os(PLACE).map(PathBuf::from))
    }

    /// Runs one of the crates; returns nanoseconds for one cycle.
    pub(crate) fn cycle(
        &self,
        peer: &str,
        url: &str,
        tasks: usize,
        time: Duration,
    ) -> Result<Option<f64>, Failure> {
        let Some(place) = &self.0 else { return Ok(None) };
        let program = place.join("bench/release/holdline-bench-peers");
        let mut command = Command::new(program);
        command.args([peer, url]).args([tasks.to_string(), time.as_millis().to_string()]);
        let figure = figure(&mut command)?;
        Ok(Some(if tasks > 1 { each(time, figure) } else { nanos(figure) }))
    }

    /// Runs contenders for one lock over several servers, of Rust's `rslock` or npm's `redlock`.
    pub(crate) fn contend(
        &self,
        peer: &str,
        urls: &str,
        contenders: usize,
        time: Duration,
    ) -> Result<Option<Contended>, Failure> {
        let Some(place) = &self.0 else { return Ok(None) };
        let size = [contenders.to_string(), time.as_millis().to_string()];
        let mut command = if peer == "npm redlock" {
            let mut node = Command::new("node");
            node.env("NODE_PATH", place.join("node/node_modules")).args([CONTEND, urls]).args(size);
            node
        } else {
            let mut rust = Command::new(place.join("bench/release/holdline-bench-peers"));
            rust.args([peer, urls]).args(size).arg("contended");
            rust
        };
        let output = output(&mut command)?;
        let numbers: Result<Vec<usize>, _> = output.split_whitespace().map(str::parse).collect();
        let [acquisitions, p99, most, least] = numbers?[..] else {
            return Err(format!("{command:?} said {output:?}").into());
        };
        Ok(Some(Contended { acquisitions, p99, most, least }))
    }

    /// Runs contenders of `python-redis-lock`; returns nanoseconds for one hand-off.
    pub(crate) fn hand_off(
        &self,
        url: &str,
        contenders: usize,
        time: Duration,
    ) -> Result<Option<f64>, Failure> {
        let Some(place) = &self.0 else { return Ok(None) };
        let mut command = Command::new(place.join("python/bin/python"));
        command.args([HAND_OFFS, url]);
        command.args([contenders.to_string(), time.as_millis().to_string()]);
        Ok(Some(each(time, figure(&mut command)?)))
    }
}

#[allow(clippy::cast_precision_loss)]
fn nanos(figure: usize) -> f64 {
    figure as f64
}

/// Runs a peer and reads the one number that it prints.
fn figure(command: &mut Command) -> Result<usize, Failure> {
    Ok(output(command)?.trim().parse()?)
}

fn output(command: &mut Command) -> Result<String, Failure> {
    let ended = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !ended.status.success() {
        let output = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("{command:?}: {}", output.trim()).into());
    }
    Ok(String::from_utf8(ended.stdout)?)
}
