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
use holdline_core::{Hold, LostReason, Purpose, RenewReply};
use rustix::process::Signal;
use tokio::time::Instant;

pub(crate) use args::verb;
use args::{RunOnly, RunPlan};
use metrics_file::MetricsFile;
use report::{Report, ReportFile, RunOutcome};
use supervise::{Ended, OnLost, Stop, Supervision};
use window::Window;

use crate::child::{Launch, LaunchError, Signals};
use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::holder::Holder;
use crate::open_store::{OpenStore, StoreOptions, TRY_LIMIT};
use crate::outer_locks::OuterLocks;
use crate::verbs::common::default_lease;
use crate::verbs::waiting::{self, WaitStatus};

/// How long a job may take to end after TERM unless said otherwise.
const GRACE: Duration = Duration::from_secs(5);
/// How long a job's end waits for the answer whether an operator caused it: half of what the
/// release has, from whose time it is taken.
const REVOKE_CHECK_LIMIT: Duration = Duration::from_millis(500);

/// Acquires the name, runs the job, releases; always writes the report.
async fn run(plan: &RunPlan, address: Address, console: &Console) -> Outcome {
    check_proc()?;
    let RunOnly { mode, wait, only_try, busy_exit, report, metrics, .. } = &plan.run_only;
    let metrics = MetricsFile::check(metrics)?;
    let file = ReportFile::open(report.as_deref())?;
    let since = Instant::now();
    let waiting = Arc::new(WaitStatus::default());
    let options = StoreOptions {
        observer: Some(waiting.clone()),
        program: Some(plan.program()),
        wait: wait.or(only_try.then_some(TRY_LIMIT)),
        progress: (!only_try).then_some(console),
        ..StoreOptions::default()
    };
    // An open store has threads, so the signals come first.
    let mut signals = Signals::listen()?;
    let mut report = Report::new(&plan.name, mode.mode());
    let store = OpenStore::open_unless_ended(address, options, &mut signals).await;
    report.waited = since.elapsed();
    let mut outcome = match store {
        Ok(Ok(store)) => {
            report.engine = Some(store.capabilities().engine);
            let run = Run { plan, store: &store, waiting: &waiting, console };
            let outcome = run.run(&mut signals, &mut report).await;
            store.close().await;
            outcome
        }
        Ok(Err(failure)) => Err(failure),
        Err(signal) => Ok(report.interrupted(signal)),
    };
    let named = outcome.as_ref().err().and_then(|failure| failure.holder.as_deref());
    report.quorum = waiting.quorum();
    report.in_the_way = named.cloned().or(waiting.last_holder().map(Holder::reported));
    match &mut outcome {
        Ok(exit) => report.exit = *exit,
        Err(failure) => {
            report.failed(failure);
            if failure.exit == Exit::Busy {
                failure.exit = busy_exit.unwrap_or(Exit::Busy);
            }
            report.exit = failure.exit;
        }
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

/// When a job must be stopped.
struct Terms {
    /// `None` for a live grant, and if a loss is only reported.
    window: Option<Window>,
    grace: Duration,
}

struct Run<'a> {
    plan: &'a RunPlan,
    store: &'a OpenStore,
    waiting: &'a Arc<WaitStatus>,
    console: &'a Console,
}

impl Run<'_> {
    async fn run(&self, signals: &mut Signals, report: &mut Report) -> Outcome {
        let plan = self.plan;
        let mode = plan.run_only.mode.mode();
        let outer = OuterLocks::from_environment()?;
        for name in plan.names() {
            let checking = self.store.check_nesting(&outer, name, mode);
            match self.store.unless_ended(checking, signals).await {
                Ok(checked) => checked?,
                Err(signal) => return Ok(report.interrupted(signal)),
            }
        }
        if let Some(slot) = &plan.run_only.slot.once_per {
            return Box::pin(self.in_slot(slot, &outer, signals, report)).await;
        }
        let (options, terms) = self.terms()?;
        let granted = self.wait(&options, signals).await;
        report.waited = self.store.waited();
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
        let plan = self.plan;
        if let (Some(least), Some(most)) = (plan.run_only.min_hold, plan.run_only.max_hold)
            && least > most
        {
            let least = duration::written(least);
            let most = duration::written(most);
            let message = format!("--min-hold {least}: is longer than --max-hold {most}");
            return Err(Failure::usage(message).fix("swap them, or leave one out"));
        }
        let options = plan.about.options(LockOptions::default())?.with_value(&*plan.value);
        let options = options.with_fair(plan.run_only.mode.fair);
        let Some(lease) = plan.lease else {
            if self.store.capabilities().live {
                let grace = plan.grace.unwrap_or(GRACE);
                return Ok((options.with_keep(Keep::Live), Terms { window: None, grace }));
            }
            let lease = default_lease(self.store, self.console);
            return Ok((options.with_lease_duration(lease), self.terms_of_default_lease(lease)?));
        };
        let terms = self.terms_of_lease(lease, plan.grace.unwrap_or(GRACE))?;
        Ok((options.with_lease_duration(lease), terms))
    }

    /// Returns when a job must be stopped that has a lease of the engine's choice: where that is
    /// short, so is the grace.
    fn terms_of_default_lease(&self, lease: Duration) -> Result<Terms, Failure> {
        let usual = GRACE.min(Window::longest_grace(lease));
        self.terms_of_lease(lease, self.plan.grace.unwrap_or(usual))
    }

    fn terms_of_lease(&self, lease: Duration, grace: Duration) -> Result<Terms, Failure> {
        let window = match self.plan.run_only.on_lost {
            OnLost::Term => Some(Window::new(lease, grace)?),
            OnLost::Kill => Some(Window::new(lease, Duration::ZERO)?),
            OnLost::Warn => None,
        };
        Ok(Terms { window, grace })
    }

    async fn wait(
        &self,
        options: &LockOptions,
        signals: &mut Signals,
    ) -> Result<Result<Guard, Failure>, Signal> {
        let store = self.store;
        let attempt = store.until_reached(self.plan.run_only.wait, self.console, async |wait| {
            let options = match wait {
                Some(wait) => options.clone().with_wait(wait),
                None => options.clone(),
            };
            self.attempt(&options).await
        });
        store.unless_ended(attempt, signals).await
    }

    async fn attempt(&self, options: &LockOptions) -> Result<Guard, Failure> {
        let RunOnly { any_of, mode, only_try, .. } = &self.plan.run_only;
        let name = &self.plan.name;
        if !any_of.is_empty() {
            return self.first_free(options).await;
        }
        // What was seen before the store went away is not known any more.
        self.waiting.forget();
        let attempt = self.store.acquire(name, mode.mode(), options, *only_try);
        match waiting::report(attempt, self.waiting, name, self.store, self.console).await {
            Ok(guard) => Ok(guard),
            Err(error) => Err(self.store.failure(error).await),
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
        let RunOnly { close, on_lost, max_hold, min_hold, .. } = self.plan.run_only;
        if guard.is_partial() {
            // The job starts when it has the whole lease.
            guard.renew().await?;
        }
        let anchor = guard.anchor().filter(|_| !close);
        let inherit = anchor.map(|anchor| anchor.descriptor().as_fd()).into_iter().collect();
        let mut words = self.plan.command.iter().cloned();
        let program: OsString = words.next().unwrap_or_default();
        let in_time = || guard.is_valid() || on_lost == OnLost::Warn;
        let launch = Launch {
            program,
            arguments: words.collect(),
            environment: environment::changes(guard, self.store, outer)?,
            inherit,
            death_signal: anchor.is_none(),
            freeze_on_stop: guard.anchor().is_none(),
            condition: &in_time,
        };
        let job = self.store.while_idle(|idle| launch.spawn(signals, idle));
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
            on_lost,
            max_hold: max_hold.map(|limit| since + limit),
            store: self.store,
            console: self.console,
        };
        let ended = supervision.run(job, signals).await?;
        if let (Some(limit), None) = (min_hold, &ended.stop) {
            keep_until(guard, since + limit, signals, self.store).await;
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
        let released = self.store.release(guard, ended_at).await;
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
        Ok(self.conclude(&ended, lost, report))
    }

    /// Returns the reason if an operator revoked the live grant of a job that seems to have ended
    /// by itself. `revoke` signals the job, which may end before the client is notified.
    async fn revoked(&self, guard: &Guard, ended: Option<&Ended>) -> Option<LostReason> {
        if guard.anchor().is_none() || ended.is_none_or(|ended| ended.stop.is_some()) {
            return None;
        }
        let keep = Purpose::Keep(Hold::Live);
        let answer = self.store.renew_once(guard.name(), guard.lease_id(), keep);
        match tokio::time::timeout(REVOKE_CHECK_LIMIT, answer).await {
            Ok(Ok(RenewReply::Revoked { reason, .. })) => Some(LostReason::Revoked(reason)),
            _ => None,
        }
    }

    /// Records how the job ended, and returns the exit. `lost` is why the store says that the lock
    /// was lost.
    fn conclude(&self, ended: &Ended, lost: Option<LostReason>, report: &mut Report) -> Exit {
        let warns = self.plan.run_only.on_lost == OnLost::Warn;
        let outcome = match &ended.stop {
            Some(Stop::MaxHold) => RunOutcome::MaxHold,
            Some(Stop::Lost(_)) => RunOutcome::Lost,
            Some(Stop::Resign) => RunOutcome::Resigned,
            // It ended by itself, but had lost the lock before.
            None if lost.is_some() && !warns => RunOutcome::Lost,
            None => RunOutcome::Finished,
        };
        let exit = match outcome {
            RunOutcome::MaxHold => Exit::MaxHold,
            RunOutcome::Lost => Exit::Lost,
            RunOutcome::Resigned => Exit::Success,
            _ => Exit::Job(ended.exit),
        };
        report.outcome = outcome;
        report.lost = lost_of(ended).or(lost);
        if let (None, Some(reason)) = (&ended.stop, &report.lost) {
            let message =
                format!("{}: the lock was lost before the job ended: {reason}", report.name);
            // With `--on-lost warn` the code is the job's, and this is a warning.
            if warns {
                self.console.warn(&message);
            } else {
                self.console.failure(&Failure::lost(message).exit(exit));
            }
        }
        exit
    }
}

fn lost_of(ended: &Ended) -> Option<LostReason> {
    match &ended.stop {
        Some(Stop::Lost(reason)) => Some(reason.clone()),
        _ => None,
    }
}

/// Keeps the name until `--min-hold` is over, a signal is received or the lease is lost.
async fn keep_until(guard: &Guard, until: Instant, signals: &mut Signals, store: &OpenStore) {
    // The hold is over in each case.
    let _ = store.unless_ended(tokio::time::timeout_at(until, guard.lost()), signals).await;
}
