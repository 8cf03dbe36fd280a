//! A command under `holdline` behaves as if it had been run directly.
//!
//! What needs a terminal is in `child/terminal.py`: there the test is the shell, so that it sees
//! what a shell sees.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::world::{Running, World, eventually, is_alive};

mod codes;
mod environment;
mod signals;
mod terminal;

const NAME: &str = "n";

/// A live grant, whose command we start ourselves.
const LIVE: &[&str] = &[];

/// A leased grant, whose command is started by the shim and gets a death signal.
const LEASED: &[&str] = &["--lease", "30s"];

const BOTH_WAYS: [&[&str]; 2] = [LIVE, LEASED];

/// `holdline run`, with `options`, around `command`.
fn wrapper(world: &World, options: &[&str], command: &[impl AsRef<OsStr>]) -> Command {
    let mut wrapper = world.command(&["run"]);
    wrapper.args(options).arg(NAME).arg("--").args(command);
    wrapper
}

fn start(world: &World, options: &[&str], command: &[impl AsRef<OsStr>]) -> Running {
    Running::start(&mut wrapper(world, options, command))
}

fn file(world: &World, name: &str, mode: u32, content: &[u8]) -> PathBuf {
    let path = world.path(name);
    std::fs::write(&path, content).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    path
}

fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
