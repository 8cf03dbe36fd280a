//! What is shipped: crates, a .deb, an image, manifests for Kubernetes, and the workflows that
//! make them.
//!
//! [`check`] is short and a step of `cargo xtask check`: it packs the crates, compiles nothing, and
//! reads the files with the tools of their fields. [`package`] is long and for the hand and the
//! release: it compiles each packed crate from a clean clone, and installs the .deb. Read next:
//! [`deb`].

mod deb;
mod dist;

use crate::cargo::{cargo, root};
use crate::metadata::{Metadata, Package};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What each packed crate has beside its sources.
const IN_EACH: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The largest exposure of the server's unit that `systemd-analyze security` may find, of 100.
const MAX_EXPOSURE: u32 = 20;

/// Checks everything that needs no compiler.
///
/// # Errors
/// Everything that is wrong, one sentence a line.
pub(crate) fn check() -> Result<(), String> {
    let metadata = Metadata::read()?;
    let target = &metadata.target_directory;
    let tools = target.join("interop");
    let checks = [
        crates(&metadata),
        tool(&tools.join("go/bin/actionlint"), &[], &files(".github/workflows", "yml")?),
        tool(&tools.join("lint/bin/hadolint"), &[], &[root().join("packaging/Dockerfile")]),
        tool(
            &tools.join("lint/bin/kubernetes-validate"),
            &["--strict", "--quiet"],
            &files("packaging/kubernetes", "yaml")?,
        ),
        unit(&target.join("deb")),
    ];
    let wrong: Vec<String> = checks.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Packs and compiles every crate from a clean clone, then builds and tries the .deb.
///
/// # Errors
/// What failed.
pub(crate) fn package() -> Result<(), String> {
    let metadata = Metadata::read()?;
    let clone = metadata.target_directory.join("deb/clone");
    let _ = std::fs::remove_dir_all(&clone);
    let mut git = Command::new("git");
    process::watch(git.args(["clone", "--quiet"]).arg(root()).arg(&clone), None, |_| ())?;
    let mut verify = cargo(&["package", "--locked", "--workspace"]);
    verify.current_dir(&clone).args(private(&metadata));
    verify.arg("--target-dir").arg(metadata.target_directory.join("deb/verify"));
    process::watch(&mut verify, None, |_| ())?;
    deb::make()
}

pub(crate) use deb::make as package_deb;
pub(crate) use dist::make as dist;

/// Packs the crates, in the order in which they would be published.
fn crates(metadata: &Metadata) -> Result<(), String> {
    let mut pack = cargo(&["package", "--workspace", "--no-verify", "--allow-dirty"]);
    let output = output(pack.args(private(metadata)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Tests stay here: they need crates that are not published.
    let known = |line: &str| line.contains("ignoring test") || line.contains("ignoring example");
    if let Some(warning) = said.lines().find(|l| l.starts_with("warning:") && !known(l)) {
        return Err(format!("cargo package: {warning}"));
    }
    for member in metadata.members().filter(|member| !is_private(member)) {
        let name = format!("{}-{}", member.name, member.version);
        let file = metadata.target_directory.join("package").join(format!("{name}.crate"));
        let list = self::output(Command::new("tar").arg("tzf").arg(&file))?.stdout;
        let list = String::from_utf8_lossy(&list);
        let lacks = |wanted: &&str| !list.lines().any(|path| path == format!("{name}/{wanted}"));
        if let Some(lacking) = IN_EACH.iter().find(|wanted| lacks(wanted)) {
            return Err(format!("{name}.crate has no {lacking}"));
        }
    }
    Ok(())
}

/// The arguments that leave out what is never published.
fn private(metadata: &Metadata) -> Vec<String> {
    let private = metadata.members().filter(|member| is_private(member));
    private.flat_map(|member| ["--exclude".to_owned(), member.name.clone()]).collect()
}

fn is_private(member: &Package) -> bool {
    member.publish.as_ref().is_some_and(Vec::is_empty)
}

fn tool(program: &Path, options: &[&str], files: &[PathBuf]) -> Result<(), String> {
    if !program.is_file() {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        return Err(format!("{name} is not there: run `cargo xtask interop prepare`"));
    }
    output(Command::new(program).args(options).args(files)).map(drop)
}

/// Checks the unit without the program that it starts, which is not installed here.
fn unit(place: &Path) -> Result<(), String> {
    let source = root().join("packaging/debian/holdline.service");
    let text = std::fs::read_to_string(&source).map_err(|why| why.to_string())?;
    let kept = text.lines().filter(|line| !line.starts_with("Documentation="));
    let text = kept.collect::<Vec<_>>().join("\n").replace("/usr/bin/holdline", "/bin/true");
    let copy = place.join("holdline.service");
    std::fs::create_dir_all(place).map_err(|why| why.to_string())?;
    std::fs::write(&copy, text + "\n").map_err(|why| why.to_string())?;
    let analyze = || Command::new("systemd-analyze");
    let said = output(analyze().arg("verify").arg(&copy))?.stderr;
    let said = String::from_utf8_lossy(&said);
    if let Some(line) = said.lines().find(|line| line.contains("holdline.service")) {
        return Err(format!("systemd-analyze verify: {line}"));
    }
    let limit = format!("--threshold={MAX_EXPOSURE}");
    output(analyze().args(["security", "--offline=true", &limit]).arg(&copy)).map(drop)
}

fn files(directory: &str, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(root().join(directory));
    let entries = entries.map_err(|why| format!("{directory}: {why}"))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    if paths.is_empty() { Err(format!("{directory}: has no .{extension}")) } else { Ok(paths) }
}

/// Runs a command to its end. Its output is shown if it fails.
fn output(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let name = name.rsplit('/').next().unwrap_or_default().to_owned();
    let output = command.output().map_err(|why| format!("{name} could not be started: {why}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{name} failed ({}):\n{}", output.status, String::from_utf8_lossy(&said).trim()))
}
