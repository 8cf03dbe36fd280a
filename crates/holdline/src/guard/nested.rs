//! A guard's or an attempt's share in a nest: the grant of an owner.
//!
//! It is one of the handles that N1 of `core::nests` counts.

use std::sync::Arc;

use holdline_core::LostReason;

use crate::core::Core;
use crate::core::nests::{Inside, Nest, NestKey};
use crate::core::registry::Key;
use crate::grant::Grant;

/// A handle of a nest: of a guard inside, or of an attempt to enter.
pub(crate) struct Nested {
    core: Arc<Core>,
    key: NestKey,
    nest: Arc<Nest>,
    inside: bool,
}

impl Nested {
    /// Makes a handle that is not inside yet.
    pub(crate) fn new(core: &Arc<Core>, key: NestKey) -> Nested {
        let nest = core.nests.share(&key);
        Nested { core: core.clone(), key, nest, inside: false }
    }

    /// Leaves the nest. Returns how many guards remain.
    pub(crate) fn leave(mut self) -> usize {
        self.step_out()
    }

    fn step_out(&mut self) -> usize {
        let mut inside = self.nest.inside.lock();
        if std::mem::take(&mut self.inside) {
            inside.depth = inside.depth.saturating_sub(1);
        }
        if inside.depth == 0 {
            inside.grant = None;
        }
        inside.depth
    }

    /// Allows one attempt of an owner at a time.
    pub(crate) fn attempt_lock(&self) -> &tokio::sync::Mutex<()> {
        &self.nest.attempt_lock
    }

    /// Shares the owner's grant, if there is one.
    pub(crate) fn join(&mut self) -> Result<Option<(Arc<Grant>, Key)>, LostReason> {
        let mut inside = self.nest.inside.lock();
        let Some((grant, key)) = inside.grant.clone() else { return Ok(None) };
        if let Some(reason) = grant.lost_reason(self.core.state.clock.now()) {
            return Err(reason);
        }
        inside.depth += 1;
        self.inside = true;
        Ok(Some((grant, key)))
    }

    /// Records the grant that this handle is inside of from now on.
    pub(crate) fn found(&mut self, grant: Arc<Grant>, key: Key) {
        let grant = Some((grant, key));
        *self.nest.inside.lock() = Inside { depth: 1, grant };
        self.inside = true;
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        if !self.core.state.is_own_process() {
            return;
        }
        if self.inside {
            self.step_out();
        }
        self.core.nests.give_back(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use holdline_core::LockName;

    use super::*;
    use crate::Client;
    use crate::parker::block_on;

    #[test]
    fn handles_that_end_concurrently_leave_nothing() {
        let client = block_on(Client::connect("memory:nests")).expect("made");
        let guard = block_on(client.mutex("other").expect("good").lock()).expect("free");
        let core = &guard.core;
        let key: NestKey = (LockName::new("a").expect("good"), 7);
        let rounds = 20_000;
        let mut stayed = 0;
        let begin = Barrier::new(2);
        let end = Barrier::new(2);
        let next = Barrier::new(2);
        let users = || Nested::new(core, key.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let part = users();
                    begin.wait();
                    drop(part);
                    end.wait();
                    next.wait();
                }
            });
            for _ in 0..rounds {
                let part = users();
                begin.wait();
                drop(part);
                end.wait();
                let left = core.nests.count();
                next.wait();
                stayed += left;
            }
        });
        assert_eq!(stayed, 0, "an unused entry stays");
    }
}
