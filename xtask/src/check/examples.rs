//! Runs the shell examples of the documents against the binary that was just built.
//!
//! A block that opens with `sh run` is a script for `bash -e`, one that opens with `python run` a
//! program for the Python of the interop tests. It must succeed, and if it has lines that begin
//! with `# => `, its standard output must be exactly these lines; `...` in one stands for any text.
//! The blocks of one document run in order, in one directory of their own, with locks, home and
//! configuration of their own, and with servers that are started for them ([`Servers`]).

use super::Outcome;
use super::counts::Counts;
use super::example_servers::Servers;
use crate::cargo::cargo;
use crate::interop;
use crate::markdown::{Fence, fences};
use crate::metadata::Metadata;
use crate::process;
use crate::tidy::is_for_users;
use crate::tree::{SourceFile, Tree};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An example is small: one that takes longer hangs.
const BLOCK: Option<Duration> = Some(Duration::from_secs(60));
const SCRIPT: &str = "example";
const EXPECTED: &str = "# => ";

/// What examples are run by.
struct Programs {
    /// The directory of the binary that was just built.
    binaries: PathBuf,
    python: PathBuf,
    /// The directory of tools such as Alembic, behind the search path.
    tools: PathBuf,
}

pub(crate) fn run() -> Outcome {
    let mut counts = Counts::default();
    let outcome = documents().and_then(|documents| {
        let python = interop::python_peers()?;
        let tools = interop::recipe_tools()?;
        let programs = Programs { binaries: build()?, python, tools };
        let mut wrong = Vec::new();
        for (file, blocks) in &documents {
            let (passed, reply) = run_document(file, blocks, &programs)?;
            counts.passed += passed;
            counts.failed += reply.len();
            wrong.extend(reply);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    });
    (counts, outcome)
}

/// The documents that have examples to run. None is no success: the step would look as if all of
/// them had run.
fn documents() -> Result<Vec<(SourceFile, Vec<Fence>)>, String> {
    some(with_examples(Tree::read()?))
}

fn some<T>(documents: Vec<T>) -> Result<Vec<T>, String> {
    if documents.is_empty() {
        Err("no document has an example to run".to_owned())
    } else {
        Ok(documents)
    }
}

fn with_examples(tree: Tree) -> Vec<(SourceFile, Vec<Fence>)> {
    let with_blocks = tree.files.into_iter().filter(is_for_users).map(|file| {
        let blocks = fences(&file.text);
        let runs = |b: &Fence| ["sh", "python"].contains(&b.language()) && b.has("run");
        let run: Vec<Fence> = blocks.into_iter().filter(runs).collect();
        (file, run)
    });
    with_blocks.filter(|(_, blocks)| !blocks.is_empty()).collect()
}

/// Builds the binary, and returns the directory that it lies in. It is the one that the tests run:
/// built for its package alone it would have other features, and so would all that it is made of.
fn build() -> Result<PathBuf, String> {
    let build = ["build", "--workspace", "--all-features", "--bins", "--tests"];
    process::watch(&mut cargo(&build), None, |_| ())?;
    Ok(Metadata::read()?.target_directory.join("debug"))
}

fn run_document(
    file: &SourceFile,
    blocks: &[Fence],
    programs: &Programs,
) -> Result<(usize, Vec<String>), String> {
    let dir = TempDir::new().map_err(|e| format!("no directory for the examples: {e}"))?;
    let servers = Servers::new(&programs.binaries);
    let mut passed = 0;
    let mut wrong = Vec::new();
    for block in blocks {
        println!("{}:{}", file.path, block.line);
        match run_block(block, &dir.0, programs, &servers) {
            Ok(()) => passed += 1,
            Err(says) => wrong.push(format!("{}:{}: {says}", file.path, block.line)),
        }
    }
    Ok((passed, wrong))
}

fn run_block(
    block: &Fence,
    dir: &Path,
    programs: &Programs,
    servers: &Servers,
) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(programs.binaries.clone()).chain(std::env::split_paths(&path));
    let paths = paths.chain([programs.tools.clone()]);
    let path = std::env::join_paths(paths).map_err(|e| format!("no PATH: {e}"))?;
    std::fs::write(dir.join(SCRIPT), servers.fill(&block.body.join("\n"))?)
        .map_err(|e| format!("the example could not be written: {e}"))?;
    let mut command = match block.language() {
        "python" => Command::new(&programs.python),
        _ => Command::new("bash"),
    };
    if block.language() == "sh" {
        command.args(["-e", "-u", "-o", "pipefail"]);
    }
    command
        .arg(SCRIPT)
        .current_dir(dir)
        .env_clear()
        .env("PATH", path)
        .env("HOME", dir)
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb")
        .env("HOLDLINE_URL", format!("local:{}", dir.join("locks").display()));
    let mut lines = Vec::new();
    process::watch(&mut command, BLOCK, |line| lines.push(line.to_owned()))?;
    compare(&expected(block), &lines)
}

fn expected(block: &Fence) -> Vec<&str> {
    block.body.iter().filter_map(|line| line.trim_start().strip_prefix(EXPECTED)).collect()
}

fn compare(expected: &[&str], printed: &[String]) -> Result<(), String> {
    if expected.is_empty() {
        return Ok(());
    }
    for (index, wanted) in expected.iter().enumerate() {
        match printed.get(index) {
            Some(line) if fits(wanted, line) => {}
            Some(line) => return Err(format!("expected `{wanted}`, got `{line}`")),
            None => return Err(format!("expected `{wanted}`, got no further line")),
        }
    }
    match printed.get(expected.len()) {
        Some(line) => Err(format!("got one more line: `{line}`")),
        None => Ok(()),
    }
}

/// Whether `line` is `wanted`, with any text for each `...`.
fn fits(wanted: &str, line: &str) -> bool {
    let parts: Vec<&str> = wanted.trim_end().split("...").collect();
    let [first, middle @ .., last] = parts.as_slice() else { return wanted == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
impl Programs {
    /// Those of the system, for examples that need no others.
    fn plain() -> Self {
        let nowhere = crate::cargo::root;
        Self { binaries: nowhere(), python: "python3".into(), tools: nowhere() }
    }
}

/// A short directory (paths of sockets are bounded) that goes when this does.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> std::io::Result<Self> {
        for number in 0..1000 {
            let name = format!("hl-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(std::io::Error::other("every name is taken"))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {e}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(script: &str) -> Fence {
        let text = format!("```sh run\n{script}\n```\n");
        fences(&text).pop().expect("one block")
    }

    fn message_of(script: &str) -> Result<(), String> {
        let dir = TempDir::new().expect("a directory");
        let programs = Programs::plain();
        run_block(&block(script), &dir.0, &programs, &Servers::new(Path::new("/")))
    }

    #[test]
    fn output_is_compared_line_by_line() {
        assert_eq!(message_of("echo one\n# => one\necho two; echo talk >&2\n# => two"), Ok(()));
        assert!(message_of("echo one\n# => two").unwrap_err().contains("got `one`"));
        assert!(message_of("echo one; echo two\n# => one").unwrap_err().contains("one more"));
        assert!(message_of("true\n# => one").unwrap_err().contains("no further line"));
    }

    #[test]
    fn a_failing_command_fails_the_example() {
        assert!(message_of("false; true").is_err());
        assert!(message_of("false | true").is_err());
        assert_eq!(message_of("true"), Ok(()));
    }

    #[test]
    fn python_is_run_too() {
        let dir = TempDir::new().expect("a directory");
        let programs = Programs::plain();
        let servers = Servers::new(Path::new("/"));
        for (text, well) in [("print(1)\n# => 1", true), ("print(1)\n# => 2", false)] {
            let block = fences(&format!("```python run\n{text}\n```\n")).pop().expect("a block");
            assert_eq!(run_block(&block, &dir.0, &programs, &servers).is_ok(), well, "{text}");
        }
    }

    #[test]
    fn an_example_is_alone() {
        let script =
            "echo \"$HOME\" | grep -c hl-\n# => 1\necho \"${CARGO_HOME:-none}\"\n# => none";
        assert_eq!(message_of(script), Ok(()));
    }

    /// A step that found nothing to run was a success.
    #[test]
    fn documents_without_an_example_are_reported() {
        let of = |text: &str| with_examples(Tree::of([("README.md", text)]).expect("text")).len();
        assert_eq!((of("```sh run\ntrue\n```\n"), of("```sh\ntrue\n```\n")), (1, 0));
        assert!(some(Vec::<u8>::new()).is_err());
    }

    #[test]
    fn dots_stand_for_any_text() {
        assert!(fits("lease_id=... token=...", "lease_id=ab token=7"));
        assert!(fits("exactly", "exactly"));
        assert!(!fits("exactly", "exactly so"));
        assert!(!fits("a...b", "a"));
        assert!(!fits("ab...ab", "ab"));
    }
}
