//! What clients do: random attempts, and what they hold writes to a store that is fenced.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, Guard, LockError, LockOptions, ReleaseOutcome};
use holdline_core::Clock;

use super::book::SharedBook;
use super::heat::Heat;
use super::run::{MENDED, PEACE, at};
use crate::world::dice::Dice;
use crate::world::tasks::Process;

pub(crate) const NAMES: [&str; 12] =
    ["m1", "m2", "m3", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9"];
/// How many of them are wanted by all.
pub(crate) const CROWDED: usize = 3;
/// How much later than its own limit a wait may end: the request under way, its undo, and how
/// long a first look may take.
const SLACK: Duration = Duration::from_secs(6);
/// A guard that is forgotten keeps its name for so long: none is when all should mend.
const LONGEST_HOLD: Duration = Duration::from_secs(20);
/// How long a `try` or a release may take at most.
const PATIENCE: Duration = Duration::from_secs(14);

/// One of a process's tasks that want locks.
pub(crate) struct Actor {
    /// The name that it wants mostly, where each has its own.
    pub(crate) own: Option<&'static str>,
    pub(crate) heat: Option<Heat>,
    pub(crate) process: Process,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) book: SharedBook,
    pub(crate) dice: Dice,
}

/// Takes the attempt off the book when its future is dropped.
struct Attempting {
    book: SharedBook,
    clock: Arc<dyn Clock>,
    number: u64,
}

impl Drop for Attempting {
    fn drop(&mut self) {
        self.book.lock().end(self.clock.now(), self.number, format_args!("dropped"));
    }
}

impl Actor {
    async fn idle(&mut self, least_ms: u64, most_ms: u64) {
        let pause = self.dice.between(least_ms, most_ms);
        // event: the world's own time, which jumps.
        self.clock.sleep_until(self.clock.now().after(pause)).await;
    }

    fn attempting(&self, name: &'static str, what: &'static str, within: Duration) -> Attempting {
        let (book, clock) = (self.book.clone(), self.clock.clone());
        let number = book.lock().begin(clock.now(), self.process, (name, what), within);
        Attempting { book, clock, number }
    }

    /// Wants locks until the world stops.
    pub(crate) async fn live(mut self) {
        while !self.book.lock().stopping {
            let most = match self.own {
                Some(_) => self.dice.one_of(&[2, 2, 2, 20, 300]),
                None => self.dice.one_of(&[20, 300, 2_000]),
            };
            self.idle(1, most).await;
            if let Some((number, name, guard)) = self.one_attempt().await {
                self.hold(number, name, guard).await;
            }
        }
    }

    async fn one_attempt(&mut self) -> Option<(u64, &'static str, Guard)> {
        let leases = self.heat.map_or(&[1, 2, 5, 10][..], |heat| heat.leases_s);
        let seconds = self.dice.one_of(leases);
        let wait = self.dice.between(50, 8_000);
        let max_hold = self.dice.between(2_000, 20_000);
        let options = LockOptions::default()
            .with_lease_duration(Duration::from_secs(seconds))
            .with_wait(wait)
            .with_max_hold(max_hold);
        let chance = self.heat.map_or(15, |heat| heat.drops);
        let (most, drops) = (self.dice.one_of(&[4, 40, 400]), self.dice.percent(chance));
        let patience = self.dice.between(0, most);
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
            None if let Some(heat) = self.heat => self.dice.one_of(heat.names),
            Some(own) if self.dice.percent(97) => own,
            Some(_) => self.dice.one_of(&NAMES),
            None => self.dice.one_of(&["m1", "m1", "m1", "m2", "m2", "m3"]),
        };
        let tries = self.dice.percent(30);
        let what = if tries { "try" } else { "wait" };
        let within = if tries { PATIENCE } else { wait.saturating_add(SLACK) };
        let begun = self.attempting(name, what, within);
        let lock = self.client.mutex_with(name, options);
        async move {
            let outcome: Result<Guard, LockError> = async {
                let lock = lock?;
                if tries { lock.try_lock().await } else { lock.lock().await }
            }
            .await;
            let now = begun.clock.now();
            let mut book = begun.book.lock();
            match outcome {
                Ok(guard) => {
                    book.grant(now, begun.number, guard.held());
                    drop(book);
                    Some((begun.number, name, guard))
                }
                Err(error) => {
                    let certainty = error.certainty();
                    let text = format!("{:?}", error.kind());
                    let word: String =
                        text.chars().take_while(char::is_ascii_alphanumeric).collect();
                    book.end(now, begun.number, format_args!("{word} ({certainty:?})"));
                    None
                }
            }
        }
    }

    /// Reads and writes the fenced store: what it read is raised by one.
    async fn work(&mut self, name: &'static str, token: u64) {
        let most = if self.own.is_some() { 2 } else { 4 };
        for _ in 0..self.dice.below(most) {
            self.idle(0, 8).await;
            let Some(value) = self.book.lock().read(name, token) else { return };
            self.idle(0, 20).await;
            if !self.book.lock().write(name, token, value + 1) {
                return;
            }
            self.idle(0, 8).await;
            self.book.lock().acknowledge(self.clock.now(), name, token);
        }
    }

    async fn hold(&mut self, number: u64, name: &'static str, guard: Guard) {
        let token = guard.fencing_token().get();
        self.work(name, token).await;
        // In peace others are to have it soon.
        let long = match self.heat {
            Some(heat) if self.clock.now() < at(PEACE) => heat.long,
            Some(_) => 0,
            None if self.own.is_some() => 1,
            None => 10,
        };
        if self.dice.percent(long) {
            self.idle(500, 12_000).await;
            self.work(name, token).await;
        } else {
            self.idle(0, if self.own.is_some() { 5 } else { 60 }).await;
        }
        let how = self.dice.below(100);
        let now = self.clock.now();
        if how < 2 && self.own.is_none() && now < at(MENDED).before(LONGEST_HOLD) {
            // Nobody has it any more; its longest hold ends it.
            self.book.lock().note(now, format_args!("{} forgets #{number}", self.process));
            std::mem::forget(guard);
            return;
        }
        if how < 20 {
            self.book.lock().let_go(now, number, "drops");
            return drop(guard);
        }
        self.book.lock().let_go(now, number, "releases");
        let ending = self.attempting(name, "release", PATIENCE);
        let outcome = guard.release().await;
        let mut book = self.book.lock();
        let now = self.clock.now();
        match outcome {
            ReleaseOutcome::Released { confirmed, .. } => {
                book.end(now, ending.number, format_args!("released, confirmed: {confirmed}"));
            }
            other => book.end(now, ending.number, format_args!("{other:?}")),
        }
    }
}
