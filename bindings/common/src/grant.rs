//! Grants that a program of another language has by a handle: they end by a request, or are given
//! up when the handle is dropped.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use holdline::once::OnceRun;
use holdline::{
    Certainty, ErrorKind, Guard, Guards, Leadership, Lease, LockError, LostReason, ReleaseOutcome,
    RiskReason,
};
use tokio::sync::Mutex;

use crate::words::Reason;

/// What the library gave for a grant.
pub enum Held {
    /// A lock.
    Guard(Guard),
    /// A leadership.
    Leadership(Box<Leadership>),
    /// A slot of a job that runs once per slot.
    Once(Box<OnceRun>),
}

impl Held {
    fn guard(&self) -> &Guard {
        match self {
            Held::Guard(guard) => guard,
            Held::Leadership(leadership) => leadership.guard(),
            Held::Once(run) => run.guard(),
        }
    }
}

/// What was acquired.
pub enum Acquired {
    /// One grant.
    One(Held),
    /// Several at once.
    Many(Guards),
}

impl From<Guard> for Acquired {
    fn from(guard: Guard) -> Acquired {
        Acquired::One(Held::Guard(guard))
    }
}

impl From<Guards> for Acquired {
    fn from(guards: Guards) -> Acquired {
        Acquired::Many(guards)
    }
}

impl From<Leadership> for Acquired {
    fn from(leadership: Leadership) -> Acquired {
        Acquired::One(Held::Leadership(Box::new(leadership)))
    }
}

/// Takes a grant out of its place to end it. Dropped before that, it gives the grant up: a task
/// that is cancelled while it leaves a block, or an interrupt, must leave no renewed lease.
struct Ending {
    library: Arc<Mutex<Option<Held>>>,
    is_taken: bool,
}

impl Ending {
    async fn take(mut self) -> Option<Held> {
        let held = self.library.lock().await.take();
        self.is_taken = true;
        held
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        // Else a renewal or a detachment is in progress, and the drop of the grant remains.
        if let Ok(mut library) = self.library.try_lock() {
            drop(library.take());
        }
    }
}

/// A grant: a held lock, a leadership, or a slot. Its requests are futures that outlive the borrow,
/// and each that ends the grant gives it up if it is dropped.
pub struct Grant {
    held: holdline::Held,
    /// There until the grant is ended here.
    library: Arc<Mutex<Option<Held>>>,
    slot_start: Option<SystemTime>,
}

impl Grant {
    /// Takes a grant over from the library.
    pub fn new(held: Held) -> Grant {
        let slot_start = match &held {
            Held::Once(run) => Some(run.slot_start()),
            _ => None,
        };
        let handle = held.guard().held();
        Grant { held: handle, library: Arc::new(Mutex::new(Some(held))), slot_start }
    }

    /// Takes over all that was acquired.
    pub fn all(acquired: Acquired) -> Vec<Grant> {
        match acquired {
            Acquired::One(held) => vec![Grant::new(held)],
            Acquired::Many(guards) => guards
                .into_guards()
                .into_iter()
                .map(|guard| Grant::new(Held::Guard(guard)))
                .collect(),
        }
    }

    /// Returns what shows the grant without ending it.
    pub fn held(&self) -> &holdline::Held {
        &self.held
    }

    /// Returns when the slot began, for a job that runs once per slot.
    pub fn slot_start(&self) -> Option<SystemTime> {
        self.slot_start
    }

    /// Returns why it is lost, if it is.
    pub fn lost_reason(&self) -> Option<Reason> {
        self.held.lost().now_or_never().map(|reason| Reason::from(&reason))
    }

    /// Resolves when the lease is no longer valid, or was released.
    pub fn lost(&self) -> impl Future<Output = Reason> + Send + use<> {
        let held = self.held.clone();
        async move { Reason::from(&held.lost().await) }
    }

    /// Returns why it is at risk or lost, if it is; `None` once it was released here.
    pub fn risk(&self) -> Option<Reason> {
        match self.held.at_risk().now_or_never() {
            None | Some(RiskReason::Ended) => None,
            Some(reason) => Some(Reason::from(&reason)),
        }
    }

    /// Resolves when the lease is at risk or lost, or was released.
    pub fn at_risk(&self) -> impl Future<Output = Reason> + Send + use<> {
        let held = self.held.clone();
        async move { Reason::from(&held.at_risk().await) }
    }

    /// Resolves when an operator has revoked the lease, or when it is lost, or was released. A
    /// lease that is at risk for another reason resolves [`Grant::at_risk`] only.
    pub fn revoked(&self) -> impl Future<Output = Reason> + Send + use<> {
        let held = self.held.clone();
        async move {
            held.cancellation_token().cancelled_owned().await;
            Reason::from(&held.at_risk().await)
        }
    }

    /// The library's part, and the error if it is gone.
    fn parts(&self) -> (Arc<Mutex<Option<Held>>>, LockError) {
        let kind = ErrorKind::Lost { reason: LostReason::Released };
        let ended = LockError::new("holdline", kind, Certainty::NotApplied);
        (self.library.clone(), ended.with_name(self.held.name()))
    }

    /// Runs a request that ends the grant.
    fn ending<T, R, F>(
        &self,
        request: R,
    ) -> impl Future<Output = Result<T, LockError>> + use<T, R, F>
    where
        R: FnOnce(Held) -> F,
        F: Future<Output = Result<T, LockError>>,
    {
        let (library, ended) = self.parts();
        let ending = Ending { library, is_taken: false };
        async move { request(ending.take().await.ok_or(ended)?).await }
    }

    /// Renews the lease now; returns for how long it is valid.
    pub fn renew(&self) -> impl Future<Output = Result<Duration, LockError>> + Send + use<> {
        let (library, ended) = self.parts();
        async move { library.lock().await.as_ref().ok_or(ended)?.guard().renew().await }
    }

    /// Renews the lease now for this duration, as [`Guard::renew_for`].
    pub fn renew_for(
        &self,
        lease_duration: Duration,
    ) -> impl Future<Output = Result<Duration, LockError>> + Send + use<> {
        let (library, ended) = self.parts();
        async move {
            let library = library.lock().await;
            library.as_ref().ok_or(ended)?.guard().renew_for(lease_duration).await
        }
    }

    /// Releases the name; `None` for a slot that was given back and has no outcome.
    pub fn release(
        &self,
    ) -> impl Future<Output = Result<Option<ReleaseOutcome>, LockError>> + Send + use<> {
        self.ending(async |held| {
            Ok(match held {
                Held::Guard(guard) => Some(guard.release().await),
                Held::Leadership(leadership) => Some(leadership.resign().await),
                Held::Once(run) => run.give_back().await,
            })
        })
    }

    /// Gives the lease out of this process. After a failure the grant is held as before.
    pub fn detach(&self) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        let (library, ended) = self.parts();
        async move {
            let mut slot = library.lock().await;
            let guard = match slot.take() {
                Some(Held::Guard(guard)) => guard,
                None => return Err(ended),
                other => {
                    *slot = other;
                    let says = "a leadership or a slot cannot be detached";
                    return Err(LockError::invalid("holdline", "grant", says));
                }
            };
            guard.detach().await.map_err(|failed| {
                let error = failed.error().clone();
                *slot = Some(Held::Guard(failed.into_guard()));
                error
            })
        }
    }

    /// Stores the value of a leadership that observers see.
    pub fn proclaim(
        &self,
        value: String,
    ) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let (library, ended) = self.parts();
        async move {
            match library.lock().await.as_ref() {
                Some(Held::Leadership(leadership)) => leadership.proclaim(value).await,
                Some(_) => Err(LockError::invalid("holdline", "grant", "it is no leadership")),
                None => Err(ended),
            }
        }
    }

    /// Keeps the slot until its end: the job is done.
    pub fn finish(&self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        self.ending(async |held| match held {
            Held::Once(run) => run.finish().await,
            _ => Err(LockError::invalid("holdline", "grant", "it is no slot")),
        })
    }

    /// Ends a job that has failed; returns whether the slot is kept.
    pub fn fail(&self) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        self.ending(async |held| match held {
            Held::Once(run) => Ok(run.fail().await),
            _ => Err(LockError::invalid("holdline", "grant", "it is no slot")),
        })
    }
}
