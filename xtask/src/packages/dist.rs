//! The command line as one static binary, with its pages, completions and a checksum.
//!
//! It runs on any Linux of its processor, also where there is no C library. The C library in it is
//! that of GNU, so the target of the compiler that everybody has is enough.

use super::output;
use crate::cargo::{cargo, root};
use crate::metadata::Metadata;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A static binary cannot look for `getrandom` at run time, and would need `/dev/urandom`.
const FLAGS: &str = "-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";

/// Builds the archive, and tries the binary where nothing else is.
///
/// # Errors
/// What failed.
pub(crate) fn make() -> Result<(), String> {
    let metadata = Metadata::read()?;
    let target = &metadata.target_directory;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // A target is named so that the flags are not those of procedural macros.
    let mut build = cargo(&["build", "--locked", "--profile", "dist", "-p", "holdline-cli"]);
    build.args(["--features", "all", "--target", &triple]).env("RUSTFLAGS", FLAGS);
    process::watch(&mut build, None, |_| ())?;
    let binary = target.join(&triple).join("dist/holdline");
    try_alone(&binary, &target.join("static/root"))?;

    let version = env!("CARGO_PKG_VERSION");
    let name = format!("holdline-{version}-{}-linux", std::env::consts::ARCH);
    let place = target.join("static");
    let folder = place.join(&name);
    let _ = std::fs::remove_dir_all(&folder);
    let share = folder.join("share");
    std::fs::create_dir_all(&share).map_err(|why| why.to_string())?;
    output(Command::new(&binary).args(["man", "--all"]).arg(&share))?;
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root().join(file), &folder.join(file))?;
    }
    copy(&binary, &folder.join("holdline"))?;
    let archive = format!("{name}.tar.gz");
    output(Command::new("tar").current_dir(&place).args(["-czf", &archive, &name]))?;
    let sum = output(Command::new("sha256sum").current_dir(&place).arg(&archive))?.stdout;
    std::fs::write(place.join(format!("{archive}.sha256")), sum).map_err(|why| why.to_string())?;
    println!("archive: {}", place.join(archive).display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |why| format!("{}: {why}", from.display());
    std::fs::copy(from, to).map(|_| ()).map_err(failed)
}

/// Runs the binary in a directory with nothing but itself and `/proc`, as a container would: a lock
/// on this machine, whose job is the binary again.
fn try_alone(binary: &Path, alone: &PathBuf) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(alone);
    for directory in ["proc", "locks"] {
        std::fs::create_dir_all(alone.join(directory)).map_err(|why| why.to_string())?;
    }
    copy(binary, &alone.join("holdline"))?;
    let mut run = Command::new("unshare");
    run.args(["--user", "--map-root-user", "--pid", "--fork"]);
    let mut mount = std::ffi::OsString::from("--mount-proc=");
    mount.push(alone.join("proc"));
    run.arg(mount)
        .arg("chroot")
        .arg(alone)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    run.args(["/holdline", "run", "--url", "local:///locks", "alone", "--"]);
    let said = output(run.args(["/holdline", "--version"]))?.stdout;
    if !String::from_utf8_lossy(&said).starts_with("holdline ") {
        return Err("the static binary has not run its job in an empty root".to_owned());
    }
    Ok(())
}
