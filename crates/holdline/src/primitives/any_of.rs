//! Any of several names: whichever is free first.
//!
//! A waiter queues for all names at once, and leaves the other queues before it returns. Invariant
//! Y1: an attempt that waits for one more name holds only names that come before it in byte order.
//! So no two wait for each other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdline_core::{ErrorKind, LockError, LockName, Mode};

use super::all::{self, Guards};
use crate::acquire::{self, Wait};
use crate::client::Client;
use crate::core::Core;
use crate::guard::Guard;
use crate::plan::Plan;
use crate::plan::leftovers::Leftovers;
use crate::plan::options::LockOptions;

/// How long a grant waits until the other queues are left: then the janitor continues alone.
const LEAVING: Duration = Duration::from_secs(1);

impl Client {
    /// Describes several exclusive locks of which any will do, such as one of four devices.
    ///
    /// # Errors
    /// As [`Client::any_of_with`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_any_of").await?;
    /// let devices = client.any_of(["gpu/0", "gpu/1", "gpu/2", "gpu/3"])?;
    /// let guard = devices.lock().await?;
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn any_of<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<AnyOf, LockError> {
        self.any_of_with(names, &LockOptions::default())
    }

    /// As [`Client::any_of`], with options; the wait limit is one for all.
    ///
    /// # Errors
    /// As [`Client::mutex_with`]; `Invalid` for no names, for a name that is listed twice, and for
    /// options with a lease id.
    pub fn any_of_with<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        options: &LockOptions,
    ) -> Result<AnyOf, LockError> {
        AnyOf::new(self.core(), names, options)
    }
}

/// Several exclusive locks of which any will do. A description only; cheap to clone.
///
/// It does not promise the best choice: a name that is freed a moment later may have suited better.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// let client = holdline::Client::connect("memory:any_of").await?;
/// let devices = client.any_of(["gpu/0", "gpu/1", "gpu/2"])?;
/// let first = devices.lock().await?;
/// assert_eq!(first.name().as_str(), "gpu/0");
/// let two = devices.lock_many(2).await?;
/// assert!(devices.try_lock().await.is_err_and(|error| error.is_contended()));
/// first.release().await.into_result()?;
/// for outcome in two.release().await {
///     outcome.into_result()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AnyOf {
    core: Arc<Core>,
    /// In the caller's order.
    names: Arc<[LockName]>,
    options: Arc<LockOptions>,
}

impl AnyOf {
    fn new<N: AsRef<str>>(
        core: &Arc<Core>,
        names: impl IntoIterator<Item = N>,
        options: &LockOptions,
    ) -> Result<AnyOf, LockError> {
        let invalid = |message: &str| {
            LockError::invalid(core.state.engine.capabilities().engine, "names", message)
        };
        let mut plans = Vec::new();
        for name in names {
            plans.push(core.plan(name, Mode::Exclusive, options)?);
        }
        let names: Vec<LockName> = plans.into_iter().map(|plan| plan.name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid("the name is listed twice: list it once").with_name(&pair[0]));
        }
        if names.is_empty() {
            return Err(invalid("need at least one name"));
        }
        if options.lease_id.is_some() {
            return Err(invalid("several names cannot share one lease id: leave it out"));
        }
        Ok(AnyOf { core: core.clone(), names: names.into(), options: Arc::new(options.clone()) })
    }

    /// Returns the names, in the order in which they were listed.
    pub fn names(&self) -> &[LockName] {
        &self.names
    }

    /// Acquires the first of the names that is free, or waits until one is. [`Guard::name`]
    /// returns it.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`]. A name that fails is left out while others are waited for; the
    /// error is that of the last. Nothing of ours stays behind.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all queues; what the store may have granted is given up in the
    /// background.
    ///
    /// # Fairness
    /// Where the engine is fair: for each name, in the order in which contenders queued.
    ///
    /// # Guarantees
    /// When it returns, this attempt holds one name and stands in no queue. If the store does not
    /// answer within a second, the janitor continues to leave the other queues.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:any_of_lock").await?;
    /// let devices = client.any_of(["gpu/0", "gpu/1"])?;
    /// let guard = devices.lock().await?;
    /// println!("runs on {}", guard.name());
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock(&self) -> Result<Guard, LockError> {
        let plans = self.plans()?;
        let wait = Wait::of(&self.core, &plans.plans[0]);
        self.first_of(&plans.plans, &plans.leftovers, wait).await
    }

    /// As [`AnyOf::lock`], with the wait limit of this call in place of that of the options.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`] and [`AnyOf::lock`].
    ///
    /// # Cancel safety
    /// As [`AnyOf::lock`].
    ///
    /// # Fairness
    /// As [`AnyOf::lock`].
    pub async fn lock_within(&self, limit: Duration) -> Result<Guard, LockError> {
        let plans = self.plans()?;
        let wait = Wait::within(&self.core, limit);
        self.first_of(&plans.plans, &plans.leftovers, wait).await
    }

    /// Acquires the first of the names that is free, and never waits for a holder.
    ///
    /// # Errors
    /// `Busy` with the holder of the last name when none is free; otherwise as
    /// [`crate::Mutex::try_lock`].
    ///
    /// # Cancel safety
    /// As [`AnyOf::lock`].
    pub async fn try_lock(&self) -> Result<Guard, LockError> {
        let plans = self.plans()?;
        self.free_one(&plans.plans).await
    }

    /// Acquires `count` of the names: all of them or none. When fewer are free, it takes them one
    /// by one in byte order, and keeps what it has while it waits for the next.
    ///
    /// # Errors
    /// As [`AnyOf::lock`]; `Invalid` when `count` is 0 or more than there are names. None of the
    /// names is held then.
    ///
    /// # Cancel safety
    /// As [`AnyOf::lock`]; what was taken is released in the background.
    pub async fn lock_many(&self, count: usize) -> Result<Guards, LockError> {
        self.check(count)?;
        let mut plans = self.plans()?;
        let wait = Wait::of(&self.core, &plans.plans[0]);
        match self.free_ones(&plans.plans, count).await {
            Ok(guards) => return Ok(guards),
            Err(error) if error.is_contended() || error.is_transient() => {}
            Err(error) => return Err(error),
        }
        plans.plans.sort_by(|one, other| one.name.cmp(&other.name));
        let mut guards = Vec::with_capacity(count);
        let mut from = 0;
        while guards.len() < count {
            let until = plans.plans.len() - (count - guards.len()) + 1;
            let window = &plans.plans[from..until];
            match self.first_of(window, &plans.leftovers, wait).await {
                Ok(guard) => {
                    let taken = window.iter().position(|plan| plan.name == *guard.name());
                    from += taken.unwrap_or(0) + 1;
                    guards.push(guard);
                }
                Err(error) => {
                    let _ = Guards::new(guards).release().await;
                    return Err(error);
                }
            }
        }
        all::whole(Guards::new(guards)).await
    }

    /// Acquires `count` of the names that are free, and never waits for a holder: all or none.
    ///
    /// # Errors
    /// `Busy` when fewer are free; otherwise as [`AnyOf::lock_many`].
    ///
    /// # Cancel safety
    /// As [`AnyOf::lock_many`].
    pub async fn try_lock_many(&self, count: usize) -> Result<Guards, LockError> {
        self.check(count)?;
        self.free_ones(&self.plans()?.plans, count).await
    }

    fn check(&self, count: usize) -> Result<(), LockError> {
        let names = self.names.len();
        if (1..=names).contains(&count) {
            return Ok(());
        }
        let engine = self.core.state.engine.capabilities().engine;
        let message = format_args!("must be from 1 to {names}, the number of names, not {count}");
        Err(LockError::invalid(engine, "count", message))
    }

    /// Makes the plans of one attempt.
    fn plans(&self) -> Result<Plans, LockError> {
        let leftovers = Arc::new(Leftovers::default());
        let plan = |name: &LockName| {
            let mut plan = self.core.plan(name, Mode::Exclusive, &self.options)?;
            plan.leftovers = Some(leftovers.clone());
            Ok(Arc::new(plan))
        };
        let plans = self.names.iter().map(plan).collect::<Result<_, LockError>>()?;
        Ok(Plans { plans, leftovers })
    }

    /// Takes the first that is free.
    async fn free_one(&self, plans: &[Arc<Plan>]) -> Result<Guard, LockError> {
        let mut guards = self.first_free(plans, 1).await?.into_guards();
        guards.pop().ok_or_else(|| self.core.state.no_answer())
    }

    /// Takes as many as are wanted if they are free, and otherwise none.
    async fn free_ones(&self, plans: &[Arc<Plan>], count: usize) -> Result<Guards, LockError> {
        let mut guards = self.first_free(plans, count).await?.into_guards();
        guards.sort_by(|one, other| one.name().cmp(other.name()));
        all::whole(Guards::new(guards)).await
    }

    /// Takes the first `count` that are free, or none. A name that cannot be asked for is left out
    /// while others can.
    async fn first_free(&self, plans: &[Arc<Plan>], count: usize) -> Result<Guards, LockError> {
        let mut guards = Vec::with_capacity(count);
        let mut failed = None;
        for plan in plans {
            match acquire::acquire(&self.core, plan, Wait::Try).await {
                Ok(guard) => guards.push(guard),
                Err(error) => {
                    let leaves_others = error.is_contended() || error.is_transient();
                    failed = Some(error);
                    if !leaves_others {
                        break;
                    }
                }
            }
            if guards.len() == count {
                return Ok(Guards::new(guards));
            }
        }
        let _ = Guards::new(guards).release().await;
        Err(failed.unwrap_or_else(|| self.core.state.no_answer()))
    }

    /// Takes the first that is free, or queues for all and takes the first that becomes free.
    async fn first_of(
        &self,
        plans: &[Arc<Plan>],
        leftovers: &Leftovers,
        wait: Wait,
    ) -> Result<Guard, LockError> {
        match self.free_one(plans).await {
            Err(error) if error.is_contended() || error.is_transient() => {}
            outcome => return outcome,
        }
        let attempts = plans.iter().map(|plan| acquire::acquire(&self.core, plan, wait));
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        let mut failed = None;
        while let Some(outcome) = attempts.next().await {
            match outcome {
                Ok(guard) => {
                    // The others leave their queues, or give back what they were just granted.
                    drop(attempts);
                    leftovers.gone(&*self.core.state.clock, LEAVING).await;
                    return Ok(guard);
                }
                Err(error) => failed = Some(more_specific(failed, error)),
            }
        }
        Err(failed.unwrap_or_else(|| self.core.state.no_answer()))
    }
}

/// The plans of one attempt, and what it leaves to the janitor.
struct Plans {
    plans: Vec<Arc<Plan>>,
    leftovers: Arc<Leftovers>,
}

/// Prefers the report that a name was held to the end over an earlier failure of another name.
fn more_specific(before: Option<LockError>, error: LockError) -> LockError {
    match before {
        Some(before) if matches!(before.kind(), ErrorKind::TimedOut { .. }) => before,
        _ => error,
    }
}

crate::debug::debug_of!(AnyOf, |it| names: it.names);
