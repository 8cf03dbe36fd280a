//! Follows a store, and keeps what it has seen of it: the names of the last round, and the history.
//!
//! - N1: a round lists at most [`MOST_NAMES`] names and [`MOST_ENTRIES`] holders and waiters, and
//!   all rounds take at most [`SHARE`] per cent of the time.
//! - N2: the pause between two rounds is [`PAUSE`] while a page is open, and [`IDLE_PAUSE`]
//!   otherwise. A page counts as open until [`OPEN_FOR`] after it was loaded or had an event. When
//!   a page is loaded and the last round is older than [`FRESH`], the next one begins at once.
//! - N3: a round that has begun is never given up for another one, however often pages are loaded.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use holdline::Client;
use holdline::watch::{Coverage, NamePattern, Round, StoreWatch, WatchOptions};
use holdline_server::Problem;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::history::{History, Row};

const MOST_NAMES: usize = 20_000;
const MOST_ENTRIES: usize = 100_000;
const SHARE: u32 = 10;
const PAUSE: Duration = Duration::from_secs(2);
const IDLE_PAUSE: Duration = Duration::from_secs(15);
const OPEN_FOR: Duration = Duration::from_secs(60);
/// How old the last round may be when a page is loaded, and how old if it has failed.
const FRESH: Duration = Duration::from_millis(500);
const FRESH_FAILURE: Duration = PAUSE;
/// How long a page waits for a newer round.
const ROUND_TIMEOUT: Duration = Duration::from_millis(250);

/// Looks at a store in rounds, and keeps what it has seen. Clones are the same one.
#[derive(Clone)]
pub(crate) struct StoreFollower(Arc<FollowerParts>);

struct FollowerParts {
    view: RwLock<Arc<View>>,
    history: RwLock<History>,
    looked: Mutex<Instant>,
    /// When the last round ended, complete or not, and how long it took.
    tried: Mutex<Option<(Instant, Duration)>>,
    /// Somebody looks: ends the pause of [`IDLE_PAUSE`].
    wake: Notify,
    /// Somebody looks, and the last round is old: ends any pause.
    stale: Notify,
    /// A command of an operator: as `stale`, and a round in progress is followed by another one.
    hurry: Notify,
    rounds: watch::Sender<u64>,
}

/// The store as of the last complete round.
#[derive(Clone, Default)]
pub(crate) struct View {
    /// When it was complete; `None`: no round is complete yet.
    pub(crate) at: Option<SystemTime>,
    /// How long the store took for it.
    pub(crate) took: Duration,
    /// Whether there are more names than a round lists.
    pub(crate) is_partial: bool,
    /// Why rounds fail now.
    pub(crate) failing: Option<String>,
    pub(crate) rows: Arc<Vec<Row>>,
}

impl StoreFollower {
    /// Makes one, and the work that keeps it up to date.
    pub(crate) fn new(
        client: Client,
    ) -> (StoreFollower, impl Future<Output = ()> + Send + 'static) {
        let follower = StoreFollower(Arc::new(FollowerParts {
            view: RwLock::default(),
            history: RwLock::default(),
            looked: Mutex::new(Instant::now()),
            tried: Mutex::default(),
            wake: Notify::new(),
            stale: Notify::new(),
            hurry: Notify::new(),
            rounds: watch::Sender::new(0),
        }));
        let work = follower.clone().follow(client);
        (follower, work)
    }

    async fn follow(self, client: Client) {
        let options = WatchOptions::default()
            .with_interval(PAUSE)
            .with_max_share_percent(SHARE)
            .with_max_names(MOST_NAMES)
            .with_max_entries(MOST_ENTRIES);
        let mut watch = match StoreWatch::new(client, NamePattern::of_prefix(""), options) {
            Ok(watch) => watch,
            Err(error) => {
                let failing = Some(Problem::from(error).detail().to_owned());
                *self.0.view.write() = Arc::new(View { failing, ..View::default() });
                return;
            }
        };
        loop {
            tokio::select! {
                biased;
                () = self.0.hurry.notified() => watch.hurry(),
                () = self.0.stale.notified() => watch.hurry(),
                () = self.pause(&watch) => {}
            }
            let round = watch.next_round().await;
            self.publish(&watch, &round);
            *self.0.tried.lock() = Some((Instant::now(), round.took));
        }
    }

    /// Waits until the next round is due, and longer while nobody looks.
    async fn pause(&self, watch: &StoreWatch) {
        let woken = self.0.wake.notified();
        if self.0.looked.lock().elapsed() > OPEN_FOR {
            let _ = timeout(IDLE_PAUSE, woken).await;
        }
        watch.until_due().await;
    }

    fn publish(&self, watch: &StoreWatch, round: &Round) {
        let before = self.view();
        if let Some(failing) = &round.failing {
            // The store's own words go to the log, once for each outage.
            if before.failing.is_none() {
                let problem = Problem::from(&*failing.error);
                let view = View { failing: Some(problem.title().to_owned()), ..(*before).clone() };
                *self.0.view.write() = Arc::new(view);
                self.0.rounds.send_replace(round.number);
            }
            return;
        }
        let rows: Vec<Row> = watch.names().map(row).collect();
        self.0.history.write().record(round.at, &round.changes, &rows);
        let view = View {
            at: Some(round.at),
            took: round.took,
            is_partial: matches!(round.coverage, Some(Coverage::UpTo(_))),
            failing: None,
            rows: Arc::new(rows),
        };
        *self.0.view.write() = Arc::new(view);
        // Renewals and ages change all the time: each round is news for who looks.
        self.0.rounds.send_replace(round.number);
    }

    /// Returns the last complete round.
    pub(crate) fn view(&self) -> Arc<View> {
        self.0.view.read().clone()
    }

    /// Returns the last complete round; if it is old, waits a moment for a newer one.
    pub(crate) async fn fresh_view(&self) -> Arc<View> {
        self.looked_at();
        let mut rounds = self.rounds();
        let has_failed = self.view().failing.is_some();
        let is_old = self.0.tried.lock().is_none_or(|(at, took)| {
            // So that rounds take at most [`SHARE`] of the time, however often pages are loaded.
            let fresh = FRESH.max(took * (100 / SHARE));
            at.elapsed() > if has_failed { FRESH_FAILURE } else { fresh }
        });
        if is_old {
            self.0.stale.notify_waiters();
            let _ = timeout(ROUND_TIMEOUT, rounds.changed()).await;
        }
        self.view()
    }

    /// Returns the history. A page reads it while it is written, and keeps no other page waiting.
    pub(crate) fn history(&self) -> RwLockReadGuard<'_, History> {
        self.0.history.read()
    }

    /// Returns the number of the last round, and its changes.
    pub(crate) fn rounds(&self) -> watch::Receiver<u64> {
        self.0.rounds.subscribe()
    }

    /// Notes that somebody looks.
    pub(crate) fn looked_at(&self) {
        *self.0.looked.lock() = Instant::now();
        self.0.wake.notify_waiters();
    }

    /// Looks again soon, after a command of an operator, and waits for that a moment.
    pub(crate) async fn look_again(&self) {
        let mut rounds = self.rounds();
        self.0.hurry.notify_one();
        self.looked_at();
        let _ = timeout(ROUND_TIMEOUT, rounds.changed()).await;
    }
}

fn row(watched: &holdline::watch::WatchedName) -> Row {
    let lock = watched.snapshot().clone();
    let slack = lock.holders.iter().map(|holder| watched.slack(&holder.summary)).collect();
    Row { lock, slack }
}
