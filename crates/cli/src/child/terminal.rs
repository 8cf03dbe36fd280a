//! The controlling terminal and which group has its foreground (rules T1 to T3).

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
    /// We gave the foreground to the command.
    given: bool,
    /// The command gets the foreground whenever our group has it.
    wanted: bool,
    /// The modes before the command, if it started from the foreground.
    modes: Option<Termios>,
}

impl Terminal {
    /// Finds the terminal; `None` if there is none, as under cron, or if our group has no id by
    /// which we could take the foreground back.
    pub(super) fn find() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let ours = groups::own()?;
        let in_foreground = tcgetpgrp(&tty).is_ok_and(|group| group == ours);
        let modes = in_foreground.then(|| tcgetattr(&tty).ok()).flatten();
        let wanted = in_foreground && alone_at(&tty);
        Some(Self { tty, ours, given: false, wanted, modes })
    }

    /// Whether the command gets the foreground at its start (rule T1).
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Records that the command's process takes the foreground by itself.
    pub(super) fn mark_given(&mut self) {
        self.given = true;
    }

    pub(super) fn is_given(&self) -> bool {
        self.given
    }

    /// Returns which group has the foreground.
    pub(super) fn foreground(&self, command: Pid) -> Foreground {
        match tcgetpgrp(&self.tty) {
            Ok(group) if group == self.ours => Foreground::Ours,
            Ok(group) if group == command => Foreground::Commands,
            Ok(_) if self.given => Foreground::HandedOn,
            Ok(_) => Foreground::Elsewhere,
            Err(_) => Foreground::None,
        }
    }

    /// Gives the foreground to the command. Our group must have it.
    pub(super) fn give(&mut self, command: Pid) {
        self.wanted = true;
        self.given = tcsetpgrp(&self.tty, command).is_ok();
    }

    /// Gives the foreground to the command if it wants it and our group has it.
    pub(super) fn give_if_wanted(&mut self, command: Pid) {
        if self.wanted && self.foreground(command) == Foreground::Ours {
            self.give(command);
        }
    }

    /// Takes the foreground back, if the command has it from us.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.given) {
            let _ = tcsetpgrp(&self.tty, self.ours);
        }
    }

    /// Records that another process took the foreground from the command.
    pub(super) fn mark_taken(&mut self) {
        self.given = false;
    }

    /// Updates the state after somebody stopped and continued this process. The shell took the
    /// foreground meanwhile, and gave it back only if our group is its foreground job again.
    pub(super) fn refresh(&mut self, command: Pid) {
        if matches!(self.foreground(command), Foreground::Ours | Foreground::HandedOn) {
            self.given = false;
        }
        self.give_if_wanted(command);
    }

    /// Restores the modes from before the command, if our group may set them.
    pub(super) fn restore_modes(&self) {
        if let Some(modes) = &self.modes
            && tcgetpgrp(&self.tty).is_ok_and(|group| group == self.ours)
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }
}

/// Rule T1: input from this terminal, output not into a pipe, and we lead our group. Then a shell
/// started us as a job, and not a script as one of its steps.
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

/// Blocks SIGTTOU in this thread, until dropped.
///
/// While the command has the foreground, our group is in the background. Without this, taking the
/// foreground back would stop us, and so would output to a terminal set to `tostop`.
#[derive(Debug)]
pub(super) struct SigttouBlocked {
    before: Option<SigSet>,
    /// A mask belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl SigttouBlocked {
    pub(super) fn here() -> Self {
        let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK).ok();
        Self { before, _not_send: PhantomData }
    }
}

impl Drop for SigttouBlocked {
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
        let _sigttou = SigttouBlocked::here();
        let _ = tcsetpgrp(&terminal.tty, terminal.ours);
    }
}
