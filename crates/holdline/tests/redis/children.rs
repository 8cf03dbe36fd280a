//! A process of ours that a test stops and asks: this same program, run for one test that does
//! nothing by itself. The tests of other engines use it too.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long all of its threads may take to stand still.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);

/// The process, which is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Runs one test of this program with these variables.
    pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Process {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", test, "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Process { input: child.stdin.take().expect("piped"), child, lines }
    }

    /// Waits for a line that starts so; returns the rest of it.
    pub(crate) fn says(&mut self, start: &str) -> String {
        let mut found = self.lines.by_ref().map(|line| line.expect("text"));
        let said = found.find_map(|line| line.strip_prefix(start).map(str::to_owned));
        said.unwrap_or_else(|| panic!("the process ended before it said `{start}`"))
    }

    /// Writes a line to its input; it need not run now.
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it reads");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("ours");
    }

    /// Stops it, and waits until none of its threads runs any more: the signal is one thread's to
    /// take, and until that has had its turn the others go on.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat"));
            // Behind the name, which may have anything in it; a thread that is gone runs no more.
            stat.map_or(true, |stat| {
                stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
            })
        };
        let end = Instant::now() + DEADLINE;
        while !std::fs::read_dir(&tasks).expect("it is there").all(stands) {
            assert!(Instant::now() < end, "some of its threads do not stand still");
            std::thread::sleep(LOOK); // event: another process's threads, which notify nobody
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the next line that the test sends to this process; `None` at the end of the input.
pub(crate) async fn next_command() -> Option<String> {
    let mut line = String::new();
    let read = tokio::task::spawn_blocking(move || {
        std::io::stdin().read_line(&mut line).map(|count| (count > 0).then_some(line))
    });
    let line = read.await.expect("no panic").expect("it can be read");
    line.map(|line| line.trim_end().to_owned())
}
