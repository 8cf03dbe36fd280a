//! Runs one command as if the shell had run it, and stops it when necessary.
//!
//! What the command sees: the standard streams and the terminal are the caller's own. The
//! environment differs only by what the caller sets and removes. No descriptor is added except
//! those in `inherit`. What it does not see: it leads a process group of its own, so that one
//! `kill` reaches everything that it started and nothing else.
//!
//! # Signals
//! - S1: a signal listed in [`signals`] is passed on to the whole group of the command. The
//!   terminal signals exactly one group, its foreground group. If that is ours, we pass the signal
//!   on. If it is the command's, we do not receive it. So `^C` arrives once in both cases.
//! - S2: a signal that was ignored at our start (`nohup`, `cmd &` in a script) stays ignored, in
//!   this process and in the command.
//! - S3: a group is signalled only until its leader is reaped. A zombie keeps its pid and the id of
//!   its group, so no other process can have them. Reaping consumes the [`Job`].
//! - S4: dropping an unfinished [`Job`] kills the group.
//!
//! # The terminal
//! - T1: if this process is alone at the terminal, the command gets the foreground before its first
//!   instruction. Alone means: we are in the foreground, lead our group, read from the terminal and
//!   do not write into a pipe.
//! - T2: otherwise the foreground stays with our group. Its other members (the shell script around
//!   us, `make`, the rest of a pipeline) must keep `^C`, `^Z` and their input. A command that then
//!   uses the terminal is stopped by SIGTTIN or SIGTTOU. If our group has the foreground, we hand
//!   it over and continue the command, which notices nothing.
//! - T3: at the end and at each stop our group gets the foreground back. If a signal killed the
//!   command, the terminal's modes are restored too, as a shell does.
//! - T4: if `^C` or `^\` killed the command, this process dies of the same signal
//!   ([`JobExit::leave`]). If only the command's group received it, our group is signalled first.
//!   Otherwise a loop in a shell script around us could not be interrupted.
//!
//! # Stops
//! - J1: when the command stops, so does our whole group, and the shell sees a stopped job. On
//!   SIGCONT the command gets the terminal back, if our group has it, and continues.
//! - J2: where no shell could continue us (an orphaned group: cron, `ssh host`, a terminal's first
//!   process) this process never stops. The command is treated as the kernel treats an orphaned
//!   group: SIGTSTP has no effect, and a command that waits for the terminal gets SIGHUP.
//! - J3: only in the terminal's current job does a SIGSTOP of the command stop us too. Elsewhere
//!   somebody paused that one process on purpose and will continue it. We go on and renew the
//!   lease.
//!
//! # Known differences from running the command directly
//! SIGPIPE always starts at its default. Under T2 a command is in the background until it uses the
//! terminal, and some programs then leave out a progress bar. A service manager that signals every
//! process of a service reaches the command twice, directly and through us.
//!
//! The rules follow bash, `sudo` and `timeout` where these agree. T2 and T4 come from sudo's
//! handling of pipelines and from Cracauer's "Proper handling of SIGINT/SIGQUIT".
//!
//! Read next: [`launch`], [`job`], [`stop`], [`terminal`], [`shim`], [`exec_error`].

mod exec_error;
mod exit;
mod format;
mod job;
mod launch;
mod launch_error;
mod program;
mod shim;
mod signals;
mod stop;
mod terminal;

use std::process::ExitCode;

pub(crate) use exit::JobExit;
pub(crate) use job::{Job, JobEvent};
pub(crate) use launch::Launch;
pub(crate) use launch_error::LaunchError;
pub(crate) use signals::{Signals, survive_file_size_limit};

/// Carries out a verb that only this program itself uses; `None` if the first argument is none of
/// them.
pub(crate) fn hidden_verb() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        shim::VERB => Some(shim::run(arguments)),
        _ => None,
    }
}
