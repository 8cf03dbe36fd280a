//! Child processes that can be watched and cannot hang us.
//!
//! P1: a child that prints nothing for longer than its limit hangs: it is killed with all its
//! descendants. A limit on its whole time would only measure the machine. A compiler has none.
//! P2: a process that outlives the child and still holds its output is reported and killed, not
//! waited for: the program that left it behind has a fault.

use crate::processes::{descendants, holders, kill, name_of, parents, pipe_of};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How often a child is looked at while it says nothing.
const LOOK: Duration = Duration::from_millis(100);
/// How long the output of a finished child may stay open.
const LINGER: Duration = Duration::from_secs(5);

/// Runs `command`, copies its standard output to ours and hands each line to `on_line`.
///
/// # Errors
/// The sentence to show: the program could not be started, failed, printed nothing for as long as
/// `silence` or left a process behind.
pub(crate) fn watch(
    command: &mut Command,
    silence: Option<Duration>,
    mut on_line: impl FnMut(&str),
) -> Result<(), String> {
    listen(command, silence, |line| {
        show(line);
        on_line(String::from_utf8_lossy(line).trim_end());
    })
}

/// As [`watch`], and shows nothing: each line is handed over as it came, with its end.
///
/// # Errors
/// As [`watch`].
pub(crate) fn listen(
    command: &mut Command,
    silence: Option<Duration>,
    mut on_line: impl FnMut(&[u8]),
) -> Result<(), String> {
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("`{shown}` could not be started: {e}"))?;
    let pipe = child.stdout.as_ref().and_then(|out| pipe_of(out.as_raw_fd()));
    let lines = lines_of(&mut child);
    let mut printed = Instant::now();
    let hangs = |printed: Instant| silence.filter(|limit| printed.elapsed() > *limit);
    let mut finished: Option<Instant> = None;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                on_line(&line);
                printed = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                finished = finished.or_else(|| ended(&mut child).then(Instant::now));
                if finished.is_some_and(|at| at.elapsed() > LINGER) {
                    return Err(clear(pipe.as_deref(), &shown));
                }
            }
        }
        if let Some(limit) = hangs(printed).filter(|_| finished.is_none()) {
            return Err(stop(&mut child, pipe.as_deref(), &shown, limit));
        }
    }
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("`{shown}` failed ({status})")),
            Ok(None) => match hangs(printed) {
                Some(limit) => return Err(stop(&mut child, pipe.as_deref(), &shown, limit)),
                None => std::thread::sleep(LOOK),
            },
            Err(e) => return Err(format!("`{shown}` could not be waited for: {e}")),
        }
    }
}

fn ended(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(Some(_)))
}

fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Writes to our standard output, whole.
pub(crate) fn show(line: &[u8]) {
    let mut out = io::stdout().lock();
    // Nobody reads any more: the result still counts, so this is no reason to stop.
    let _ = out.write_all(line).and_then(|()| out.flush());
}

fn lines_of(child: &mut Child) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(1024);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// Kills the child with everything that it started and says so.
fn stop(child: &mut Child, pipe: Option<&Path>, shown: &str, limit: Duration) -> String {
    let mut pids = descendants(child.id(), &parents());
    pids.extend(holders(pipe));
    pids.push(child.id());
    kill(&pids);
    // The direct child is ours to reap, and `kill` may have come too late to find it.
    let _ = child.kill();
    let _ = child.wait();
    format!("`{shown}` was stopped: it printed nothing for {} s", limit.as_secs())
}

/// Kills what still holds the output of a child that has ended, and says what it was.
fn clear(pipe: Option<&Path>, shown: &str) -> String {
    let pids = holders(pipe);
    let names: Vec<String> = pids.iter().map(|pid| format!("{} ({pid})", name_of(*pid))).collect();
    kill(&pids);
    format!("`{shown}` ended but left behind: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// A kill is not done when it is sent. Gone is also who was killed and not yet reaped (Z).
    fn is_gone_soon(pid: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            if stat.map_or(true, |s| s.contains(") Z ")) {
                return true;
            }
            std::thread::sleep(LOOK); // event: looks until the process is gone
        }
        false
    }

    #[test]
    fn lines_are_returned_and_success_is_reported() {
        let mut lines = Vec::new();
        let done = watch(&mut sh("echo one; echo two"), Some(Duration::from_secs(60)), |line| {
            lines.push(line.to_owned());
        });
        assert_eq!(done, Ok(()));
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = watch(&mut sh("exit 3"), Some(Duration::from_secs(60)), |_| ()).unwrap_err();
        assert!(error.contains("sh -c exit 3"), "{error}");
    }

    #[test]
    fn a_missing_program_is_reported() {
        let mut missing = Command::new("holdline-no-such-program");
        let error = watch(&mut missing, Some(Duration::from_secs(60)), |_| ()).unwrap_err();
        assert!(error.contains("could not be started"), "{error}");
    }

    #[test]
    fn a_hanging_child_is_stopped_with_what_it_started() {
        let mut grandchild = String::new();
        let script = "sleep 600 & echo $!; wait";
        let error = watch(&mut sh(script), Some(Duration::from_secs(3)), |line| {
            line.clone_into(&mut grandchild);
        });
        assert!(error.unwrap_err().contains("printed nothing for 3 s"));
        assert!(!grandchild.is_empty());
        assert!(is_gone_soon(&grandchild), "{grandchild} still runs");
    }

    /// The machine may be slow: who goes on printing does not hang.
    #[test]
    fn a_child_that_goes_on_printing_is_left_alone() {
        let script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done";
        let mut lines = 0;
        let done = watch(&mut sh(script), Some(Duration::from_secs(3)), |_| lines += 1);
        assert_eq!((done, lines), (Ok(()), 8));
    }

    #[test]
    fn a_process_left_behind_is_reported() {
        let mut pid = String::new();
        let error = watch(&mut sh("sleep 600 & echo $!"), Some(Duration::from_secs(600)), |line| {
            line.clone_into(&mut pid);
        });
        let error = error.unwrap_err();
        assert!(error.contains(&format!("left behind: sleep ({pid})")), "{error}");
        assert!(is_gone_soon(&pid), "{pid} still runs");
    }
}
