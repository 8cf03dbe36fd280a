//! The test binaries of the workspace: which there are, and how one is run.

use crate::cargo::cargo;
use crate::process;
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of the tests keeps a processor busy: exhaustive models and simulated worlds. All others
/// wait for servers and real clocks most of their time.
const COMPUTING: [(&str, &str); 2] =
    [("holdline-core", "holdline_core"), ("holdline-sim", "redis")];

/// What takes minutes, although it waits: it begins first, so that nothing runs alone at the end.
const LONG: [(&str, &str); 3] =
    [("holdline-redis", "redisson"), ("holdline-cli", "it"), ("holdline", "redis")];

/// A program with tests in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binary {
    package: String,
    target: String,
    program: PathBuf,
    /// The directory of the package's manifest, where its tests expect to be.
    directory: PathBuf,
}

/// A line of what cargo says in JSON, as far as we use it.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

impl Binary {
    #[cfg(test)]
    pub(crate) fn new(package: &str, target: &str, program: PathBuf) -> Self {
        let directory = program.parent().map(Path::to_path_buf).unwrap_or_default();
        Binary { package: package.to_owned(), target: target.to_owned(), program, directory }
    }

    /// How the summary calls it.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    /// Whether it would keep a processor from those that wait for a clock.
    pub(crate) fn computes(&self) -> bool {
        COMPUTING.contains(&(self.package.as_str(), self.target.as_str()))
    }

    /// Whether it begins before the others.
    pub(crate) fn is_long(&self) -> bool {
        LONG.contains(&(self.package.as_str(), self.target.as_str()))
    }

    /// Runs it as cargo would; one that computes stands back behind all others.
    pub(crate) fn command(&self, threads: usize) -> Command {
        let mut command = if self.computes() {
            let mut nice = Command::new("nice");
            nice.arg("-n10").arg(&self.program);
            nice
        } else {
            Command::new(&self.program)
        };
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command.env("RUST_TEST_THREADS", threads.to_string());
        command
    }
}

/// Compiles all tests; returns the programs by the names of their packages.
///
/// # Errors
/// What does not compile.
pub(crate) fn build() -> Result<Vec<Binary>, String> {
    let words = ["test", "--workspace", "--all-features", "--no-run"];
    let mut command = cargo(&words);
    // What the compiler has to say is shown as ever, on standard error.
    command.arg("--message-format=json-render-diagnostics");
    let mut found = Vec::new();
    process::listen(&mut command, None, |line| found.extend(read(line)))?;
    found.sort_by_key(Binary::title);
    Ok(found)
}

fn read(line: &[u8]) -> Option<Binary> {
    let message: Message = serde_json::from_slice(line).ok()?;
    let is_test = message.reason == "compiler-artifact" && message.profile?.test;
    let program = message.executable.filter(|_| is_test)?;
    let directory = message.manifest_path?.parent()?.to_path_buf();
    let package = package_of(&message.package_id?, &directory);
    Some(Binary { package, target: message.target?.name, program, directory })
}

/// `path+file:///…/crates/core#holdline-core@0.1.0`; no name where it is the directory's.
fn package_of(id: &str, directory: &Path) -> String {
    let after = id.rsplit_once('#').map_or("", |(_, after)| after);
    match after.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => directory.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned(),
    }
}

#[cfg(test)]
mod own_tests {
    use super::*;

    const LINE: &str = concat!(
        r#"{"reason":"compiler-artifact","#,
        r#""package_id":"path+file:///w/crates/core#holdline-core@0.1.0","#,
        r#""manifest_path":"/w/crates/core/Cargo.toml","#,
        r#""target":{"kind":["lib"],"name":"holdline_core"},"#,
        r#""profile":{"test":true},"executable":"/w/t/core-1"}"#,
    );

    #[test]
    fn a_test_binary_is_read_and_nothing_else() {
        let binary = read(LINE.as_bytes()).expect("a test binary");
        assert_eq!(binary.title(), "holdline-core holdline_core");
        assert!(binary.computes());
        assert_eq!(binary.directory, Path::new("/w/crates/core"));
        for other in [
            LINE.replace("\"test\":true", "\"test\":false"),
            LINE.replace("\"/w/t/core-1\"", "null"),
            LINE.replace("compiler-artifact", "compiler-message"),
            "no JSON".to_owned(),
        ] {
            assert_eq!(read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_package_is_called_as_its_directory_if_its_id_does_not_say() {
        assert_eq!(package_of("path+file:///w/xtask#0.1.0", Path::new("/w/xtask")), "xtask");
    }

    #[test]
    fn one_that_computes_stands_back() {
        let computing = read(LINE.as_bytes()).expect("a test binary");
        assert_eq!(computing.command(2).get_program(), "nice");
        let waiting = read(LINE.replace("holdline-core@", "holdline-cli@").as_bytes());
        assert_eq!(waiting.expect("a test binary").command(4).get_program(), "/w/t/core-1");
    }

    /// A name that is written wrong would make everything wait for the models again.
    #[test]
    fn the_programs_of_the_lists_exist() {
        let metadata = crate::metadata::Metadata::read().expect("cargo knows the workspace");
        for (package, _) in COMPUTING.into_iter().chain(LONG) {
            assert!(metadata.packages.iter().any(|one| one.name == package), "{package}");
        }
    }
}
