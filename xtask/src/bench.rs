//! Figures beside their floors: builds everything in release mode, then runs the benchmarks.

use crate::cargo::cargo;

/// Runs the sections, or all of them when none is named.
pub(crate) fn run(sections: &[&str]) -> Result<bool, String> {
    let build = ["build", "--release", "-p", "holdline-cli", "-p", "holdline-bench"];
    if !succeeds(&build)? {
        return Ok(false);
    }
    if sections.is_empty() {
        return succeeds(&["run", "--release", "-q", "-p", "holdline-bench"]);
    }
    for section in sections {
        if !succeeds(&["run", "--release", "-q", "-p", "holdline-bench", "--", section])? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn succeeds(arguments: &[&str]) -> Result<bool, String> {
    let status = cargo(arguments).status();
    status.map(|status| status.success()).map_err(|error| format!("cargo does not start: {error}"))
}
