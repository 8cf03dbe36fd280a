//! What an engine provides to the suite: fresh clients of one store, and how time passes there.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdline_core::{Clock, Engine, LockError, LockName, Moment};

/// How long a client may take to reconnect to a store that was restarted.
const LIMIT: Duration = Duration::from_secs(90);

/// How long a client pauses between two such attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// A boxed future, as the object-safe traits here need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One store to be judged, and how to reach it.
///
/// All clients that a factory opens share one store, and no other client uses it meanwhile.
pub trait Factory: Send + Sync + 'static {
    /// Returns what the report calls this store, such as `memory, hand-driven clock`.
    fn name(&self) -> String;

    /// Returns the one command that runs this factory's suite again.
    fn command(&self) -> String;

    /// Opens one more client: where clients are processes or connections, a connection of its own.
    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>>;

    /// Returns how time moves for the store.
    fn time(&self) -> Time;

    /// Returns how long, how exactly and how often to try.
    fn scale(&self) -> Scale;

    /// Does something to the store behind its clients' backs.
    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed>;
}

/// How time moves for a store.
#[derive(Clone, Debug)]
pub enum Time {
    /// Only when the suite moves it.
    Manual(Arc<dyn ManualTime>),
    /// By itself; the suite waits.
    Real(Arc<dyn Clock>),
}

/// A clock that the suite moves.
pub trait ManualTime: Clock {
    /// Moves the clock on.
    fn advance(&self, by: Duration);
}

impl Time {
    /// Reads the clock.
    pub fn now(&self) -> Moment {
        match self {
            Time::Manual(clock) => clock.now(),
            Time::Real(clock) => clock.now(),
        }
    }

    /// Lets time pass until the clock has reached `at`.
    pub async fn reach(&self, at: Moment) {
        match self {
            Time::Manual(clock) => clock.advance(clock.now().until(at)),
            Time::Real(clock) => clock.sleep_until(at).await,
        }
    }

    /// Lets time pass.
    pub async fn pass(&self, by: Duration) {
        self.reach(self.now().after(by)).await;
    }

    /// Returns whether time moves only by hand.
    pub fn is_manual(&self) -> bool {
        matches!(self, Time::Manual(_))
    }
}

/// How long, how exactly and how often to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The short lease of the suite: as short as the store's steps and this machine allow.
    pub lease: Duration,
    /// How late a command may be carried out after it was due before a history is void: zero for
    /// a hand-driven clock, and shorter than the lease, which must not end between two commands
    /// that are due together.
    pub tolerance: Duration,
    /// How many random histories to try.
    pub histories: usize,
    /// How many cases or histories may run at once; a hand-driven clock allows one.
    pub at_once: usize,
    /// Whether a name stays what it was first used as, also when it is free: a mutex, a read/write
    /// lock, or a semaphore with its total. Of another kind it is foreign.
    pub kinds_stay: bool,
}

impl Scale {
    /// For a hand-driven clock: long leases cost nothing.
    pub fn manual() -> Scale {
        let lease = Duration::from_secs(2);
        Scale { lease, tolerance: Duration::ZERO, histories: 1_500, at_once: 1, kinds_stay: false }
    }

    /// For a store on this machine whose commands take a few milliseconds at most.
    pub fn quick() -> Scale {
        let lease = Duration::from_millis(750);
        let tolerance = Duration::from_millis(600);
        Scale { lease, tolerance, histories: 150, at_once: 50, kinds_stay: false }
    }

    /// For a machine that was too slow for this scale. The tolerance stays: it must be shorter than
    /// the shortest hand-off lease too.
    pub(crate) fn slower(self) -> Scale {
        Scale { lease: self.lease * 2, ..self }
    }
}

/// Something that is done to a store behind its clients' backs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Puts something under the name that is not ours.
    PlantForeign(LockName),
    /// Checks that what was put there is still as it was.
    CheckForeign(LockName),
    /// Stops the store and starts it again with all that it has stored.
    Restart,
}

/// The clients of a real store that a factory has opened.
#[derive(Default)]
pub struct Opened(Mutex<Vec<Arc<dyn Engine>>>);

impl Opened {
    /// Remembers a client.
    pub fn add(&self, engine: impl Engine) -> Arc<dyn Engine> {
        let engine: Arc<dyn Engine> = Arc::new(engine);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(engine.clone());
        engine
    }

    /// Returns the clients, in the order in which they were opened.
    pub fn all(&self) -> Vec<Arc<dyn Engine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until every client gets an answer from a store that was restarted. A request that
    /// meets the end of its connection has an unknown outcome, which is not what a restart is to
    /// show: so the clients reconnect before anything else is asked.
    pub async fn reconnect(&self) -> Disturbed {
        self.reconnect_by(&["nobody"]).await
    }

    /// The same for a store of several servers: each client asks for each of these names.
    pub async fn reconnect_by(&self, names: &[&str]) -> Disturbed {
        for engine in self.all() {
            for name in names {
                let deadline = Instant::now() + LIMIT;
                while let Err(error) = engine.inspect(&crate::asking::name(name)).await {
                    if Instant::now() > deadline {
                        return Disturbed::Failed(format!("still after {LIMIT:?}: {error}"));
                    }
                    tokio::time::sleep(PAUSE).await; // event: the store answers
                }
            }
        }
        Disturbed::Done
    }
}

/// How a disturbance went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disturbed {
    /// It is done; for a check: it is so.
    Done,
    /// This kind of store has nothing like it, for this reason. Shown in the report.
    Impossible(&'static str),
    /// It went wrong; for a check: it is not so.
    Failed(String),
}

impl From<Result<(), String>> for Disturbed {
    fn from(result: Result<(), String>) -> Disturbed {
        result.map_or_else(Disturbed::Failed, |()| Disturbed::Done)
    }
}

impl fmt::Debug for dyn Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Factory({})", self.name())
    }
}
