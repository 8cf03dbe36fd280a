//! A command under `holdline` behaves as if it had been run directly.
//!
//! What needs a terminal is in `child/terminal.py`: there the test is the shell, so that it sees
//! what a shell sees.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

mod codes;
mod signals;
mod surroundings;
mod terminal;

/// Long enough for any machine; reached only by a failure.
const DEADLINE: Duration = Duration::from_secs(60);

const DEATH_SIGNAL: &str = "--death-signal";

/// The wrapper, with `options`, around `command`.
fn wrapper<S: AsRef<OsStr>>(options: &[S], command: &[impl AsRef<OsStr>]) -> Command {
    let mut wrapper = Command::new(env!("CARGO_BIN_EXE_holdline"));
    wrapper.arg("__child-test").args(options).arg("--").args(command).stdin(Stdio::null());
    wrapper
}

/// The two ways in which a command is started: by us, and by the shim.
const BOTH_WAYS: [&[&str]; 2] = [&[], &[DEATH_SIGNAL]];

/// A running wrapper and the lines that come out of it.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the wrapper starts");
        let lines = lines_of(child.stdout.take().expect("stdout is a pipe"));
        Self { child, lines }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the wrapper runs");
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line in time")
    }

    fn expect(&self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Waits until nobody is left who could write, so until all that was started has ended.
    fn expect_silence(&self) {
        let next = self.lines.recv_timeout(DEADLINE);
        assert_eq!(next, Err(mpsc::RecvTimeoutError::Disconnected));
    }

    fn wait(&mut self) -> ExitStatus {
        let limit = Instant::now() + DEADLINE;
        while Instant::now() < limit {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2)); // event: polled, the kernel tells nobody
        }
        panic!("the wrapper did not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What a shell would show in `$?`.
fn shell_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).expect("an end")
}

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hl-it-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, mode: u32, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        path
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Waits until a process is in one of the states of `/proc/PID/stat`.
fn await_state(pid: u32, wanted: &[char]) {
    let limit = Instant::now() + DEADLINE;
    while Instant::now() < limit {
        if state_of(pid).is_some_and(|state| wanted.contains(&state)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2)); // event: polled, the kernel tells nobody
    }
    panic!("process {pid} is {:?}, not one of {wanted:?}", state_of(pid));
}
