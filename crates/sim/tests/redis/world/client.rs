//! The clients: random attempts, each recorded before and after.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, Guard, LockError, LockOptions};
use holdline_core::{Clock, Mode};
use parking_lot::Mutex;

use super::recorder::SharedRecorder;
use super::rng::SeededRng;
use super::tasks::{Process, Spawner};

pub(crate) const RWLOCK: &str = "rw";
pub(crate) const SEMAPHORE: &str = "sem";
pub(crate) const NAMES: [&str; 4] = ["m1", "m2", RWLOCK, SEMAPHORE];
const PERMITS: u32 = 3;
/// How much later than its own limit a wait may end: the request under way, the undo, and how
/// long a connection is waited for.
const SLACK: Duration = Duration::from_secs(5);
/// The time limit of a `try` or a release.
const MAX_CALL_TIME: Duration = Duration::from_secs(14);

/// A task of a process that acquires locks.
pub(crate) struct Actor {
    pub(crate) process: Process,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: SharedRecorder,
    pub(crate) spawner: Spawner,
    pub(crate) rng: Arc<Mutex<SeededRng>>,
    pub(crate) longest_lease: Option<Duration>,
}

/// Removes the attempt from the recorder when its future is dropped.
struct AttemptGuard<'a>(&'a Actor, u64);

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        self.0.recorder.lock().end(self.0.clock.now(), self.1, "dropped");
    }
}

impl Actor {
    fn roll<T>(&self, draw: impl FnOnce(&mut SeededRng) -> T) -> T {
        draw(&mut self.rng.lock())
    }

    async fn idle(&self, least_ms: u64, most_ms: u64) {
        let pause = self.roll(|rng| rng.between(least_ms, most_ms));
        // event: the world's own time, which jumps.
        self.clock.sleep_until(self.clock.now().after(pause)).await;
    }

    /// Wants locks until the world stops.
    pub(crate) async fn live(self) {
        while !self.recorder.lock().stopping {
            self.idle(1, 700).await;
            if let Some((number, guard)) = self.one_attempt().await {
                self.hold(number, guard).await;
            }
        }
    }

    async fn one_attempt(&self) -> Option<(u64, Guard)> {
        let seconds = self.roll(|rng| rng.one_of(&[2, 3, 10, 30]));
        let wait = self.roll(|rng| rng.between(50, 12_000));
        let max_hold = self.roll(|rng| rng.between(2_000, 9_000));
        let lease = Duration::from_secs(seconds);
        let lease = self.longest_lease.map_or(lease, |longest| lease.min(longest));
        let options = LockOptions::default()
            .with_lease_duration(lease)
            .with_wait(wait)
            .with_max_hold(max_hold);
        let patience = self.roll(|rng| {
            let most = rng.one_of(&[20, 400, 4_000]);
            rng.percent(25).then(|| rng.between(1, most))
        });
        let attempt = self.ask(&options, wait);
        let Some(patience) = patience else { return attempt.await };
        let end = self.clock.now().after(patience);
        tokio::select! {
            biased;
            done = attempt => done,
            () = self.clock.sleep_until(end) => None,
        }
    }

    async fn ask(&self, options: &LockOptions, wait: Duration) -> Option<(u64, Guard)> {
        let name =
            self.roll(|rng| rng.one_of(&["m1", "m1", "m1", "m2", RWLOCK, RWLOCK, SEMAPHORE]));
        let tries = self.roll(|rng| rng.percent(20));
        let reads = self.roll(|rng| rng.percent(60));
        let count = self.roll(|rng| 1 + rng.below(2)) as u32;
        let within = if tries { MAX_CALL_TIME } else { wait.saturating_add(SLACK) };
        let what = if tries { "try" } else { "wait" };
        let begun = self.recorder.lock().begin(self.clock.now(), self.process, name, what, within);
        let begun = AttemptGuard(self, begun);
        let client = &self.client;
        let outcome: Result<Guard, LockError> = async {
            match name {
                RWLOCK => {
                    let lock = client.rwlock_with(name, options)?;
                    match (tries, reads) {
                        (true, true) => lock.try_read().await,
                        (true, false) => lock.try_write().await,
                        (false, true) => lock.read().await,
                        (false, false) => lock.write().await,
                    }
                }
                SEMAPHORE => {
                    let lock = client.semaphore_with(name, PERMITS, options)?;
                    match tries {
                        true => lock.try_acquire_many(count).await,
                        false => lock.acquire_many(count).await,
                    }
                }
                _ => {
                    let lock = client.mutex_with(name, options)?;
                    if tries { lock.try_lock().await } else { lock.lock().await }
                }
            }
        }
        .await;
        let (now, number) = (self.clock.now(), begun.1);
        let mut recorder = self.recorder.lock();
        match outcome {
            Ok(guard) => {
                let mode: Mode = guard.mode();
                recorder.grant(now, number, mode, guard.held(), guard.lease_id().to_hex());
                drop(recorder);
                self.listen(number, &guard);
                Some((number, guard))
            }
            Err(error) => {
                let certainty = error.certainty();
                recorder.end(now, number, &format!("{} ({certainty:?})", word(&error)));
                None
            }
        }
    }

    /// Records when the loss of a grant is reported.
    fn listen(&self, number: u64, guard: &Guard) {
        let (held, recorder, clock) = (guard.held(), self.recorder.clone(), self.clock.clone());
        let process = self.process;
        self.spawner.spawn(
            process,
            Box::pin(async move {
                let reason = held.lost().await;
                let mut recorder = recorder.lock();
                if let Some(hold) = recorder.holds.get_mut(&number) {
                    hold.is_loss_reported = true;
                    recorder.note(clock.now(), &format!("{process} has lost #{number}: {reason}"));
                }
            }),
        );
    }

    async fn hold(&self, number: u64, guard: Guard) {
        let long = self.roll(|rng| rng.percent(25));
        if long {
            self.idle(1_000, 7_000).await;
        } else {
            self.idle(1, 250).await;
        }
        let how = self.roll(|rng| rng.below(100));
        let now = self.clock.now();
        if how < 4 {
            // Nobody has it any more; its longest hold ends it.
            self.recorder.lock().note(now, &format!("{} forgets #{number}", self.process));
            std::mem::forget(guard);
            return;
        }
        if how < 25 {
            self.recorder.lock().released(now, number, "drops");
            return drop(guard);
        }
        let name = guard.name().as_str();
        let name = NAMES.into_iter().find(|known| *known == name).unwrap_or("m1");
        let ending = {
            let mut recorder = self.recorder.lock();
            recorder.released(now, number, "releases");
            let begun = recorder.begin(now, self.process, name, "release", MAX_CALL_TIME);
            drop(recorder);
            AttemptGuard(self, begun)
        };
        let outcome = guard.release().await;
        let how = match outcome {
            holdline::ReleaseOutcome::Released { confirmed, .. } => {
                format!("released, confirmed: {confirmed}")
            }
            other => format!("{other:?}"),
        };
        self.recorder.lock().end(self.clock.now(), ending.1, &how);
    }
}

/// What went wrong, without what differs between two runs.
fn word(error: &LockError) -> String {
    let text = format!("{:?}", error.kind());
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}
