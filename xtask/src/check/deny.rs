//! The step that looks at what we depend on, by cargo-deny and deny.toml.
//!
//! The tool is built once into the target directory: the user's own programs stay as they are,
//! and everybody checks with the same version.

use super::Outcome;
use super::counts::Counts;
use crate::cargo::root;
use crate::metadata::Metadata;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "0.20.2";
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));

pub(crate) fn run() -> Outcome {
    (Counts::default(), look())
}

fn look() -> Result<(), String> {
    let program = tool()?;
    // It reads the manifests of all platforms, of which a build has fetched only ours.
    process::watch(&mut crate::cargo::cargo(&["fetch", "--quiet", "--locked"]), None, |_| ())?;
    let mut command = Command::new(program);
    let offline = ["--offline", "--all-features"];
    command.current_dir(root()).args(offline).args(["check", "licenses", "bans", "sources"]);
    process::watch(&mut command, LIMIT, |_| ())
}

/// Where the tool lies; builds it if it is not there yet.
fn tool() -> Result<PathBuf, String> {
    let place = Metadata::read()?.target_directory.join("tools").join(format!("deny-{VERSION}"));
    let program = place.join("bin").join("cargo-deny");
    if !program.is_file() {
        println!("building cargo-deny {VERSION}, once");
        process::watch(&mut install(&place), None, |_| ())?;
    }
    Ok(program)
}

fn install(place: &Path) -> Command {
    let version = format!("={VERSION}");
    // Unoptimised: it compiles in half the time and runs for two seconds.
    let what = ["install", "--quiet", "--locked", "--debug", "--version", &version, "cargo-deny"];
    let mut command = crate::cargo::cargo(&what);
    command.arg("--root").arg(place).arg("--target-dir").arg(place.join("build"));
    command
}
