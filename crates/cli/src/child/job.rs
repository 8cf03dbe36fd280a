//! A running command and its group.

use std::io;
use std::process::Child;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::exec_error::ExecErrorPipe;
use super::exit::JobExit;
use super::launch_error::LaunchError;
use super::signals::{Notification, Signals};
use super::stop::{Foreground, Plan, Situation, plan};
use super::terminal::{SigttouBlocked, Terminal};
use crate::idle::Idle;

/// A change of the command's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEvent {
    /// It has ended: call [`Job::finish`]. Others of its group may still run, and can be killed
    /// until then.
    Ended,
    /// It has stopped, and this process must stop too: call [`Job::freeze`] and [`Job::suspend`],
    /// then check the lease, then call [`Job::resume`] or [`Job::terminate`].
    Stopped,
    /// Somebody has continued this process: check the lease, then call [`Job::go_on`].
    Continued,
    /// The signal of [`Signals::reserve`] has arrived.
    Reserved,
}

/// A command that was started and not yet reaped.
///
/// Dropping it kills the command and its whole group.
#[derive(Debug)]
pub(crate) struct Job {
    process: Child,
    /// Also the id of its group. No other process can get it before this one is reaped (rule S3).
    pid: Pid,
    /// Read after the end.
    exec_error: Option<ExecErrorPipe>,
    terminal: Option<Terminal>,
    freeze_on_stop: bool,
    passed_on: Vec<Signal>,
    /// Our group received SIGTSTP, and we passed it on to the command's group.
    group_stopped: bool,
    sent_hangup: bool,
    finished: bool,
    _sigttou: SigttouBlocked,
}

impl Job {
    pub(super) fn new(
        process: Child,
        exec_error: ExecErrorPipe,
        terminal: Option<Terminal>,
        freeze_on_stop: bool,
    ) -> Self {
        let pid = Pid::from_child(&process);
        Self {
            process,
            pid,
            exec_error: Some(exec_error),
            terminal,
            freeze_on_stop,
            passed_on: Vec::new(),
            group_stopped: false,
            sent_hangup: false,
            finished: false,
            _sigttou: SigttouBlocked::here(),
        }
    }

    /// Passes signals on until the command ends or stops, except SIGCONT, which is an event.
    ///
    /// # Errors
    /// The command cannot be waited for; it may still run. Dropping the job kills it.
    ///
    /// # Cancel safety
    /// Dropping the future loses neither a signal nor an event.
    pub(crate) async fn next(&mut self, signals: &mut Signals) -> io::Result<JobEvent> {
        loop {
            match signals.next_notification().await {
                Notification::Signal(signal) if signals.is_reserved(signal) => {
                    return Ok(JobEvent::Reserved);
                }
                Notification::Signal(Signal::CONT) => {
                    self.group_stopped = false;
                    if let Some(terminal) = &mut self.terminal {
                        terminal.refresh(self.pid);
                    }
                    return Ok(JobEvent::Continued);
                }
                Notification::Signal(signal) => self.pass_on(signal),
                Notification::Child => {
                    if let Some(event) = self.poll_state(signals)? {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Continues the command, as this process was continued.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns whether we have received a signal to end since the command was started. It was
    /// passed on to the command, and whatever the command does with it, it was meant for us too.
    pub(crate) fn was_asked_to_end(&self) -> bool {
        const ENDS: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
        ENDS.iter().any(|signal| self.passed_on.contains(signal))
    }

    /// Sends SIGTERM to the whole group, and SIGCONT so that a stopped process can react.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Kills the whole group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops the rest of the group too, if nothing may run while this process is stopped.
    pub(crate) fn freeze(&self) {
        if self.freeze_on_stop {
            self.signal(Signal::STOP);
        }
    }

    /// Stops this process as the command was stopped; returns when somebody continues it.
    pub(crate) fn suspend(&mut self, signals: &mut Signals, idle: &Idle) {
        let group_stopped = std::mem::take(&mut self.group_stopped);
        if let Some(terminal) = &mut self.terminal {
            // If the others of our group stopped first, the shell may have the terminal already.
            let is_back = group_stopped && terminal.foreground(self.pid) != Foreground::Commands;
            if is_back { terminal.mark_taken() } else { terminal.take_back() }
        }
        if !group_stopped {
            Signals::stop_own_group();
        }
        signals.suspend(idle);
    }

    /// Continues the command, and gives it the terminal if it wants it and our group has it.
    pub(crate) fn resume(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.give_if_wanted(self.pid);
        }
        self.signal(Signal::CONT);
    }

    /// Reaps the command, after waiting for its end, and takes the terminal back. Returns how it
    /// ended, or why it could not be executed.
    ///
    /// # Errors
    /// Somebody else has reaped the command; how it ended is unknown.
    pub(crate) fn finish(mut self) -> io::Result<Result<JobExit, LaunchError>> {
        let status = self.process.wait()?;
        self.finished = true;
        let had_terminal = self.terminal.as_ref().is_some_and(Terminal::is_given);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            if status.code().is_none() {
                terminal.restore_modes();
            }
        }
        let exit = JobExit::after(status, had_terminal, |signal| self.passed_on.contains(&signal));
        Ok(self.exec_error.take().and_then(ExecErrorPipe::read).map_or(Ok(exit), Err))
    }

    /// Returns the command's change of state, if any, without reaping it.
    fn poll_state(&mut self, signals: &Signals) -> io::Result<Option<JobEvent>> {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if waitid(WaitId::Pid(self.pid), ended)?.is_some() {
            return Ok(Some(JobEvent::Ended));
        }
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::Pid(self.pid), stopped) {
            // It has just ended; the next notification reports that.
            Err(Errno::CHILD) => None,
            status => status?,
        };
        let signal = status.and_then(|status| status.stopping_signal());
        Ok(signal.and_then(|number| self.stopped_by(number, signals)))
    }

    fn stopped_by(&mut self, number: i32, signals: &Signals) -> Option<JobEvent> {
        // A signal number without a name cannot stop a process.
        let signal = Signal::from_named_raw(number)?;
        let foreground =
            self.terminal.as_ref().map_or(Foreground::None, |tty| tty.foreground(self.pid));
        let group_stopped = self.group_stopped;
        let sent_hangup = self.sent_hangup;
        let now =
            Situation { foreground, may_stop: signals.may_stop(), group_stopped, sent_hangup };
        match plan(signal, now) {
            Plan::Suspend => return Some(JobEvent::Stopped),
            Plan::Leave => {}
            Plan::HandOver => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.give(self.pid);
                }
                self.signal(Signal::CONT);
            }
            Plan::Continue => self.signal(Signal::CONT),
            Plan::HangUp => {
                self.sent_hangup = true;
                self.signal(Signal::HUP);
                self.signal(Signal::CONT);
            }
        }
        None
    }

    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::TSTP {
            self.group_stopped = true;
        }
        if !self.passed_on.contains(&signal) {
            self.passed_on.push(signal);
        }
        self.signal(signal);
    }

    fn signal(&self, signal: Signal) {
        // Refused only if every member has changed its user, as below `sudo`. Then a shell could
        // not signal it either.
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
        // A blocking wait could hang on a process that the kernel cannot end.
        let _ = self.process.try_wait();
    }
}
