//! Stops the job before any other contender can be granted the name.
//!
//! Invariant S1: if a lease cannot be renewed, TERM and KILL are sent at the times of [`Window`],
//! measured by the clock of the lease.
//! Invariant S2: if the store reports that the lease is gone, or an operator revokes it, TERM is
//! sent at once and KILL after the grace, or at the window's end if that is sooner.
//! Invariant S3: a job that was asked to stop ends with its whole group.
//! Invariant S4: this module waits for the job and the clock only; a message that would block is
//! dropped.
//! Invariant S5: a job that was paused past its lease is killed and never continued.

use std::io;
use std::time::Duration;

use clap::ValueEnum;
use holdline::{Guard, RiskReason};
use holdline_core::{LockName, LostReason, Moment};
use tokio::time::Instant;

use super::window::Window;
use crate::child::{self, Job, JobEvent, Signals};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::open_store::OpenStore;

/// What to do with the job when the lease is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM, and KILL after the grace.
    #[default]
    Term,
    /// KILL.
    Kill,
    /// Only say so.
    Warn,
}

/// Everything that decides when a job is stopped.
pub(super) struct Supervision<'a> {
    pub(super) guard: &'a Guard,
    /// `None` for a live grant, and if a loss is only reported.
    pub(super) window: Option<Window>,
    pub(super) grace: Duration,
    pub(super) on_lost: OnLost,
    pub(super) max_hold: Option<Instant>,
    pub(super) store: &'a OpenStore,
    pub(super) console: &'a Console,
}

/// Why a job was asked to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its lease is or will be lost.
    Lost(LostReason),
    /// It ran for too long.
    MaxHold,
    /// The leader was asked to resign.
    Resign,
}

/// How the job ended.
pub(super) struct Ended {
    /// Its exit, as a shell sees it.
    pub(super) exit: child::JobExit,
    /// Why it was asked to stop, if it was.
    pub(super) stop: Option<Stop>,
    /// Somebody asked us to end, by a signal.
    pub(super) asked_to_end: bool,
}

/// What ended a wait of the supervision.
enum Wakeup {
    Job(io::Result<JobEvent>),
    Risk(RiskReason),
    /// The lease is revoked, lost or ended.
    Cancelled,
    MaxHold,
    Deadline,
}

/// What was done to stop the job, and what follows.
struct Progress {
    stop: Option<Stop>,
    /// When the job must be dead, by the lease as it was last known.
    window_end: Moment,
    kill_at: Moment,
    killed: bool,
    /// The risk was reported; it is not reported again until the lease is renewed.
    risk_reported: bool,
    /// The end of the lease was reported.
    lost_reported: bool,
}

impl Supervision<'_> {
    /// Waits until the job has ended. Passes signals on and stops the job when necessary.
    pub(super) async fn run(&self, mut job: Job, signals: &mut Signals) -> Result<Ended, Failure> {
        let mut progress = Progress {
            stop: None,
            window_end: Moment::NEVER,
            kill_at: Moment::NEVER,
            killed: false,
            risk_reported: false,
            lost_reported: false,
        };
        loop {
            self.look_at_window(&mut progress);
            match self.next(&mut job, signals, &progress).await {
                Wakeup::Job(Ok(JobEvent::Ended)) => break,
                Wakeup::Job(Ok(JobEvent::Continued)) => self.continued(&job, &progress),
                Wakeup::Job(Ok(JobEvent::Stopped)) => self.suspended(&mut job, signals),
                Wakeup::Job(Ok(JobEvent::Reserved)) => self.stop(Stop::Resign, &job, &mut progress),
                Wakeup::Job(Err(error)) => return Err(error.into()),
                Wakeup::Risk(reason) => self.at_risk(reason, &job, &mut progress),
                Wakeup::Cancelled => self.cancelled(&job, &mut progress).await,
                Wakeup::MaxHold => self.stop(Stop::MaxHold, &job, &mut progress),
                Wakeup::Deadline => self.deadline(&job, &mut progress),
            }
        }
        if progress.stop.is_some() {
            job.kill();
        }
        let asked_to_end = job.was_asked_to_end();
        let exit = job.finish()??;
        Ok(Ended { exit, stop: progress.stop, asked_to_end })
    }

    /// Reads the clock of the lease.
    fn now(&self) -> Moment {
        self.store.client().clock().now()
    }

    async fn next(&self, job: &mut Job, signals: &mut Signals, progress: &Progress) -> Wakeup {
        let stopping = progress.stop.is_some();
        let max_hold = self.max_hold.filter(|_| !stopping);
        let deadline = self.next_deadline(progress);
        let cancelled = self.guard.cancellation_token();
        let clock = self.store.client().clock();
        tokio::select! {
            biased;
            event = job.next(signals) => Wakeup::Job(event),
            () = cancelled.cancelled(), if !progress.lost_reported => Wakeup::Cancelled,
            reason = self.guard.at_risk(), if !progress.risk_reported => Wakeup::Risk(reason),
            () = clock.sleep_until(deadline), if deadline != Moment::NEVER => Wakeup::Deadline,
            () = sleep_until(max_hold), if max_hold.is_some() => Wakeup::MaxHold,
        }
    }

    /// Notes when the window ends. If the lease is lost, it ends when it would have ended before.
    fn look_at_window(&self, progress: &mut Progress) {
        let until = self.guard.valid_until();
        if let Some(window) = &self.window
            && until > Moment::ORIGIN
        {
            progress.window_end = until.before(window.kill_before());
        }
    }

    /// Returns when the lease or the grace requires an action.
    fn next_deadline(&self, progress: &Progress) -> Moment {
        if progress.killed {
            return Moment::NEVER;
        }
        if progress.stop.is_some() {
            return progress.kill_at;
        }
        match &self.window {
            Some(window) => self.guard.valid_until().before(window.term_before()),
            None => Moment::NEVER,
        }
    }

    /// Handles the start of the window, or the end of the grace.
    fn deadline(&self, job: &Job, progress: &mut Progress) {
        let now = self.now();
        if progress.stop.is_some() {
            if now >= progress.kill_at {
                job.kill();
                progress.killed = true;
            }
        } else if self.next_deadline(progress) <= now {
            // Otherwise a renewal succeeded meanwhile.
            self.stop(Stop::Lost(LostReason::Expired), job, progress);
        } else {
            progress.risk_reported = false;
        }
    }

    fn at_risk(&self, reason: RiskReason, job: &Job, progress: &mut Progress) {
        progress.risk_reported = true;
        match reason {
            RiskReason::Revoked(words) => self.lose(LostReason::Revoked(words), job, progress),
            RiskReason::Lost(reason) => self.lose(reason, job, progress),
            RiskReason::NotRenewed(error) => {
                let why = error.map_or_else(String::new, |error| format!(": {error}"));
                let name = self.guard.name();
                self.console.warn(&format!("{name}: the lease cannot be renewed{why}"));
            }
            // An expiry is handled at its deadline, and only this module ends the guard.
            _ => {}
        }
    }

    /// Handles a revoked or lost lease; `at_risk` returns the reason at once.
    async fn cancelled(&self, job: &Job, progress: &mut Progress) {
        progress.lost_reported = true;
        let reason = self.guard.at_risk().await;
        self.at_risk(reason, job, progress);
    }

    fn lose(&self, reason: LostReason, job: &Job, progress: &mut Progress) {
        progress.lost_reported = true;
        if self.on_lost == OnLost::Warn {
            let name = self.guard.name();
            self.console.warn(&format!("{name}: the job runs on without the lock: {reason}"));
            return;
        }
        self.stop(Stop::Lost(reason), job, progress);
    }

    /// Asks the job to stop; KILL is due after the grace, or when the window ends.
    fn stop(&self, why: Stop, job: &Job, progress: &mut Progress) {
        if progress.stop.is_some() {
            return;
        }
        let now = self.now();
        let by_grace = match (&why, self.on_lost) {
            (Stop::Lost(_), OnLost::Kill) => now,
            // The lease has expired, and a waiter may hold the name already.
            (Stop::Lost(LostReason::Expired), _) if !self.guard.is_valid() => now,
            _ => now.after(self.grace),
        };
        self.look_at_window(progress);
        progress.kill_at = by_grace.min(progress.window_end);
        if progress.kill_at <= now {
            job.kill();
            progress.killed = true;
        } else {
            job.terminate();
        }
        match stop_failure(self.guard.name(), &why) {
            Some(failure) => self.console.failure(&failure),
            None => self.console.info(&format!("{}: resigning", self.guard.name())),
        }
        progress.stop = Some(why);
    }

    /// Handles that somebody has continued this process: continues the job with it. If the lease
    /// ended during the pause, somebody else may hold the name. Then a job that was paused too
    /// stays so, and the next deadline kills it.
    fn continued(&self, job: &Job, progress: &Progress) {
        let may_run = match progress.stop {
            Some(_) => self.now() < progress.kill_at,
            None => self.guard.is_valid() || self.on_lost == OnLost::Warn,
        };
        if may_run {
            job.go_on();
        }
    }

    /// Handles a stop by job control: stops this process with the job, until somebody continues it.
    fn suspended(&self, job: &mut Job, signals: &mut Signals) {
        // First, because a store that hangs delays the moment at which this process is idle.
        job.freeze();
        self.store.while_idle(|idle| job.suspend(signals, idle));
        if self.guard.is_valid() || self.on_lost == OnLost::Warn {
            job.resume();
        }
        // If the lease ended meanwhile, the next deadline kills the job, which is still stopped and
        // runs no further step.
    }
}

/// The message when the job is stopped; a resignation is no failure.
fn stop_failure(name: &LockName, why: &Stop) -> Option<Failure> {
    match why {
        Stop::Lost(reason) => {
            let message = format_args!("{name}: the lock is lost, stopping the job: {reason}");
            Some(Failure::lost(message))
        }
        Stop::MaxHold => {
            let message = format_args!("{name}: --max-hold is over, stopping the job");
            Some(Failure::lost(message).kind("max_hold").exit(Exit::MaxHold))
        }
        Stop::Resign => None,
    }
}

async fn sleep_until(at: Option<Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at).await;
    }
}
