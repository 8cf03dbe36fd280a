//! Figures beside their floors: builds everything as it is shipped (profile `dist`), then runs
//! the benchmarks.

use crate::cargo::cargo;
use crate::check::{node, python};
use crate::interop;
use crate::metadata::Metadata;
use std::path::PathBuf;
use std::process::Command;

/// Runs the sections, or all of them when none is named. That of Python is a program of its own,
/// and that of other libraries may name stores; both run only when they are named.
pub(crate) fn run(sections: &[&str]) -> Result<bool, String> {
    if let Some(flag) = sections.iter().find(|section| section.starts_with('-')) {
        let message = "`bench` takes names of sections, which docs/benchmarks.md lists";
        return Err(format!("{flag}: {message}"));
    }
    if sections == ["python"] {
        return python::bench().map(|()| true);
    }
    let build = ["build", "--profile", "dist", "-p", "holdline-cli", "-p", "holdline-bench"];
    if !succeeds(&build)? {
        return Ok(false);
    }
    if let [section @ ("peers" | "many-names"), stores @ ..] = sections {
        if !succeeds(&["build", "--profile", "dist", "-p", "holdline-node"])? {
            return Ok(false);
        }
        let place = interop::prepare_peers()?;
        let mut run = Command::new(program()?);
        run.arg(section).args(stores).env("HOLDLINE_PEERS", place);
        return ended(run.env("HOLDLINE_NODE", node::installed()?));
    }
    let with_peers = ["redis", "redisson", "redlock"];
    let has_peers = |section: &&str| with_peers.contains(section);
    let peers = if sections.is_empty() || sections.iter().any(has_peers) {
        Some(interop::prepare_bench()?)
    } else {
        None
    };
    let program = program()?;
    let run = |section: Option<&&str>| {
        let mut run = Command::new(&program);
        run.args(section).envs(peers.iter().map(|place| ("HOLDLINE_PEERS", place)));
        ended(&mut run)
    };
    if sections.is_empty() {
        return run(None);
    }
    for section in sections {
        if !run(Some(section))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Not by `cargo run`: for this crate alone it would build others anew, with fewer features.
fn program() -> Result<PathBuf, String> {
    Ok(Metadata::read()?.target_directory.join("dist/holdline-bench"))
}

fn succeeds(arguments: &[&str]) -> Result<bool, String> {
    ended(&mut cargo(arguments))
}

fn ended(command: &mut Command) -> Result<bool, String> {
    let status = command.status();
    status
        .map(|status| status.success())
        .map_err(|error| format!("{command:?} does not start: {error}"))
}
