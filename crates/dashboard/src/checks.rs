//! Checks that ask the servers of a store, shared by all who look.
//!
//! - K1: of each check at most one runs at a time, and the next one begins when somebody looks and
//!   the last result is [`Check::lasts`] old. So many viewers cost a store no more than one.
//! - K2: a page waits [`RESULT_TIMEOUT`] for a result, and shows the one before, if any, after
//!   that.
//! - K3: a check that takes longer than [`LIMIT`] counts as ended without a result.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

#[cfg(feature = "redis")]
use holdline::redlock::QuorumStatus;
use holdline_core::Checkup;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

const RESULT_TIMEOUT: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(60);
/// How long the result of `doctor` lasts: it opens connections of its own.
const CHECKUP_LASTS: Duration = Duration::from_secs(30);
/// How long the state of a quorum lasts: it costs each server one round trip.
#[cfg(feature = "redis")]
const QUORUM_LASTS: Duration = Duration::from_secs(2);

/// The checks of one store. `Debug` is missing, since a URL may hold a password.
pub(crate) struct Checks {
    /// The URL without its password.
    pub(crate) url: String,
    pub(crate) checkup: Check<Checkup>,
    /// `None`: the store is no quorum.
    #[cfg(feature = "redis")]
    pub(crate) quorum: Option<Check<QuorumStatus>>,
}

impl Checks {
    pub(crate) fn new(url: &str) -> Checks {
        let shown = holdline::redact_url(url);
        #[cfg(feature = "redis")]
        let quorum = quorum(url);
        let url = url.to_owned();
        let checkup = Check::new(CHECKUP_LASTS, move || {
            let url = url.clone();
            // It may block on files.
            spawn_blocking(move || {
                let checkup = Handle::current().block_on(holdline::health::checkup(&url));
                checkup.map_err(|error| error.to_string())
            })
        });
        Checks {
            url: shown,
            checkup,
            #[cfg(feature = "redis")]
            quorum,
        }
    }

    pub(crate) fn has_quorum(&self) -> bool {
        #[cfg(feature = "redis")]
        return self.quorum.is_some();
        #[cfg(not(feature = "redis"))]
        false
    }
}

#[cfg(feature = "redis")]
fn quorum(url: &str) -> Option<Check<QuorumStatus>> {
    if !matches!(url.split_once("://"), Some(("redlock" | "redlocks", _))) {
        return None;
    }
    // One for all times: it keeps its connections.
    let admin = holdline::redlock::admin(url).map(Arc::new).map_err(|error| error.to_string());
    Some(Check::new(QUORUM_LASTS, move || {
        let admin = admin.clone();
        tokio::spawn(async move { Ok(admin?.status().await) })
    }))
}

type Start<T> = Box<dyn Fn() -> JoinHandle<Result<T, String>> + Send + Sync>;

/// One check and its last result.
pub(crate) struct Check<T> {
    lasts: Duration,
    start: Start<T>,
    state: Arc<watch::Sender<CheckState<T>>>,
}

struct CheckState<T> {
    is_running: bool,
    last: Option<Arc<Checked<T>>>,
}

/// The result of a check.
pub(crate) struct Checked<T> {
    pub(crate) result: Result<T, String>,
    pub(crate) at: SystemTime,
    ended: Instant,
}

impl<T: Send + Sync + 'static> Check<T> {
    fn new(
        lasts: Duration,
        start: impl Fn() -> JoinHandle<Result<T, String>> + Send + Sync + 'static,
    ) -> Check<T> {
        let state = Arc::new(watch::Sender::new(CheckState { is_running: false, last: None }));
        Check { lasts, start: Box::new(start), state }
    }

    /// Returns the last result, and `None` if there is none in time.
    pub(crate) async fn result(&self) -> Option<Arc<Checked<T>>> {
        let is_due = self.state.send_if_modified(|state| {
            let is_old = |last: &Arc<Checked<T>>| last.ended.elapsed() >= self.lasts;
            let is_due = !state.is_running && state.last.as_ref().is_none_or(is_old);
            state.is_running |= is_due;
            is_due
        });
        if is_due {
            let work = (self.start)();
            let state = self.state.clone();
            tokio::spawn(async move {
                // A check that panics has no result either.
                let result = timeout(LIMIT, work).await.ok().and_then(Result::ok);
                state.send_modify(|state| {
                    state.is_running = false;
                    if let Some(result) = result {
                        let at = SystemTime::now();
                        let ended = Instant::now();
                        state.last = Some(Arc::new(Checked { result, at, ended }));
                    }
                });
            });
        }
        let mut changes = self.state.subscribe();
        let _ = timeout(RESULT_TIMEOUT, changes.wait_for(|state| !state.is_running)).await;
        self.state.borrow().last.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    fn counted(count: &Arc<AtomicU32>, takes: Duration) -> Check<u32> {
        let count = count.clone();
        Check::new(Duration::from_secs(3600), move || {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            tokio::spawn(async move {
                tokio::time::sleep(takes).await; // event: virtual time
                Ok(number)
            })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn many_viewers_cost_one_check() {
        let count = Arc::default();
        let check = counted(&count, Duration::from_secs(1));
        let all = join_all((0..50).map(|_| check.result())).await;
        assert!(all.iter().flatten().all(|done| matches!(done.result, Ok(1))));
        assert_eq!(all.iter().flatten().count(), 50, "each viewer has the result");
        assert!(check.result().await.is_some(), "it lasts");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_check_keeps_no_page_and_a_dead_one_ends() {
        let count = Arc::default();
        let slow = counted(&count, RESULT_TIMEOUT * 3 / 2);
        assert!(slow.result().await.is_none(), "not in time");
        assert!(slow.result().await.is_some(), "the same check has ended");
        assert_eq!(count.load(Ordering::Relaxed), 1);

        let dead = counted(&count, Duration::from_secs(1_000_000));
        for _ in 0..LIMIT.as_secs() / RESULT_TIMEOUT.as_secs() + 2 {
            assert!(dead.result().await.is_none());
        }
        assert_eq!(count.load(Ordering::Relaxed), 3, "it was ended, and made again");
    }

    #[tokio::test]
    async fn a_check_that_panics_can_be_made_again() {
        let tries = Arc::new(AtomicU32::new(0));
        let counted = tries.clone();
        let check = Check::<()>::new(Duration::ZERO, move || {
            let tries = counted.clone();
            tokio::spawn(async move {
                assert!(tries.fetch_add(1, Ordering::Relaxed) > 0, "the first one panics");
                Ok(())
            })
        });
        assert!(check.result().await.is_none());
        assert!(check.result().await.is_some());
    }
}
