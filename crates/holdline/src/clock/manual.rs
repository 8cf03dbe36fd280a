//! A clock that a test moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdline_core::{Clock, Moment};
use parking_lot::Mutex;

use super::sleepers::{Sleep, Sleepers};

/// A clock that moves only when a test advances it. Clones show the same time.
///
/// Give one to the memory engine and to the client, and lease ends are instant:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use holdline::clock::ManualClock;
/// use holdline::memory::{MemoryEngine, MemoryOptions};
/// use holdline::{Client, ClientOptions};
///
/// let clock = ManualClock::new();
/// let engine = MemoryEngine::new("test", Arc::new(clock.clone()), &MemoryOptions::default());
/// let options = ClientOptions::default().with_clock(Arc::new(clock.clone()));
/// let client = Client::with_options(Arc::new(engine), options)?;
///
/// let guard = client.mutex("nightly")?.lock().await?;
/// clock.advance(Duration::from_secs(31));
/// assert!(!guard.is_valid());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<ManualState>);

#[derive(Debug, Default)]
struct ManualState {
    now: AtomicU64,
    sleepers: Mutex<Sleepers>,
}

impl ManualClock {
    /// Makes a clock at its origin.
    pub fn new() -> ManualClock {
        ManualClock::default()
    }

    /// Advances the clock and wakes the sleepers that are due.
    pub fn advance(&self, by: Duration) {
        let mut sleepers = self.0.sleepers.lock();
        let now = Moment::from_nanos(self.0.now.load(Ordering::SeqCst)).after(by);
        self.0.now.store(now.as_nanos(), Ordering::SeqCst);
        let due = sleepers.take_due(now);
        drop(sleepers);
        due.for_each(Waker::wake);
    }

    /// Returns the soonest wake-up, if there are sleepers.
    pub fn next_wake(&self) -> Option<Moment> {
        self.0.sleepers.lock().soonest()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.now.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(ManualSleep { hand: self.0.clone(), sleep: Sleep::until(at) })
    }
}

struct ManualSleep {
    hand: Arc<ManualState>,
    sleep: Sleep,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let hand = self.hand.clone();
        let mut sleepers = hand.sleepers.lock();
        if self.sleep.at.as_nanos() <= hand.now.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        sleepers.enter(&mut self.sleep, context.waker());
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        self.hand.sleepers.lock().leave(&self.sleep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_at_their_moment_and_leave_nothing() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep_until(Moment::ORIGIN.after(Duration::from_secs(2)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_secs(1));
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert!(clock.next_wake().is_some());
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.next_wake(), None);
        assert!(sleep.as_mut().poll(&mut context).is_ready());
        let mut dropped = clock.sleep_until(Moment::NEVER);
        assert!(dropped.as_mut().poll(&mut context).is_pending());
        drop(dropped);
        assert_eq!(clock.next_wake(), None);
    }
}
