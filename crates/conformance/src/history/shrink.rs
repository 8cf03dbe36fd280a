//! Shrinks a failing script: delta debugging over its steps (Zeller and Hildebrandt, 2002), then
//! simpler steps one by one.

use std::time::{Duration, Instant};

use super::play::{End, play};
use super::script::{Fault, Script, Step};
use crate::bench::Bench;

/// How many scripts to try at most.
const TRIES: usize = 600;
/// For how long to try: on a real clock each script may wait for seconds.
const SEARCH_LIMIT: Duration = Duration::from_secs(60);
/// For how long on a hand-driven clock: only a reply that is missing is waited for.
const SEARCH_LIMIT_BY_HAND: Duration = Duration::from_secs(15);

/// Returns a script that still differs and from which little more can be taken.
pub(super) async fn shrink(bench: &Bench, script: Script) -> Script {
    let by_hand = bench.time().is_manual();
    let limit = if by_hand { SEARCH_LIMIT_BY_HAND } else { SEARCH_LIMIT };
    let mut search =
        Search { bench, smallest: script, tries: TRIES, until: Instant::now() + limit };
    search.take_chunks().await;
    search.heal_faults().await;
    search.smallest
}

struct Search<'a> {
    bench: &'a Bench,
    smallest: Script,
    tries: usize,
    until: Instant,
}

impl Search<'_> {
    fn is_spent(&self) -> bool {
        self.tries == 0 || Instant::now() > self.until
    }

    /// Keeps a script if it still differs. One that would touch a deadline is void and not kept.
    async fn keep_if_it_differs(&mut self, steps: Vec<Step>) -> bool {
        if self.is_spent() {
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
        while size > 0 && !self.is_spent() {
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
                if self.is_spent() {
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
            if let Step::Do(action) = &mut steps[at]
                && action.fault != Fault::None
            {
                action.fault = Fault::None;
                self.keep_if_it_differs(steps).await;
            }
        }
    }
}
