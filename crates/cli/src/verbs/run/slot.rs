//! `run --once-per SLOT`: the job runs once per slot, on one of all machines that start it.
//!
//! The lock is acquired as a slot of [`holdline::Once`], always by a lease: a live grant ends with
//! the job, and the slot must outlast it.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use holdline::admin::HolderFields;
use holdline::once::{Begun, OnceOptions, OnceRun, Slot, Taken};
use holdline::{ErrorKind, LockError, LockOptions, LostReason, Once};
use holdline_core::snapshot::coarse;
use holdline_core::{Escaped, HolderSummary};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Run;
use super::report::Report;
use super::supervise::Ended;
use crate::child::Signals;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::outer_locks::OuterLocks;
use crate::view::millis;

/// How long the end of a job waits for the store to keep the slot.
const KEEP: Duration = Duration::from_secs(10);

/// The arguments of `run --once-per`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SlotArgs {
    /// Run COMMAND once per slot, on one of all machines that start it. SLOT is a length such as
    /// 15m, or a cron expression such as '0 3 * * *' or @daily. If the job has run in this slot,
    /// end with 0
    #[arg(long, value_name = "SLOT")]
    #[arg(conflicts_with_all = ["shared", "permits", "fair", "min_hold"])]
    pub(crate) once_per: Option<String>,
    /// The time zone of the cron expression [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "once_per")]
    tz: Option<String>,
    /// Keep the slot whatever becomes of the job: it is not run again if it fails or its machine
    /// dies
    #[arg(long, requires = "once_per")]
    at_most_once: bool,
    /// Keep the slot also when COMMAND fails
    #[arg(long, requires = "once_per")]
    keep_on_failure: bool,
    /// By how much the clocks of two machines may differ [default: 1s]
    #[arg(long, value_name = "DUR", requires = "once_per", allow_hyphen_values = true)]
    #[arg(value_parser = duration::any)]
    max_skew: Option<Duration>,
}

/// What the flags come to: how time is divided, and how the job runs once in each part.
struct SlotPlan {
    slot: Slot,
    options: OnceOptions,
    lock: LockOptions,
}

impl SlotArgs {
    /// Reads the slot of `--once-per`.
    fn plan(&self, slot: &str, lock: LockOptions) -> Result<SlotPlan, Failure> {
        let mut options = OnceOptions::default()
            .with_at_most_once(self.at_most_once)
            .with_keep_on_failure(self.keep_on_failure);
        if let Some(max_skew) = self.max_skew {
            options = options.with_max_skew(max_skew);
        }
        Ok(SlotPlan { slot: self.slot(slot)?, options, lock })
    }

    fn slot(&self, text: &str) -> Result<Slot, Failure> {
        let is_length = text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
            && !text.contains(char::is_whitespace);
        if !is_length {
            return cron(text, self.tz.as_deref().unwrap_or("UTC"));
        }
        if self.tz.is_some() {
            let message = "--tz: a slot of a fixed length has no time zone";
            return Err(Failure::usage(message).fix("leave it out, or write a cron expression"));
        }
        let length = duration::positive(text);
        let length = length.map_err(|error| {
            Failure::usage(format_args!("--once-per {}: {error}", Escaped(text)))
        })?;
        Ok(Slot::every(length))
    }
}

#[cfg(feature = "cron")]
#[expect(clippy::unnecessary_wraps, reason = "a build without the feature `cron` refuses")]
fn cron(expression: &str, zone: &str) -> Result<Slot, Failure> {
    Ok(Slot::cron(expression, zone))
}

#[cfg(not(feature = "cron"))]
fn cron(expression: &str, _zone: &str) -> Result<Slot, Failure> {
    let message = format_args!(
        "--once-per {}: this build lacks the cargo feature `cron`, which reads cron expressions",
        Escaped(expression)
    )
    .to_string();
    Err(Failure::config(message).fix(crate::open_store::install("cron")))
}

impl Run<'_> {
    /// Runs the job unless it has run in this slot.
    pub(super) async fn in_slot(
        &self,
        slot: &str,
        outer: &OuterLocks,
        signals: &mut Signals,
        report: &mut Report,
    ) -> Outcome {
        let plan = self.slot_plan(slot)?;
        let once = self.once(&plan, Duration::ZERO)?;
        let terms = self.terms_of_default_lease(once.lease_duration())?;
        let begin = async |_| self.begin(&plan, &once).await;
        let begin = self.store.until_reached(self.plan.run_only.wait, self.console, begin);
        let begun = match self.store.unless_ended(begin, signals).await {
            Ok(begun) => begun,
            Err(signal) => return Ok(report.interrupted(signal)),
        };
        report.waited = self.store.waited();
        let run = match begun? {
            Begun::Run(run) => run,
            Begun::AlreadyRan(taken) => {
                self.warn_of_skew(&taken);
                report.already_ran(object(&taken));
                let name = once.name();
                let who = who(&taken);
                self.console.info(&format!("{name}: the job has run in this slot: {who}"));
                return Ok(Exit::Success);
            }
            Begun::RunningElsewhere(taken) => {
                let name = once.name();
                let who = who(&taken);
                return Err(Failure::busy(format_args!("{name}: the job runs elsewhere: {who}")));
            }
            _ => return Err(Failure::internal("the slot is in a state that is not known")),
        };
        report.granted(run.guard());
        let since = Instant::now();
        let ended = self.supervised(run.guard(), terms, outer, signals, since).await;
        self.end_in_slot(*run, ended, since, report).await
    }

    /// Acquires the slot; waits for a job that runs elsewhere, and for any other holder of the
    /// name, as long as the flags allow.
    async fn begin(&self, plan: &SlotPlan, once: &Once) -> Result<Begun, Failure> {
        let flags = &self.plan.run_only;
        let begun = once.begin().await;
        let line = match &begun {
            _ if flags.only_try => None,
            Ok(Begun::RunningElsewhere(taken)) => {
                Some(format!("waiting for {}: the job runs elsewhere: {}", once.name(), who(taken)))
            }
            Err(error) => match error.kind() {
                ErrorKind::Busy { holder: Some(holder) } => {
                    let holder = HolderSummary::clone(holder);
                    let holder = self.store.resolve_holder(once.name(), holder).await;
                    Some(format!("waiting for {}, held by {holder}", once.name()))
                }
                ErrorKind::Busy { holder: None } => Some(format!("waiting for {}", once.name())),
                _ => None,
            },
            Ok(_) => None,
        };
        let begun = match line {
            None => begun,
            Some(line) => {
                self.console.info(&line);
                let wait = flags.wait.map_or(Duration::MAX, |wait| self.store.remaining_wait(wait));
                self.once(plan, wait)?.begin().await
            }
        };
        match begun {
            Err(error) if matches!(error.kind(), ErrorKind::Invalid { .. }) => Err(failure(error)),
            Err(error) => Err(self.store.failure(error).await),
            Ok(begun) => Ok(begun),
        }
    }

    fn slot_plan(&self, slot: &str) -> Result<SlotPlan, Failure> {
        let mut lock = self.plan.about.options(LockOptions::default())?;
        if let Some(lease) = self.plan.lease {
            lock = lock.with_lease_duration(lease);
        }
        self.plan.run_only.slot.plan(slot, lock)
    }

    fn once(&self, plan: &SlotPlan, wait: Duration) -> Result<Once, Failure> {
        let mut lock = plan.lock.clone();
        if wait < Duration::MAX {
            lock = lock.with_wait(wait);
        }
        let options = plan.options.clone().with_lock(lock);
        let client = self.store.client();
        client.once_with(self.plan.name.as_str(), plan.slot.clone(), options).map_err(failure)
    }

    /// Keeps the slot, or gives it back, and decides how all of it ends.
    async fn end_in_slot(
        &self,
        run: OnceRun,
        ended: Result<Ended, Failure>,
        since: Instant,
        report: &mut Report,
    ) -> Outcome {
        let name = run.guard().name().clone();
        let is_done =
            ended.as_ref().is_ok_and(|ended| ended.stop.is_none() && ended.exit.code() == 0);
        let ending = async {
            if is_done { run.finish().await.map(|()| true) } else { Ok(run.fail().await) }
        };
        let kept = tokio::time::timeout(KEEP, ending).await;
        let kept = kept.unwrap_or_else(|_| Err(self.store.no_answer("nothing", KEEP)));
        report.held = Some(since.elapsed());
        report.confirmed = Some(kept.is_ok());
        let lost = match kept {
            Ok(kept) => {
                let what = if kept { "is kept until its end" } else { "is free again" };
                self.console.detail(&format!("{name}: the slot {what}"));
                None
            }
            Err(error) => self.not_kept(&error),
        };
        Ok(self.conclude(&ended?, lost, report))
    }

    /// Reports that the slot is not kept; returns why the lock was lost, if it was.
    fn not_kept(&self, error: &LockError) -> Option<LostReason> {
        if let ErrorKind::Lost { reason } = error.kind() {
            return Some(reason.clone());
        }
        let warning = "the store did not confirm that the slot is over, another machine may run \
                       the job again";
        self.console.warn(&format!("{}: {warning}: {}", self.plan.name, error.kind()));
        None
    }

    fn warn_of_skew(&self, taken: &Taken) {
        let Some(skew) = taken.clock_skew() else { return };
        warn_of_skew(self.console, skew, taken.by());
    }
}

fn warn_of_skew(console: &Console, skew: Duration, by: &HolderFields) {
    let host = Escaped(&by.host).to_string();
    console.warn(&format!(
        "the clocks of this machine and of {host} seem to differ by {}, which is more than \
         --max-skew: near the end of a slot the job may run twice",
        coarse(skew)
    ));
}

/// Returns the failure for a wrong slot, zone or length, with its flag.
fn failure(error: LockError) -> Failure {
    let flag = match error.kind() {
        ErrorKind::Invalid { field: "slot", message } => Some(("--once-per", message.clone())),
        ErrorKind::Invalid { field: "max_skew", message } => Some(("--max-skew", message.clone())),
        _ => None,
    };
    match flag {
        Some((flag, message)) => Failure::usage(format_args!("{flag}: {message}")),
        None => error.into(),
    }
}

/// Writes who took the slot, and when.
fn who(taken: &Taken) -> String {
    let by = taken.by();
    let program = if by.program.is_empty() { "another" } else { &by.program };
    let mut text = Escaped(program).to_string();
    match (by.pid, by.host.is_empty()) {
        (Some(pid), false) => text += &format!(" (pid {pid} on {})", Escaped(&by.host)),
        (Some(pid), true) => text += &format!(" (pid {pid})"),
        (None, false) => text += &format!(" (on {})", Escaped(&by.host)),
        (None, true) => {}
    }
    let ago = taken.since().and_then(|since| since.elapsed().ok());
    if let Some(ago) = ago {
        text += &format!(", {} ago", coarse(ago));
    }
    text
}

/// Returns who took the slot, for the report.
fn object(taken: &Taken) -> Value {
    let by = taken.by();
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let since = taken.since().and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    json!({
        "host": text(&by.host),
        "pid": by.pid,
        "user": text(&by.user),
        "program": text(&by.program),
        "since_ms": since.map(millis),
        "clock_skew_ms": taken.clock_skew().map(millis),
    })
}
