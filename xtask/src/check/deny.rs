//! The step that looks at what we depend on, by cargo-deny and deny.toml.
//!
//! The tool lies in the target directory: the user's own programs stay as they are, and everybody
//! checks with the same version.

use super::Outcome;
use super::counts::Counts;
use crate::cargo::root;
use crate::interop;
use crate::process;
use std::process::Command;
use std::time::Duration;

const LIMIT: Option<Duration> = Some(Duration::from_secs(120));

pub(crate) fn run() -> Outcome {
    (Counts::default(), look())
}

fn look() -> Result<(), String> {
    let program = interop::cargo_deny()?;
    // It reads the manifests of all platforms, of which a build has fetched only ours.
    process::watch(&mut crate::cargo::cargo(&["fetch", "--quiet", "--locked"]), None, |_| ())?;
    let mut command = Command::new(program);
    let offline = ["--offline", "--all-features"];
    command.current_dir(root()).args(offline).args(["check", "licenses", "bans", "sources"]);
    process::watch(&mut command, LIMIT, |_| ())
}
