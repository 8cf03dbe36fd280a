//! The hidden verb that runs between `fork` and `exec`. It sets up what only the new process itself
//! can set, and then executes the command. The process id stays the same.
//!
//! `holdline __exec-shim PARENT ERROR-PIPE SETUP... -- PATH NAME ARGUMENT...`
//!
//! - Death signal: SIGKILL, since nobody would be left to send it after a SIGTERM. The kernel sends
//!   it when the *thread* that started us ends, so [`super::launch`] requires the main thread. If
//!   the parent had died before the setting, the signal would never be sent. So we set it first and
//!   then check that the parent is still the same.
//! - Terminal: only the new process can take the foreground before the command's first instruction.
//! - Stops: the wrapper blocks SIGTSTP until it watches the command, and the command must not
//!   inherit the blocked mask. It cannot be unblocked sooner: a process that is stopped before this
//!   `exec` would hold the wrapper in `vfork`, where nothing ends the wait.
//!
//! If the command cannot be executed, [`super::exec_error`] reports the error to the wrapper.
//!
//! Code between `fork` and `exec` in the parent would need `unsafe`; a second `exec` does not.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::exec_error::{self, ExecErrorPipe};
use super::launch_error::LaunchError;
use super::program::Program;
use super::{format, signals, terminal};
use crate::groups;

pub(super) const VERB: &str = "__exec-shim";

/// The program that `execvp` runs for a script without a first line `#!`.
const SHELL: &str = "/bin/sh";

const DEATH_SIGNAL: &str = "death-signal";
const TERMINAL: &str = "terminal";
const STOPS: &str = "stops";

/// What to set up before the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecSetup {
    pub(super) death_signal: bool,
    pub(super) terminal: bool,
    pub(super) stops: bool,
}

/// Returns the shim's command line, without the command's arguments.
pub(super) fn command(setup: ExecSetup, exec_error: &ExecErrorPipe, program: &Program) -> Command {
    // The kernel's link to our binary is valid even if the file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("holdline")
        .arg(VERB)
        .arg(getpid().as_raw_nonzero().to_string())
        .arg(exec_error.path());
    let ExecSetup { death_signal, terminal, stops } = setup;
    for (wanted, word) in [(death_signal, DEATH_SIGNAL), (terminal, TERMINAL), (stops, STOPS)] {
        if wanted {
            command.arg(word);
        }
    }
    command.arg("--").arg(&program.path).arg(&program.typed);
    command
}

/// Carries out the verb; returns only if the command cannot be executed.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|word| word.to_str()?.parse().ok());
    let (Some(parent), Some(pipe)) = (parent.and_then(Pid::from_raw), arguments.next()) else {
        return leave(&wrong_arguments());
    };
    let error = become_command(parent, arguments);
    match exec_error::send(&pipe, &error) {
        Ok(()) => ExitCode::from(error.exit_code()),
        // The wrapper is gone, so the error goes to standard error.
        Err(_) => leave(&error),
    }
}

fn leave(error: &LaunchError) -> ExitCode {
    eprintln!("holdline: {error}");
    ExitCode::from(error.exit_code())
}

fn become_command(parent: Pid, mut arguments: impl Iterator<Item = OsString>) -> LaunchError {
    for word in arguments.by_ref() {
        if word == "--" {
            break;
        }
        if let Err(error) = apply_setup(&word, parent) {
            return error;
        }
    }
    let (Some(path), Some(typed)) = (arguments.next(), arguments.next()) else {
        return wrong_arguments();
    };
    let program = Program { typed, path: path.into() };
    let rest: Vec<OsString> = arguments.collect();
    let error = Command::new(&program.path).arg0(&program.typed).args(&rest).exec();
    if is_unknown_format(&error) && format::is_shell_text(&program.path) {
        return program.explain(by_shell(&program).args(&rest).exec());
    }
    program.explain(error)
}

/// The command line that `execvp` uses for a script without a first line `#!`.
fn by_shell(program: &Program) -> Command {
    let mut command = Command::new(SHELL);
    command.arg(&program.path);
    command
}

fn is_unknown_format(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error())
}

fn apply_setup(word: &OsStr, parent: Pid) -> Result<(), LaunchError> {
    if word == DEATH_SIGNAL {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(LaunchError::failed)?;
        if getppid() != Some(parent) {
            return Err(LaunchError::failed(io::Error::other(
                "the process that started it is gone",
            )));
        }
    } else if word == TERMINAL {
        if let Ok(Some(group)) = groups::of(parent) {
            terminal::take_foreground_from(group);
        }
    } else if word == STOPS {
        signals::unblock_stops().map_err(LaunchError::failed)?;
    } else {
        return Err(wrong_arguments());
    }
    Ok(())
}

fn wrong_arguments() -> LaunchError {
    LaunchError::failed(io::Error::other("this verb is for holdline's own use"))
}
