//! The clients: random attempts, whose holders write to a fenced store.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, Guard, LockError, LockOptions, ReleaseOutcome};
use holdline_core::Clock;

use super::recorder::SharedRecorder;
use super::run::{MENDED, PEACE, at};
use super::stress::Stress;
use crate::world::rng::SeededRng;
use crate::world::tasks::Process;

pub(crate) const NAMES: [&str; 12] =
    ["m1", "m2", "m3", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9"];
/// The number of names that all clients want.
pub(crate) const CONTENDED: usize = 3;
/// How much later than its own limit a wait may end: the running request, its undo, and the time of
/// a first look.
const SLACK: Duration = Duration::from_secs(6);
/// How long a leaked guard keeps its name; no guard is leaked when everything must recover.
const LONGEST_HOLD: Duration = Duration::from_secs(20);
/// The time limit of a `try` or a release.
const MAX_CALL_TIME: Duration = Duration::from_secs(14);

/// A task of a process that acquires locks.
pub(crate) struct Actor {
    /// The name that it mostly wants, if each task has its own.
    pub(crate) own: Option<&'static str>,
    pub(crate) stress: Option<Stress>,
    pub(crate) process: Process,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: SharedRecorder,
    pub(crate) rng: SeededRng,
}

/// Removes the attempt from the recorder when its future is dropped.
struct AttemptGuard {
    recorder: SharedRecorder,
    clock: Arc<dyn Clock>,
    number: u64,
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        self.recorder.lock().end(self.clock.now(), self.number, format_args!("dropped"));
    }
}

impl Actor {
    async fn idle(&mut self, least_ms: u64, most_ms: u64) {
        let pause = self.rng.between(least_ms, most_ms);
        // event: the world's own time, which jumps.
        self.clock.sleep_until(self.clock.now().after(pause)).await;
    }

    fn attempting(&self, name: &'static str, what: &'static str, within: Duration) -> AttemptGuard {
        let (recorder, clock) = (self.recorder.clone(), self.clock.clone());
        let number = recorder.lock().begin(clock.now(), self.process, (name, what), within);
        AttemptGuard { recorder, clock, number }
    }

    /// Acquires locks until the world stops.
    pub(crate) async fn live(mut self) {
        while !self.recorder.lock().stopping {
            let most = match self.own {
                Some(_) => self.rng.one_of(&[2, 2, 2, 20, 300]),
                None => self.rng.one_of(&[20, 300, 2_000]),
            };
            self.idle(1, most).await;
            if let Some((number, name, guard)) = self.one_attempt().await {
                self.hold(number, name, guard).await;
            }
        }
    }

    async fn one_attempt(&mut self) -> Option<(u64, &'static str, Guard)> {
        let leases = self.stress.map_or(&[1, 2, 5, 10][..], |stress| stress.leases_s);
        let seconds = self.rng.one_of(leases);
        let wait = self.rng.between(50, 8_000);
        let max_hold = self.rng.between(2_000, 20_000);
        let options = LockOptions::default()
            .with_lease_duration(Duration::from_secs(seconds))
            .with_wait(wait)
            .with_max_hold(max_hold);
        let chance = self.stress.map_or(15, |stress| stress.drops);
        let (most, drops) = (self.rng.one_of(&[4, 40, 400]), self.rng.percent(chance));
        let patience = self.rng.between(0, most);
        let attempt = self.ask(&options, wait);
        if !drops {
            return attempt.await;
        }
        let clock = self.clock.clone();
        tokio::select! {
            biased;
            done = attempt => done,
            () = clock.sleep_until(clock.now().after(patience)) => None,
        }
    }

    fn ask(
        &mut self,
        options: &LockOptions,
        wait: Duration,
    ) -> impl Future<Output = Option<(u64, &'static str, Guard)>> + use<> {
        let name = match self.own {
            None if let Some(stress) = self.stress => self.rng.one_of(stress.names),
            Some(own) if self.rng.percent(97) => own,
            Some(_) => self.rng.one_of(&NAMES),
            None => self.rng.one_of(&["m1", "m1", "m1", "m2", "m2", "m3"]),
        };
        let tries = self.rng.percent(30);
        let what = if tries { "try" } else { "wait" };
        let within = if tries { MAX_CALL_TIME } else { wait.saturating_add(SLACK) };
        let begun = self.attempting(name, what, within);
        let lock = self.client.mutex_with(name, options);
        async move {
            let outcome: Result<Guard, LockError> = async {
                let lock = lock?;
                if tries { lock.try_lock().await } else { lock.lock().await }
            }
            .await;
            let now = begun.clock.now();
            let mut recorder = begun.recorder.lock();
            match outcome {
                Ok(guard) => {
                    recorder.grant(now, begun.number, guard.held());
                    drop(recorder);
                    Some((begun.number, name, guard))
                }
                Err(error) => {
                    let certainty = error.certainty();
                    let text = format!("{:?}", error.kind());
                    let word: String =
                        text.chars().take_while(char::is_ascii_alphanumeric).collect();
                    recorder.end(now, begun.number, format_args!("{word} ({certainty:?})"));
                    None
                }
            }
        }
    }

    /// Reads the fenced store, and writes the value plus one.
    async fn work(&mut self, name: &'static str, token: u64) {
        let most = if self.own.is_some() { 2 } else { 4 };
        for _ in 0..self.rng.below(most) {
            self.idle(0, 8).await;
            let Some(value) = self.recorder.lock().read(name, token) else { return };
            self.idle(0, 20).await;
            if !self.recorder.lock().write(name, token, value + 1) {
                return;
            }
            self.idle(0, 8).await;
            self.recorder.lock().acknowledge(self.clock.now(), name, token);
        }
    }

    async fn hold(&mut self, number: u64, name: &'static str, guard: Guard) {
        let token = guard.fencing_token().get();
        self.work(name, token).await;
        // Without faults, the lock passes to others soon.
        let long = match self.stress {
            Some(stress) if self.clock.now() < at(PEACE) => stress.long,
            Some(_) => 0,
            None if self.own.is_some() => 1,
            None => 10,
        };
        if self.rng.percent(long) {
            self.idle(500, 12_000).await;
            self.work(name, token).await;
        } else {
            self.idle(0, if self.own.is_some() { 5 } else { 60 }).await;
        }
        let how = self.rng.below(100);
        let now = self.clock.now();
        if how < 2 && self.own.is_none() && now < at(MENDED).before(LONGEST_HOLD) {
            // The guard is leaked; its longest hold time ends it.
            self.recorder.lock().note(now, format_args!("{} forgets #{number}", self.process));
            std::mem::forget(guard);
            return;
        }
        if how < 20 {
            self.recorder.lock().released(now, number, "drops");
            return drop(guard);
        }
        self.recorder.lock().released(now, number, "releases");
        let ending = self.attempting(name, "release", MAX_CALL_TIME);
        let outcome = guard.release().await;
        let mut recorder = self.recorder.lock();
        let now = self.clock.now();
        match outcome {
            ReleaseOutcome::Released { confirmed, .. } => {
                recorder.end(now, ending.number, format_args!("released, confirmed: {confirmed}"));
            }
            other => recorder.end(now, ending.number, format_args!("{other:?}")),
        }
    }
}
