//! `holdline run NAME -- true` against `flock FILE true`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::rounds::{Failure, each, median, time};

const RUNS: usize = 100;

pub(crate) fn section() -> Result<(), Failure> {
    let binary = binary()?;
    let directory = Scratch::new("run")?;
    let url = format!("local://{}", directory.path().display());
    let lock_file = directory.path().join("flock");
    let mut flock = Command::new("flock");
    flock.arg(&lock_file).arg("true");
    let mut ours = Command::new(&binary);
    ours.args(["--url", &url, "run", "bench", "--", "true"]);
    let mut floors = Vec::new();
    let mut subjects = Vec::new();
    for _ in 0..RUNS {
        floors.push(once(&mut flock)?);
        subjects.push(once(&mut ours)?);
    }
    let floor = median(floors.into_iter());
    let subject = median(subjects.into_iter());
    println!(
        "{:<44} flock {:>10}  ours {:>10}  {:+.2} ms  (to reach: at most +5 ms)",
        "holdline run NAME -- true",
        time(floor),
        time(subject),
        (subject - floor) / 1e6,
    );
    Ok(())
}

fn once(command: &mut Command) -> Result<f64, Failure> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{command:?} ended with {status}").into());
    }
    Ok(each(start.elapsed(), 1))
}

/// The binary as it is shipped, built beside this one.
pub(crate) fn binary() -> Result<PathBuf, Failure> {
    let mut path = std::env::current_exe()?;
    path.set_file_name("holdline");
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} is missing: run this by `cargo xtask bench`", path.display()).into())
}

/// A directory of this run, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(section: &str) -> Result<Scratch, Failure> {
        let name = format!("holdline-bench-{section}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it: the system clears its temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
