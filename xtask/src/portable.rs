//! The library without the engine of one machine, checked for macOS and Windows.
//!
//! Nothing is linked or run, so no C compiler for those systems is needed: the few crates that
//! compile C get a program that does nothing.

use std::process::Command;

use crate::cargo::cargo;

const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];
/// Every feature that works there; SQLite is C, and is not part of the check.
const FEATURES: &str = "cron,etcd,fence-http,fence-mysql,fence-postgres,http,metrics,mysql,\
                        opentelemetry,postgres,redis,zookeeper";

/// Installs the targets, and checks the library for each of them.
///
/// # Errors
/// The sentence to show: a target could not be installed, or the library does not compile there.
pub(crate) fn check() -> Result<(), String> {
    run(Command::new("rustup").args(["target", "add"]).args(TARGETS))?;
    for target in TARGETS {
        let mut check =
            cargo(&["check", "--locked", "-p", "holdline", "--no-default-features", "--target"]);
        let name = target.replace('-', "_");
        check.args([target, "--features", FEATURES]);
        check.env(format!("CC_{name}"), "true").env(format!("AR_{name}"), "true");
        run(check.env("RUSTFLAGS", "-D warnings"))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed ({status})")),
        Err(error) => Err(format!("{command:?} could not be started: {error}")),
    }
}
