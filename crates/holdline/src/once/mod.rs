//! A job once per slot: the lock is held while the job runs, and kept until the slot is over.
//!
//! [`Client::once`] describes such a job: a name and a [`Slot`]. [`Once::run`] returns a
//! [`OnceOutcome`]; [`Once::begin`] is for jobs that are no future. [`OnceOptions`] sets what
//! happens when the job fails, and by how much clocks may differ.
//!
//! A mutex alone does not give this: a short job has released it before a machine whose clock is
//! late starts the same job.
//! Invariant O2: a start belongs to the slot that contains its time of day plus the maximum skew,
//! and the slot is kept until its end. So while no two clocks differ by more than that, each start
//! in the slot finds it taken.
//! Read next: `slot`, how time is divided; `look`, who has the slot; `keep`, how it is kept.

mod keep;
mod look;
mod options;
mod outcome;
mod slot;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdline_core::{Backoff, Certainty, ErrorKind, LockError, LockName, Mode, Moment, Snapshot};

use crate::acquire::{self, Wait};
use crate::audit::unix_ms;
use crate::client::Client;
use crate::core::{ClientState, Core};
use crate::guard::held::Held;
use crate::guard::{self, Guard};
use crate::plan::Plan;
use crate::plan::options::Keep;
pub use keep::OnceRun;
use look::{Seen, SlotHolder};
pub use options::OnceOptions;
pub use outcome::{Begun, OnceOutcome, Taken};
pub use slot::Slot;
use slot::{Schedule, Span};

/// The pauses between two looks at a slot that somebody else has.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How often a name is tried again at most that is free by the look and busy by the attempt.
const MAX_MISSES: u32 = 20;
/// How much longer a slot may be than the longest lease of an engine that cannot freeze: the hour
/// of a day on which the clocks go back.
const LONGER_DAY: Duration = Duration::from_secs(60 * 60);

impl Client {
    /// Describes a job that runs once per slot, on one of all machines that start it.
    ///
    /// # Errors
    /// As [`Client::once_with`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_once").await?;
    /// use std::time::Duration;
    /// use holdline::LockError;
    /// use holdline::once::Slot;
    ///
    /// let report = client.once("report", Slot::every(Duration::from_secs(900)))?;
    /// report.run(async |_| Ok::<_, LockError>("written")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(&self, name: impl AsRef<str>, slot: Slot) -> Result<Once, LockError> {
        self.once_with(name, slot, OnceOptions::default())
    }

    /// As [`Client::once`], with options.
    ///
    /// # Errors
    /// `Invalid` for a name, a slot or options that are wrong; `Unsupported` where the engine has
    /// no detached leases, keeps no metadata, or keeps a slot of this length neither by a lease nor
    /// by a freeze. Nothing is asked of the store.
    pub fn once_with(
        &self,
        name: impl AsRef<str>,
        slot: Slot,
        options: OnceOptions,
    ) -> Result<Once, LockError> {
        Once::new(self, name.as_ref(), slot, options)
    }
}

/// A job that runs once per slot, on one of all machines that start it. A description only; cheap
/// to clone.
///
/// Each machine starts the job by its own clock, for example by cron. One of them runs it. The
/// others return [`OnceOutcome::AlreadyRan`] once the job is done, and run it in its place if it
/// fails or its machine dies. By default the job so runs *at least once* per slot, if any start
/// outlives the failures; [`OnceOptions::with_at_most_once`] is the other choice.
///
/// It does not promise that the job runs in every slot: no machine may have started it, and a job
/// that is still running when the next slot begins takes the start of the next slot away from those
/// that do not wait. It does not start anything by itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use std::time::Duration;
/// use holdline::once::{OnceOutcome, Slot};
/// use holdline::{Client, LockError};
///
/// let client = Client::connect("memory:once").await?;
/// let report = client.once("report", Slot::every(Duration::from_secs(900)))?;
/// let outcome = report.run(async |_| Ok::<_, LockError>("written")).await?;
/// assert!(matches!(outcome, OnceOutcome::Ran("written")));
///
/// // Another machine, in the same quarter of an hour:
/// let outcome = report.run(async |_| Ok::<_, LockError>("written again")).await?;
/// assert!(matches!(outcome, OnceOutcome::AlreadyRan(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Once {
    client: Client,
    name: LockName,
    schedule: Arc<Schedule>,
    options: Arc<OnceOptions>,
}

impl Once {
    fn new(
        client: &Client,
        name: &str,
        slot: Slot,
        options: OnceOptions,
    ) -> Result<Once, LockError> {
        let capabilities = client.capabilities();
        let invalid = |field, message| LockError::invalid(capabilities.engine, field, message);
        let schedule = Schedule::new(slot).map_err(|message| invalid("slot", message))?;
        if !capabilities.metadata {
            return Err(capabilities.lacks("once per slot: it keeps no metadata of a holder"));
        }
        if options.lock.keep != Keep::Renewed || options.lock.lease_id.is_some() {
            let message = "a job that runs once per slot chooses how its lease is kept, and its id";
            return Err(invalid("lock", message.to_owned()));
        }
        if options.at_most_once && options.retries > 0 {
            let message = "a job that runs at most once is not run again";
            return Err(invalid("retries", message.to_owned()));
        }
        let once = Once {
            client: client.clone(),
            name: LockName::new(name).map_err(|error| invalid("name", error.to_string()))?,
            schedule: Arc::new(schedule),
            options: Arc::new(options),
        };
        let span = once.span()?;
        let longest = span.length() / 4;
        if once.options.max_skew > longest {
            let message = format!("must be at most {longest:?}, a quarter of the slot");
            return Err(invalid("max_skew", message));
        }
        once.check(span)?;
        let hold = holdline_core::Hold::Detached(once.lease(span));
        capabilities.check(Mode::Exclusive, hold)?;
        once.plan(span)?;
        Ok(once)
    }

    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns the lease under which the job runs in the present slot: that of the lock's options,
    /// and at most half of the slot.
    pub fn lease_duration(&self) -> Duration {
        self.span().map_or(self.core().lease_duration, |span| self.lease(span))
    }

    /// Runs the job, unless it has run in this slot or runs elsewhere.
    ///
    /// The job receives a handle to the lock: hand [`Held::fencing_token`] to whatever must not be
    /// written twice. The tokens of later slots are larger. When the lease is lost the job is
    /// dropped.
    ///
    /// # Errors
    /// - As [`crate::Mutex::lock`]: nothing was run.
    /// - `Busy` without a wait, `TimedOut` after it: another kind of holder has the lock, such as a
    ///   mutex or an operator's freeze. Nothing was run.
    /// - `Refused`: the clocks of two machines differ by more than the maximum skew. Nothing was
    ///   run.
    /// - `Lost`: the lease was lost, and the job was dropped. What it had done until then is done.
    ///
    /// # Cancel safety
    /// Dropping the future drops the job and frees the slot in the background; where the job runs
    /// at most once, the slot stays taken.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:once_run").await?;
    /// use std::time::Duration;
    /// use holdline::LockError;
    /// use holdline::once::{OnceOutcome, Slot};
    ///
    /// let report = client.once("report", Slot::every(Duration::from_secs(900)))?;
    /// match report.run(async |_| Ok::<_, LockError>("written")).await? {
    ///     OnceOutcome::Ran(result) => println!("{result}"),
    ///     OnceOutcome::AlreadyRan(taken) => println!("another machine did it: {taken:?}"),
    ///     outcome => println!("{outcome:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, E>(
        &self,
        mut job: impl AsyncFnMut(Held) -> Result<T, E>,
    ) -> Result<OnceOutcome<T, E>, LockError> {
        let run = match self.begin().await? {
            Begun::Run(run) => run,
            Begun::AlreadyRan(taken) => return Ok(OnceOutcome::AlreadyRan(taken)),
            Begun::RunningElsewhere(taken) => return Ok(OnceOutcome::RunningElsewhere(taken)),
        };
        let mut retries = self.options.retries;
        loop {
            let held = run.guard().held();
            match guard::run(&held, job(held.clone())).await? {
                Ok(value) => {
                    return Ok(match run.finish().await {
                        Ok(()) => OnceOutcome::Ran(value),
                        Err(error) => OnceOutcome::Unmarked { value, error },
                    });
                }
                Err(_) if retries > 0 => retries -= 1,
                Err(error) => {
                    run.fail().await;
                    return Ok(OnceOutcome::Failed(error));
                }
            }
        }
    }

    /// Takes the slot without running anything: for jobs that are no future, such as processes.
    ///
    /// # Errors
    /// As [`Once::run`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the slot to others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:once_begin").await?;
    /// use std::time::Duration;
    /// use holdline::once::{Begun, Slot};
    ///
    /// let report = client.once("report", Slot::every(Duration::from_secs(900)))?;
    /// if let Begun::Run(run) = report.begin().await? {
    ///     // … start a process, and wait for its end …
    ///     run.finish().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin(&self) -> Result<Begun, LockError> {
        let state = self.state();
        let since = state.clock.now();
        let wait = self.options.lock.waiting.limit;
        let limit = wait.map_or(Moment::NEVER, |wait| since.after(wait));
        let mut pause = Backoff::new(PAUSE.0, PAUSE.1);
        let mut misses = 0;
        loop {
            let span = self.span()?;
            self.check(span)?;
            let plan = Arc::new(self.plan(span)?);
            let busy = match acquire::acquire(self.core(), &plan, Wait::Try).await {
                Ok(guard) => return self.took(guard, span).await,
                Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => error,
                Err(error) => return Err(error),
            };
            let snapshot = self.client.admin().inspect(&self.name).await?;
            let is_over = state.clock.now() >= limit;
            let pause = pause.next_pause(state.entropy.number()).max(PAUSE.0);
            let pause = match self.verdict(&snapshot, span)? {
                Verdict::Ran(taken) => return Ok(Begun::AlreadyRan(taken)),
                Verdict::Running(taken) if is_over => return Ok(Begun::RunningElsewhere(taken)),
                Verdict::Other if is_over => {
                    let waits = wait.is_some_and(|wait| !wait.is_zero());
                    return Err(if waits { self.timed_out(&busy, since) } else { busy });
                }
                Verdict::Free if misses >= MAX_MISSES => return Err(busy),
                Verdict::Free => {
                    misses += 1;
                    pause
                }
                Verdict::Running(_) | Verdict::Other => pause.min(state.clock.now().until(limit)),
                Verdict::Soon(left) => left.clamp(PAUSE.0, PAUSE.1),
            };
            state.clock.sleep_until(state.clock.now().after(pause)).await;
        }
    }

    /// Returns the error for a wait since `since` that ended while another kind of holder had the
    /// lock.
    fn timed_out(&self, busy: &LockError, since: Moment) -> LockError {
        let holder = match busy.kind() {
            ErrorKind::Busy { holder } => holder.clone(),
            _ => None,
        };
        let waited = since.until(self.state().clock.now());
        let kind = ErrorKind::TimedOut { waited, holder };
        self.state().error(kind, busy.certainty()).with_name(&self.name)
    }

    /// Reads what a look at the lock means for a start in this slot.
    fn verdict(&self, snapshot: &Snapshot, span: Span) -> Result<Verdict, LockError> {
        let now = self.now();
        let other = match look::read(snapshot, now) {
            Seen::Free => return Ok(Verdict::Free),
            Seen::Other => return Ok(Verdict::Other),
            Seen::Slot(other) => other,
        };
        if other.has_other_slots(span) {
            return Ok(Verdict::Other);
        }
        if other.start > span.start {
            let ahead = Duration::from_millis(other.start.saturating_sub(now));
            return if ahead > self.options.max_skew * 2 {
                Err(self.skewed(ahead, &other))
            } else {
                // Our slot ends within the maximum skew, and somebody has begun the next one.
                Ok(Verdict::Soon(ahead))
            };
        }
        if other.start < span.start && other.done {
            let left = other.left.unwrap_or_default();
            // The earlier slot is over by our clock, and not by the one that kept it.
            return if left > self.tolerance(span, Duration::ZERO) {
                Err(self.skewed(left, &other))
            } else {
                Ok(Verdict::Soon(left))
            };
        }
        let since = other.held_for.map(|held| (self.options.wall_clock)() - held);
        let expected = Duration::from_millis(span.end.saturating_sub(now));
        let skew = other.left.map(|left| left.abs_diff(expected));
        // A lease that is shorter than the slot says nothing about the other clock.
        let whole = expected <= self.client.capabilities().lease.max;
        let tolerance = self.tolerance(span, expected);
        let clock_skew = skew.filter(|skew| other.done && whole && *skew > tolerance);
        let taken = Taken { by: other.by, since, clock_skew };
        Ok(if other.done { Verdict::Ran(taken) } else { Verdict::Running(taken) })
    }

    /// By how much the end of a kept slot may be off while no clock is wrong: twice the maximum
    /// skew, and how late the store ends a lease. When less than a lease is left of the slot, the
    /// job may have ended so late that its own lease outlasts the slot: leases are never shortened.
    fn tolerance(&self, span: Span, left: Duration) -> Duration {
        let capabilities = self.client.capabilities();
        let store = capabilities.lag.saturating_add(capabilities.lease.step);
        let tolerance = (self.options.max_skew * 2).saturating_add(store);
        let lease = self.lease(span);
        if left < lease { tolerance.saturating_add(lease) } else { tolerance }
    }

    fn skewed(&self, by: Duration, other: &SlotHolder) -> LockError {
        let host = if other.by.host.is_empty() { "another machine" } else { &other.by.host };
        let message = format!(
            "the clocks of this machine and of {} differ by about {by:.1?}, which is more than the \
             maximum skew of {:?}: set them right",
            holdline_core::Escaped(host),
            self.options.max_skew
        );
        let kind = ErrorKind::Refused { message };
        self.state().error(kind, Certainty::NotApplied).with_name(&self.name)
    }

    /// Returns the slot to which a start belongs now.
    fn span(&self) -> Result<Span, LockError> {
        let skew = unix_ms(SystemTime::UNIX_EPOCH + self.options.max_skew);
        let engine = self.client.capabilities().engine;
        let span = self.schedule.at(self.now().saturating_add(skew));
        span.map_err(|message| LockError::invalid(engine, "slot", message))
    }

    /// Checks that the engine can keep a slot of this length.
    fn check(&self, span: Span) -> Result<(), LockError> {
        let capabilities = self.client.capabilities();
        let longest = capabilities.lease.max.saturating_add(LONGER_DAY);
        if capabilities.freeze || span.length() <= longest {
            return Ok(());
        }
        let feature = "slots that are longer than its longest lease";
        Err(capabilities.lacks(feature).with_name(&self.name))
    }

    /// Returns the lease under which the job runs: shorter than the slot, so that it can be kept
    /// until the slot's end.
    fn lease(&self, span: Span) -> Duration {
        let range = self.client.capabilities().lease;
        let lease = self.options.lock.lease_duration.unwrap_or(self.core().lease_duration);
        lease.min((span.length() / 2).max(range.min)).clamp(range.min, range.max)
    }

    /// Returns how the lock is taken for a slot.
    fn plan(&self, span: Span) -> Result<Plan, LockError> {
        let mut options = self.options.lock.clone().with_label(look::SLOT, span.start.to_string());
        options = options.with_label(look::SLOT_END, span.end.to_string());
        options.lease_duration = Some(self.lease(span));
        if self.options.at_most_once && !self.is_frozen_for(span) {
            options = options.with_keep(Keep::Detached).with_lease_duration(self.left(span));
        }
        self.core().plan(self.name.as_str(), Mode::Exclusive, &options)
    }

    /// Returns whether a freeze keeps the rest of a slot, because no lease is long enough.
    fn is_frozen_for(&self, span: Span) -> bool {
        let capabilities = self.client.capabilities();
        let left = Duration::from_millis(span.end.saturating_sub(self.now()));
        capabilities.freeze && left > capabilities.lease.max
    }

    /// Returns the lease that keeps the slot until its end, as far as the engine's longest goes.
    fn left(&self, span: Span) -> Duration {
        let range = self.client.capabilities().lease;
        let left = Duration::from_millis(span.end.saturating_sub(self.now()));
        left.clamp(range.min, range.max)
    }

    async fn took(&self, guard: Guard, span: Span) -> Result<Begun, LockError> {
        let run = OnceRun::new(self.clone(), guard, span).begin().await?;
        Ok(Begun::Run(Box::new(run)))
    }

    fn now(&self) -> u64 {
        unix_ms((self.options.wall_clock)())
    }

    fn core(&self) -> &Arc<Core> {
        self.client.core()
    }

    fn state(&self) -> &Arc<ClientState> {
        &self.core().state
    }
}

/// What a look at the lock means for a start.
enum Verdict {
    Free,
    /// The slot is done.
    Ran(Taken),
    /// The job runs elsewhere.
    Running(Taken),
    /// What is in the way ends within the maximum skew.
    Soon(Duration),
    /// Somebody holds the lock who knows of no slots.
    Other,
}

crate::debug::debug_of!(Once, |it| name: it.name, schedule: it.schedule, options: it.options);
