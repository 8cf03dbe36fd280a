//! `holdline run NAME -- COMMAND`: hold NAME, run COMMAND, release.
//!
//! Wrong input is refused before any request to the store: a report that cannot be written, a
//! lease that leaves no time to stop the job, a name that a command above holds.
//! Read next: [`supervise`], which stops the job before its lease ends.

mod any_of;
mod args;
pub(crate) mod elect;
mod environment;
mod metrics_file;
mod report;
mod slot;
mod supervise;
mod window;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdline::{Guard, Keep, LockOptions, ReleaseOutcome};
use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{Hold, LostReason, Purpose, RenewReply};
use rustix::process::Signal;
use tokio::time::Instant;

pub(crate) use any_of::AnyOfArgs;
pub(crate) use args::RunArgs;
use metrics_file::MetricsFile;
use report::{Report, ReportFile};
pub(crate) use slot::SlotArgs;
use supervise::{Ended, OnLost, Stop, Supervision};
use window::Window;

use crate::child::{Launch, LaunchError, Signals};
use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::holder::Holder;
use crate::outer_locks::OuterLocks;
use crate::session::{Session, SessionOptions, TRY_LIMIT};
use crate::verbs::common::default_lease;
use crate::verbs::waiting::{self, WaitStatus};

/// How long a job may take to end after TERM unless said otherwise.
const GRACE: Duration = Duration::from_secs(5);
/// How long a job's end waits for the answer whether an operator caused it: half of what the
/// release has, from whose time it is taken.
const REVOKE_CHECK_LIMIT: Duration = Duration::from_millis(500);

/// Acquires the name, runs the job, releases; always writes the report.
pub(crate) async fn run(arguments: &RunArgs, address: Address, console: &Console) -> Outcome {
    check_proc()?;
    let metrics = MetricsFile::check(&arguments.metrics)?;
    let file = ReportFile::open(arguments.report.as_deref())?;
    let since = Instant::now();
    let waiting = Arc::new(WaitStatus::default());
    let program = Path::new(&arguments.command[0]);
    let program = program.file_name().unwrap_or(program.as_os_str());
    let options = SessionOptions {
        observer: Some(waiting.clone()),
        program: Some(program.to_string_lossy().into_owned()),
        detached: false,
        wait: arguments.wait.limit().or(arguments.skip.then_some(TRY_LIMIT)),
        keeps_trying: false,
        progress: (!arguments.only_tries()).then_some(console),
        read_only: false,
    };
    // The session starts threads, so the signals come first.
    let mut signals = Signals::listen()?;
    let mut report = Report::new(&arguments.name, arguments.mode.mode());
    let session = Session::open_unless_ended(address, options, &mut signals).await;
    report.waited = since.elapsed();
    let outcome = match session {
        Ok(Ok(session)) => {
            report.engine = Some(session.capabilities().engine);
            let run = Run { arguments, value: "", session: &session, waiting: &waiting, console };
            let outcome = run.run(&mut signals, &mut report).await;
            session.close().await;
            outcome
        }
        Ok(Err(failure)) => Err(failure),
        Err(signal) => Ok(report.interrupted(signal)),
    };
    let outcome = outcome.map_err(|failure| with_conflict_code(failure, arguments));
    let named = outcome.as_ref().err().and_then(|failure| failure.holder.as_deref());
    report.quorum = waiting.quorum();
    report.in_the_way = named.cloned().or(waiting.last_holder().map(Holder::reported));
    match &outcome {
        Ok(exit) => report.exit = *exit,
        Err(failure) => report.failed(failure),
    }
    for written in [file.write(&report), metrics.write(&report)] {
        if let Err(failure) = written {
            // The job is done, and its own exit code matters more than this failure.
            console.failure(&failure);
        }
    }
    match outcome {
        Err(failure) if failure.exit == Exit::Success => {
            console.info(&format!("skipped: {}", failure.message));
            Ok(Exit::Success)
        }
        outcome => outcome,
    }
}

/// Checks that a command can be started at all, before anything is asked of a store.
///
/// # Errors
/// `/proc` is not mounted: this program starts itself through it.
fn check_proc() -> Result<(), Failure> {
    if Path::new("/proc/self/exe").exists() {
        return Ok(());
    }
    let message = "/proc is not mounted, and no command can be started without it";
    Err(Failure::config(message).fix("mount /proc, as in: mount -t proc proc /proc"))
}

/// Applies `--skip` and `-E`, which choose the exit code for a busy name.
fn with_conflict_code(failure: Failure, arguments: &RunArgs) -> Failure {
    match (failure.exit, arguments.skip, arguments.conflict_exit_code) {
        (Exit::Busy, true, _) => failure.exit(Exit::Success),
        (Exit::Busy, false, Some(code)) => failure.exit(Exit::Code(code)),
        _ => failure,
    }
}

/// When a job must be stopped.
struct Terms {
    /// `None` for a live grant, and if a loss is only reported.
    window: Option<Window>,
    grace: Duration,
}

struct Run<'a> {
    arguments: &'a RunArgs,
    /// What a leader proclaims; empty for a lock.
    value: &'a str,
    session: &'a Session,
    waiting: &'a Arc<WaitStatus>,
    console: &'a Console,
}

impl Run<'_> {
    async fn run(&self, signals: &mut Signals, report: &mut Report) -> Outcome {
        let arguments = self.arguments;
        let mode = arguments.mode.mode();
        let outer = OuterLocks::from_environment()?;
        for name in arguments.names() {
            let checking = self.session.check_nesting(&outer, name, mode);
            match self.session.unless_ended(checking, signals).await {
                Ok(checked) => checked?,
                Err(signal) => return Ok(report.interrupted(signal)),
            }
        }
        if let Some(slot) = &arguments.slot.once_per {
            return Box::pin(self.in_slot(slot, &outer, signals, report)).await;
        }
        let (options, terms) = self.terms()?;
        let granted = self.wait(&options, signals).await;
        report.waited = self.session.waited();
        let guard = match granted {
            Ok(granted) => granted?,
            Err(signal) => return Ok(report.interrupted(signal)),
        };
        report.granted(&guard);
        let token = guard.fencing_token();
        self.console.detail(&format!("{}: held with fencing token {token}", guard.name()));
        let since = Instant::now();
        let outcome = self.supervised(&guard, terms, &outer, signals, since).await;
        self.finish(guard, outcome, since, report).await
    }

    /// Returns the options of the lock, and when the job must be stopped.
    fn terms(&self) -> Result<(LockOptions, Terms), Failure> {
        let arguments = self.arguments;
        if let (Some(least), Some(most)) = (arguments.min_hold, arguments.max_hold)
            && least > most
        {
            let least = duration::written(least);
            let most = duration::written(most);
            let message = format!("--min-hold {least}: is longer than --max-hold {most}");
            return Err(Failure::usage(message).fix("swap them, or leave one out"));
        }
        let mut options = arguments.about.options(LockOptions::default())?.with_value(self.value);
        options = options.with_fair(arguments.mode.fair);
        let mut grace = arguments.grace.unwrap_or(GRACE);
        if arguments.lease.is_none() && self.session.capabilities().live {
            return Ok((options.with_keep(Keep::Live), Terms { window: None, grace }));
        }
        let lease = arguments.lease.unwrap_or_else(|| default_lease(self.session, self.console));
        if arguments.lease.is_none() && arguments.grace.is_none() {
            grace = grace.min(Window::longest_grace(lease));
        }
        let window = match arguments.on_lost {
            OnLost::Term => Some(Window::new(lease, grace)?),
            OnLost::Kill => Some(Window::new(lease, Duration::ZERO)?),
            OnLost::Warn => None,
        };
        Ok((options.with_lease_duration(lease), Terms { window, grace }))
    }

    async fn wait(
        &self,
        options: &LockOptions,
        signals: &mut Signals,
    ) -> Result<Result<Guard, Failure>, Signal> {
        let session = self.session;
        let attempt = session.until_reached(self.arguments.wait.wait, self.console, async |wait| {
            let options = match wait {
                Some(wait) => options.clone().with_wait(wait),
                None => options.clone(),
            };
            self.attempt(&options).await
        });
        session.unless_ended(attempt, signals).await
    }

    async fn attempt(&self, options: &LockOptions) -> Result<Guard, Failure> {
        let RunArgs { name, mode, .. } = self.arguments;
        if !self.arguments.any.any_of.is_empty() {
            return self.first_free(options).await;
        }
        // What was seen before the store went away is not known any more.
        self.waiting.forget();
        let only_try = self.arguments.only_tries();
        let attempt = self.session.acquire(name, mode.mode(), options, only_try);
        match waiting::report(attempt, self.waiting, name, self.session, self.console).await {
            Ok(guard) => Ok(guard),
            Err(error) => Err(self.session.failure(error).await),
        }
    }

    /// Runs the job under the guard.
    async fn supervised(
        &self,
        guard: &Guard,
        terms: Terms,
        outer: &OuterLocks,
        signals: &mut Signals,
        since: Instant,
    ) -> Result<Ended, Failure> {
        if self.arguments.lease.is_some_and(|lease| lease > MAX_FIRST_LEASE) {
            // A first grant is limited; the job starts when it has the whole lease.
            guard.renew().await?;
        }
        let anchor = guard.anchor().filter(|_| !self.arguments.close);
        let inherited = anchor.map(|anchor| anchor.descriptor().as_fd()).into_iter().collect();
        let mut words = self.arguments.command.iter().cloned();
        let program: OsString = words.next().unwrap_or_default();
        let in_time = || guard.is_valid() || self.arguments.on_lost == OnLost::Warn;
        let launch = Launch::new(program, words.collect())
            .with_environment(environment::changes(guard, self.session, outer)?)
            .with_inherited(inherited)
            .with_death_signal(anchor.is_none())
            .with_freeze_on_stop(guard.anchor().is_none())
            .with_condition(&in_time);
        let job = self.session.while_idle(|idle| launch.spawn(signals, idle));
        let job = job.map_err(|error| match error {
            LaunchError::TooLate => {
                let name = guard.name();
                Failure::lost(format_args!("{name}: the lease was lost before the job started"))
            }
            error => error.into(),
        })?;
        drop(launch);
        let supervision = Supervision {
            guard,
            window: terms.window,
            grace: terms.grace,
            on_lost: self.arguments.on_lost,
            max_hold: self.arguments.max_hold.map(|limit| since + limit),
            session: self.session,
            console: self.console,
        };
        let ended = supervision.run(job, signals).await?;
        if let (Some(limit), None) = (self.arguments.min_hold, &ended.stop) {
            keep_until(guard, since + limit, signals, self.session).await;
        }
        Ok(ended)
    }

    /// Releases the guard and decides the exit code.
    async fn finish(
        &self,
        guard: Guard,
        ended: Result<Ended, Failure>,
        since: Instant,
        report: &mut Report,
    ) -> Outcome {
        let name = guard.name().clone();
        let ended_at = Instant::now();
        let revoked = self.revoked(&guard, ended.as_ref().ok()).await;
        let released = self.session.release(guard, ended_at).await;
        report.held = Some(since.elapsed());
        let lost = match released {
            Some(ReleaseOutcome::Lost { reason }) => Some(reason),
            Some(ReleaseOutcome::Released { confirmed: true, .. }) => {
                report.confirmed = Some(true);
                self.console.detail(&format!("{name}: released"));
                None
            }
            unconfirmed => {
                report.confirmed = Some(false);
                let why = match unconfirmed {
                    Some(ReleaseOutcome::Released { failure: Some(kind), .. }) => {
                        format!(": {kind}")
                    }
                    _ => String::new(),
                };
                self.console.warn(&format!("{name}: the store did not confirm the release{why}"));
                None
            }
        };
        let lost = revoked.or(lost);
        report.lost.clone_from(&lost);
        let ended = ended?;
        report.asked_to_end = ended.asked_to_end;
        let (outcome, exit) = self.outcome(&ended, lost.as_ref());
        report.outcome = outcome;
        report.lost = lost_of(&ended).or(lost);
        if let (None, Some(reason)) = (&ended.stop, &report.lost) {
            let message = format_args!("{name}: the lock was lost before the job ended: {reason}");
            self.report_lost(message, exit);
        }
        Ok(exit)
    }

    /// Returns the reason if an operator revoked the live grant of a job that seems to have ended
    /// by itself. `revoke` signals the job, which may end before the client is notified.
    async fn revoked(&self, guard: &Guard, ended: Option<&Ended>) -> Option<LostReason> {
        if guard.anchor().is_none() || ended.is_none_or(|ended| ended.stop.is_some()) {
            return None;
        }
        let keep = Purpose::Keep(Hold::Live);
        let answer = self.session.renew_once(guard.name(), guard.lease_id(), keep);
        match tokio::time::timeout(REVOKE_CHECK_LIMIT, answer).await {
            Ok(Ok(RenewReply::Revoked { reason, .. })) => Some(LostReason::Revoked(reason)),
            _ => None,
        }
    }

    /// Reports a lock that was lost although the job was not stopped: with `--on-lost warn` the
    /// code is the job's, and this is a warning.
    fn report_lost(&self, message: std::fmt::Arguments<'_>, exit: Exit) {
        match self.arguments.on_lost {
            OnLost::Warn => self.console.warn(&message.to_string()),
            _ => self.console.failure(&Failure::lost(message).exit(exit)),
        }
    }

    fn outcome(&self, ended: &Ended, lost: Option<&LostReason>) -> (&'static str, Exit) {
        match (&ended.stop, lost) {
            (Some(Stop::MaxHold), _) => ("max_hold", Exit::MaxHold),
            (Some(Stop::Lost(_)), _) => ("lost", Exit::Lost),
            (Some(Stop::Resign), _) => ("resigned", Exit::Success),
            // It ended by itself, but had lost the lock before.
            (None, Some(_)) if self.arguments.on_lost != OnLost::Warn => ("lost", Exit::Lost),
            (None, _) => ("finished", Exit::Job(ended.exit)),
        }
    }
}

fn lost_of(ended: &Ended) -> Option<LostReason> {
    match &ended.stop {
        Some(Stop::Lost(reason)) => Some(reason.clone()),
        _ => None,
    }
}

/// Keeps the name until `--min-hold` is over, a signal is received or the lease is lost.
async fn keep_until(guard: &Guard, until: Instant, signals: &mut Signals, session: &Session) {
    // The hold is over in each case.
    let _ = session.unless_ended(tokio::time::timeout_at(until, guard.lost()), signals).await;
}
