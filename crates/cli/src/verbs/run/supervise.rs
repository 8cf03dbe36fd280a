//! The job on the lease's leash: it is stopped before anybody else can get the name.
//!
//! Invariant S1: under a lease that cannot be renewed, TERM and KILL come at the times of
//! [`Window`], counted on the clock that the lease is believed by.
//! Invariant S2: when the store says that the lease is gone, or an operator takes it back, TERM
//! comes at once and KILL after the grace, or at the window's end if that is sooner.
//! Invariant S3: a job that was told to stop ends with its whole group.
//! Invariant S4: nothing waits here but for the job and the clock; what is said may be left out.

use std::io;
use std::time::Duration;

use holdline::{Guard, RiskReason};
use holdline_core::{LockName, LostReason, Moment};
use tokio::time::Instant;

use super::window::Window;
use super::{OnLost, launch_failure};
use crate::child::{self, Event, Job, Signals};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;

/// Everything that decides when a job is stopped.
pub(super) struct Supervision<'a> {
    pub(super) guard: &'a Guard,
    /// `None` for a live grant, and where the loss is only to be told.
    pub(super) window: Option<Window>,
    pub(super) grace: Duration,
    pub(super) on_lost: OnLost,
    pub(super) max_hold: Option<Instant>,
    pub(super) session: &'a Session,
    pub(super) console: &'a Console,
}

/// Why a job was told to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its lease is or will be lost.
    Lost(LostReason),
    /// It ran for too long.
    MaxHold,
    /// The leader was told to resign.
    Resign,
}

/// How the job ended.
pub(super) struct Ended {
    /// How, as a shell sees it.
    pub(super) exit: child::Exit,
    /// Why it was told to stop, if it was.
    pub(super) stop: Option<Stop>,
    /// Somebody asked us to end, by a signal.
    pub(super) asked_to_end: bool,
}

/// What woke us.
enum Woken {
    Job(io::Result<Event>),
    Risk(RiskReason),
    /// The lease is revoked, lost or ended.
    Cancelled,
    MaxHold,
    Deadline,
}

/// What the job has been told, and what is still to come.
struct Progress {
    stop: Option<Stop>,
    kill_at: Moment,
    killed: bool,
    /// The risk was told, and is not listened for again until the lease is well.
    risk_told: bool,
    /// The end of the lease was told.
    lost_told: bool,
}

impl Supervision<'_> {
    /// Waits until the job has ended, passing signals on and stopping it when it must.
    pub(super) async fn run(&self, mut job: Job, signals: &mut Signals) -> Result<Ended, Failure> {
        let mut progress = Progress {
            stop: None,
            kill_at: Moment::NEVER,
            killed: false,
            risk_told: false,
            lost_told: false,
        };
        loop {
            match self.next(&mut job, signals, &progress).await {
                Woken::Job(Ok(Event::Ended)) => break,
                Woken::Job(Ok(Event::Stopped)) => self.suspended(&mut job, signals),
                Woken::Job(Ok(Event::Reserved)) => self.stop(Stop::Resign, &job, &mut progress),
                Woken::Job(Err(error)) => return Err(error.into()),
                Woken::Risk(reason) => self.at_risk(reason, &job, &mut progress),
                Woken::Cancelled => self.cancelled(&job, &mut progress).await,
                Woken::MaxHold => self.stop(Stop::MaxHold, &job, &mut progress),
                Woken::Deadline => self.deadline(&job, &mut progress),
            }
        }
        if progress.stop.is_some() {
            job.kill();
        }
        let asked_to_end = job.was_asked_to_end();
        let exit = job.finish()?.map_err(|error| launch_failure(&error))?;
        Ok(Ended { exit, stop: progress.stop, asked_to_end })
    }

    /// Reads the clock that the lease is believed by.
    fn now(&self) -> Moment {
        self.session.client().clock().now()
    }

    async fn next(&self, job: &mut Job, signals: &mut Signals, progress: &Progress) -> Woken {
        let stopping = progress.stop.is_some();
        let max_hold = self.max_hold.filter(|_| !stopping);
        let deadline = self.next_deadline(progress);
        let cancelled = self.guard.cancellation_token();
        let clock = self.session.client().clock();
        tokio::select! {
            biased;
            event = job.next(signals) => Woken::Job(event),
            () = cancelled.cancelled(), if !progress.lost_told => Woken::Cancelled,
            reason = self.guard.at_risk(), if !progress.risk_told => Woken::Risk(reason),
            () = clock.sleep_until(deadline), if deadline != Moment::NEVER => Woken::Deadline,
            () = sleep_until(max_hold), if max_hold.is_some() => Woken::MaxHold,
        }
    }

    /// Returns when the lease or the grace asks for something.
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

    /// The window's first moment, or the end of the grace.
    fn deadline(&self, job: &Job, progress: &mut Progress) {
        let now = self.now();
        if progress.stop.is_some() {
            if now >= progress.kill_at {
                job.kill();
                progress.killed = true;
            }
        } else if self.next_deadline(progress) <= now {
            // Otherwise a renewal came through while we slept.
            self.stop(Stop::Lost(LostReason::Expired), job, progress);
        } else {
            progress.risk_told = false;
        }
    }

    fn at_risk(&self, reason: RiskReason, job: &Job, progress: &mut Progress) {
        progress.risk_told = true;
        match reason {
            RiskReason::Revoked(words) => self.lose(LostReason::Revoked(words), job, progress),
            RiskReason::Lost(reason) => self.lose(reason, job, progress),
            RiskReason::NotRenewed(error) => {
                let why = error.map_or_else(String::new, |error| format!(": {error}"));
                let name = self.guard.name();
                self.console.warn(&format!("{name}: the lease cannot be renewed{why}"));
            }
            // What runs out is told when it has, and only we end the guard.
            _ => {}
        }
    }

    /// The lease was revoked or lost, and `at_risk` has the reason at once.
    async fn cancelled(&self, job: &Job, progress: &mut Progress) {
        progress.lost_told = true;
        let reason = self.guard.at_risk().await;
        self.at_risk(reason, job, progress);
    }

    fn lose(&self, reason: LostReason, job: &Job, progress: &mut Progress) {
        progress.lost_told = true;
        if self.on_lost == OnLost::Warn {
            let name = self.guard.name();
            self.console.warn(&format!("{name}: the job runs on without the lock: {reason}"));
            return;
        }
        self.stop(Stop::Lost(reason), job, progress);
    }

    /// Tells the job to stop; KILL is due after the grace, or when the window ends.
    fn stop(&self, why: Stop, job: &Job, progress: &mut Progress) {
        if progress.stop.is_some() {
            return;
        }
        let now = self.now();
        let by_grace = match (&why, self.on_lost) {
            (Stop::Lost(_), OnLost::Kill) => now,
            // Time has run out, and whoever waits may have the name already.
            (Stop::Lost(LostReason::Expired), _) if !self.guard.is_valid() => now,
            _ => now.after(self.grace),
        };
        let by_window = match &self.window {
            Some(window) if self.guard.is_valid() => {
                self.guard.valid_until().before(window.kill_before())
            }
            _ => Moment::NEVER,
        };
        progress.kill_at = by_grace.min(by_window);
        if progress.kill_at <= now {
            job.kill();
            progress.killed = true;
        } else {
            job.terminate();
        }
        match told(self.guard.name(), &why) {
            Some(failure) => self.console.failure(&failure),
            None => self.console.info(&format!("{}: resigning", self.guard.name())),
        }
        progress.stop = Some(why);
    }

    /// The job was stopped by job control, and we with it; somebody has continued us.
    fn suspended(&self, job: &mut Job, signals: &mut Signals) {
        // First, because a store that stands still delays when we are idle.
        job.freeze();
        self.session.while_idle(|idle| job.suspend(signals, idle));
        if self.guard.is_valid() || self.on_lost == OnLost::Warn {
            job.resume();
        }
        // A lease that ended meanwhile is told by the next look at the clock, and the job, still
        // stopped, is killed without running a step.
    }
}

/// What is said when the job is stopped; to resign is no failure.
fn told(name: &LockName, why: &Stop) -> Option<Failure> {
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
