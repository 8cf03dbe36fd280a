//! Makes a failing script small: delta debugging over its steps (Zeller and Hildebrandt, 2002),
//! then simpler steps one by one.

use super::play::{End, play};
use super::script::{Fault, Script, Step};
use crate::bench::Bench;

/// How many scripts to try at most: by hand-driven clock they cost nothing.
const TRIES: usize = 600;
/// The same on a real clock, where each may wait for seconds.
const TRIES_ON_A_REAL_CLOCK: usize = 40;

/// Returns a script that still differs and from which little more can be taken.
pub(super) async fn shrink(bench: &Bench, script: Script) -> Script {
    let tries = if bench.time().is_hand_driven() { TRIES } else { TRIES_ON_A_REAL_CLOCK };
    let mut search = Search { bench, smallest: script, tries };
    search.take_chunks().await;
    search.heal_faults().await;
    search.smallest
}

struct Search<'a> {
    bench: &'a Bench,
    smallest: Script,
    tries: usize,
}

impl Search<'_> {
    /// Keeps a script if it still differs. One that would touch a deadline is void and not kept.
    async fn keep_if_it_differs(&mut self, steps: Vec<Step>) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        let script = Script { steps };
        let differs = matches!(play(self.bench, &script).await.0, End::Differs(_));
        if differs {
            self.smallest = script;
        }
        differs
    }

    /// Takes chunks of steps away, from half of them down to single ones, until nothing more goes.
    async fn take_chunks(&mut self) {
        let mut size = self.smallest.steps.len().div_ceil(2);
        while size > 0 && self.tries > 0 {
            let mut at = 0;
            let mut taken = false;
            while at < self.smallest.steps.len() {
                let mut steps = self.smallest.steps.clone();
                steps.drain(at..(at + size).min(steps.len()));
                if self.keep_if_it_differs(steps).await {
                    taken = true;
                } else {
                    at += size;
                }
                if self.tries == 0 {
                    return;
                }
            }
            if !taken || size > 1 {
                size /= 2;
            }
        }
    }

    /// Loses no request and no reply that need not be lost.
    async fn heal_faults(&mut self) {
        for at in 0..self.smallest.steps.len() {
            let mut steps = self.smallest.steps.clone();
            if let Step::Do(deed) = &mut steps[at]
                && deed.fault != Fault::None
            {
                deed.fault = Fault::None;
                self.keep_if_it_differs(steps).await;
            }
        }
    }
}
