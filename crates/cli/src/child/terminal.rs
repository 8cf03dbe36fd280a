//! The controlling terminal and whose turn at it it is (rules T1 to T3).

use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::stop::Foreground;
use crate::groups;

/// Our controlling terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    ours: Pid,
    /// The command has the foreground from us.
    lent: bool,
    /// The command is to have it whenever our group does.
    wanted: bool,
    /// As they were before the command, if it started from the foreground.
    modes: Option<Termios>,
}

impl Terminal {
    /// Finds the terminal; `None` if there is none, as under cron, or if our group has no number
    /// by which we could take it back.
    pub(super) fn find() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let ours = groups::own()?;
        let in_foreground = tcgetpgrp(&tty).is_ok_and(|group| group == ours);
        let modes = in_foreground.then(|| tcgetattr(&tty).ok()).flatten();
        let wanted = in_foreground && alone_at(&tty);
        Some(Self { tty, ours, lent: false, wanted, modes })
    }

    /// Whether the command is to have the foreground from its start (rule T1).
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Notes that the command, named by its group, takes the foreground by itself.
    pub(super) fn taken_by_shim(&mut self) {
        self.lent = true;
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Whose turn it is.
    pub(super) fn foreground(&self, command: Pid) -> Foreground {
        match tcgetpgrp(&self.tty) {
            Ok(group) if group == self.ours => Foreground::Ours,
            Ok(group) if group == command => Foreground::Commands,
            Ok(_) if self.lent => Foreground::HandedOn,
            Ok(_) => Foreground::Elsewhere,
            Err(_) => Foreground::None,
        }
    }

    /// Hands the foreground to the command. Our group must have it.
    pub(super) fn give(&mut self, command: Pid) {
        self.wanted = true;
        self.lent = tcsetpgrp(&self.tty, command).is_ok();
    }

    /// Hands the foreground to the command if it is to have it and our group has it.
    pub(super) fn give_if_wanted(&mut self, command: Pid) {
        if self.wanted && self.foreground(command) == Foreground::Ours {
            self.give(command);
        }
    }

    /// Takes the foreground back, if it is lent.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            let _ = tcsetpgrp(&self.tty, self.ours);
        }
    }

    /// Notes that somebody else took the foreground from the command.
    pub(super) fn note_taken(&mut self) {
        self.lent = false;
    }

    /// Looks again after somebody else stopped and continued us: the shell took the foreground
    /// meanwhile, and gave it to our group only if this is its foreground job again.
    pub(super) fn look_again(&mut self, command: Pid) {
        if matches!(self.foreground(command), Foreground::Ours | Foreground::HandedOn) {
            self.lent = false;
        }
        self.give_if_wanted(command);
    }

    /// Restores the modes of before the command, if they are ours to set.
    pub(super) fn restore_modes(&self) {
        if let Some(modes) = &self.modes
            && tcgetpgrp(&self.tty).is_ok_and(|group| group == self.ours)
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }
}

/// Rule T1: input from this terminal, output not into a pipe, and the leader of our group, so
/// that a shell started us as a job and not a script as one of its steps.
fn alone_at(tty: &File) -> bool {
    groups::own() == Some(getpid())
        && tcgetpgrp(io::stdin()).ok() == tcgetpgrp(tty).ok()
        && !is_pipe(io::stdout())
}

fn is_pipe(stream: impl std::os::fd::AsFd) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|stat| {
        matches!(
            rustix::fs::FileType::from_raw_mode(stat.st_mode),
            rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket
        )
    })
}

/// Holds SIGTTOU back in this thread, until dropped.
///
/// While the command has the foreground we are a background group: without this, taking the
/// foreground back would stop us, and so would a line to a terminal set to `tostop`.
#[derive(Debug)]
pub(super) struct Unstopped {
    before: Option<SigSet>,
    /// A mask belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl Unstopped {
    pub(super) fn here() -> Self {
        let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK).ok();
        Self { before, _not_send: PhantomData }
    }
}

impl Drop for Unstopped {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = before.thread_set_mask();
        }
    }
}

/// Gives the terminal's foreground to the calling process's group, if `from` has it.
pub(super) fn take_foreground_from(from: Pid) {
    let Some(terminal) = Terminal::find() else { return };
    if tcgetpgrp(&terminal.tty).is_ok_and(|group| group == from) {
        let _unstopped = Unstopped::here();
        let _ = tcsetpgrp(&terminal.tty, terminal.ours);
    }
}
