//! What clients do: random attempts, each written down before and after.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, Guard, LockError, LockOptions};
use holdline_core::{Clock, Mode};
use parking_lot::Mutex;

use super::book::SharedBook;
use super::dice::Dice;
use super::tasks::{Process, Spawner};

pub(crate) const RWLOCK: &str = "rw";
pub(crate) const SEMAPHORE: &str = "sem";
pub(crate) const NAMES: [&str; 4] = ["m1", "m2", RWLOCK, SEMAPHORE];
const PERMITS: u32 = 3;
/// How much later than its own limit a wait may end: the request under way, the undo, and how
/// long a connection is waited for.
const SLACK: Duration = Duration::from_secs(5);
/// How long a `try` or a release may take at most.
const PATIENCE: Duration = Duration::from_secs(14);

/// One of a process's tasks that want locks.
pub(crate) struct Actor {
    pub(crate) process: Process,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) book: SharedBook,
    pub(crate) spawner: Spawner,
    pub(crate) dice: Arc<Mutex<Dice>>,
}

/// Takes the attempt off the book when its future is dropped.
struct Attempting<'a>(&'a Actor, u64);

impl Drop for Attempting<'_> {
    fn drop(&mut self) {
        self.0.book.lock().end(self.0.clock.now(), self.1, "dropped");
    }
}

impl Actor {
    fn roll<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        draw(&mut self.dice.lock())
    }

    async fn idle(&self, least_ms: u64, most_ms: u64) {
        let pause = self.roll(|dice| dice.between(least_ms, most_ms));
        // event: the world's own time, which jumps.
        self.clock.sleep_until(self.clock.now().after(pause)).await;
    }

    /// Wants locks until the world stops.
    pub(crate) async fn live(self) {
        while !self.book.lock().stopping {
            self.idle(1, 700).await;
            if let Some((number, guard)) = self.one_attempt().await {
                self.hold(number, guard).await;
            }
        }
    }

    async fn one_attempt(&self) -> Option<(u64, Guard)> {
        let seconds = self.roll(|dice| dice.one_of(&[2, 3, 10, 30]));
        let wait = self.roll(|dice| dice.between(50, 12_000));
        let max_hold = self.roll(|dice| dice.between(2_000, 9_000));
        let options = LockOptions::default()
            .with_lease_duration(Duration::from_secs(seconds))
            .with_wait(wait)
            .with_max_hold(max_hold);
        let patience = self.roll(|dice| {
            let most = dice.one_of(&[20, 400, 4_000]);
            dice.percent(25).then(|| dice.between(1, most))
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
            self.roll(|dice| dice.one_of(&["m1", "m1", "m1", "m2", RWLOCK, RWLOCK, SEMAPHORE]));
        let tries = self.roll(|dice| dice.percent(20));
        let reads = self.roll(|dice| dice.percent(60));
        let count = self.roll(|dice| 1 + dice.below(2)) as u32;
        let within = if tries { PATIENCE } else { wait.saturating_add(SLACK) };
        let what = if tries { "try" } else { "wait" };
        let begun = self.book.lock().begin(self.clock.now(), self.process, name, what, within);
        let begun = Attempting(self, begun);
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
        let mut book = self.book.lock();
        match outcome {
            Ok(guard) => {
                let mode: Mode = guard.mode();
                book.grant(now, number, mode, guard.held(), guard.lease_id().to_hex());
                drop(book);
                self.listen(number, &guard);
                Some((number, guard))
            }
            Err(error) => {
                let certainty = error.certainty();
                book.end(now, number, &format!("{} ({certainty:?})", word(&error)));
                None
            }
        }
    }

    /// Writes down when the loss of a grant is told.
    fn listen(&self, number: u64, guard: &Guard) {
        let (held, book, clock) = (guard.held(), self.book.clone(), self.clock.clone());
        let process = self.process;
        self.spawner.spawn(
            process,
            Box::pin(async move {
                let reason = held.lost().await;
                let mut book = book.lock();
                if let Some(hold) = book.holds.get_mut(&number) {
                    hold.told = true;
                    book.note(clock.now(), &format!("{process} has lost #{number}: {reason}"));
                }
            }),
        );
    }

    async fn hold(&self, number: u64, guard: Guard) {
        let long = self.roll(|dice| dice.percent(25));
        if long {
            self.idle(1_000, 7_000).await;
        } else {
            self.idle(1, 250).await;
        }
        let how = self.roll(|dice| dice.below(100));
        let now = self.clock.now();
        if how < 4 {
            // Nobody has it any more; its longest hold ends it.
            self.book.lock().note(now, &format!("{} forgets #{number}", self.process));
            std::mem::forget(guard);
            return;
        }
        if how < 25 {
            self.book.lock().let_go(now, number, "drops");
            return drop(guard);
        }
        let name = guard.name().as_str();
        let name = NAMES.into_iter().find(|known| *known == name).unwrap_or("m1");
        let ending = {
            let mut book = self.book.lock();
            book.let_go(now, number, "releases");
            let begun = book.begin(now, self.process, name, "release", PATIENCE);
            drop(book);
            Attempting(self, begun)
        };
        let outcome = guard.release().await;
        let how = match outcome {
            holdline::ReleaseOutcome::Released { confirmed, .. } => {
                format!("released, confirmed: {confirmed}")
            }
            other => format!("{other:?}"),
        };
        self.book.lock().end(self.clock.now(), ending.1, &how);
    }
}

/// What went wrong, without what differs between two runs.
fn word(error: &LockError) -> String {
    let text = format!("{:?}", error.kind());
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}
