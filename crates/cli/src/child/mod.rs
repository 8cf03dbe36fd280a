//! Runs one command as if the shell had run it, and keeps it on a leash.
//!
//! What the command sees: the standard streams and the terminal are the caller's own; the
//! environment differs only by what the caller sets and removes; no descriptor is added but
//! those in `inherit`. What it does not see: it leads a process group of its own, so that one
//! `kill` reaches all that it started and nothing else.
//!
//! # Signals
//! - S1: a signal of those in [`signals`] that reaches us goes on to the whole group of the
//!   command. The terminal signals exactly one group, its foreground one: either ours, and we
//!   pass it on, or the command's, and we never see it. So `^C` arrives once in both cases.
//! - S2: a signal that was ignored when we started (`nohup`, `cmd &` in a script) stays ignored,
//!   in us and in the command.
//! - S3: a group is signalled only while its leader is unreaped. A zombie keeps its pid, and with
//!   it the number of its group, so neither can be anybody else's. Reaping consumes the [`Job`].
//! - S4: dropping an unfinished [`Job`] kills the group.
//!
//! # The terminal
//! - T1: alone at the terminal (we are in its foreground, lead our group, read from it and do not
//!   write into a pipe) the command gets the foreground before its first instruction.
//! - T2: otherwise the foreground stays with our group, whose other members (the shell script
//!   around us, `make`, the rest of a pipeline) must keep `^C`, `^Z` and their input. A command
//!   that then asks for the terminal is stopped by SIGTTIN or SIGTTOU; if our group has the
//!   foreground, we hand it over and continue the command, which notices nothing.
//! - T3: at the end and at each stop our group gets the foreground back. After a death by signal
//!   the terminal's modes are restored too, as a shell does.
//! - T4: a command that `^C` or `^\` killed makes us die of the same signal
//!   ([`Exit::leave`]), and if only its group was told, ours is told first. Otherwise a loop
//!   in a shell script around us could not be interrupted.
//!
//! # Stops
//! - J1: when the command stops, so does our whole group, and the shell sees a stopped job. On
//!   SIGCONT the command gets the terminal back, if our group has it, and continues.
//! - J2: where no shell could continue us (an orphaned group: cron, `ssh host`, a terminal's first
//!   process) we never stop. The command is treated as the kernel treats an orphaned group:
//!   SIGTSTP is without effect, waiting for a terminal that never comes ends in SIGHUP.
//! - J3: SIGSTOP is passed up only by the terminal's current job. Elsewhere somebody paused that
//!   one process on purpose and will continue that one; we stay awake and keep the lease alive.
//!
//! # Known differences from running the command directly
//! SIGPIPE always starts at its default. A command under T2 sees itself in the background until
//! it asks for the terminal; some then leave out a progress bar. A service manager that signals
//! every process of a service reaches the command twice, by itself and through us.
//!
//! The rules follow what bash, `sudo` and `timeout` do where they agree; T2 and T4 come from
//! sudo's handling of pipelines and from Cracauer's "Proper handling of SIGINT/SIGQUIT".
//!
//! Read next: [`launch`], [`job`], [`stop`], [`terminal`], [`shim`], [`verdict`].

mod exit;
mod format;
mod job;
mod launch;
mod program;
mod shim;
mod signals;
mod stop;
mod terminal;
mod verdict;

use std::process::ExitCode;

pub(crate) use exit::Exit;
pub(crate) use job::{Event, Job};
pub(crate) use launch::{Launch, LaunchError};
pub(crate) use signals::{Signals, outlive_file_limit};

/// Carries out a verb that we call ourselves by and never show; `None` if the first argument is
/// none of them.
pub(crate) fn hidden_verb() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        shim::VERB => Some(shim::run(arguments)),
        _ => None,
    }
}
