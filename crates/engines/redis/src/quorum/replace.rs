//! How an operator gives slots of a set to other servers, and which servers lose theirs by that.
//!
//! The change itself is one like any other ([`plan`]): the next epoch, agreed by compare-and-set,
//! and a wait of the newcomer. Only which server gets which slot is the operator's word (M5 of
//! [`holdline_core::quorum::membership`]).

use holdline_core::LockError;
use holdline_core::quorum::{
    Configuration, Gate, NodeId, SetId, Slot, Standing, Told, View, Wish, majority, plan,
    replacements,
};
use serde::Serialize;

use super::admin::{LIMIT, NodeState, QuorumAdmin, QuorumStatus, only_waits, refused};
use super::member::Said;
use super::race::Race;

/// A slot that goes from one server to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Replacement {
    /// Where the server was last seen that loses its slot.
    pub address: String,
    /// Its id, in short.
    pub id: String,
    /// How it stands; `Down` also if no address of the list leads to it.
    pub state: NodeState,
    /// The address of the server that gets the slot.
    pub by: String,
    #[serde(skip)]
    slot: NodeId,
    #[serde(skip)]
    place: usize,
}

impl QuorumAdmin {
    /// Looks which servers lose their slots to which, and changes nothing. Of each pair the first
    /// is a server of the set: an address, as the set or the list has it, or the beginning of an
    /// id. The second is an address of the list.
    ///
    /// # Errors
    /// `Refused`: that cannot be done, and why. `NotInitialised`, `NoQuorum`: there is no set, or
    /// too few nodes answered to tell.
    pub async fn plan_replace<S: AsRef<str>>(
        &self,
        pairs: &[(S, S)],
    ) -> Result<Vec<Replacement>, LockError> {
        self.set.look().await;
        let said = self.set.said();
        let (views, told) = self.set.judge(&said, self.set.wish());
        let configuration = match &told.standing {
            Standing::Agreed(configuration) | Standing::Mislisted(configuration) => configuration,
            _ => return Err(self.set.find(&told, &said).err().unwrap_or_else(no_set)),
        };
        let mut all: Vec<Replacement> = Vec::new();
        for (old, new) in pairs {
            let slot = self.slot_of(configuration, &views, old.as_ref())?;
            let place = self.newcomer(configuration, &said, new.as_ref())?;
            if all.iter().any(|one| one.slot == slot.id || one.place == place) {
                return Err(refused("each server can be named in one pair only".to_owned()));
            }
            all.push(self.replacement(slot, &views, place));
        }
        self.check_votes(&all)?;
        self.check_agreement(configuration, &views, &all)?;
        Ok(all)
    }

    /// Gives the slots away. The newcomers vote when they have waited as any server does that has
    /// lost its memory; the evicted ones give no vote from the agreement on.
    ///
    /// # Errors
    /// As for [`QuorumAdmin::plan_replace`]. After `NoQuorum` some servers may know of the change:
    /// it is completed by the next client that reaches enough of them, or stays without effect.
    pub async fn replace(&self, all: &[Replacement]) -> Result<QuorumStatus, LockError> {
        self.set.greet().await;
        let end = self.set.clock.now().after(LIMIT);
        loop {
            let said = self.set.said();
            let id = |one: &Replacement| Some(said.get(one.place)?.heard.as_ref()?.view.id);
            let pairs = all.iter().filter_map(|one| Some((one.slot, id(one)?)));
            let wish = Wish { replace: pairs.collect(), ..self.set.wish().clone() };
            let (views, told) = self.set.judge(&said, &wish);
            let (Standing::Agreed(configuration) | Standing::Mislisted(configuration)) =
                &told.standing
            else {
                return Err(self.set.find(&told, &said).err().unwrap_or_else(no_set));
            };
            let has_it = |one: &Replacement| id(one).is_some_and(|id| configuration.has(id));
            if all.iter().all(has_it) && only_waits(&told) {
                return Ok(self.tell());
            }
            let lost = all.iter().find(|one| !configuration.has(one.slot) && !has_it(one));
            if let Some(one) = lost.filter(|one| id(one).is_some()) {
                let (address, by) = (&one.address, &one.by);
                let message = format!("another server than {by} was given the slot of {address}");
                return Err(refused(message));
            }
            if self.set.clock.now() >= end {
                return Err(self.set.no_quorum(&[]));
            }
            let is_out =
                |at: &usize| views[*at].as_ref().is_some_and(|view| view.gate == Gate::Out);
            let out: Vec<usize> = all.iter().map(|one| one.place).filter(is_out).collect();
            match out.is_empty() {
                true => self.carry_out(&told).await,
                false => self.readmit(&said, &out).await?,
            }
            self.set.greet().await;
        }
    }

    /// Looks which servers lose their slots by [`QuorumAdmin::rejoin`], and changes nothing.
    pub async fn plan_rejoin(&self) -> Vec<Replacement> {
        self.set.look().await;
        let said = self.set.said();
        let (views, told) = self.set.judge(&said, self.set.wish());
        let (Standing::Agreed(configuration) | Standing::Mislisted(configuration)) = &told.standing
        else {
            return Vec::new();
        };
        let slot = |id: NodeId| configuration.slots().iter().find(move |slot| slot.id == id);
        let rejoins = self.rejoins(&said).into_iter();
        rejoins.filter_map(|(old, at)| Some(self.replacement(slot(old)?, &views, at))).collect()
    }

    /// Says which slots go back to nodes that were replaced, once those are newcomers.
    pub(super) fn rejoins(&self, said: &[Said]) -> Vec<(NodeId, usize)> {
        let (mut views, _) = self.set.judge(said, self.set.wish());
        let out = |view: &Option<View>| view.as_ref().is_some_and(|view| view.gate == Gate::Out);
        let places: Vec<usize> = (0..views.len()).filter(|at| out(&views[*at])).collect();
        views.iter_mut().flatten().for_each(|view| {
            if view.gate == Gate::Out {
                (view.gate, view.was) = (Gate::Forgot, None);
            }
        });
        let at = |id: NodeId| {
            let is = |at: &&usize| views[**at].as_ref().is_some_and(|view| view.id == id);
            places.iter().find(is).copied()
        };
        let given = replacements(&views, self.set.wish()).into_iter();
        given.filter_map(|(old, new)| Some((old, at(new)?))).collect()
    }

    /// Makes servers newcomers that were replaced.
    pub(super) async fn readmit(&self, said: &[Said], places: &[usize]) -> Result<(), LockError> {
        let mut race = Race::with_room(places.len());
        for at in places {
            let Some(heard) = &said[*at].heard else { continue };
            let member = &self.set.members[*at];
            let told = Told::Readmit { id: heard.view.id, fresh: member.fresh() };
            race.add(*at, async move { member.tell(&self.set.asker, &told).await });
        }
        while let Some((_, answer)) = race.next().await {
            answer?;
        }
        Ok(())
    }

    fn replacement(&self, slot: &Slot, views: &[Option<View>], place: usize) -> Replacement {
        let is_its = |view: &Option<View>| view.as_ref().is_some_and(|view| view.id == slot.id);
        let states = self.tell().nodes;
        let at = views.iter().position(is_its);
        Replacement {
            address: slot.address.clone(),
            id: short(slot.id),
            state: at.map_or(NodeState::Down, |at| states[at].state),
            by: self.set.members[place].address().to_owned(),
            slot: slot.id,
            place,
        }
    }

    /// Finds the slot that an operator means.
    fn slot_of<'c>(
        &self,
        configuration: &'c Configuration,
        views: &[Option<View>],
        old: &str,
    ) -> Result<&'c Slot, LockError> {
        let at = self.set.members.iter().position(|member| is_at(member.address(), old));
        let listed = at.and_then(|at| views[at].as_ref()).map(|view| view.id);
        let slots = configuration.slots();
        let is_meant = |slot: &&Slot| {
            let has_id = old.len() >= SHORTEST_ID && slot.id.to_string().starts_with(old);
            is_at(&slot.address, old) || listed == Some(slot.id) || has_id
        };
        let meant: Vec<&Slot> = slots.iter().filter(is_meant).collect();
        let [slot] = meant[..] else {
            let all = slots.iter().map(|slot| format!("{} (id {})", slot.address, short(slot.id)));
            let all = all.collect::<Vec<_>>().join(", ");
            let what = if meant.is_empty() { "no server" } else { "more than one server" };
            return Err(refused(format!("{old} is {what} of the set, which has {all}")));
        };
        Ok(slot)
    }

    /// Finds the place of a server that may be given a slot.
    fn newcomer(
        &self,
        configuration: &Configuration,
        said: &[Said],
        new: &str,
    ) -> Result<usize, LockError> {
        let place = self.set.members.iter().position(|member| is_at(member.address(), new));
        let Some(place) = place else {
            return Err(refused(format!("{new} is not among the servers that the URL names")));
        };
        let Some(heard) = &said[place].heard else {
            let failure = said[place].failure.as_ref();
            let why = failure.map_or("no answer".to_owned(), |failure| failure.kind().to_string());
            return Err(refused(format!("{new} cannot be used: {why}")));
        };
        if configuration.has(heard.view.id) {
            return Err(refused(format!("{new} is a server of the set already")));
        }
        let other = heard.view.configuration.as_ref().map(Configuration::set);
        if let Some(other) = other.filter(|other| *other != configuration.set()) {
            let (key, other) = (self.set.asker.layout.node(), SetId::short(other));
            let message = format!(
                "{new} belongs to the set {other}: if it is to leave that, delete its key `{}`",
                String::from_utf8_lossy(&key),
            );
            return Err(refused(message));
        }
        Ok(place)
    }

    /// Nobody is evicted whose vote is needed.
    fn check_votes(&self, all: &[Replacement]) -> Result<(), LockError> {
        let status = self.tell();
        let evicted = all.iter().filter(|one| one.state == NodeState::Votes).count();
        let (left, needed) = (status.votes.saturating_sub(evicted), status.majority);
        if evicted == 0 || left >= needed {
            return Ok(());
        }
        let message = format!(
            "without them {left} of {} servers vote, and {needed} must: wait until the others vote",
            status.nodes.len(),
        );
        Err(refused(message))
    }

    /// Tells whether the change can be agreed on by those who answer.
    fn check_agreement(
        &self,
        configuration: &Configuration,
        views: &[Option<View>],
        all: &[Replacement],
    ) -> Result<(), LockError> {
        let (mut views, mut wish) = (views.to_vec(), self.set.wish().clone());
        for one in all {
            let Some(view) = views[one.place].as_mut() else { continue };
            (view.gate, view.was) = (Gate::Forgot, None);
            wish.replace.push((one.slot, view.id));
        }
        let is_it = |told: &Told| match told {
            Told::Adopt { configuration, .. } => wish
                .replace
                .iter()
                .all(|(old, new)| !configuration.has(*old) && configuration.has(*new)),
            _ => false,
        };
        if plan(&views, &wish).steps.iter().any(|(_, told)| is_it(told)) {
            return Ok(());
        }
        let given = replacements(&views, &wish);
        let is_gone = |slot: &&Slot| {
            let is_seen = views.iter().flatten().any(|view| view.id == slot.id);
            !is_seen && !given.iter().any(|(old, _)| *old == slot.id)
        };
        let gone = configuration.slots().iter().filter(is_gone);
        let gone = gone.map(|slot| slot.address.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!(
            "too few servers of the set remember to agree on it ({} must), so every slot must be \
             accounted for: bring back, or name with a server that takes its slot: {gone}",
            majority(views.len()),
        );
        Err(refused(message))
    }
}

/// The shortest beginning of an id that is understood as one.
const SHORTEST_ID: usize = 6;

fn short(id: NodeId) -> String {
    id.to_string().chars().take(8).collect()
}

/// Tells whether an operator means this address, which always has a port.
fn is_at(address: &str, said: &str) -> bool {
    address == said || address.strip_suffix(":6379") == Some(said)
}

fn no_set() -> LockError {
    refused("these servers are no set".to_owned())
}
