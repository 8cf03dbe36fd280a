//! Who of a set votes, and under which configuration: what the last look at it has shown.

use std::sync::Arc;

use holdline_core::quorum::{Configuration, Gate, Plan, Stamp, Standing, majority};
use holdline_core::{Certainty, ErrorKind, LockError, Moment};

use super::ENGINE;
use super::attempt::waits;
use super::member::{Member, Said, same_run};
use super::requests::Pass;
use super::set::{Set, misconfigured};

/// Who votes.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) configuration: Configuration,
    pub(super) seats: Vec<Seat>,
    /// The nodes' clock, in microseconds, at a moment of ours.
    pub(super) clock: (Moment, u64),
}

/// How a node stands.
#[derive(Clone, Debug)]
pub(super) enum Seat {
    /// It votes for who shows this.
    Votes(Arc<Pass>),
    /// It has lost its memory, and waits until then; `None` while the others have not agreed yet.
    Waits(Option<Moment>),
    /// It gives no vote, for this reason.
    Out(Arc<str>),
}

impl Roster {
    /// Tells whether a majority votes.
    pub(super) fn has_majority(&self) -> bool {
        let votes = self.seats.iter().filter(|seat| matches!(seat, Seat::Votes(_))).count();
        votes >= majority(self.seats.len())
    }

    /// Tells whether a node votes that did not.
    pub(super) fn has_new_voter(&self, before: &Roster) -> bool {
        let votes = |seat: &Seat| matches!(seat, Seat::Votes(_));
        before.seats.iter().zip(&self.seats).any(|(before, now)| votes(now) && !votes(before))
    }

    /// Returns of each node why it is not asked; `None` of those that are.
    pub(super) fn excuses(&self, now: Moment) -> Vec<Option<String>> {
        let excuse = |seat: &Seat| match seat {
            Seat::Votes(_) => None,
            Seat::Waits(until) => Some(waits(*until, now)),
            Seat::Out(why) => Some(why.to_string()),
        };
        self.seats.iter().map(excuse).collect()
    }

    /// Returns what the nodes' clocks show now, in microseconds.
    pub(super) fn time_us(&self, now: Moment) -> u64 {
        let (at, time_us) = self.clock;
        let since = u64::try_from(at.until(now).as_micros()).unwrap_or(u64::MAX);
        time_us.saturating_add(since)
    }
}

impl Set {
    /// Finds who votes.
    ///
    /// # Errors
    /// Why these servers cannot be used as a set.
    pub(super) fn find(&self, plan: &Plan, said: &[Said]) -> Result<Roster, LockError> {
        if let Some((one, other)) = same_run(said) {
            return Err(self.twice(one, other));
        }
        let configuration = self.agreed(plan)?.clone();
        let seat = |(at, said)| self.seat(plan, &configuration, at, said);
        let seats = said.iter().enumerate().map(seat).collect();
        Ok(Roster { configuration, seats, clock: self.clock_of(said) })
    }

    fn agreed<'p>(&self, plan: &'p Plan) -> Result<&'p Configuration, LockError> {
        match &plan.standing {
            Standing::Agreed(configuration) => Ok(configuration),
            Standing::Unfounded { silent } if silent.is_empty() => {
                let kind = ErrorKind::NotInitialised;
                Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
            }
            Standing::Unfounded { .. } => Err(self.no_quorum(&[])),
            Standing::Foreign { sets } => {
                let line = |(at, set): (usize, &Option<Stamp>)| {
                    let set = set.map_or_else(|| "none".to_owned(), |set| set.set.short());
                    format!("{} belongs to {set}", self.members[at].address())
                };
                let lines: Vec<String> = sets.iter().enumerate().map(line).collect();
                let key = self.asker.layout.node();
                let message = format!(
                    "these servers are not one set: {}; list the servers of one set, or delete the \
                     key `{}` on a server that is to leave its set: it is taken in then",
                    lines.join(", "),
                    String::from_utf8_lossy(&key),
                );
                Err(misconfigured(message))
            }
            Standing::Mislisted(configuration) => {
                let strangers = plan.mislisted.iter().map(|at| self.members[*at].address());
                let message = format!(
                    "this is not the list of the set: {}; without a slot in it: {}; and no \
                     majority of the set remembers. {RELIST}",
                    self.both_lists(configuration),
                    strangers.collect::<Vec<_>>().join(", "),
                );
                Err(misconfigured(message))
            }
            Standing::Miscounted { nodes } => {
                let listed = self.members.len();
                let message =
                    format!("the set has {nodes} servers, and {listed} are named: name all");
                Err(misconfigured(message))
            }
            Standing::Twice { places: (one, other) } => Err(self.twice(*one, *other)),
        }
    }

    fn seat(&self, plan: &Plan, configuration: &Configuration, at: usize, said: &Said) -> Seat {
        let stamp = configuration.stamp();
        // A vote is only asked for over a connection to the run of the server that said so: who
        // is only late need not be left out.
        let Some(heard) = said.heard.as_ref().or(said.last.as_ref()) else {
            let why = said.failure.as_ref().map_or_else(
                || "was not asked yet".to_owned(),
                |failure| failure.kind().to_string(),
            );
            return Seat::Out(why.into());
        };
        let view = &heard.view;
        let belongs = view.configuration.as_ref().map(Configuration::stamp);
        if let Some(other) = belongs.filter(|other| other.set != stamp.set) {
            let (own, other) = (stamp.set.short(), other.set.short());
            return Seat::Out(format!("belongs to the set {other}, not to {own}").into());
        }
        let mine = belongs == Some(stamp);
        if plan.mislisted.contains(&at) {
            let lists = self.both_lists(configuration);
            return Seat::Out(format!("has no slot in the set: {lists}. {RELIST}").into());
        }
        match view.gate {
            Gate::Open if mine && configuration.has(view.id) => {
                Seat::Votes(Arc::new(Pass::new(&heard.marker, stamp)))
            }
            Gate::Open => Seat::Out("has another configuration".into()),
            Gate::Forgot | Gate::Blank | Gate::Proposed => Seat::Waits(heard.waits_until),
            Gate::Out => Seat::Out("was replaced by another server: `quorum rejoin`".into()),
        }
    }

    /// Says which servers the set has, and which are listed.
    pub(super) fn both_lists(&self, configuration: &Configuration) -> String {
        let has: Vec<&str> = configuration.slots().iter().map(|slot| &*slot.address).collect();
        let listed: Vec<&str> = self.members.iter().map(Member::address).collect();
        format!("the set has {}, and listed are {}", has.join(", "), listed.join(", "))
    }

    fn twice(&self, one: usize, other: usize) -> LockError {
        let [one, other] = [one, other].map(|at| self.members[at].address());
        misconfigured(format!("{one} and {other} are one server: name each once"))
    }
}

/// What an operator does about a server that has no slot in the set.
pub(super) const RELIST: &str = "Correct the list; or, if a server of the set is gone for good, \
                                 `holdline quorum replace OLD NEW` gives its slot away";
