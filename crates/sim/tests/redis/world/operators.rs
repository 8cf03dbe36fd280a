//! What operators do: they revoke, freeze, and set the server's clock.

use std::time::Duration;

use holdline_core::{FencingToken, LockName, Operation};

use super::book::SharedBook;
use super::client::NAMES;
use super::run::World;

/// How far a clock is set at most.
const STEP_MS: u64 = 5_000;
/// How much longer than the step its traces last: a lease, and the memory of who was heard.
const TRACES: Duration = Duration::from_secs(2);

impl World {
    /// Lets an operator take one grant away, politely or now.
    pub(super) fn revoke(&mut self) {
        let held: Vec<(&'static str, u64)> =
            self.book.lock().holds.values().map(|hold| (hold.name, hold.token)).collect();
        if held.is_empty() {
            return;
        }
        let (name, token) = self.dice.one_of(&held);
        let now = self.dice.percent(40);
        if now {
            // From here on it may be gone at any moment, outside the promise of exclusion.
            self.book.lock().taken_now.insert(token);
        }
        let token = FencingToken::new(token).expect("it was given");
        let reason = "maintenance".to_owned();
        self.operate(Operation::Revoke { name: known(name), token, reason, now });
    }

    /// Lets an operator keep everybody from a name, for a time or until another one ends it.
    pub(super) fn freeze_name(&mut self) {
        let name = known(self.dice.one_of(&NAMES));
        let duration = self.dice.between(200, 5_000);
        let until = self.now().after(duration.saturating_mul(2));
        self.rules.disturbed(until);
        let reason = "maintenance".to_owned();
        self.operate(Operation::Freeze { name, duration, reason });
    }

    pub(super) fn unfreeze_name(&mut self) {
        let name = known(self.dice.one_of(&NAMES));
        self.operate(Operation::Unfreeze { name });
    }

    fn operate(&mut self, operation: Operation) {
        let alive: Vec<usize> = (0..self.slots.len()).filter(|at| self.slots[*at].alive).collect();
        if alive.is_empty() {
            return;
        }
        let slot = &self.slots[self.dice.one_of(&alive)];
        let (process, client) = (slot.process, slot.client.clone());
        let Some(client) = client else { return };
        let (book, clock): (SharedBook, _) = (self.book.clone(), self.clock.clone());
        self.note(&format!("{process} asks for {operation:?}"));
        self.tasks.spawner().spawn(
            process,
            Box::pin(async move {
                let reply = client.operate(&operation).await;
                let said = match reply {
                    Ok(reply) => format!("{reply:?}"),
                    Err(error) => format!("{:?}", error.certainty()),
                };
                let now = holdline_core::Clock::now(&clock);
                book.lock().note(now, &format!("{process} is told: {said}"));
            }),
        );
    }

    /// Sets the server's clock, forward or back. Exclusion is not promised over that; tokens are.
    pub(super) fn set_clock(&mut self) {
        let by = Duration::from_millis(1 + self.dice.below(STEP_MS));
        let forward = self.dice.percent(50);
        let (now, way) = (self.now(), if forward { "forward" } else { "back" });
        self.note(&format!("the server's clock is set {way} by {by:?}"));
        match forward {
            true => self.host.server().clock().step_forward(by),
            false => self.host.server().clock().step_back(by),
        }
        self.book.lock().clock_set = Some(now);
        self.rules.disturbed(now.after(by).after(TRACES));
        self.seen_anew();
    }
}

fn known(name: &str) -> LockName {
    LockName::new(name).expect("a good name")
}
