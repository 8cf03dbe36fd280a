//! Everything that must hold before a change lands, in order, with a summary.
//!
//! A failed step does not stop the others, so that one run shows every failure. The
//! last line is `N passed, N failed, N skipped`, counted over all tests of all binaries, all
//! doctests and all examples of the documents; a step that fails without a failed test counts as
//! one failure.

mod binaries;
mod counts;
mod deny;
mod example_servers;
mod examples;
pub(crate) mod node;
pub(crate) mod python;
mod report;
mod tests;

use crate::cargo::cargo;
use crate::{book, interop, packages, process, tidy};
pub(crate) use counts::Counts;
use report::StepReport;
use std::process::Command;
use std::time::Instant;

/// What a step saw: its tests, if it ran any, and in words what was wrong.
pub(crate) type Outcome = (Counts, Result<(), String>);

struct Step {
    name: &'static str,
    asks: &'static str,
    run: fn() -> Outcome,
}

const STEPS: [Step; 12] = [
    Step { name: "format", asks: "every file is as rustfmt writes it", run: format },
    Step { name: "clippy", asks: "no warning, on all targets and feature sets", run: clippy },
    Step { name: "docs", asks: "docs build without a warning, private ones too", run: docs },
    Step { name: "tidy", asks: "style as a test", run: tidy_step },
    Step { name: "book", asks: "the book builds, and its links lead somewhere", run: book_step },
    Step { name: "deny", asks: "licences, banned crates, sources, duplicates", run: deny::run },
    Step { name: "interop", asks: "the peers of the interop tests are there", run: interop_step },
    Step { name: "packages", asks: "what is shipped is well formed", run: packages_step },
    Step { name: "tests", asks: "all tests and doctests", run: tests::run },
    Step { name: "python", asks: "the Python package: wheel, types, tests", run: python::run },
    Step { name: "node", asks: "the Node package: tarball, types, tests", run: node::run },
    Step { name: "examples", asks: "the shell examples of the documents", run: examples::run },
];

/// Prints the steps.
pub(crate) fn list() {
    for step in &STEPS {
        println!("{:<9} {}", step.name, step.asks);
    }
}

/// Runs the named steps, all if none is named; true if all succeed.
///
/// # Errors
/// A name that is no step.
pub(crate) fn run(only: &[&str]) -> Result<bool, String> {
    let steps = chosen(only)?;
    let mut lines = Vec::new();
    for step in steps {
        println!("\n== {}: {}", step.name, step.asks);
        let start = Instant::now();
        let (counts, outcome) = (step.run)();
        if let Err(says) = &outcome {
            println!("{}: {says}", step.name);
        }
        lines.push(StepReport { step: step.name, took: start.elapsed(), counts, outcome });
    }
    let summary = report::summary(&lines);
    println!("\n{}", summary.text);
    Ok(summary.well)
}

fn chosen(only: &[&str]) -> Result<Vec<&'static Step>, String> {
    if let Some(unknown) = only.iter().find(|name| !STEPS.iter().any(|s| s.name == **name)) {
        let names = STEPS.map(|s| s.name).join(", ");
        return Err(format!("`{unknown}` is no step; the steps are: {names}"));
    }
    Ok(STEPS.iter().filter(|s| only.is_empty() || only.contains(&s.name)).collect())
}

/// Runs commands one after the other until one fails.
fn all(commands: impl IntoIterator<Item = Command>) -> Outcome {
    let outcome = commands.into_iter().try_for_each(|mut c| process::watch(&mut c, None, |_| ()));
    (Counts::default(), outcome)
}

fn format() -> Outcome {
    // The peers' driver is a workspace of its own.
    let peers = ["fmt", "--check", "--manifest-path", "interop/rust/Cargo.toml"];
    all([cargo(&["fmt", "--all", "--check"]), cargo(&peers)])
}

fn clippy() -> Outcome {
    let everything =
        ["clippy", "--workspace", "--all-features", "--all-targets", "--", "-D", "warnings"];
    // A feature only adds: what users import must stand without any, each by itself.
    let bare = ["holdline", "holdline-fence"]
        .map(|package| ["clippy", "-p", package, "--no-default-features", "--", "-D", "warnings"]);
    // What `cargo run` and `cargo install` build.
    let usual = ["clippy", "-p", "holdline-cli", "--", "-D", "warnings"];
    all([cargo(&everything), cargo(&bare[0]), cargo(&bare[1]), cargo(&usual)])
}

/// The private run finds broken links in modules that only we read. The public run comes last:
/// its pages stay, and it alone sees a public page that links to a private item.
fn docs() -> Outcome {
    let private = ["doc", "--workspace", "--all-features", "--no-deps", "--document-private-items"];
    let public = ["doc", "--workspace", "--all-features", "--no-deps"];
    all([&private[..], &public[..]].map(|arguments| {
        let mut command = cargo(arguments);
        command.env("RUSTDOCFLAGS", "-D warnings");
        command
    }))
}

/// Downloads what is not there yet; the tests then run without the network.
fn interop_step() -> Outcome {
    (Counts::default(), interop::prepare())
}

fn packages_step() -> Outcome {
    (Counts::default(), packages::check())
}

fn tidy_step() -> Outcome {
    let outcome = match tidy::run() {
        Ok(true) => Ok(()),
        Ok(false) => Err("style is broken in the places above".to_owned()),
        Err(says) => Err(says),
    };
    (Counts::default(), outcome)
}

fn book_step() -> Outcome {
    (Counts::default(), book::build().map(|_| ()))
}

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn no_name_means_all_steps_in_order() {
        let names = |only: &[&str]| -> Vec<&str> {
            chosen(only).expect("these are steps").iter().map(|s| s.name).collect()
        };
        assert_eq!(names(&[]).len(), STEPS.len());
        assert_eq!(names(&["tests", "format"]), ["format", "tests"]);
    }

    #[test]
    fn a_name_that_is_no_step_is_refused() {
        let reply = chosen(&["fmt"]).err().expect("refused");
        assert!(reply.contains("`fmt`") && reply.contains("format"), "{reply}");
    }
}
