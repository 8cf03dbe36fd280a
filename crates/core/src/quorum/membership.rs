//! What has to be done so that all nodes of a set agree on who belongs to it.
//!
//! A pure function of what the nodes say of themselves, looked at again after each step: any client
//! may carry it out, several at once, and any of them may die between two steps. What comes too
//! late is refused by the node ([`super::node`], N2).
//!
//! - M1: a set is founded only when all its nodes have accepted the same, so no two clients with
//!   different lists of nodes can found two sets that share one.
//! - M2: a change is made only on the word of a majority of the *members* of the newest
//!   configuration that is seen, or, when no majority remembers, with each of its slots seen or
//!   placed: so it forgets no change that was agreed to before. Nodes that are no members of it
//!   count for nothing, whatever they remember.
//! - M3: a node that forgot waits only once a majority that remembers has taken the configuration
//!   with its new id. From then on no majority can be had with what was under its old id, so after
//!   the longest lease nothing is left of that. Clients measure the wait ([`super::node`], N5).
//! - M4: its floor is the largest token of a majority that remembers and has that configuration:
//!   every token that was proven with its old id is known to one of them.
//! - M5: a slot goes to a newcomer by itself only if that had the slot's id before it lost its
//!   memory, answers at the slot's address, or answers where this client saw the slot's id before.
//!   Any other newcomer gets one on an operator's word only: its list of servers may be wrong.
//! - M6: where a majority of the members of one set remembers, a node of another set counts as one
//!   that does not answer. Without such a majority nobody can say which set is meant.
//!
//! Why M4: two majorities share a node. Whoever proved a token with the help of the old id had
//! evidence of a majority; one node of that is among those who are asked for the floor, and there
//! the evidence came before it took the new configuration, since under the new one the old id does
//! not count. The argument needs no clock. Where no majority remembers, only the clocks are left.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::quorum::configuration::{Configuration, MAX_LEASE_CAP, NodeId, SetId, Slot, Stamp};
use crate::quorum::majority;
use crate::quorum::node::{Gate, Told, View};

/// Less of a wait than this is noted only when it is the rest.
const LEAST_NOTED: Duration = Duration::from_millis(100);

/// What whoever looks after a set wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wish {
    /// The addresses of the nodes, in the order of the views.
    pub addresses: Vec<String>,
    /// The longest lease of a set that is founded now.
    pub max_lease: Duration,
    /// An operator vouches for it that these nodes hold no locks from before.
    pub vouched: bool,
    /// How much too fast the clock of a client may run that measures a wait, in parts of a million.
    pub drift_ppm: u32,
    /// An operator's word: the slot of the first id goes to the node that has the second one.
    pub replace: Vec<(NodeId, NodeId)>,
}

/// How a set stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It can be used under this configuration, as far as enough of its nodes vote.
    Agreed(Configuration),
    /// There is none yet; `silent` nodes must answer before there can be.
    Unfounded {
        /// The places of nodes that did not answer.
        silent: Vec<usize>,
    },
    /// These nodes belong to different sets, or to one of which most nodes are elsewhere.
    Foreign {
        /// For each place, what its node belongs to.
        sets: Vec<Option<Stamp>>,
    },
    /// All nodes answer, no majority of the set's members remembers, and some nodes have no slot
    /// ([`Plan::mislisted`]): the list has other servers than the set.
    Mislisted(Configuration),
    /// The set has another number of nodes than were listed: half of them is another number, too.
    Miscounted {
        /// How many belong to it.
        nodes: usize,
    },
    /// Two places have one and the same node.
    Twice {
        /// The places.
        places: (usize, usize),
    },
}

/// What is to be done, and how things stand meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How the set stands.
    pub standing: Standing,
    /// What to tell the nodes, each at its place. In any order.
    pub steps: Vec<(usize, Told)>,
    /// The places of nodes that ask for a slot and have none (M5).
    pub mislisted: Vec<usize>,
}

impl Plan {
    /// Nothing can be done.
    fn none(standing: Standing) -> Plan {
        Plan { standing, steps: Vec::new(), mislisted: Vec::new() }
    }
}

/// Looks at what the nodes say, `None` for those that do not answer, and says what to do.
pub fn plan(views: &[Option<View>], wish: &Wish) -> Plan {
    Look { views, wish }.plan()
}

/// Says which slots go to newcomers once that can be agreed on: of each the old id and the new.
pub fn replacements(views: &[Option<View>], wish: &Wish) -> Vec<(NodeId, NodeId)> {
    let Some(views) = Look { views, wish }.of_one_set() else { return Vec::new() };
    let look = Look { views: &views, wish };
    let Some(current) = Configuration::merged(look.newest()) else { return Vec::new() };
    let (replaced, _) = look.replaced(&current);
    replaced.into_iter().map(|(old, new, _)| (old, new)).collect()
}

/// A slot that goes to another node: the old id, the new one, the address.
type Replaced = (NodeId, NodeId, String);

/// Tells by what a node at a place is known for that of a slot.
type Sign<'a> = &'a dyn Fn(&Slot, usize, &View) -> bool;

struct Look<'a> {
    views: &'a [Option<View>],
    wish: &'a Wish,
}

impl Look<'_> {
    fn plan(&self) -> Plan {
        if let Some(places) = self.twice() {
            return Plan::none(Standing::Twice { places });
        }
        let Some(views) = self.of_one_set() else {
            return Plan::none(Standing::Foreign { sets: self.sets() });
        };
        let look = Look { views: &views, wish: self.wish };
        match look.founded() {
            true => look.kept(),
            false if look.rivals() => Plan::none(Standing::Foreign { sets: look.sets() }),
            false => look.founding(),
        }
    }

    /// For each place, what its node belongs to.
    fn sets(&self) -> Vec<Option<Stamp>> {
        self.views.iter().map(|view| view.as_ref().and_then(stamp_of)).collect()
    }

    /// Tells whether somebody founds a set of other nodes: one is proposed that has members which
    /// are neither here nor at one of our addresses.
    fn rivals(&self) -> bool {
        let known = |slot: &Slot| {
            self.seen().any(|(_, view)| view.id == slot.id)
                || self.wish.addresses.contains(&slot.address)
        };
        let mut proposed = self.seen().filter_map(|(_, view)| view.configuration.as_ref());
        proposed.any(|one| one.slots().len() != self.views.len() || !one.slots().iter().all(known))
    }

    fn seen(&self) -> impl Iterator<Item = (usize, &View)> {
        self.views.iter().enumerate().filter_map(|(at, view)| Some((at, view.as_ref()?)))
    }

    fn all_answer(&self) -> bool {
        self.views.iter().all(Option::is_some)
    }

    fn twice(&self) -> Option<(usize, usize)> {
        let mut seen = self.seen();
        seen.find_map(|(at, view)| {
            let other = self.seen().find(|(other, same)| *other > at && same.id == view.id);
            other.map(|(other, _)| (at, other))
        })
    }

    /// Tells whether the set was founded: then one node at least does not only propose.
    fn founded(&self) -> bool {
        self.seen().any(|(_, view)| !matches!(view.gate, Gate::Blank | Gate::Proposed))
    }

    fn founding(&self) -> Plan {
        let silent = self.views.iter().enumerate().filter(|(_, view)| view.is_none());
        let silent: Vec<usize> = silent.map(|(at, _)| at).collect();
        let steps = if silent.is_empty() { self.found() } else { Vec::new() };
        Plan { steps, ..Plan::none(Standing::Unfounded { silent }) }
    }

    fn found(&self) -> Vec<(usize, Told)> {
        let nodes: Vec<(NodeId, &str)> = self
            .seen()
            .map(|(at, view)| (view.id, self.wish.addresses.get(at).map_or("", String::as_str)))
            .collect();
        let proposed: Vec<&Configuration> =
            self.seen().filter_map(|(_, view)| view.configuration.as_ref()).collect();
        let stamps: BTreeSet<Stamp> = proposed.iter().map(|one| one.stamp()).collect();
        let fits = |one: &Configuration| nodes.iter().all(|(id, _)| one.has(*id));
        let wanted = match (stamps.len(), proposed.first()) {
            (0, _) | (_, None) => Configuration::founded(&nodes, self.wish.max_lease),
            (1, Some(one)) if fits(one) => (*one).clone(),
            // Proposals that cannot be agreed on: a node lost its own, or rivals want different
            // leases. Nobody can have had all of them, so a later one may replace them.
            (_, Some(one)) => {
                let epoch = proposed.iter().map(|one| one.epoch()).max().unwrap_or(0);
                let max_lease = proposed.iter().map(|one| one.max_lease()).max();
                let max_lease = max_lease.unwrap_or(self.wish.max_lease);
                Configuration::founded(&nodes, max_lease).after(one.set(), epoch)
            }
        };
        let stamp = wanted.stamp();
        let lacking = self.seen().filter(|(_, view)| stamp_of(view) != Some(stamp));
        let steps: Vec<(usize, Told)> = lacking
            .map(|(at, view)| {
                let (from, configuration) = (stamp_of(view), wanted.clone());
                (at, Told::Propose { from, configuration })
            })
            .collect();
        if steps.is_empty() { self.activate(stamp) } else { steps }
    }

    /// All have accepted: nodes that only propose may vote.
    fn activate(&self, stamp: Stamp) -> Vec<(usize, Told)> {
        let quarantine = (!self.wish.vouched).then(|| self.stretched(MAX_LEASE_CAP));
        let proposed = self
            .seen()
            .filter(|(_, view)| view.gate == Gate::Proposed && stamp_of(view) == Some(stamp));
        proposed.map(|(at, _)| (at, Told::Activate { stamp, quarantine })).collect()
    }

    /// Returns what is seen of the one set that is meant; `None` where nobody can say which (M6).
    fn of_one_set(&self) -> Option<Vec<Option<View>>> {
        let sets: BTreeSet<SetId> = self.sets().into_iter().flatten().map(|one| one.set).collect();
        match sets.len() {
            0 | 1 => Some(self.views.to_vec()),
            _ => sets.into_iter().find_map(|set| self.without_others(set)),
        }
    }

    /// Returns what is seen of one set, with the nodes of others as if they did not answer; `None`
    /// unless a majority of its members remembers (M6).
    fn without_others(&self, set: SetId) -> Option<Vec<Option<View>>> {
        let own = |view: &View| stamp_of(view).is_none_or(|stamp| stamp.set == set);
        let views: Vec<_> = self.views.iter().map(|view| view.clone().filter(own)).collect();
        let look = Look { views: &views, wish: self.wish };
        let current = Configuration::merged(look.newest())?;
        let agrees = current.slots().len() == views.len()
            && look.founded()
            && look.majority_remembers(&current);
        agrees.then_some(views)
    }

    /// Returns the configurations of the last epoch that is seen, each once.
    fn newest(&self) -> Vec<Configuration> {
        let configured = || self.seen().filter_map(|(_, view)| view.configuration.as_ref());
        let epoch = configured().map(Configuration::epoch).max().unwrap_or(0);
        let mut newest: Vec<Configuration> =
            configured().filter(|one| one.epoch() == epoch).cloned().collect();
        newest.sort_unstable_by_key(Configuration::stamp);
        newest.dedup_by_key(|one| one.stamp());
        newest
    }

    fn kept(&self) -> Plan {
        let newest = self.newest();
        let split = newest.len() > 1;
        let Some(current) = Configuration::merged(newest) else {
            // No node that was founded is without one, but a store says what it likes.
            return Plan::none(Standing::Unfounded { silent: Vec::new() });
        };
        let nodes = current.slots().len();
        if nodes != self.views.len() {
            return Plan::none(Standing::Miscounted { nodes });
        }
        let (replaced, mislisted) = self.replaced(&current);
        // Of the slots one at least is neither seen nor placed: nothing could be agreed on.
        if !mislisted.is_empty() && self.all_answer() && !self.majority_remembers(&current) {
            return Plan { mislisted, ..Plan::none(Standing::Mislisted(current)) };
        }
        let changed = split || !replaced.is_empty();
        let steps = match changed && self.may_change(&current, &replaced) {
            true => {
                let replaced: Vec<_> =
                    replaced.iter().map(|(old, new, to)| (*old, *new, to.as_str())).collect();
                self.adopt(&current.successor(&replaced))
            }
            false if split => Vec::new(),
            false => self.move_on(&current),
        };
        Plan { standing: Standing::Agreed(current), steps, mislisted }
    }

    fn remembers(view: &View) -> bool {
        matches!(view.gate, Gate::Open | Gate::Proposed)
    }

    /// Tells whether a majority of the members of a configuration remembers (M2).
    fn majority_remembers(&self, current: &Configuration) -> bool {
        let members = self.seen().filter(|(_, view)| current.has(view.id));
        let remember = members.filter(|(_, view)| Look::remembers(view)).count();
        remember >= majority(current.slots().len())
    }

    /// Tells whether the node of each slot is seen, or gives its slot to another that is seen.
    fn every_slot_is_known(&self, current: &Configuration, replaced: &[Replaced]) -> bool {
        current.slots().iter().all(|slot| {
            self.seen().any(|(_, view)| view.id == slot.id)
                || replaced.iter().any(|(old, ..)| *old == slot.id)
        })
    }

    /// Tells whether what is seen cannot miss a change that was agreed to (M2).
    fn may_change(&self, current: &Configuration, replaced: &[Replaced]) -> bool {
        self.majority_remembers(current) || self.every_slot_is_known(current, replaced)
    }

    /// Tells whether a node asks for a place in the set.
    fn is_new(current: &Configuration, view: &View) -> bool {
        matches!(view.gate, Gate::Blank | Gate::Forgot) && !current.has(view.id)
    }

    /// Says which slots go to newcomers (M5), and at which places those are that get none.
    fn replaced(&self, current: &Configuration) -> (Vec<Replaced>, Vec<usize>) {
        let here = |at: usize| self.wish.addresses.get(at).cloned().unwrap_or_default();
        let newcomers = self.seen().filter(|(_, view)| Look::is_new(current, view));
        let mut newcomers: Vec<(usize, &View)> = newcomers.collect();
        let is_given = |slot: &Slot| {
            let mut words = self.wish.replace.iter().filter(|(old, _)| *old == slot.id);
            words.any(|(_, new)| newcomers.iter().any(|(_, view)| view.id == *new))
        };
        let is_seen = |slot: &Slot| self.seen().any(|(_, view)| view.id == slot.id);
        let slots = current.slots().iter();
        let mut free: Vec<&Slot> = slots.filter(|slot| is_given(slot) || !is_seen(slot)).collect();
        // The surer sign comes first, for all of them.
        let signs: [Sign<'_>; 4] = [
            &|slot, _, view| self.wish.replace.contains(&(slot.id, view.id)),
            &|slot, _, view| view.was == Some(slot.id),
            &|slot, at, _| slot.address == here(at),
            &|slot, _, view| view.before == Some(slot.id),
        ];
        let mut replaced = Vec::new();
        for sign in signs {
            newcomers.retain(|(at, view)| {
                let place = free.iter().position(|slot| sign(slot, *at, view));
                if let Some(place) = place {
                    replaced.push((free.remove(place).id, view.id, here(*at)));
                }
                place.is_none()
            });
        }
        (replaced, newcomers.into_iter().map(|(at, _)| at).collect())
    }

    /// Tells all who have an older one, and those who belong to it and have none.
    fn adopt(&self, configuration: &Configuration) -> Vec<(usize, Told)> {
        let older = self.seen().filter(|(_, view)| match &view.configuration {
            Some(mine) => mine.epoch() < configuration.epoch(),
            None => configuration.has(view.id),
        });
        older
            .map(|(at, view)| {
                let (from, configuration) = (stamp_of(view), configuration.clone());
                (at, Told::Adopt { from, configuration })
            })
            .collect()
    }

    /// All who belong to it are in it: bring those on who lag behind.
    fn move_on(&self, current: &Configuration) -> Vec<(usize, Told)> {
        let stamp = current.stamp();
        let mut steps = self.adopt(current);
        steps.extend(self.activate(stamp));
        let has_it = |view: &View| stamp_of(view) == Some(stamp);
        let needed = majority(current.slots().len());
        let remember: Vec<u64> = self
            .seen()
            .filter(|(_, view)| has_it(view) && current.has(view.id) && Look::remembers(view))
            .map(|(_, view)| view.largest)
            .collect();
        let agreed = remember.len() >= needed;
        // Of all slots the nodes themselves, none that is only placed.
        let all =
            self.every_slot_is_known(current, &[]) && self.seen().all(|(_, view)| has_it(view));
        let largest = |seen: &mut dyn Iterator<Item = u64>| seen.max().unwrap_or(0);
        let quarantine = self.stretched(current.max_lease());
        for (at, view) in self.seen() {
            if view.gate != Gate::Forgot || !has_it(view) || !current.has(view.id) {
                continue;
            }
            let episode = view.id;
            let begin = |by_time| Told::Begin { episode, stamp, quarantine, by_time };
            let recover = |floor| Told::Recover { episode, stamp, floor };
            let step = match view.quarantine {
                None if agreed => begin(false),
                None if all => begin(true),
                Some((_, false)) if !agreed && all => begin(true),
                Some((left, true)) if self.wish.vouched && !left.is_zero() => {
                    Told::Vouch { episode, stamp }
                }
                Some((left, by_time)) if is_worth_noting(left, view.measured) => {
                    let passed = view.measured;
                    Told::Waited { episode, stamp, by_time, left, passed }
                }
                Some((Duration::ZERO, false)) if agreed => {
                    recover(largest(&mut remember.iter().copied()))
                }
                Some((Duration::ZERO, true)) => {
                    recover(largest(&mut self.seen().map(|(_, view)| view.largest)))
                }
                _ => continue,
            };
            steps.push((at, step));
        }
        steps
    }

    /// A wait that is long enough where the clock of the client that measures it runs fast.
    fn stretched(&self, duration: Duration) -> Duration {
        duration + duration.mul_f64(f64::from(self.wish.drift_ppm) / 1e6)
    }
}

/// Tells whether a node is told how much of its wait a client has measured: the rest of it, or
/// enough to be worth a message.
fn is_worth_noting(left: Duration, measured: Duration) -> bool {
    !left.is_zero() && measured >= left.min(LEAST_NOTED)
}

fn stamp_of(view: &View) -> Option<Stamp> {
    view.configuration.as_ref().map(Configuration::stamp)
}
