//! The step of the Python package: a source distribution, a wheel made of it, types, and the tests
//! on the oldest and the newest interpreter.

use super::Outcome;
use super::counts::Counts;
use crate::cargo::{cargo, root};
use crate::interop;
use crate::interop::cpython::{VERSIONS, environment_of};
use crate::metadata::Metadata;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long a program may print nothing.
const LIMIT: Option<Duration> = Some(Duration::from_secs(20 * 60));
/// The smallest program that shows that the native module works.
const HELLO: &str = "import holdline, sys\n\
    with holdline.Client('memory:').lock('hello') as grant:\n\
    \x20   print('python', sys.version.split()[0], 'holds', grant)\n";

/// What the step works with.
struct Ground {
    interop: PathBuf,
    /// What the step makes.
    made: PathBuf,
    target: PathBuf,
    package: PathBuf,
}

/// What one run of tests said, and how it ended.
pub(super) struct Run {
    pub(super) said: Vec<u8>,
    pub(super) counts: Counts,
    pub(super) ended: Result<(), String>,
}

pub(crate) fn run() -> Outcome {
    let mut counts = Counts::default();
    let outcome = Ground::new().and_then(|ground| {
        ground.build()?;
        let wheel = ground.wheel("dev", &ground.target.join("debug/holdline"))?;
        for which in VERSIONS {
            ground.install(which, &wheel)?;
        }
        ground.types()?;
        ground.tests(&mut counts)
    });
    (counts, outcome)
}

/// Builds the wheel as it is shipped, with the command line in it, and tries both.
///
/// # Errors
/// What could not be built or run.
pub(crate) fn package() -> Result<(), String> {
    interop::prepare_cpython()?;
    let ground = Ground::new()?;
    let build = ["build", "--locked", "--profile", "dist", "-p", "holdline-cli", "--features"];
    process::watch(cargo(&build).arg("all"), None, |_| ())?;
    let wheel = ground.wheel("dist", &ground.target.join("dist/holdline"))?;
    ground.install("newest", &wheel)?;
    println!("package: {}", wheel.display());
    Ok(())
}

/// Measures the package as it is shipped, beside Python's other locks on Redis.
///
/// # Errors
/// What could not be built or run.
pub(crate) fn bench() -> Result<(), String> {
    interop::prepare()?;
    let ground = Ground::new()?;
    process::watch(&mut cargo(&["build", "-q", "-p", "holdline-services"]), None, |_| ())?;
    let dist = ground.made.join("dist");
    let mut build = ground.program("newest", "maturin");
    build.args(["build", "--release", "--locked", "--strip", "--out"]).arg(&dist);
    process::watch(build.env("CARGO_TARGET_DIR", &ground.target), None, |_| ())?;
    ground.install("newest", &only(&dist, "whl")?)?;
    let mut run = ground.program("newest", "python");
    run.arg("bench/cycle.py").env("PYTHONPATH", ground.library("newest")?);
    run.env("HOLDLINE_SERVICES", ground.target.join("debug/holdline-services"));
    process::watch(&mut run, LIMIT, |_| ())
}

impl Ground {
    fn new() -> Result<Ground, String> {
        let target = Metadata::read()?.target_directory;
        let made = target.join("python");
        for place in ["dist", "source"] {
            // What an earlier run has left is not what this one makes.
            let _ = std::fs::remove_dir_all(made.join(place));
            std::fs::create_dir_all(made.join(place)).map_err(|why| why.to_string())?;
        }
        let interop = target.join("interop");
        let package = root().join("bindings/python");
        Ok(Ground { interop, made, target, package })
    }

    fn program(&self, which: &str, name: &str) -> Command {
        let mut command = Command::new(environment_of(&self.interop, which).join("bin").join(name));
        command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&self.package);
        command
    }

    /// The programs that the tests start, as the step `tests` has built them.
    fn build(&self) -> Result<(), String> {
        let programs = ["--bin", "holdline", "--bin", "holdline-services", "--tests"];
        let build = [&["build", "--workspace", "--all-features"], &programs[..]].concat();
        process::watch(&mut cargo(&build), None, |_| ())
    }

    /// Makes the source distribution, and of its files the wheel: so nothing is missing in it.
    /// `profile` is that of cargo, and `program` the command line that the wheel brings.
    fn wheel(&self, profile: &str, program: &Path) -> Result<PathBuf, String> {
        let dist = self.made.join("dist");
        let source = self.made.join("source");
        let mut sdist = self.program("newest", "maturin");
        process::watch(sdist.args(["sdist", "--out"]).arg(&dist), None, |_| ())?;
        let mut unpack = Command::new("tar");
        // With the time of now: cargo takes older files for those that it has compiled.
        unpack.args(["-xzm", "--strip-components=1", "-f"]).arg(only(&dist, "tar.gz")?);
        process::watch(unpack.arg("-C").arg(&source), LIMIT, |_| ())?;
        put_command(program, &source)?;
        let mut build = self.program("newest", "maturin");
        build.args(["build", "--profile", profile, "--offline", "--strip", "--out"]).arg(&dist);
        // What others have written is compiled already, for the most part.
        build.current_dir(&source).env("CARGO_TARGET_DIR", &self.target);
        process::watch(&mut build, None, |_| ())?;
        only(&dist, "whl")
    }

    fn fresh(&self, which: &str) -> PathBuf {
        self.made.join(format!("fresh-{which}"))
    }

    /// Installs the wheel into a fresh environment, which has nothing else, and runs it there.
    fn install(&self, which: &str, wheel: &Path) -> Result<(), String> {
        let fresh = self.fresh(which);
        let mut venv = self.program(which, "python");
        venv.args(["-m", "venv", "--clear", "--without-pip"]).arg(&fresh);
        process::watch(&mut venv, LIMIT, |_| ())?;
        let mut pip = self.program("newest", "python");
        pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]);
        pip.arg(fresh.join("bin/python")).args(["install", "--quiet", "--no-index"]).arg(wheel);
        process::watch(&mut pip, LIMIT, |_| ())?;
        let mut hello = Command::new(fresh.join("bin/python"));
        process::watch(hello.args(["-W", "error", "-c", HELLO]), LIMIT, |_| ())?;
        let mut job = Command::new(fresh.join("bin/holdline"));
        job.args(["--url", "memory:", "run", "hello", "--", "true"]).env_clear();
        process::watch(&mut job, LIMIT, |_| ())
    }

    /// Two checkers, which see different things.
    fn types(&self) -> Result<(), String> {
        let mut mypy = self.program("newest", "mypy");
        mypy.args(["--strict", "python/holdline", "tests", "examples", "--cache-dir"]);
        process::watch(mypy.arg(self.made.join("mypy")), LIMIT, |_| ())?;
        let mut pyright = Command::new("node");
        pyright.arg(self.interop.join("pyright/node_modules/pyright/index.js"));
        pyright.arg("--pythonpath").arg(environment_of(&self.interop, "newest").join("bin/python"));
        process::watch(pyright.arg("--project").arg(&self.package), LIMIT, |_| ())
    }

    /// Runs the tests on both interpreters at once: they mostly wait.
    fn tests(&self, counts: &mut Counts) -> Result<(), String> {
        let ran = thread::scope(|scope| {
            let runs = VERSIONS.map(|which| scope.spawn(move || self.pytest(which)));
            runs.map(|run| run.join().unwrap_or_else(|_| Err("a run of pytest broke".to_owned())))
        });
        let mut wrong = Vec::new();
        for (which, ran) in VERSIONS.iter().zip(ran) {
            let run = ran?;
            let title = format!("\n-- {which} interpreter\n");
            process::show(&[title.as_bytes(), &run.said].concat());
            *counts += run.counts;
            wrong.extend(judged(&format!("{which} interpreter"), run.counts, run.ended).err());
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    /// Where the package is installed.
    fn library(&self, which: &str) -> Result<PathBuf, String> {
        let versions = std::fs::read_dir(self.fresh(which).join("lib")).ok();
        let first = versions.and_then(|mut versions| versions.next()?.ok());
        let first = first.ok_or("the fresh environment has no library")?;
        Ok(first.path().join("site-packages"))
    }

    fn pytest(&self, which: &str) -> Result<Run, String> {
        let mut pytest = self.program(which, "python");
        pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
        if which == "oldest" {
            // The frameworks of today want newer interpreters.
            pytest.args(["--ignore", "tests/test_frameworks.py"]);
        }
        // The installed package, and no other.
        pytest.env("PYTHONPATH", self.library(which)?);
        pytest.env("HOLDLINE_SERVICES", self.target.join("debug/holdline-services"));
        pytest.env("HOLDLINE_PROGRAM", self.target.join("debug/holdline"));
        let mut said = Vec::new();
        let mut counts = None;
        let ended = process::listen(&mut pytest, LIMIT, |line| {
            said.extend_from_slice(line);
            counts = closing_line(String::from_utf8_lossy(line).trim_end()).or(counts);
        });
        Ok(Run { said, counts: counts.unwrap_or_default(), ended })
    }
}

/// Makes the command line a part of the wheel that is built from this directory. Its debug
/// information is left out.
///
/// The directory is not named in the package's own settings: it does not exist where users build
/// the package from its sources, and maturin refuses a directory that is missing.
fn put_command(program: &Path, package: &Path) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("the command of the wheel: {why}");
    let commands = package.join("commands/scripts");
    std::fs::create_dir_all(&commands).map_err(failed)?;
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(commands.join("holdline")).arg(program);
    process::watch(&mut strip, LIMIT, |_| ())?;
    let file = package.join("pyproject.toml");
    let settings = std::fs::read_to_string(&file).map_err(failed)?;
    let section = "[tool.maturin]\n";
    if !settings.contains(section) {
        return Err("pyproject.toml has no section [tool.maturin]".to_owned());
    }
    let settings = settings.replacen(section, &format!("{section}data = \"commands\"\n"), 1);
    std::fs::write(&file, settings).map_err(failed)
}

/// The one file of a directory with this end.
fn only(directory: &Path, end: &str) -> Result<PathBuf, String> {
    let files = std::fs::read_dir(directory).map_err(|why| why.to_string())?;
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let mut found = paths.filter(|path| path.to_string_lossy().ends_with(&format!(".{end}")));
    let file = found.next().ok_or_else(|| format!("no .{end} file was made"))?;
    found.next().map_or(Ok(file), |_| Err(format!("several .{end} files were made")))
}

/// Reads the last line of pytest: `3 failed, 261 passed, 1 error in 48.22s`.
fn closing_line(line: &str) -> Option<Counts> {
    let (words, _) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
    let mut counts = Counts::default();
    for part in words.split(", ") {
        let (number, word) = part.split_once(' ')?;
        let number: usize = number.parse().ok()?;
        match word {
            "passed" => counts.passed += number,
            "failed" | "error" | "errors" => counts.failed += number,
            "skipped" | "deselected" | "xfailed" | "xpassed" => counts.skipped += number,
            _ => {}
        }
    }
    Some(counts)
}

/// It is a success only if tests ran, and all of them.
pub(super) fn judged(which: &str, counts: Counts, ended: Result<(), String>) -> Result<(), String> {
    ended.map_err(|says| format!("the {which}: {says}"))?;
    match counts {
        Counts { failed: 1.., .. } => Err(format!("the {which}: tests failed")),
        Counts { skipped: 1.., .. } => Err(format!("the {which}: tests were skipped")),
        Counts { passed: 0, .. } => Err(format!("the {which}: no test ran")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn the_last_line_of_pytest_is_read() {
        let counts =
            |passed, failed, skipped| Some(Counts { passed, failed, skipped, unsteady: 0 });
        for (line, read) in [
            ("264 passed in 70.11s (0:01:10)", counts(264, 0, 0)),
            ("= 3 failed, 242 passed, 1 error in 48.22s =", counts(242, 4, 0)),
            ("1 passed, 2 skipped, 1 warning in 0.10s", counts(1, 0, 2)),
            ("no tests ran in 0.01s", None),
            ("tests/test_locks.py ...... [ 12%]", None),
        ] {
            assert_eq!(closing_line(line), read, "{line}");
        }
    }

    #[test]
    fn a_run_without_tests_or_with_skipped_ones_is_no_success() {
        let counts =
            |passed, failed, skipped| Counts { passed, failed, skipped, ..Counts::default() };
        assert_eq!(judged("x", counts(5, 0, 0), Ok(())), Ok(()));
        for (counts, ended) in [
            (counts(0, 0, 0), Ok(())),
            (counts(5, 0, 1), Ok(())),
            (counts(5, 1, 0), Ok(())),
            (counts(5, 0, 0), Err("it crashed".to_owned())),
        ] {
            assert!(judged("x", counts, ended).is_err(), "{counts:?}");
        }
    }
}
