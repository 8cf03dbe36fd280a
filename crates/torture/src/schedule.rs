//! The schedule of faults: their order, times and targets, determined by the seed alone.
//!
//! Faults come in rounds: in each round every fault of the list comes once, in a fresh order. A
//! holder's pause comes first in the first round, so that the shortest run has one.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::Fault;

/// One step of the nemesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) fault: Fault,
    /// Which node is hit, counted modulo the nodes that may be.
    pub(crate) node: usize,
    /// Which worker is hit, counted modulo those that may be.
    pub(crate) worker: usize,
    /// Whether the fault hits one worker's links to all nodes, or one node's to all workers.
    pub(crate) one_worker: bool,
    /// Whether connections are reset when a cut ends; else what waited arrives late.
    pub(crate) reset_after: bool,
    /// How long it lasts, in thousandths of a lease.
    pub(crate) lasts: u32,
    /// How late things arrive.
    pub(crate) delay: Duration,
    /// How long it is quiet afterwards.
    pub(crate) quiet: Duration,
    pub(crate) dice: u64,
}

/// The turns of a seed, without end.
pub(crate) struct Schedule {
    random: StdRng,
    faults: Vec<Fault>,
    /// What is left of this round.
    round: Vec<Fault>,
    begun: bool,
}

impl Schedule {
    pub(crate) fn new(seed: u64, faults: &[Fault]) -> Schedule {
        let mut faults = faults.to_vec();
        faults.sort_unstable();
        faults.dedup();
        Schedule { random: StdRng::seed_from_u64(seed), faults, round: Vec::new(), begun: false }
    }

    fn fault(&mut self) -> Option<Fault> {
        if self.round.is_empty() {
            self.round.clone_from(&self.faults);
        }
        if !std::mem::replace(&mut self.begun, true)
            && let Some(at) = self.round.iter().position(|fault| *fault == Fault::PauseHolder)
        {
            return Some(self.round.swap_remove(at));
        }
        if self.round.is_empty() {
            return None;
        }
        let at = self.random.random_range(0..self.round.len());
        Some(self.round.swap_remove(at))
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let fault = self.fault()?;
        let random = &mut self.random;
        Some(Step {
            fault,
            node: random.random_range(0..1_000),
            worker: random.random_range(0..1_000),
            one_worker: random.random_bool(0.5),
            reset_after: random.random_bool(0.5),
            lasts: random.random_range(200..1_500),
            delay: Duration::from_millis(random.random_range(5..300)),
            quiet: Duration::from_millis(random.random_range(0..300)),
            dice: random.random(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_alone_chooses_and_every_round_has_every_fault() {
        let turns =
            |seed| Schedule::new(seed, &Fault::ALL).take(3 * Fault::ALL.len()).collect::<Vec<_>>();
        assert_eq!(turns(7), turns(7));
        assert_ne!(turns(7), turns(8));
        assert_eq!(turns(7)[0].fault, Fault::PauseHolder);
        for round in turns(7).chunks(Fault::ALL.len()) {
            let mut faults: Vec<Fault> = round.iter().map(|step| step.fault).collect();
            faults.sort_unstable();
            assert_eq!(faults, Fault::ALL);
        }
        assert_eq!(Schedule::new(1, &[]).next(), None);
    }
}
