//! The options of a client.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{
    Clock, Engine, Entropy, ErrorKind, HealthFeed, HolderFields, LeaseTerms, LockError, LockName,
    Metadata, lease,
};

use super::process;
use crate::clock::SystemClock;
use crate::core::entropy::{Source, SystemEntropy};
use crate::core::nests::Nests;
use crate::core::{ClientState, Core, Parts};
use crate::engines::Connected;
use crate::observer::class::{self, Classes};
use crate::observer::{Both, Observer};
use crate::worker;
use crate::worker::SpawnTarget;

/// The default time limit for the answer to a request. Engines have their own, shorter deadlines
/// with better error messages; this one is the last resort.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The range of that limit.
const MIN_ANSWER_WITHIN: Duration = Duration::from_millis(10);
const MAX_ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The options of a client.
#[derive(Default)]
pub struct ClientOptions {
    clock: Option<Arc<dyn Clock>>,
    entropy: Option<Box<dyn Entropy + Send>>,
    drift_ppm: Option<u32>,
    telemetry: Telemetry,
    holder: Option<HolderFields>,
    lease_duration: Option<Duration>,
    answer_within: Option<Duration>,
    target: SpawnTarget,
}

/// Who learns what happens to the client's locks, and under which labels.
#[derive(Default)]
struct Telemetry {
    observer: Option<Arc<dyn Observer>>,
    class_rule: Option<class::Rule>,
    quorum_health: Option<HealthFeed>,
    #[cfg(feature = "metrics")]
    metrics: bool,
}

impl ClientOptions {
    /// Sets the clock that measures leases; the machine's own unless set, of the kind that the
    /// engine requires.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> ClientOptions {
        self.clock = Some(clock);
        self
    }

    /// Sets the source of lease ids; a generator seeded by the machine unless set. Lease ids are
    /// proofs: use a predictable source in tests only.
    #[must_use]
    pub fn with_entropy(mut self, entropy: impl Entropy + Send + 'static) -> ClientOptions {
        self.entropy = Some(Box::new(entropy));
        self
    }

    /// Sets by how much the rates of this clock and the store's may differ, in parts per million; 1
    /// % unless set.
    #[must_use]
    pub fn with_drift_ppm(mut self, drift_ppm: u32) -> ClientOptions {
        self.drift_ppm = Some(drift_ppm);
        self
    }

    /// Adds an observer, which receives the events of the client's locks.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> ClientOptions {
        self.telemetry.observer = Some(match self.telemetry.observer.take() {
            Some(first) => Arc::new(Both(first, observer)),
            None => observer,
        });
        self
    }

    /// Sets the rule that gives the class of a lock whose options name none; `None` is the class
    /// `default`. Metrics are labelled with the class, never with the name
    /// ([`LockOptions::with_class`](crate::LockOptions::with_class)).
    #[must_use]
    pub fn with_class_rule(
        mut self,
        rule: impl Fn(&LockName) -> Option<String> + Send + Sync + 'static,
    ) -> ClientOptions {
        self.telemetry.class_rule = Some(Box::new(rule));
        self
    }

    /// Passes the reports of a quorum's engine to the observers ([`Observer::quorum_health`]). A
    /// client that is made from a URL does so by itself; this is for an engine that you made, such
    /// as `redlock::QuorumEngine`, and its `health()`.
    #[must_use]
    pub fn with_quorum_health(mut self, feed: HealthFeed) -> ClientOptions {
        self.telemetry.quorum_health = Some(feed);
        self
    }

    /// Does the same for an engine that was made from a URL, if it is a quorum.
    pub(crate) fn with_quorum_health_of(self, connected: &Connected) -> ClientOptions {
        match &connected.health {
            Some(feed) => self.with_quorum_health(feed.clone()),
            None => self,
        }
    }

    /// Records metrics by the facade crate `metrics`, for the recorder that is installed in this
    /// process when the client is made; see [`metrics`](crate::metrics).
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn with_metrics(mut self) -> ClientOptions {
        self.telemetry.metrics = true;
        self
    }

    /// Sets what holders report about themselves; host, process id, user and program unless set.
    #[must_use]
    pub fn with_holder(mut self, holder: HolderFields) -> ClientOptions {
        self.holder = Some(holder);
        self
    }

    /// Sets the lease of locks that name none; [`DEFAULT_LEASE`](lease::DEFAULT_LEASE) unless set.
    #[must_use]
    pub fn with_lease_duration(mut self, lease_duration: Duration) -> ClientOptions {
        self.lease_duration = Some(lease_duration);
        self
    }

    /// Sets how long a request may go unanswered before it is repeated (three times at most) or
    /// given up, from 10 ms to 60 s; 10 s unless set. Keep it longer than the engine's own
    /// deadlines.
    #[must_use]
    pub fn with_answer_within(mut self, answer_within: Duration) -> ClientOptions {
        self.answer_within = Some(answer_within);
        self
    }

    /// Runs the background work, and the connection of
    /// [`Client::connect_with`](crate::Client::connect_with), on threads of their own even inside a
    /// runtime.
    ///
    /// Leases are then renewed even while something blocks the runtime's threads. Use it if tasks
    /// may block them for longer than half a lease; each request crosses between two threads for
    /// that.
    #[must_use]
    pub fn with_own_thread(mut self, own_thread: bool) -> ClientOptions {
        self.target = if own_thread { SpawnTarget::OwnThread } else { SpawnTarget::Caller };
        self
    }

    /// Passes the background work to the caller, who runs it until it ends: for simulators, and for
    /// executors other than tokio's. If the caller drops it earlier, nothing is renewed, released
    /// or given up any more.
    #[must_use]
    pub fn with_spawner(
        mut self,
        spawner: impl FnOnce(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + 'static,
    ) -> ClientOptions {
        self.target = SpawnTarget::Spawner(Box::new(spawner));
        self
    }

    /// Returns whether the background work runs on a thread of its own.
    pub(crate) fn has_own_thread(&self) -> bool {
        matches!(self.target, SpawnTarget::OwnThread)
    }

    /// Checks the options and starts the background work.
    pub(crate) fn build(self, engine: Arc<dyn Engine>) -> Result<Core, LockError> {
        let capabilities = engine.capabilities().clone();
        let name = capabilities.engine;
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            let message = format!("{what}: {error}");
            LockError::new(
                name,
                ErrorKind::Refused { message },
                holdline_core::Certainty::NotApplied,
            )
        };
        let drift_ppm = self.drift_ppm.unwrap_or(lease::DEFAULT_DRIFT_PPM);
        let lease_duration =
            self.lease_duration.unwrap_or_else(|| lease::DEFAULT_LEASE.min(capabilities.lease.max));
        LeaseTerms::new(lease_duration, None, drift_ppm)
            .map_err(|error| LockError::invalid(name, "lease_duration", error))?;
        let answer_within = self.answer_within.unwrap_or(ANSWER_WITHIN);
        if !(MIN_ANSWER_WITHIN..=MAX_ANSWER_WITHIN).contains(&answer_within) {
            let message = format_args!("must be from 10ms to 60s, not {answer_within:?}");
            return Err(LockError::invalid(name, "answer_within", message));
        }
        let holder = self.holder.unwrap_or_else(process::this_process);
        Metadata::new(&holder).map_err(|error| LockError::invalid(name, "metadata", error))?;
        let clock = match self.clock {
            Some(clock) => clock,
            None => Arc::new(
                SystemClock::new(capabilities.clock)
                    .map_err(|error| refused("the machine gives no timer", &error))?,
            ),
        };
        let entropy = match self.entropy {
            Some(entropy) => entropy,
            None => Box::new(
                SystemEntropy::new()
                    .map_err(|error| refused("the machine gives no randomness", &error))?,
            ),
        };
        let entropy = Source::new(entropy);
        let Telemetry { observer, class_rule, quorum_health, .. } = self.telemetry;
        #[cfg(feature = "metrics")]
        let (engine, observer) = if self.telemetry.metrics {
            crate::metrics::attach(engine, observer, clock.clone())
        } else {
            (engine, observer)
        };
        let classes = Classes::new(class_rule);
        let parts = Parts { engine, clock, entropy, observer, drift_ppm, answer_within };
        let state = Arc::new(ClientState::new(parts));
        if let Some(feed) = quorum_health {
            state.observe_quorum(&feed);
        }
        worker::start(&state, self.target)
            .map_err(|error| refused("the machine gives no thread", &error))?;
        Ok(Core { state, holder, lease_duration, nests: Nests::default(), classes })
    }
}

crate::debug::debug_of!(ClientOptions, |it|
    drift_ppm: it.drift_ppm, holder: it.holder, lease_duration: it.lease_duration,
    answer_within: it.answer_within, own_thread: it.has_own_thread()
);
