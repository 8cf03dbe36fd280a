//! A history as data, and how it is generated from a seed.
//!
//! Invariant S1: in every script that is played, no command comes near a deadline that an earlier
//! command may have set. The deadlines depend on the state, so every earlier moment plus every
//! duration of the script counts as one.

use std::fmt;
use std::time::Duration;

use holdline_core::contract::{MIN_HAND_OFF_LEASE, MIN_TOMBSTONE, QUEUE_SILENCE};
use holdline_core::{Capabilities, Hold, Mode};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::factory::Scale;

/// How many requests or replies a script loses at most: three make at most eight states.
const MAX_FAULTS: usize = 3;

/// A small script for a few actors on one fresh name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub(super) steps: Vec<Step>,
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Time moves on.
    Pass(Duration),
    /// An actor does something.
    Do(Action),
}

/// What an actor does, and what gets lost of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) actor: usize,
    pub(super) verb: Verb,
    pub(super) fault: Fault,
}

/// What an actor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Asks under a fresh lease id.
    Acquire(Terms),
    /// Asks again under its lease id, on the same terms.
    AskAgain,
    /// Asks again under its lease id, on other terms.
    OtherTerms,
    /// Renews.
    Keep(Hold),
    /// Sends the queue heartbeat.
    Beat,
    /// Releases.
    Release,
    /// Gives up for good.
    GiveUp,
    /// Looks.
    Inspect,
    /// An operator revokes its grant.
    Revoke { now: bool },
    /// An operator freezes the name.
    Freeze(Duration),
    /// An operator ends the freeze.
    Unfreeze,
}

/// What an actor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) mode: Mode,
    pub(super) hold: Hold,
    pub(super) queue: bool,
    pub(super) hand_off_lease: Duration,
}

/// What gets lost of a command. Either way its outcome is unknown to the actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    LoseRequest,
    LoseReply,
}

/// What a script may use with this engine.
struct Palette {
    actors: usize,
    modes: Vec<Mode>,
    holds: Vec<Hold>,
    windows: Vec<Duration>,
    verbs: Vec<(u32, Kind)>,
    passes: Vec<Duration>,
    moves: usize,
    length: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Acquire,
    AskAgain,
    OtherTerms,
    Keep,
    Beat,
    Release,
    GiveUp,
    Inspect,
    Revoke,
    Freeze,
    Unfreeze,
    Pass,
}

impl Palette {
    fn draw(random: &mut StdRng, capabilities: &Capabilities, scale: Scale) -> Palette {
        let manual = scale.tolerance.is_zero();
        let long = Duration::from_secs(30).min(capabilities.lease.max);
        let mut holds = vec![Hold::Leased(scale.lease), Hold::Leased(long)];
        if capabilities.detach {
            holds.push(Hold::Detached(scale.lease));
        }
        if capabilities.live {
            holds.push(Hold::Live);
        }
        let windows = vec![MIN_HAND_OFF_LEASE, MIN_HAND_OFF_LEASE, MIN_HAND_OFF_LEASE * 2];
        let queue = if capabilities.queue { 13 } else { 0 };
        let verbs = vec![
            (30, Kind::Acquire),
            (14, Kind::AskAgain),
            (1, Kind::OtherTerms),
            (12, Kind::Keep),
            (queue, Kind::Beat),
            (14, Kind::Release),
            (6, Kind::GiveUp),
            (6, Kind::Inspect),
            (if capabilities.revoke { 4 } else { 0 }, Kind::Revoke),
            (if capabilities.freeze { 2 } else { 0 }, Kind::Freeze),
            (if capabilities.freeze { 2 } else { 0 }, Kind::Unfreeze),
            (if manual { 12 } else { 5 }, Kind::Pass),
        ];
        let mut palette = Palette {
            // Without an order only one may wait, because the next holder would be undefined.
            actors: if capabilities.fair || !capabilities.queue {
                random.random_range(2..=5)
            } else {
                2
            },
            modes: modes(random, capabilities, scale.kinds_stay),
            holds,
            windows,
            verbs,
            passes: Vec::new(),
            moves: if manual { 6 } else { 2 },
            length: random.random_range(5..=if manual { 40 } else { 25 }),
        };
        palette.passes = palette.passes(capabilities, scale);
        palette
    }

    /// Returns every duration after which something may end.
    fn durations(&self, scale: Scale) -> Vec<Duration> {
        let holds = self.holds.iter().filter_map(|hold| hold.duration());
        let mut all: Vec<Duration> = holds.chain(self.windows.iter().copied()).collect();
        all.extend([QUEUE_SILENCE, MIN_TOMBSTONE, scale.lease, scale.lease * 2]);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns by how much time may move: past each duration, and, by hand, also short of it.
    fn passes(&self, capabilities: &Capabilities, scale: Scale) -> Vec<Duration> {
        let past = |duration: Duration| {
            duration + capabilities.lag + capabilities.lease.step + scale.tolerance
        };
        let manual = scale.tolerance.is_zero();
        let mut passes = Vec::new();
        for duration in self.durations(scale) {
            if manual {
                passes.extend([duration / 3, duration * 2 / 3, past(duration)]);
            } else if duration < Duration::from_secs(10) {
                passes.push(past(duration).max(past(scale.lease)));
            }
        }
        passes
    }
}

/// A name is a mutex with readers, or a semaphore; now and then an actor confuses them.
fn modes(random: &mut StdRng, capabilities: &Capabilities, kinds_stay: bool) -> Vec<Mode> {
    let mut modes = vec![Mode::Exclusive; 3];
    if capabilities.shared && random.random_bool(0.6) {
        modes.extend([Mode::Shared; 3]);
    }
    if capabilities.permits && random.random_bool(0.3) {
        let of = random.random_range(2..=4);
        modes = (1..=of).map(|count| Mode::Permits { count, of }).collect();
        modes.extend([Mode::Permits { count: 1, of }; 2]);
        if random.random_bool(0.2) && !kinds_stay {
            modes.extend([Mode::Exclusive, Mode::Permits { count: 1, of: of + 1 }]);
        }
    }
    modes
}

impl Script {
    /// Draws a script for an engine of these capabilities.
    pub(super) fn generate(seed: u64, capabilities: &Capabilities, scale: Scale) -> Script {
        let mut random = StdRng::seed_from_u64(seed);
        let palette = Palette::draw(&mut random, capabilities, scale);
        let mut script = Script { steps: Vec::new() };
        let mut moves = 0;
        let mut faults = 0;
        for _ in 0..palette.length {
            let kind = pick(&mut random, &palette.verbs);
            if kind == Kind::Pass {
                if moves < palette.moves && script.pass(&mut random, &palette, capabilities, scale)
                {
                    moves += 1;
                }
                continue;
            }
            let fault = match random.random_range(0..40) {
                0 if faults < MAX_FAULTS => Fault::LoseRequest,
                1 if faults < MAX_FAULTS => Fault::LoseReply,
                _ => Fault::None,
            };
            faults += usize::from(fault != Fault::None);
            let actor = random.random_range(0..palette.actors);
            let verb = verb(&mut random, kind, &palette, capabilities, scale);
            script.steps.push(Step::Do(Action { actor, verb, fault }));
            // A waiter asks soon after a release, as watches make it do.
            if kind == Kind::Release && random.random_bool(0.5) {
                let actor = random.random_range(0..palette.actors);
                let again = Action { actor, verb: Verb::AskAgain, fault: Fault::None };
                script.steps.push(Step::Do(again));
            }
        }
        script
    }

    /// Adds a move of time after which a command may come; returns whether one was found.
    fn pass(
        &mut self,
        random: &mut StdRng,
        palette: &Palette,
        capabilities: &Capabilities,
        scale: Scale,
    ) -> bool {
        for _ in 0..20 {
            let Some(by) = palette.passes.choose(random) else { return false };
            let spread = if scale.tolerance.is_zero() { 900 } else { 300 };
            let by = *by + Duration::from_millis(random.random_range(1..spread));
            self.steps.push(Step::Pass(by));
            // A look at the new moment stands for whatever command comes there.
            let look = Action { actor: 0, verb: Verb::Inspect, fault: Fault::None };
            self.steps.push(Step::Do(look));
            // What later commands will use counts too, so that the whole script fits.
            let fits = self.plan_around(&palette.durations(scale), capabilities, scale).is_some();
            self.steps.pop();
            if fits {
                return true;
            }
            self.steps.pop();
        }
        false
    }

    /// Returns when each step is due, counted from the beginning; `None` when a command would
    /// come near a deadline that an earlier one may have set.
    pub(super) fn plan(&self, capabilities: &Capabilities, scale: Scale) -> Option<Vec<Duration>> {
        let mut durations = self.durations(scale);
        durations.sort_unstable();
        durations.dedup();
        self.plan_around(&durations, capabilities, scale)
    }

    fn plan_around(
        &self,
        durations: &[Duration],
        capabilities: &Capabilities,
        scale: Scale,
    ) -> Option<Vec<Duration>> {
        let late = capabilities.lag + capabilities.lease.step + scale.tolerance;
        let mut now = Duration::ZERO;
        let mut due = Vec::with_capacity(self.steps.len());
        let mut commands: Vec<Duration> = Vec::new();
        for step in &self.steps {
            match step {
                Step::Pass(by) => now += *by,
                Step::Do(_) if commands.last() == Some(&now) => {}
                Step::Do(_) => {
                    // Those that are due together count as well: the last may be late.
                    commands.push(now);
                    let touches = commands.iter().any(|earlier| {
                        durations.iter().any(|duration| {
                            let deadline = *earlier + *duration;
                            now + scale.tolerance >= deadline && now <= deadline + late
                        })
                    });
                    if touches {
                        return None;
                    }
                }
            }
            due.push(now);
        }
        Some(due)
    }

    /// Returns every duration after which something may end.
    fn durations(&self, scale: Scale) -> Vec<Duration> {
        let mut all = vec![QUEUE_SILENCE, MIN_TOMBSTONE, MIN_HAND_OFF_LEASE, scale.lease];
        for step in &self.steps {
            match step {
                Step::Do(Action { verb: Verb::Acquire(terms), .. }) => {
                    all.push(terms.hand_off_lease);
                    all.extend(terms.hold.duration());
                }
                Step::Do(Action { verb: Verb::Keep(hold), .. }) => all.extend(hold.duration()),
                Step::Do(Action { verb: Verb::Freeze(duration), .. }) => all.push(*duration),
                _ => {}
            }
        }
        all
    }

    /// Returns how many commands it has.
    pub(super) fn commands(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Do(_))).count()
    }
}

fn pick(random: &mut StdRng, weighted: &[(u32, Kind)]) -> Kind {
    let total: u32 = weighted.iter().map(|(weight, _)| weight).sum();
    let mut at = random.random_range(0..total);
    for (weight, kind) in weighted {
        if at < *weight {
            return *kind;
        }
        at -= weight;
    }
    Kind::Inspect
}

fn verb(
    random: &mut StdRng,
    kind: Kind,
    palette: &Palette,
    capabilities: &Capabilities,
    scale: Scale,
) -> Verb {
    let hold = palette.holds.choose(random).copied().unwrap_or(Hold::Leased(scale.lease));
    match kind {
        Kind::Acquire => Verb::Acquire(Terms {
            mode: palette.modes.choose(random).copied().unwrap_or(Mode::Exclusive),
            hold,
            queue: capabilities.queue && random.random_bool(0.8),
            hand_off_lease: palette.windows.choose(random).copied().unwrap_or(MIN_HAND_OFF_LEASE),
        }),
        Kind::AskAgain => Verb::AskAgain,
        Kind::OtherTerms => Verb::OtherTerms,
        Kind::Keep => Verb::Keep(hold),
        Kind::Beat => Verb::Beat,
        Kind::Release => Verb::Release,
        Kind::GiveUp => Verb::GiveUp,
        Kind::Inspect | Kind::Pass => Verb::Inspect,
        Kind::Revoke => Verb::Revoke { now: random.random_bool(0.4) },
        Kind::Freeze => Verb::Freeze(scale.lease * random.random_range(1..=2)),
        Kind::Unfreeze => Verb::Unfreeze,
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "actor {} ", self.actor)?;
        match &self.verb {
            Verb::Acquire(terms) => {
                let Terms { mode, hold, queue, .. } = terms;
                write!(f, "asks: {mode}, {hold:?}{}", if *queue { ", queues" } else { "" })
            }
            Verb::AskAgain => f.write_str("asks again"),
            Verb::OtherTerms => f.write_str("asks again on other terms"),
            Verb::Keep(hold) => write!(f, "renews: {hold:?}"),
            Verb::Beat => f.write_str("sends its queue heartbeat"),
            Verb::Release => f.write_str("releases"),
            Verb::GiveUp => f.write_str("gives up for good"),
            Verb::Inspect => f.write_str("looks"),
            Verb::Revoke { now } => {
                write!(f, "is revoked by an operator{}", if *now { ", now" } else { "" })
            }
            Verb::Freeze(duration) => write!(f, "as operator freezes the name for {duration:?}"),
            Verb::Unfreeze => f.write_str("as operator ends the freeze"),
        }?;
        match self.fault {
            Fault::None => Ok(()),
            Fault::LoseRequest => f.write_str(" (the request is lost)"),
            Fault::LoseReply => f.write_str(" (the reply is lost)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales() -> [Scale; 2] {
        [Scale::manual(), Scale::quick()]
    }

    #[test]
    fn a_seed_is_a_script() {
        let reference = Capabilities::reference("table", "test");
        for scale in scales() {
            let draw = |seed| Script::generate(seed, &reference, scale);
            assert_eq!(draw(7), draw(7));
            assert_ne!(draw(7), draw(8));
        }
    }

    #[test]
    fn no_script_touches_a_deadline_and_most_let_time_move() {
        let reference = Capabilities::reference("table", "test");
        for scale in scales() {
            let mut moved = 0;
            for seed in 0..500 {
                let script = Script::generate(seed, &reference, scale);
                assert!(script.plan(&reference, scale).is_some(), "seed {seed}");
                let moves = script.steps.iter().filter(|step| matches!(step, Step::Pass(_)));
                moved += usize::from(moves.count() > 0);
            }
            assert!(moved > 150, "time moves in {moved} of 500");
        }
    }

    #[test]
    fn a_lease_that_may_end_between_two_commands_does_not_fit() {
        let reference = Capabilities::reference("table", "test");
        let look = || Step::Do(Action { actor: 0, verb: Verb::Inspect, fault: Fault::None });
        let fits = |lease| {
            let scale = Scale { lease, ..Scale::quick() };
            Script { steps: vec![look(), look()] }.plan(&reference, scale).is_some()
        };
        assert!(fits(Scale::quick().lease));
        assert!(!fits(Scale::quick().tolerance));
    }

    #[test]
    fn a_command_at_a_deadline_does_not_fit() {
        let reference = Capabilities::reference("table", "test");
        let scale = Scale::manual();
        let look = || Step::Do(Action { actor: 0, verb: Verb::Inspect, fault: Fault::None });
        let after = |by| {
            let script = Script { steps: vec![look(), Step::Pass(by), look()] };
            script.plan(&reference, scale).is_some()
        };
        let second = Duration::from_secs(1);
        assert!(!after(QUEUE_SILENCE));
        assert!(!after(QUEUE_SILENCE + Duration::from_micros(900)));
        assert!(after(QUEUE_SILENCE - Duration::from_micros(1)));
        assert!(after(QUEUE_SILENCE + second));
    }
}
