//! Real servers for a person who tries something: the test ground's own program.

use crate::cargo::cargo;

/// Runs it until it ends; true if it ended well.
///
/// # Errors
/// Cargo does not start.
pub(crate) fn run(words: &[&str]) -> Result<bool, String> {
    let status = cargo(&["run", "-q", "-p", "holdline-services", "--"]).args(words).status();
    status.map(|status| status.success()).map_err(|error| format!("cargo does not start: {error}"))
}

/// Builds the command line and runs the demonstration until it ends; true if it ended well.
///
/// # Errors
/// Cargo does not start.
pub(crate) fn demo(options: &[&str]) -> Result<bool, String> {
    let build = ["build", "-q", "-p", "holdline-cli", "--features", "all-engines,server"];
    let built = cargo(&build).status().map_err(|why| format!("cargo does not start: {why}"))?;
    Ok(built.success() && run(&[&["demo"], options].concat())?)
}
