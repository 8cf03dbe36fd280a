//! Every request and every reply lost, one at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline::clock::{Clock, ManualClock, Moment};
use holdline::{Client, Held, LockError, LockOptions, ReleaseOutcome};
use parking_lot::Mutex;

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{drive, engine, look, options, settle};

const NAME: &str = "a";
const HOLD: Duration = Duration::from_secs(25);

/// What is seen during one run.
#[derive(Default)]
struct Seen {
    held: Mutex<Vec<Held>>,
    both: AtomicUsize,
    outcomes: Mutex<Vec<Result<ReleaseOutcome, LockError>>>,
    /// When each got the name, and when each began to release it.
    got: Mutex<Vec<(Moment, Moment)>>,
}

impl Seen {
    /// Looks whether two holders believe at once.
    fn look(&self) {
        let believing = self.held.lock().iter().filter(|held| held.is_valid()).count();
        if believing > 1 {
            self.both.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One contender: waits, holds for some renewals, releases.
async fn contend(client: Client, clock: ManualClock, seen: Arc<Seen>) {
    let options = LockOptions::default().with_wait(Duration::from_secs(120));
    let mutex = client.mutex_with(NAME, &options).expect("fits");
    let guard = match mutex.lock().await {
        Ok(guard) => guard,
        Err(error) => return seen.outcomes.lock().push(Err(error)),
    };
    let got = clock.now();
    seen.held.lock().push(guard.held());
    seen.look();
    let end = clock.now().after(HOLD);
    while clock.now() < end {
        clock.sleep_until(clock.now().after(Duration::from_millis(500)).min(end)).await;
        seen.look();
    }
    seen.got.lock().push((got, clock.now()));
    let outcome = guard.release().await;
    seen.outcomes.lock().push(Ok(outcome));
}

/// Two contenders of two clients over one line; returns how many calls of each kind there were.
/// A message that is lost without an error (`silent`) costs as long as answers are waited for.
async fn run(
    silent: bool,
    repeat: bool,
    deaf: bool,
    judge: impl Fn(Call, usize) -> Fate + Send + Sync + 'static,
) -> BTreeMap<Call, usize> {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner).with_capabilities(|can| can.repeat = repeat);
    let seen = Arc::new(Seen::default());
    let clients: Vec<Client> = (1..=2)
        .map(|seed| {
            Client::with_options(Arc::new(faulty.clone()), options(&clock, seed)).expect("a client")
        })
        .collect();
    faulty.line.deaf.store(deaf, Ordering::Relaxed);
    faulty.line.judge(judge);
    let contenders: Vec<_> =
        clients.iter().map(|client| contend(client.clone(), clock.clone(), seen.clone())).collect();
    drive(&clock, async { futures_util::future::join_all(contenders).await }).await;
    assert_eq!(seen.outcomes.lock().len(), 2);
    assert_eq!(seen.both.load(Ordering::Relaxed), 0, "two believed at once");
    for outcome in seen.outcomes.lock().iter() {
        let good = matches!(outcome, Ok(ReleaseOutcome::Released { .. }));
        assert!(good, "one lost message cost a lock: {outcome:?}");
    }
    let waited = {
        let got = seen.got.lock();
        got[0].1.until(got[1].0)
    };
    let limit = if silent { Duration::from_secs(25) } else { Duration::from_millis(1_500) };
    assert!(waited <= limit, "the next one waited {waited:?}");
    // Whatever happened, nothing is left once the janitors are done.
    faulty.line.judge(|_, _| Fate::Good);
    for client in &clients {
        let client = client.clone();
        let report =
            drive(&clock, async move { client.shutdown(Duration::from_secs(60)).await }).await;
        assert!(report.is_clean(), "{report:?}");
    }
    settle().await;
    let left = look(&clients[0], NAME).await;
    assert_eq!((left.holder_count, left.queue_length), (0, 0), "{left:?}");
    let calls = faulty.line.calls.lock();
    let mut counts = BTreeMap::new();
    for call in calls.iter() {
        *counts.entry(*call).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn every_message_can_be_lost_once() {
    lose_each(true).await;
}

#[tokio::test]
async fn every_message_can_be_lost_once_where_an_unknown_id_is_dead() {
    lose_each(false).await;
}

async fn lose_each(repeat: bool) {
    // Without messages the heartbeat finds the hand-off, and the store is asked again.
    for deaf in [false, true] {
        lose_each_of(repeat, deaf).await;
    }
}

async fn lose_each_of(repeat: bool, deaf: bool) {
    let good = run(false, repeat, deaf, |_, _| Fate::Good).await;
    assert_eq!(good.contains_key(&Call::Again), deaf, "a message needs no request");
    for call in [Call::Acquire, Call::Again, Call::Renew, Call::Beat, Call::Release] {
        if call == Call::Again && !deaf {
            continue;
        }
        let count = good.get(&call).copied().unwrap_or_default();
        assert!(count > 0, "the run has no {call:?}");
        for number in 0..count {
            for fate in Fate::BAD {
                // A first request that was certainly not carried out is the caller's to repeat.
                if fate == Fate::Unavailable && call == Call::Acquire {
                    continue;
                }
                let judge = move |seen, at| {
                    if (seen, at) == (call, number) { fate } else { Fate::Good }
                };
                println!("deaf {deaf}: {call:?} {number} {fate:?}");
                let silent = matches!(fate, Fate::RequestLost | Fate::ReplyLost);
                run(silent, repeat, deaf, judge).await;
            }
        }
    }
}
