//! The cargo that runs us, with the repository's root as its directory.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the workspace's manifest.
pub(crate) fn root() -> PathBuf {
    // The manifest of this crate lies one level below the root, wherever the clone is.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        |from_cargo| Path::new(&from_cargo).to_path_buf(),
    );
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// A command for the same cargo (and so the same toolchain) that started this task.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()).args(arguments);
    command
}
