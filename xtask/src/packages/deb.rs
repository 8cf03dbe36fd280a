//! The .deb: built from the binary as it is shipped, installed into a directory, and removed. Its
//! unit is started under a systemd that has a root of its own, if this is root.

use super::output;
use crate::cargo::{cargo, root};
use crate::metadata::Metadata;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = "3.8.0";

/// What an installed package has.
const INSTALLED: [&str; 8] = [
    "usr/bin/holdline",
    "usr/share/man/man1/holdline.1.gz",
    "usr/share/man/man1/holdline-serve.1.gz",
    "usr/share/bash-completion/completions/holdline",
    "usr/share/zsh/vendor-completions/_holdline",
    "usr/share/fish/vendor_completions.d/holdline.fish",
    "usr/lib/systemd/system/holdline.service",
    SETTINGS,
];

/// What stays until the package is purged.
const SETTINGS: &str = "etc/holdline/server.toml";

/// Builds the package, and tries it.
///
/// # Errors
/// What failed.
pub(crate) fn make() -> Result<(), String> {
    let target = Metadata::read()?.target_directory;
    let tool = tool(&target)?;
    let build = ["build", "--locked", "--profile", "dist", "-p", "holdline-cli", "--features"];
    process::watch(cargo(&build).arg("all"), None, |_| ())?;
    let place = target.join("deb");
    let share = place.join("share");
    let _ = std::fs::remove_dir_all(&share);
    output(Command::new(target.join("dist/holdline")).args(["man", "--all"]).arg(&share))?;
    let package = place.join("holdline.deb");
    let mut deb = Command::new(tool);
    deb.current_dir(root()).args(["-p", "holdline-cli", "--no-build"]);
    deb.args(["--profile", "dist", "--output"]).arg(&package);
    output(&mut deb)?;
    install_and_remove(&package, &place.join("root"))?;
    println!("package: {}", package.display());
    Ok(())
}

fn install_and_remove(package: &Path, root: &Path) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(root);
    let state = root.join("var/lib/dpkg");
    for directory in ["info", "updates"] {
        std::fs::create_dir_all(state.join(directory)).map_err(|why| why.to_string())?;
    }
    for file in ["status", "available"] {
        std::fs::write(state.join(file), "").map_err(|why| why.to_string())?;
    }
    // The directory has no shell and no C library of its own.
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root").arg(root).arg("--log").arg(root.join("log"));
        dpkg.args(["--force-not-root", "--force-script-chrootless", "--force-depends"]);
        dpkg
    };
    output(dpkg().arg("--install").arg(package))?;
    if let Some(lacks) = INSTALLED.iter().find(|path| !root.join(path).is_file()) {
        return Err(format!("the package has not installed /{lacks}"));
    }
    let version = output(Command::new(root.join(INSTALLED[0])).arg("--version"))?.stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    if !version.starts_with("holdline ") {
        return Err(format!("the installed binary prints {version:?} as its version"));
    }
    output(dpkg().args(["--remove", "holdline"]))?;
    let left: Vec<&str> = INSTALLED.into_iter().filter(|path| root.join(path).exists()).collect();
    if left != [SETTINGS] {
        return Err(format!("a removed package leaves its settings only, not {left:?}"));
    }
    output(dpkg().args(["--purge", "holdline"]))?;
    if root.join(SETTINGS).exists() {
        return Err(format!("a purged package leaves /{SETTINGS}"));
    }
    Ok(())
}

/// Where cargo-deb lies; builds it if it is not there yet.
fn tool(target: &Path) -> Result<PathBuf, String> {
    let place = target.join("tools").join(format!("deb-{VERSION}"));
    let program = place.join("bin/cargo-deb");
    if !program.is_file() {
        println!("building cargo-deb {VERSION}, once");
        let version = format!("={VERSION}");
        let what = ["install", "--quiet", "--locked", "--debug", "--version", &version];
        let mut install = cargo(&what);
        install.arg("cargo-deb").arg("--root").arg(&place);
        install.arg("--target-dir").arg(place.join("build"));
        process::watch(&mut install, None, |_| ())?;
    }
    Ok(program)
}
