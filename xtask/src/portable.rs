//! What is there without the engine of one machine: the library, checked for macOS and Windows, and
//! the Python and the Node package, checked for macOS.
//!
//! Nothing is linked or run, so no C compiler for those systems is needed: the few crates that
//! compile C get a program that does nothing.

use std::process::Command;

use crate::cargo::cargo;

const MACOS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-apple-darwin"];
const WINDOWS: &str = "x86_64-pc-windows-gnu";
/// Every feature that works there; SQLite is C, and is not part of the check.
const FEATURES: &str = "cron,etcd,fence-http,fence-mysql,fence-postgres,http,metrics,mysql,\
                        opentelemetry,postgres,redis,zookeeper";

/// Installs the targets, and checks the packages for each of them.
///
/// # Errors
/// The sentence to show: a target could not be installed, or a package does not compile there.
pub(crate) fn check() -> Result<(), String> {
    run(Command::new("rustup").args(["target", "add", WINDOWS]).args(MACOS))?;
    let library = ["-p", "holdline", "--no-default-features", "--features", FEATURES];
    for target in [MACOS[0], MACOS[1], WINDOWS] {
        check_for(target, &library)?;
    }
    let packages = ["-p", "holdline-python", "-p", "holdline-node"];
    MACOS.iter().try_for_each(|target| check_for(target, &packages))
}

fn check_for(target: &str, package: &[&str]) -> Result<(), String> {
    let mut check = cargo(&["check", "--locked", "--target", target]);
    let name = target.replace('-', "_");
    check.env(format!("CC_{name}"), "true").env(format!("AR_{name}"), "true");
    run(check.args(package).env("RUSTFLAGS", "-D warnings"))
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed ({status})")),
        Err(error) => Err(format!("{command:?} could not be started: {error}")),
    }
}
