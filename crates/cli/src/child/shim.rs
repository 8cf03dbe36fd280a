//! The hidden verb that stands between `fork` and `exec`: it does to itself what only the new
//! process can do, and then becomes the command. Its process id stays, so nobody can tell.
//!
//! `holdline __exec-shim PARENT VERDICT ERRANDS -- PATH NAME ARGUMENT...`
//!
//! - Death signal: SIGKILL, since nobody is left who could follow a SIGTERM up. The kernel sends
//!   it when the *thread* that started us ends, hence the main thread's duty in
//!   [`super::launch`]. Had the parent died before we asked, we would never be told; so we ask
//!   first and then look whether the parent is still the same.
//! - Terminal: only the new process can take the foreground before the command's first
//!   instruction, after which the command might look.
//! - Stops: SIGTSTP is held back in the wrapper until the command is watched, and the command
//!   must not inherit that. It cannot be let through any sooner: stopped before this `exec`, the
//!   new process would hold the wrapper in `vfork`, where nothing ends the wait.
//!
//! If there is no such command after all, the wrapper is told by [`super::verdict`].
//!
//! Code between `fork` and `exec` in the parent would need `unsafe`; a second `exec` does not.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::launch::{LaunchError, by_shell, is_unknown_format};
use super::program::Program;
use super::verdict::{self, Verdict};
use super::{format, signals, terminal};
use crate::groups;

pub(super) const VERB: &str = "__exec-shim";

const DEATH_SIGNAL: &str = "death-signal";
const TERMINAL: &str = "terminal";
const STOPS: &str = "stops";

/// What to do before the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errand {
    pub(super) death_signal: bool,
    pub(super) terminal: bool,
    pub(super) stops: bool,
}

/// The shim's command line, to which the command's arguments are to be added.
pub(super) fn command(errand: Errand, verdict: &Verdict, program: &Program) -> Command {
    // The kernel's own name for our binary holds even if the file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("holdline")
        .arg(VERB)
        .arg(getpid().as_raw_nonzero().to_string())
        .arg(verdict.place());
    let Errand { death_signal, terminal, stops } = errand;
    for (wanted, word) in [(death_signal, DEATH_SIGNAL), (terminal, TERMINAL), (stops, STOPS)] {
        if wanted {
            command.arg(word);
        }
    }
    command.arg("--").arg(&program.path).arg(&program.typed);
    command
}

/// Carries out the verb; returns only if there is no command.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|word| word.to_str()?.parse().ok());
    let (Some(parent), Some(place)) = (parent.and_then(Pid::from_raw), arguments.next()) else {
        return leave(&misuse());
    };
    let error = become_command(parent, arguments);
    match verdict::tell(&place, &error) {
        Ok(()) => ExitCode::from(error.exit_code()),
        // The wrapper is gone: whoever reads our standard error is all there is.
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
        if let Err(error) = run_errand(&word, parent) {
            return error;
        }
    }
    let (Some(path), Some(typed)) = (arguments.next(), arguments.next()) else { return misuse() };
    let program = Program { typed, path: path.into() };
    let rest: Vec<OsString> = arguments.collect();
    let error = Command::new(&program.path).arg0(&program.typed).args(&rest).exec();
    if is_unknown_format(&error) && format::is_shell_text(&program.path) {
        return program.explain(by_shell(&program).args(&rest).exec());
    }
    program.explain(error)
}

fn run_errand(word: &OsStr, parent: Pid) -> Result<(), LaunchError> {
    if word == DEATH_SIGNAL {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(LaunchError::failed)?;
        if getppid() != Some(parent) {
            return Err(LaunchError::failed(std::io::Error::other(
                "the process that asked for it is gone",
            )));
        }
    } else if word == TERMINAL {
        if let Ok(Some(group)) = groups::of(parent) {
            terminal::take_foreground_from(group);
        }
    } else if word == STOPS {
        signals::unhold_stops().map_err(LaunchError::failed)?;
    } else {
        return Err(misuse());
    }
    Ok(())
}

fn misuse() -> LaunchError {
    LaunchError::failed(std::io::Error::other("this verb is for holdline's own use"))
}
