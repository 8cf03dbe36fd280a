//! The step that runs every test.
//!
//! Programs that compute, behind which nothing waits for a clock, run at a lower priority beside
//! all others. Of these, two run at once, and more while the processors are idle: most tests wait.
//! What failed in them is repeated at the end, when nothing else runs (decision 0038).

use super::Outcome;
use super::binaries::{self, Binary};
use super::counts::{Counts, Tally};
use crate::cargo::cargo;
use crate::process;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a program may print nothing: many times what its slowest test takes.
const LIMIT: Option<Duration> = Some(Duration::from_secs(20 * 60));
/// How many failed tests of a whole run are repeated.
const REPEATED: usize = 3;
/// How many programs that wait run at once, at most.
const AT_ONCE: usize = 4;
/// How many of them do not ask whether the processors are idle.
const AT_LEAST: usize = 2;
/// How long is looked at how idle the processors are. The programs begin one after the other.
const LOOK: Duration = Duration::from_secs(3);
/// The part of their time for which the processors must be idle.
const IDLE: f64 = 0.5;

/// The results of a group.
#[derive(Default)]
struct Seen<'a> {
    counts: Counts,
    not_passed: Vec<String>,
    says: Vec<String>,
    /// What may be repeated.
    failures: Vec<Failure<'a>>,
}

/// The failed tests of a program all of whose tests were reported.
struct Failure<'a> {
    binary: &'a Binary,
    names: Vec<String>,
    says: Option<String>,
}

/// Compiles and runs the tests of all crates; a failing program does not hide the next.
pub(crate) fn run() -> Outcome {
    let found = match binaries::build() {
        Ok(found) => found,
        Err(says) => return (Counts::default(), Err(says)),
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (computing, mut waiting): (Vec<Binary>, Vec<Binary>) =
        found.into_iter().partition(Binary::computes);
    waiting.sort_by_key(|binary| !binary.is_long());
    let queue = Mutex::new(waiting.iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let gate = Mutex::new(());
    let gate = &gate;
    let next = &next;
    let mut seen = thread::scope(|scope| {
        let computing = scope.spawn(|| {
            let mut seen = Seen::default();
            computing.iter().for_each(|binary| seen.afterwards(binary, cores));
            seen
        });
        let beside = |asks: bool| {
            let mut seen = Seen::default();
            loop {
                let turn = asks.then(|| gate.lock().unwrap_or_else(PoisonError::into_inner));
                if asks {
                    wait_until_idle();
                }
                let Some(binary) = next() else { return seen };
                drop(turn);
                seen.afterwards(binary, cores);
            }
        };
        let beside = (1..AT_ONCE).map(|number| scope.spawn(move || beside(number >= AT_LEAST)));
        let beside: Vec<_> = beside.collect();
        let mut seen = Seen::default();
        while let Some(binary) = next() {
            seen.live(binary, cores);
        }
        for group in beside.into_iter().chain([computing]) {
            match group.join() {
                Ok(other) => seen.add(other),
                Err(_) => seen.says.push("a group of programs broke".to_owned()),
            }
        }
        seen
    });
    let doctests = ["test", "--workspace", "--all-features", "--no-fail-fast", "--doc"];
    process::show(b"\n-- doctests\n");
    seen.program("doctests", None, &mut cargo(&doctests), process::show);
    for title in seen.repeat(process::show) {
        println!("unsteady: {title}");
    }
    let ran = if seen.says.is_empty() { Ok(()) } else { Err(seen.says.join("\n")) };
    (seen.counts, judged(ran, seen.counts, &seen.not_passed))
}

/// Waits until the processors are idle enough for one more program. What runs at a lower priority
/// does not count: it makes room.
fn wait_until_idle() {
    loop {
        let before = processor_times();
        thread::sleep(LOOK);
        match before.zip(processor_times()) {
            Some((before, after)) if idle_part(&before, &after) < IDLE => {}
            _ => return,
        }
    }
}

/// How much time all processors have had.
#[derive(Debug, PartialEq, Eq)]
struct ProcessorTimes {
    /// In which they were idle or ran what has a lower priority.
    idle: u64,
    all: u64,
}

fn processor_times() -> Option<ProcessorTimes> {
    times_of(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn times_of(stat: &str) -> Option<ProcessorTimes> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let times: Vec<u64> = times.map(str::parse).collect::<Result<_, _>>().ok()?;
    // user, nice, system, idle, waiting for a disk, and others.
    let idle = times.get(1)? + times.get(3)? + times.get(4)?;
    Some(ProcessorTimes { idle, all: times.iter().take(8).sum() })
}

#[allow(clippy::cast_precision_loss)] // Of a few hundred ticks.
fn idle_part(before: &ProcessorTimes, after: &ProcessorTimes) -> f64 {
    let idle = after.idle.saturating_sub(before.idle);
    let all = after.all.saturating_sub(before.all);
    idle as f64 / all.max(1) as f64
}

impl<'a> Seen<'a> {
    /// Runs one program, and shows what it says as it says it.
    fn live(&mut self, binary: &'a Binary, threads: usize) {
        let title = binary.title();
        process::show(format!("\n-- {title}\n").as_bytes());
        self.program(&title, Some(binary), &mut binary.command(threads), process::show);
    }

    /// Runs one program, and shows what it said when it has ended: another one speaks meanwhile.
    fn afterwards(&mut self, binary: &'a Binary, threads: usize) {
        let title = binary.title();
        let mut said = format!("\n-- {title} (beside the others)\n").into_bytes();
        let command = &mut binary.command(threads);
        self.program(&title, Some(binary), command, |line| said.extend_from_slice(line));
        process::show(&said);
    }

    fn program(
        &mut self,
        title: &str,
        binary: Option<&'a Binary>,
        command: &mut Command,
        mut show: impl FnMut(&[u8]),
    ) {
        let mut tally = Tally::default();
        let ran = process::listen(command, LIMIT, |line| {
            show(line);
            tally.line(String::from_utf8_lossy(line).trim_end());
        });
        let counts = tally.end();
        self.counts += counts;
        let names = tally.not_passed;
        let says = ran.err();
        match binary.filter(|binary| !binary.computes()) {
            Some(binary) if counts.failed > 0 && counts.failed == names.len() => {
                self.failures.push(Failure { binary, names, says });
            }
            _ => self.fails(title, &names, says),
        }
    }

    fn fails(&mut self, title: &str, names: &[String], says: Option<String>) {
        self.not_passed.extend(names.iter().map(|name| format!("{title}: {name}")));
        self.says.extend(says);
    }

    /// Repeats the failed tests of all programs, if they are few and nothing else failed. Returns
    /// those that pass now.
    fn repeat(&mut self, show: fn(&[u8])) -> Vec<String> {
        let failures = std::mem::take(&mut self.failures);
        let few = self.counts.failed <= REPEATED && self.says.is_empty();
        let mut unsteady = Vec::new();
        for Failure { binary, names, says } in failures {
            let again = |name: &String| few && passes_alone(binary, name, show);
            let (passed, failed): (Vec<_>, Vec<_>) = names.into_iter().partition(again);
            self.counts.failed -= passed.len();
            self.counts.passed += passed.len();
            self.counts.unsteady += passed.len();
            let title = binary.title();
            unsteady.extend(passed.into_iter().map(|name| format!("{title}: {name}")));
            // How the program ended was due to its failed tests.
            self.fails(&title, &failed, says.filter(|_| !failed.is_empty()));
        }
        unsteady
    }

    fn add(&mut self, other: Self) {
        self.counts += other.counts;
        self.not_passed.extend(other.not_passed);
        self.says.extend(other.says);
        self.failures.extend(other.failures);
    }
}

/// Runs one test of a program again. What a crash leaves is the name of no test, and does not pass.
fn passes_alone(binary: &Binary, name: &str, show: fn(&[u8])) -> bool {
    let title = binary.title();
    show(format!("\n-- {title}: {name} failed, and runs again alone\n").as_bytes());
    let mut tally = Tally::default();
    let ran = process::listen(binary.command(1).args(["--exact", name]), LIMIT, |line| {
        show(line);
        tally.line(String::from_utf8_lossy(line).trim_end());
    });
    let Counts { passed, failed, .. } = tally.end();
    ran.is_ok() && (passed, failed) == (1, 0)
}

/// It is a success only if something ran, and all tests ran.
fn judged(ran: Result<(), String>, counts: Counts, named: &[String]) -> Result<(), String> {
    let named: String = named.iter().map(|name| format!("\n  {name}")).collect();
    match (ran, counts) {
        (Err(says), _) => Err(format!("{says}{named}")),
        (_, Counts { failed: 1.., .. }) => Err(format!("tests failed{named}")),
        (_, Counts { skipped: 1.., .. }) => Err(format!("tests were skipped{named}")),
        (_, Counts { passed: 0, .. }) => Err("no test ran".to_owned()),
        (Ok(()), _) => Ok(()),
    }
}

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn a_run_without_tests_or_with_skipped_ones_is_no_success() {
        let counts =
            |passed, failed, skipped| Counts { passed, failed, skipped, ..Counts::default() };
        let names = ["a::b".to_owned()];
        assert_eq!(judged(Ok(()), counts(5, 0, 0), &[]), Ok(()));
        assert_eq!(judged(Ok(()), counts(0, 0, 0), &[]), Err("no test ran".to_owned()));
        let skipped = judged(Ok(()), counts(5, 0, 1), &names);
        assert_eq!(skipped, Err("tests were skipped\n  a::b".to_owned()));
        let failed = judged(Err("cargo failed".to_owned()), counts(5, 1, 0), &names);
        assert_eq!(failed, Err("cargo failed\n  a::b".to_owned()));
    }

    /// A program of the shell in place of a test binary: its one test fails unless it runs alone.
    fn program(title: &str, alone: &str) -> Binary {
        use std::os::unix::fs::PermissionsExt;
        let target = crate::metadata::Metadata::read().expect("cargo").target_directory;
        std::fs::create_dir_all(target.join("tmp")).expect("a directory");
        let path = target.join("tmp").join(format!("fails-{title}.sh"));
        let closing = "0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        let says = |word: &str, passed: u32, failed: u32| {
            let line = format!("test result: {word}. {passed} passed; {failed} failed; {closing}");
            format!("printf 'running 1 test\\ntest a::b ... {word}\\n{line}\\n'")
        };
        let good = says("ok", 1, 0);
        let bad = says("FAILED", 0, 1);
        let script = format!("#!/bin/sh\nif [ \"$1\" = --exact ]; then {alone}; fi\n{bad}\nexit 1");
        std::fs::write(&path, script.replace("GOOD", &good)).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("a program");
        Binary::new("holdline-cli", "it", path)
    }

    fn ran(binary: &Binary) -> Seen<'_> {
        let mut seen = Seen::default();
        seen.program(&binary.title(), Some(binary), &mut binary.command(1), |_| ());
        seen
    }

    #[test]
    fn a_failed_test_that_passes_alone_is_unsteady_and_one_that_does_not_has_failed() {
        for (alone, failed) in [("GOOD; exit 0", 0), ("exit 0", 1), ("GOOD; exit 3", 1)] {
            let binary = program("once", alone);
            let mut seen = ran(&binary);
            assert_eq!((seen.counts.failed, seen.failures.len()), (1, 1));
            let unsteady = seen.repeat(|_| ()).len();
            assert_eq!(unsteady, 1 - failed, "{alone}");
            let counts = Counts { passed: unsteady, failed, skipped: 0, unsteady };
            assert_eq!(seen.counts, counts, "{alone}");
            assert_eq!((seen.not_passed.len(), seen.says.len()), (failed, failed), "{alone}");
        }
    }

    #[test]
    fn what_has_a_lower_priority_counts_as_idle() {
        let times = |text| times_of(text).expect("times");
        let before = times("cpu  10 20 5 100 3 0 0 2 0 0\ncpu0 1");
        let after = times("cpu  20 40 15 150 13 0 0 2 0 0");
        assert_eq!(before, ProcessorTimes { idle: 123, all: 140 });
        assert_eq!(after, ProcessorTimes { idle: 203, all: 240 });
        assert!((idle_part(&before, &after) - 0.8).abs() < 1e-9);
        assert_eq!(times_of("intr 1 2"), None);
    }

    #[test]
    fn many_failed_tests_are_not_repeated() {
        let binary = program("many", "GOOD; exit 0");
        let mut seen = ran(&binary);
        (0..REPEATED).for_each(|_| seen.add(ran(&binary)));
        assert!(seen.repeat(|_| ()).is_empty());
        assert_eq!((seen.counts.failed, seen.not_passed.len()), (REPEATED + 1, REPEATED + 1));
    }
}
