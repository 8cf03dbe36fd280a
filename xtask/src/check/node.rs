//! The step of the Node package: the addon, a tarball that is installed into an empty folder, and
//! the tests (types too) on this machine's Node and on a newer one.

use super::Outcome;
use super::counts::Counts;
use super::python::{Run, judged};
use crate::cargo::{cargo, root};
use crate::interop;
use crate::metadata::Metadata;
use crate::process;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long a program may print nothing.
const LIMIT: Option<Duration> = Some(Duration::from_secs(10 * 60));
/// The newest C library that a package may need: that of RHEL 9, Ubuntu 22.04 and Debian 12.
const GLIBC: u32 = 34;
/// The smallest programs that show that the installed package works.
const HELLO: [(&str, &str); 2] = [
    (
        "hello.mjs",
        "import { connect } from 'holdline';\n\
         const client = await connect('memory:');\n\
         await client.using('hello', (lock) => {\n\
         \x20 console.log('node', process.version, 'holds', lock.name);\n\
         });\n",
    ),
    ("hello.cjs", "require('holdline').connect('memory:').then((client) => client.close());\n"),
];

/// What the step works with.
struct Ground {
    /// The packages of the tests, and a newer Node.
    modules: PathBuf,
    /// What the step makes.
    made: PathBuf,
    target: PathBuf,
    package: PathBuf,
}

pub(crate) fn run() -> Outcome {
    let mut counts = Counts::default();
    let outcome = Ground::new().and_then(|ground| {
        ground.build()?;
        let addon = ground.target.join("debug/libholdline_node.so");
        ground.pack(&addon)?;
        copy(&addon, &ground.package.join(addon_file()))?;
        ground.tests(&mut counts)
    });
    (counts, outcome)
}

/// Builds the tarball as it is shipped, and tries it on this machine's Node and on a newer one. It
/// has the addon of this machine's processor; the release puts those of all into one.
///
/// # Errors
/// What could not be built or run.
pub(crate) fn package() -> Result<(), String> {
    interop::prepare_node()?;
    let ground = Ground::new()?;
    let build = ["build", "--locked", "--release", "-p", "holdline-node"];
    process::watch(&mut cargo(&build), None, |_| ())?;
    let addon = ground.target.join("release/libholdline_node.so");
    let tarball = ground.pack(&addon)?;
    ground.say_hello(&ground.modules.join(".bin/node"))?;
    let needed = glibc_of(&fs::read(&addon).map_err(|why| why.to_string())?);
    if needed > GLIBC {
        return Err(format!("the addon needs glibc 2.{needed}, and the docs say 2.{GLIBC}"));
    }
    println!("package: {}", tarball.display());
    Ok(())
}

/// Packs the addon of the profile `dist`, installs the package, and returns where it is.
///
/// # Errors
/// What could not be packed or run.
pub(crate) fn installed() -> Result<PathBuf, String> {
    let ground = Ground::new()?;
    ground.pack(&ground.target.join("dist/libholdline_node.so"))?;
    Ok(ground.made.join("fresh/node_modules/holdline"))
}

impl Ground {
    fn new() -> Result<Ground, String> {
        let target = Metadata::read()?.target_directory;
        let made = target.join("node");
        // What an earlier run has left is not what this one makes.
        let _ = fs::remove_dir_all(&made);
        fs::create_dir_all(&made).map_err(|why| why.to_string())?;
        let modules = target.join("interop/node/node_modules");
        Ok(Ground { modules, made, target, package: root().join("bindings/node") })
    }

    /// The addon, and the programs that the tests start, as other steps have built them.
    fn build(&self) -> Result<(), String> {
        let programs = ["--bin", "holdline", "--bin", "holdline-services", "--lib"];
        // With the tests, for whose sake crates have more features: else most are compiled again.
        let which = ["build", "--workspace", "--all-features", "--tests"];
        let mut build = cargo(&[&which, &programs[..]].concat());
        process::watch(build.args(["--exclude", "holdline-python"]), None, |_| ())
    }

    /// Packs the package with this addon, and installs the tarball into an empty folder, without a
    /// network: it needs no other package and no compiler.
    fn pack(&self, addon: &Path) -> Result<PathBuf, String> {
        let source = self.made.join("source");
        copy_package(&self.package, &source)?;
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            copy(&root().join(licence), &source.join(licence))?;
        }
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(source.join(addon_file())).arg(addon);
        process::watch(&mut strip, LIMIT, |_| ())?;
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--pack-destination"]).arg(&self.made);
        process::watch(pack.current_dir(&source), LIMIT, |_| ())?;
        let version = env!("CARGO_PKG_VERSION");
        let tarball = self.made.join(format!("holdline-{version}.tgz"));
        let fresh = self.made.join("fresh");
        fs::create_dir_all(&fresh).map_err(|why| why.to_string())?;
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--offline", "--no-audit", "--no-fund"]).arg(&tarball);
        process::watch(install.current_dir(&fresh), LIMIT, |_| ())?;
        self.say_hello(Path::new("node"))?;
        Ok(tarball)
    }

    /// Runs the smallest programs where the package is installed.
    fn say_hello(&self, node: &Path) -> Result<(), String> {
        let fresh = self.made.join("fresh");
        for (file, text) in HELLO {
            fs::write(fresh.join(file), text).map_err(|why| format!("{file}: {why}"))?;
            process::watch(Command::new(node).arg(file).current_dir(&fresh), LIMIT, |_| ())?;
        }
        Ok(())
    }

    /// Runs the tests on both versions of Node at once: they mostly wait.
    fn tests(&self, counts: &mut Counts) -> Result<(), String> {
        let newest = self.modules.join(".bin/node");
        let programs = [("this machine's", Path::new("node")), ("newest", newest.as_path())];
        let ran = thread::scope(|scope| {
            let runs = programs.map(|(_, node)| scope.spawn(move || self.on(node)));
            runs.map(|run| {
                run.join().unwrap_or_else(|_| Err("a run of the tests broke".to_owned()))
            })
        });
        let mut wrong = Vec::new();
        for ((which, _), ran) in programs.iter().zip(ran) {
            let run = ran?;
            process::show(&[format!("\n-- {which} Node\n").as_bytes(), &run.said].concat());
            *counts += run.counts;
            wrong.extend(judged(&format!("{which} Node"), run.counts, run.ended).err());
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    fn on(&self, node: &Path) -> Result<Run, String> {
        let mut files = files_of(&self.package.join("test"))?;
        files.retain(|file| file.to_string_lossy().ends_with(".test.mjs"));
        files.sort();
        let mut test = Command::new(node);
        test.args(["--test", "--test-reporter=tap"]).args(files).current_dir(&self.package);
        test.env("NODE_PATH", &self.modules);
        test.env("HOLDLINE_SERVICES", self.target.join("debug/holdline-services"));
        test.env("HOLDLINE_PROGRAM", self.target.join("debug/holdline"));
        let mut said = Vec::new();
        let mut counts = Counts::default();
        let ended = process::listen(&mut test, LIMIT, |line| {
            said.extend_from_slice(line);
            count(&mut counts, &String::from_utf8_lossy(line));
        });
        Ok(Run { said, counts, ended })
    }
}

/// Returns the file by which Node loads the native module here. Node has its own words for
/// processors.
fn addon_file() -> String {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("holdline.linux-{processor}-gnu.node")
}

/// Returns the newest `2.x` of glibc whose symbols a library needs, by their names in it.
fn glibc_of(library: &[u8]) -> u32 {
    let name = b"GLIBC_2.";
    let version = |at: usize| {
        let digits = library[at + name.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number: u32, byte| {
            number.saturating_mul(10).saturating_add(u32::from(byte - b'0'))
        })
    };
    let found = library.windows(name.len()).enumerate().filter(|(_, window)| window == name);
    found.map(|(at, _)| version(at)).max().unwrap_or(0)
}

/// Reads a line of the summary that the test runner of Node prints: `# pass 59`.
fn count(counts: &mut Counts, line: &str) {
    let words = line.trim_end().strip_prefix("# ").and_then(|line| line.split_once(' '));
    let Some((word, Ok(number))) = words.map(|(word, number)| (word, number.parse::<usize>()))
    else {
        return;
    };
    match word {
        "pass" => counts.passed += number,
        "fail" | "cancelled" => counts.failed += number,
        "skipped" | "todo" => counts.skipped += number,
        _ => {}
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|why| format!("{}: {why}", from.display()))
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(|why| format!("{}: {why}", directory.display()));
    Ok(entries?.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// Copies what `npm pack` chooses from: the files beside the manifest, and those of `lib`.
fn copy_package(from: &Path, to: &Path) -> Result<(), String> {
    for part in ["", "lib"] {
        let place = to.join(part);
        fs::create_dir_all(&place).map_err(|why| format!("{}: {why}", place.display()))?;
        for file in files_of(&from.join(part))?.iter().filter(|file| file.is_file()) {
            // An addon that a build has left is not the one that is packed.
            if file.extension().is_none_or(|end| end != "node") {
                copy(file, &place.join(file.file_name().unwrap_or_default()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn the_newest_symbol_says_which_c_library_is_needed() {
        let names = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.29\0GLIBC_PRIVATE\0";
        assert_eq!(glibc_of(names), 34);
        assert_eq!(glibc_of(b"GLIBC_2"), 0);
    }

    #[test]
    fn the_summary_of_nodes_test_runner_is_read() {
        let mut counts = Counts::default();
        for line in [
            "# tests 63\n",
            "# suites 6\n",
            "# pass 59\n",
            "# fail 1\n",
            "# cancelled 2\n",
            "# skipped 1\n",
            "# todo 0\n",
            "# duration_ms 83.5\n",
            "# Subtest: a lock is held until its release\n",
            "ok 1 - pass 5\n",
        ] {
            count(&mut counts, line);
        }
        assert_eq!(counts, Counts { passed: 59, failed: 3, skipped: 1, unsteady: 0 });
    }
}
