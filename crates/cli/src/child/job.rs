//! A running command and its group.

use std::io;
use std::process::Child;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::exit::Exit;
use super::launch::LaunchError;
use super::signals::{News, Signals};
use super::stop::{Foreground, Plan, Situation, plan};
use super::terminal::{Terminal, Unstopped};
use super::verdict::Verdict;
use crate::session::Idle;

/// What the command has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It is gone: [`Job::finish`]. Others of its group may still run; until then they can be
    /// killed.
    Ended,
    /// It has stopped, and so shall we: [`Job::freeze`] and [`Job::suspend`], then look at
    /// the lease, then [`Job::resume`] or [`Job::terminate`].
    Stopped,
    /// The signal of [`Signals::reserve`] has arrived.
    Reserved,
}

/// A command that was started and not yet reaped.
///
/// Dropping it kills the command and its whole group.
#[derive(Debug)]
pub(crate) struct Job {
    process: Child,
    /// Also the number of its group, and nobody else's before it is reaped (rule S3).
    pid: Pid,
    /// Read at the end.
    verdict: Option<Verdict>,
    terminal: Option<Terminal>,
    freeze_on_stop: bool,
    passed_on: Vec<Signal>,
    /// Our group was told to stop, and the command's was told since.
    told: bool,
    hung_up: bool,
    finished: bool,
    _unstopped: Unstopped,
}

impl Job {
    pub(super) fn new(
        process: Child,
        verdict: Verdict,
        terminal: Option<Terminal>,
        freeze_on_stop: bool,
    ) -> Self {
        let pid = Pid::from_child(&process);
        Self {
            process,
            pid,
            verdict: Some(verdict),
            terminal,
            freeze_on_stop,
            passed_on: Vec::new(),
            told: false,
            hung_up: false,
            finished: false,
            _unstopped: Unstopped::here(),
        }
    }

    /// Passes signals on until the command ends or stops.
    ///
    /// # Errors
    /// The command cannot be waited for; it may still run. Dropping the job kills it.
    ///
    /// # Cancel safety
    /// Dropping the future loses neither a signal nor an event.
    pub(crate) async fn next(&mut self, signals: &mut Signals) -> io::Result<Event> {
        loop {
            match signals.news().await {
                News::Signal(signal) if signals.is_reserved(signal) => {
                    return Ok(Event::Reserved);
                }
                News::Signal(signal) => self.pass_on(signal),
                News::Child => {
                    if let Some(event) = self.look(signals)? {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Whether somebody has asked us to end since the command was started: that signal went to the
    /// command, and whatever it does with it, it was meant for us as well.
    pub(crate) fn was_asked_to_end(&self) -> bool {
        const ENDS: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
        ENDS.iter().any(|signal| self.passed_on.contains(signal))
    }

    /// Asks the whole group to end: SIGTERM, and SIGCONT so that a stopped one can follow.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Ends the whole group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops the rest of the group too, if nothing may run while we are stopped.
    pub(crate) fn freeze(&self) {
        if self.freeze_on_stop {
            self.signal(Signal::STOP);
        }
    }

    /// Stops us as the command was stopped; returns when somebody continues us.
    pub(crate) fn suspend(&mut self, signals: &mut Signals, idle: &Idle) {
        let told = std::mem::take(&mut self.told);
        if let Some(terminal) = &mut self.terminal {
            // If the others of our group stopped before us, the shell may have the terminal by now.
            let is_back = told && terminal.foreground(self.pid) != Foreground::Commands;
            if is_back { terminal.note_taken() } else { terminal.take_back() }
        }
        if !told {
            Signals::tell_group_to_stop();
        }
        signals.suspend(idle);
    }

    /// Continues the command, with the terminal if it is to have it and our group has it.
    pub(crate) fn resume(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.give_if_wanted(self.pid);
        }
        self.signal(Signal::CONT);
    }

    /// Reaps the command, waiting for its end if need be, and takes the terminal back. How it
    /// ended, or why there was no command.
    ///
    /// # Errors
    /// Somebody else has reaped it; how it ended is unknown.
    pub(crate) fn finish(mut self) -> io::Result<Result<Exit, LaunchError>> {
        let status = self.process.wait()?;
        self.finished = true;
        let had_terminal = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            if status.code().is_none() {
                terminal.restore_modes();
            }
        }
        let exit = Exit::after(status, had_terminal, |signal| self.passed_on.contains(&signal));
        Ok(self.verdict.take().and_then(Verdict::read).map_or(Ok(exit), Err))
    }

    /// What has become of the command, without reaping it.
    fn look(&mut self, signals: &Signals) -> io::Result<Option<Event>> {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if waitid(WaitId::Pid(self.pid), ended)?.is_some() {
            return Ok(Some(Event::Ended));
        }
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::Pid(self.pid), stopped) {
            // It has just ended, which is the next news.
            Err(Errno::CHILD) => None,
            status => status?,
        };
        let signal = status.and_then(|status| status.stopping_signal());
        Ok(signal.and_then(|number| self.stopped_by(number, signals)))
    }

    fn stopped_by(&mut self, number: i32, signals: &Signals) -> Option<Event> {
        // A number without a name cannot stop a process.
        let signal = Signal::from_named_raw(number)?;
        let foreground =
            self.terminal.as_ref().map_or(Foreground::None, |tty| tty.foreground(self.pid));
        let (told, hung_up) = (self.told, self.hung_up);
        let now = Situation { foreground, may_stop: signals.may_stop(), told, hung_up };
        match plan(signal, now) {
            Plan::Suspend => return Some(Event::Stopped),
            Plan::Leave => {}
            Plan::HandOver => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.give(self.pid);
                }
                self.signal(Signal::CONT);
            }
            Plan::Continue => self.signal(Signal::CONT),
            Plan::HangUp => {
                self.hung_up = true;
                self.signal(Signal::HUP);
                self.signal(Signal::CONT);
            }
        }
        None
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            Signal::TSTP => self.told = true,
            Signal::CONT => {
                self.told = false;
                if let Some(terminal) = &mut self.terminal {
                    terminal.look_again(self.pid);
                }
            }
            _ => {}
        }
        if !self.passed_on.contains(&signal) {
            self.passed_on.push(signal);
        }
        self.signal(signal);
    }

    fn signal(&self, signal: Signal) {
        // Refused only if every member has changed its user, as below `sudo`: then it is not
        // ours to signal, exactly as it would not be the shell's.
        let _ = kill_process_group(self.pid, signal);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.kill();
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        // Blocking here could hang on a process that the kernel does not let die.
        let _ = self.process.try_wait();
    }
}
