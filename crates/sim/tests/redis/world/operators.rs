//! The operators: they revoke, freeze, and set the server's clock.

use std::time::Duration;

use holdline_core::{FencingToken, LockName, Operation};

use super::client::NAMES;
use super::recorder::SharedRecorder;
use super::run::World;

/// The largest step of a clock.
const STEP_MS: u64 = 5_000;
/// How much longer than the step its effects last: a lease, and the record of heartbeats.
const TRACES: Duration = Duration::from_secs(2);

impl World {
    /// An operator revokes a grant, politely or now.
    pub(super) fn revoke(&mut self) {
        let held: Vec<(&'static str, u64)> =
            self.recorder.lock().holds.values().map(|hold| (hold.name, hold.token)).collect();
        if held.is_empty() {
            return;
        }
        let (name, token) = self.rng.one_of(&held);
        let now = self.rng.percent(40);
        if now {
            // From here on the grant may end at any moment, outside the promise of exclusion.
            self.recorder.lock().taken_now.insert(token);
        }
        let token = FencingToken::new(token).expect("it was given");
        let reason = "maintenance".to_owned();
        self.operate(Operation::Revoke { name: known(name), token, reason, now });
    }

    /// An operator freezes a name, for a time or until another operator unfreezes it.
    pub(super) fn freeze_name(&mut self) {
        let name = known(self.rng.one_of(&NAMES));
        let duration = self.rng.between(200, 5_000);
        let until = self.now().after(duration.saturating_mul(2));
        self.rules.disturbed(until);
        let reason = "maintenance".to_owned();
        self.operate(Operation::Freeze { name, duration, reason });
    }

    pub(super) fn unfreeze_name(&mut self) {
        let name = known(self.rng.one_of(&NAMES));
        self.operate(Operation::Unfreeze { name });
    }

    fn operate(&mut self, operation: Operation) {
        let alive: Vec<usize> = (0..self.slots.len()).filter(|at| self.slots[*at].alive).collect();
        if alive.is_empty() {
            return;
        }
        let slot = &self.slots[self.rng.one_of(&alive)];
        let (process, client) = (slot.process, slot.client.clone());
        let Some(client) = client else { return };
        let (recorder, clock): (SharedRecorder, _) = (self.recorder.clone(), self.clock.clone());
        self.note(&format!("{process} asks for {operation:?}"));
        self.tasks.spawner().spawn(
            process,
            Box::pin(async move {
                let reply = client.admin().operate(&operation).await;
                let said = match reply {
                    Ok(reply) => format!("{reply:?}"),
                    Err(error) => format!("{:?}", error.certainty()),
                };
                let now = holdline_core::Clock::now(&clock);
                recorder.lock().note(now, &format!("{process} receives: {said}"));
            }),
        );
    }

    /// Sets the server's clock, forward or back. The promise of exclusion does not cover that; that
    /// of tokens does.
    pub(super) fn set_clock(&mut self) {
        let by = Duration::from_millis(1 + self.rng.below(STEP_MS));
        let forward = self.rng.percent(50);
        let (now, way) = (self.now(), if forward { "forward" } else { "back" });
        self.note(&format!("the server's clock is set {way} by {by:?}"));
        match forward {
            true => self.host.server().clock().step_forward(by),
            false => self.host.server().clock().step_back(by),
        }
        self.recorder.lock().clock_set = Some(now);
        self.rules.disturbed(now.after(by).after(TRACES));
        self.mark_unobserved();
    }
}

fn known(name: &str) -> LockName {
    LockName::new(name).expect("a good name")
}
