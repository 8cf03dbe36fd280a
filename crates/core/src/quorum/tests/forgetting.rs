//! Small worlds of nodes that forget, explored in full: attempts, forgetting and those who take
//! nodes in again meet in any order; what they say arrives in any order, late or never.
//!
//! A request and its answer are one step here, as the order of answers is the subject of the other
//! model; either may be lost. In a world *with clocks* a lease ends on a node only once nobody
//! believes in it any more, and a quarantine only once nobody believes in what the node had granted
//! before; there at most one believes at a time. Without clocks both end at any moment, and tokens
//! are distinct and grow all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{Set, address, node_id, wish};
use super::{id, token};
use crate::Moment;
use crate::quorum::ballot::Seat;
use crate::quorum::{
    Ballot, Command, Gate, Kept, Node, NodeId, Refusal, Register, SKEW, Stamp, Standing, Tally,
    Told, Verdict, View, Vote, Wish, Written, plan, proven,
};
use crate::token::FencingToken;

const GROW: &str = "tokens are distinct and grow";
const ALONE: &str = "with clocks, at most one believes";
const SOUND: &str = "nothing breaks";
const LATE: &str = "what was kept had nobody come after it";
const ONE: &str = "two configurations never find a majority at once";
const EVICTED: &str = "a list of servers that is wrong evicts nobody";
const HEALED: &str = "a lease is healed only with the token that it was granted with";
const SAME: &str = "a lease id that is asked again has the token that it was granted with";

/// A rule left out or written wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// A node that was agreed to votes at once.
    NoWait,
    /// The floor is what the node itself knows.
    NoFloor,
    /// The floor is asked of a node that forgot as well.
    FloorOfTheForgetful,
    /// The wait begins before the others have agreed.
    WaitBeforeAgreed,
    /// Whoever is told to vote does, whatever its episode and its wait.
    AnyEpisode,
    /// A node that is silent is taken to have followed the others.
    Stamped,
    /// A node that lost its memory does not notice.
    Unnoticed,
    /// A name whose counter was forgotten on purpose starts from nothing.
    OldBase,
    /// A node that was restored from an old copy counts on from its old counters.
    OldCopy,
    /// What a renewal takes counts in the same renewal.
    HealedAtOnce,
    /// A lease id that is asked again is answered where it was healed, too.
    HealedProves,
    /// Whoever renews by lease id heals with the token of the most records, and of equally many
    /// with any.
    HealedWithTheMost,
    /// A lease id is asked again after it was given up.
    AskedAfterUndo,
    /// What was granted under an old configuration still counts.
    AnyStamp,
    /// Whoever answers counts as a member of the configuration.
    StrangersCount,
    /// Where no majority remembers, it is enough that all who are listed answer, though a member
    /// is neither seen nor placed.
    MembersUnseen,
    /// A newcomer that nobody knows takes the slot that is left over when all answer.
    LeftoverTaken,
    /// A server that is taken in again votes at once, as what it was.
    ReadmittedAtOnce,
    /// An operator's word that nothing is held ends any wait, whenever it comes.
    VouchForAny,
    /// Where nobody remembers, the floor is the clock, without the second.
    ClockAlone,
}

const PLANTED: [Planted; 12] = [
    Planted::NoWait,
    Planted::NoFloor,
    Planted::FloorOfTheForgetful,
    Planted::AnyEpisode,
    Planted::Stamped,
    Planted::Unnoticed,
    Planted::OldBase,
    Planted::OldCopy,
    Planted::HealedAtOnce,
    Planted::AskedAfterUndo,
    Planted::AnyStamp,
    Planted::ClockAlone,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    node: Node,
    register: Register,
    /// Whose belief is older than the wait that has begun here.
    waits_for: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Life {
    Open,
    /// It believes its lease because of these nodes.
    Holding(BTreeSet<NodeId>),
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    ballot: Ballot,
    stamp: Stamp,
    life: Life,
    to_write: BTreeSet<(usize, u64)>,
    /// Who voted, under the id of that time.
    voters: BTreeSet<(usize, NodeId)>,
    floor: u64,
    proposed: u64,
    won: Option<u64>,
    /// Which lease id it asks with.
    id: usize,
    /// Who has not executed its request yet.
    asked: BTreeSet<usize>,
    /// Which of its nodes are the old ones.
    old: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    places: Vec<Place>,
    /// Those that were replaced and live on elsewhere, where contenders may still reach them.
    old: Vec<Option<Place>>,
    /// What was written down of each node, at some time.
    copies: Vec<Option<Place>>,
    saved: u8,
    restored: u8,
    attempts: Vec<Attempt>,
    said: BTreeSet<(usize, Told)>,
    forgotten: u8,
    late: u8,
    losses: u8,
    renewals: u8,
    readmitted: u8,
    vouched: u8,
    /// What the last look saw, where a later one may still see a part of it.
    seen: Vec<View>,
    torn: u8,
    clock: u64,
    broken: Option<&'static str>,
    healed: bool,
    /// A lease was healed by its winner where no token had a majority of the records.
    by_winner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Begin {
        stamp: Stamp,
        ahead: bool,
    },
    Ask {
        attempt: usize,
        node: usize,
        lost: bool,
    },
    Meet {
        attempt: usize,
        node: usize,
    },
    Write {
        attempt: usize,
        node: usize,
        token: u64,
    },
    Renew {
        attempt: usize,
        silent: Option<usize>,
        healer: Healer,
    },
    End {
        attempt: usize,
    },
    Undo {
        attempt: usize,
        node: usize,
    },
    Retry {
        attempt: usize,
    },
    Release {
        attempt: usize,
    },
    Expire {
        node: usize,
    },
    ExpireOld {
        node: usize,
    },
    ForgetName {
        node: usize,
    },
    Forget {
        node: usize,
        lives: bool,
    },
    Save {
        node: usize,
    },
    Restore {
        node: usize,
    },
    Look {
        silent: Option<usize>,
        late: Option<usize>,
    },
    /// A client looks whose addresses lead to the servers that were there before.
    LookStale {
        silent: Option<usize>,
    },
    /// A client looks, and what it has seen of one node is what was seen before.
    LookTorn {
        at: usize,
    },
    /// An operator looks, and vouches for it that nothing is held.
    Vouch {
        late: Option<usize>,
    },
    /// The server that was replaced comes back, and the other one lives on elsewhere.
    Return {
        node: usize,
    },
    /// An operator takes it in again.
    Readmit {
        node: usize,
    },
    Hear {
        which: usize,
    },
    EndQuarantine {
        node: usize,
    },
    EndQuarantineOld {
        node: usize,
    },
    /// An operator gives the slot of the server that was here before to the one that a client with
    /// another list reaches.
    Replace {
        node: usize,
        silent: Option<usize>,
    },
}

/// Which process renews a lease, and so heals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Healer {
    /// The one that was granted it, and knows its token.
    Winner,
    /// Another one, which has the lease id and no more.
    ByLeaseId,
}

struct Small {
    nodes: usize,
    attempts: usize,
    forgettings: u8,
    /// How often a node's memory is written down, and how often one comes back with that.
    restores: u8,
    /// How many words come later.
    late: u8,
    /// How many answers are lost.
    losses: u8,
    /// A node that forgot may be another one, and the old one lives on elsewhere.
    replaced: bool,
    /// One has forgotten before and votes again, and the word that ended its wait comes once more.
    again: bool,
    clocks: bool,
    /// How many renewals there are.
    renewals: u8,
    names_forgotten: bool,
    /// Only who belongs to the set is of interest: nodes forget one after the other, those that
    /// were there before live on, and some clients know no others.
    lists: bool,
    /// Some clients list a blank server in the place of one of the set.
    wrong: bool,
    /// An operator may give that one the slot.
    replaces: bool,
    /// Requests arrive after the attempt was decided, and the holder may release.
    late_votes: bool,
    /// Attempts may propose the largest token that a node takes: its clock and a second.
    ahead: bool,
    /// Servers that were replaced come back, and operators take them in again so often.
    readmits: u8,
    /// How often an operator vouches, and is right: nobody holds anything then.
    vouches: u8,
    /// How many looks see one node as it was when somebody looked before.
    torn: u8,
    /// A node may be silent for who looks.
    silences: bool,
    planted: Option<Planted>,
}

const SMALL: Small = Small {
    nodes: 3,
    attempts: 2,
    forgettings: 1,
    restores: 0,
    late: 0,
    losses: 0,
    replaced: false,
    again: false,
    clocks: false,
    renewals: 0,
    names_forgotten: false,
    lists: false,
    wrong: false,
    replaces: false,
    late_votes: false,
    ahead: false,
    readmits: 0,
    vouches: 0,
    torn: 0,
    silences: true,
    planted: None,
};

/// The place whose address is wrong in the lists of some clients, and the blank server there.
const WRONG: usize = 2;
const STRANGER: u8 = 90;

fn mine(attempt: usize) -> crate::LeaseId {
    id(u8::try_from(attempt + 1).expect("few attempts"))
}

impl World {
    /// Says which attempts may still believe something.
    fn alive(&self) -> BTreeSet<usize> {
        let attempts = self.attempts.iter().enumerate();
        attempts.filter(|(_, one)| one.life != Life::Over).map(|(number, _)| number).collect()
    }

    /// Tells whether a node that forgot votes again, and more.
    fn is_back(&self, also: impl Fn(NodeId) -> bool) -> bool {
        let mut open = self.places.iter().filter(|place| place.node.gate == Gate::Open);
        open.any(|place| place.node.id > node_id(99) && also(place.node.id))
    }
}

fn end_wait(place: &mut Place) {
    place.waits_for.clear();
    if let Some(begun) = &mut place.node.quarantine {
        begun.left = 0;
    }
}

fn is_waiting(place: &Place) -> bool {
    place.node.quarantine.is_some_and(|begun| begun.left > 0)
}

impl Place {
    fn new(node: Node) -> Place {
        Place { node, register: Register::default(), waits_for: BTreeSet::new() }
    }

    fn forget(&mut self, marker: String, fresh: NodeId) {
        *self = Place::new(Node::blank(marker, fresh));
    }
}

impl Small {
    fn admits(&self, place: &Place, stamp: Stamp) -> bool {
        let node = &place.node;
        match self.planted {
            Some(Planted::AnyStamp) => node.gate == Gate::Open,
            _ => node.admit(&node.marker, stamp).is_ok(),
        }
    }

    fn begin(&self, world: &mut World, stamp: Stamp, id: usize, ahead: bool) {
        let mut ballot = Ballot::new(self.nodes, Duration::from_secs(10), 0);
        (0..self.nodes).for_each(|node| ballot.asked(node, Moment::ORIGIN));
        let floor = world.attempts.iter().filter_map(|other| other.won).max().unwrap_or(0);
        let proposed = if ahead { world.clock + micros(SKEW) } else { 0 };
        world.attempts.push(Attempt {
            ballot,
            stamp,
            life: Life::Open,
            to_write: BTreeSet::new(),
            voters: BTreeSet::new(),
            floor,
            proposed,
            won: None,
            id,
            asked: (0..self.nodes).collect(),
            old: BTreeSet::new(),
        });
    }

    fn ask(&self, world: &mut World, number: usize, at: usize, lost: bool) {
        let attempt = &mut world.attempts[number];
        let place = match &mut world.old[at] {
            Some(old) if attempt.old.contains(&at) => old,
            _ => &mut world.places[at],
        };
        attempt.asked.remove(&at);
        if !self.admits(place, attempt.stamp) {
            attempt.ballot.refused(at, Refusal::Abstained);
            return self.decide(world, number);
        }
        let floor = match self.planted {
            Some(Planted::OldBase) => 0,
            Some(Planted::OldCopy) if place.register.last() > 0 => 0,
            _ => place.node.floor(place.register.last()),
        };
        let vote = place.register.acquire(mine(attempt.id), floor, attempt.proposed);
        let vote = vote.expect("small numbers");
        if let Vote::Granted { last } = vote {
            place.node.raise(last.get());
            attempt.voters.insert((at, place.node.id));
        }
        world.losses += u8::from(lost);
        match lost {
            true => attempt.ballot.unanswered(at),
            false => attempt.ballot.voted(at, vote),
        }
        self.decide(world, number);
    }

    fn write(&self, world: &mut World, number: usize, at: usize, written: u64) {
        let attempt = &mut world.attempts[number];
        let place = match &mut world.old[at] {
            Some(old) if attempt.old.contains(&at) => old,
            _ => &mut world.places[at],
        };
        attempt.to_write.remove(&(at, written));
        if !self.admits(place, attempt.stamp) {
            attempt.ballot.unanswered(at);
            return self.decide(world, number);
        }
        let answer = place.register.write_back(mine(attempt.id), token(written));
        if let Written::Stands(last) = answer {
            place.node.raise(last.get());
        }
        attempt.ballot.written(at, answer);
        self.decide(world, number);
    }

    fn decide(&self, world: &mut World, number: usize) {
        let attempt = &mut world.attempts[number];
        let verdict = attempt.ballot.decide(Moment::ORIGIN);
        for Command::WriteBack { node, token } in attempt.ballot.take_commands() {
            attempt.to_write.insert((node, token.get()));
        }
        match verdict {
            Verdict::Won { token, .. } if attempt.won.is_none() && attempt.life == Life::Open => {
                let proof = attempt
                    .voters
                    .iter()
                    .filter(|(at, _)| matches!(attempt.ballot.seat(*at), Seat::Voted(_)));
                attempt.life = Life::Holding(proof.map(|(_, id)| *id).collect());
                self.win(world, number, token.get());
            }
            Verdict::Lost if attempt.life == Life::Open => attempt.life = Life::Over,
            _ => {}
        }
    }

    /// The lease id of a holder is asked again, whenever that may be.
    fn check(&self, mut world: World) -> World {
        if world.broken.is_none() && self.late_votes {
            let holds = |at: &usize| matches!(world.attempts[*at].life, Life::Holding(_));
            let won = (0..world.attempts.len()).filter(holds);
            world.broken = won.filter_map(|number| self.ask_again(&world, number)).next();
        }
        world
    }

    fn win(&self, world: &mut World, number: usize, won: u64) {
        if won <= world.attempts[number].floor {
            world.broken = Some(GROW);
        }
        let others = world.attempts.iter().enumerate().filter(|(at, _)| *at != number);
        for (_, other) in others {
            if other.won == Some(won) {
                world.broken = Some(GROW);
            }
            if self.clocks && matches!(other.life, Life::Holding(_)) {
                world.broken = Some(ALONE);
            }
        }
        world.attempts[number].won = Some(won);
    }

    /// One renewal: all are asked but the silent one; where nothing stands, it is healed.
    fn renew(&self, world: &mut World, number: usize, silent: Option<usize>, healer: Healer) {
        let newest = world.places.iter().filter_map(|place| place.node.configuration.as_ref());
        let Some(newest) = newest.max_by_key(|one| one.epoch()) else { return };
        let stamp = newest.stamp();
        let mut tally = Tally::new(self.nodes, Duration::from_secs(10), 0);
        let mut proof = BTreeSet::new();
        for at in (0..self.nodes).filter(|at| Some(*at) != silent) {
            tally.asked(at, Moment::ORIGIN);
            let place = &mut world.places[at];
            if !self.admits(place, stamp) {
                tally.unanswered(at);
                continue;
            }
            if self.planted == Some(Planted::HealedAtOnce) && place.register.holder().is_none() {
                let floor = place.node.floor(place.register.last());
                place.register.acquire(mine(number), floor, 0).expect("small numbers");
            }
            match place.register.holder() {
                Some(holder) if holder == mine(number) => {
                    tally.kept(at);
                    proof.insert(place.node.id);
                }
                other => tally.gone(at, other.is_none()),
            }
        }
        match tally.decide(Moment::ORIGIN) {
            Kept::Yes { .. } => {
                let (won, over) =
                    (world.attempts[number].won, world.attempts[number].life == Life::Over);
                // A late vote may keep what a stepped clock had ended: the token is older.
                if !self.late_votes && world.attempts.iter().any(|other| other.won > won) {
                    world.broken = Some(LATE);
                }
                if !over {
                    world.places.iter_mut().for_each(|place| {
                        place.waits_for.remove(&number);
                    });
                    world.attempts[number].life = Life::Holding(proof);
                }
            }
            Kept::No => world.attempts[number].life = Life::Over,
            Kept::Open | Kept::Unclear => return,
        }
        let records = self.tokens(world, stamp, silent, |at| at.recorded(mine(number)));
        let won = world.attempts[number].won.map(token);
        let granted = won.filter(|_| healer == Healer::Winner);
        let Some(healed_with) = self.heals_with(granted, &records) else { return };
        for at in tally.to_heal() {
            if Some(healed_with) != won {
                world.broken = Some(HEALED);
            }
            world.by_winner |= proven(&records, self.nodes).is_none();
            let place = &mut world.places[at];
            let floor = place.node.floor(place.register.last());
            place.register.heal(mine(number), floor, healed_with);
            place.node.raise(place.register.last());
            world.healed = true;
        }
    }

    /// What the nodes say that vote under this stamp, but for the silent one.
    fn tokens(
        &self,
        world: &World,
        stamp: Stamp,
        silent: Option<usize>,
        say: impl Fn(&Register) -> Option<FencingToken>,
    ) -> Vec<FencingToken> {
        let places = world.places.iter().enumerate().filter(|(at, _)| Some(*at) != silent);
        let places = places.filter(|(_, place)| self.admits(place, stamp));
        places.filter_map(|(_, place)| say(&place.register)).collect()
    }

    /// The winner heals with the token that it was granted, any other process with one that is
    /// proven; neither unless a record carries it.
    fn heals_with(
        &self,
        granted: Option<FencingToken>,
        records: &[FencingToken],
    ) -> Option<FencingToken> {
        let like = |one: &&FencingToken| records.iter().filter(|two| two == one).count();
        let of_records = || match self.planted {
            Some(Planted::HealedWithTheMost) => records.iter().max_by_key(like).copied(),
            _ => proven(records, self.nodes),
        };
        granted.or_else(of_records).filter(|token| records.contains(token))
    }

    /// Somebody who knows the lease id asks with it again. A majority that carries one token
    /// answers, and that must be the token that it was granted with.
    fn ask_again(&self, world: &World, number: usize) -> Option<&'static str> {
        let newest = world.places.iter().filter_map(|place| place.node.configuration.as_ref());
        let stamp = newest.max_by_key(|one| one.epoch())?.stamp();
        let evidence = |register: &Register| match self.planted {
            Some(Planted::HealedProves) if register.holder() == Some(mine(number)) => {
                FencingToken::new(register.last()).ok()
            }
            _ => register.evidence(mine(number)),
        };
        let answer = proven(&self.tokens(world, stamp, None, evidence), self.nodes)?;
        (Some(answer.get()) != world.attempts[number].won).then_some(SAME)
    }

    fn hear(&self, world: &mut World, at: usize, told: Told) {
        self.hear_at(world, at, false, told);
    }

    /// `old`: the server that was there before is told, where one lives on.
    fn hear_at(&self, world: &mut World, at: usize, old: bool, told: Told) {
        let alive = world.alive();
        let place = match &mut world.old[at] {
            Some(place) if old => place,
            _ => &mut world.places[at],
        };
        let marker = place.node.marker.clone();
        let begins = matches!(told, Told::Begin { .. });
        if self.planted == Some(Planted::AnyEpisode)
            && place.node.gate == Gate::Forgot
            && matches!(told, Told::Recover { .. })
        {
            let (left, by_time) = (0, false);
            place.node.quarantine = Some(crate::quorum::node::Quarantine { left, by_time });
        }
        let told = self.twisted(&place.node, told);
        if self.planted == Some(Planted::ReadmittedAtOnce) && matches!(told, Told::Readmit { .. }) {
            place.node.gate = Gate::Open;
        }
        if self.planted == Some(Planted::VouchForAny)
            && matches!(told, Told::Vouch { .. })
            && let Some(begun) = &mut place.node.quarantine
        {
            begun.left = 0;
        }
        let now = match self.planted {
            Some(Planted::ClockAlone) => world.clock.saturating_sub(micros(SKEW)),
            _ => world.clock,
        };
        let heard = place.node.told(&marker, told, now);
        if heard
            && begins
            && let Some(begun) = &mut place.node.quarantine
        {
            let at_once = self.planted == Some(Planted::NoWait);
            begun.left = if at_once { 0 } else { 1_000_000 };
            place.waits_for = alive;
        }
        if self.majorities(world) > 1 {
            world.broken = Some(ONE);
        }
        let belongs = |place: &Place| {
            let known = place.node.configuration.as_ref();
            known.is_some_and(|known| known.has(node_id(STRANGER)))
        };
        if self.wrong && !self.replaces && world.places.iter().any(belongs) {
            world.broken = Some(EVICTED);
        }
    }

    fn twisted(&self, node: &Node, told: Told) -> Told {
        match (self.planted, told) {
            (Some(Planted::NoFloor), Told::Recover { episode, stamp, .. }) => {
                Told::Recover { episode, stamp, floor: node.largest }
            }
            (Some(Planted::AnyEpisode), Told::Recover { stamp, floor, .. }) => {
                let stamp = node.configuration.as_ref().map_or(stamp, |mine| mine.stamp());
                Told::Recover { episode: node.id, stamp, floor }
            }
            (_, told) => told,
        }
    }

    /// Tells whether one more may live on: those that do are no majority under one configuration.
    fn may_live_on(&self, world: &World, node: usize) -> bool {
        let living = || world.old.iter().flatten();
        if !self.lists {
            return 2 * (living().count() + 1) < self.nodes;
        }
        let stamp = |place: &Place| place.node.configuration.as_ref().map(|mine| mine.stamp());
        let mine = stamp(&world.places[node]);
        let alike = living().filter(|place| stamp(place) == mine).count();
        world.old[node].is_none() && alike + 1 < crate::quorum::majority(self.nodes)
    }

    /// Counts the configurations under which a majority votes.
    fn majorities(&self, world: &World) -> usize {
        let open = world.places.iter().chain(world.old.iter().flatten());
        let open = open.filter(|place| place.node.gate == Gate::Open);
        let stamps: Vec<Stamp> = open
            .filter_map(|place| place.node.configuration.as_ref().map(|mine| mine.stamp()))
            .collect();
        let distinct: BTreeSet<&Stamp> = stamps.iter().collect();
        let majority = crate::quorum::majority(self.nodes);
        let has_majority =
            |stamp: &&&Stamp| stamps.iter().filter(|other| other == *stamp).count() >= majority;
        distinct.iter().filter(has_majority).count()
    }

    /// Tells whether somebody may still believe because of what this node granted.
    fn believed(world: &World, granted: NodeId) -> bool {
        world.attempts.iter().any(|attempt| match &attempt.life {
            Life::Open => attempt.voters.iter().any(|(_, voter)| *voter == granted),
            Life::Holding(proof) => proof.contains(&granted),
            Life::Over => false,
        })
    }

    fn views(&self, world: &World, silent: Option<usize>, stale: bool) -> Vec<Option<View>> {
        let seen = world.places.iter().zip(&world.old).enumerate();
        seen.map(|(at, (place, old))| {
            let place = old.as_ref().filter(|_| stale).unwrap_or(place);
            (Some(at) != silent).then(|| place.node.view())
        })
        .collect()
    }

    fn wish(&self) -> Wish {
        wish(self.nodes, false)
    }

    /// The same of a client that lists a blank server in the place of one of the set.
    fn stale_wish(&self) -> Wish {
        let mut wish = self.wish();
        if self.wrong {
            "elsewhere".clone_into(&mut wish.addresses[WRONG]);
        }
        wish
    }

    /// What an operator says who replaces the server at this place. Where no majority remembers,
    /// nobody can check the word, and it has to be true: no server votes that the list lacks.
    fn word(&self, world: &World, node: usize, silent: Option<usize>) -> Option<Wish> {
        let views = self.views(world, silent, true);
        let newest = views.iter().flatten().filter_map(|view| view.configuration.as_ref());
        let newest = newest.max_by_key(|one| one.epoch())?;
        let old = newest.slots().iter().find(|slot| slot.address == address(node))?.id;
        let remembers = |view: &&View| view.gate == Gate::Open && newest.has(view.id);
        let remember = views.iter().flatten().filter(remembers).count();
        let mut lacking = world.places.iter().zip(&world.old).filter(|(_, old)| old.is_some());
        let is_gone = lacking.all(|(place, _)| place.node.gate != Gate::Open);
        let new = world.old[node].as_ref()?.node.id;
        let mut wish = self.stale_wish();
        wish.replace.push((old, new));
        (is_gone || remember >= crate::quorum::majority(self.nodes)).then_some(wish)
    }

    /// Somebody looks by addresses that lead to old servers, and says what follows.
    fn look_stale(&self, world: &mut World, silent: Option<usize>, mut wish: Wish) {
        let mut views = self.views(world, silent, true);
        if self.planted == Some(Planted::StrangersCount) {
            let newest = views.iter().flatten().filter_map(|view| view.configuration.clone());
            let newest = newest.max_by_key(|one| one.epoch()).expect("it was founded");
            let seen: BTreeSet<NodeId> = views.iter().flatten().map(|view| view.id).collect();
            let mut lacking = newest.slots().iter().filter(|slot| !seen.contains(&slot.id));
            let stranger = |view: &&mut View| {
                matches!(view.gate, Gate::Open | Gate::Out) && !newest.has(view.id)
            };
            for view in views.iter_mut().flatten().filter(stranger) {
                view.id = lacking.next().map_or(view.id, |slot| slot.id);
            }
        }
        if self.planted == Some(Planted::LeftoverTaken)
            && let [stranger] = plan(&views, &wish).mislisted[..]
        {
            let newest = views.iter().flatten().filter_map(|view| view.configuration.clone());
            let newest = newest.max_by_key(|one| one.epoch()).expect("it was founded");
            let seen: BTreeSet<NodeId> = views.iter().flatten().map(|view| view.id).collect();
            let lacking = newest.slots().iter().filter(|slot| !seen.contains(&slot.id));
            if let ([slot], [Some(_), Some(_), Some(new)]) =
                (&lacking.collect::<Vec<_>>()[..], &views[..])
                && stranger == WRONG
            {
                wish.replace = vec![(slot.id, new.id)];
            }
        }
        if self.planted == Some(Planted::MembersUnseen) && views.iter().all(Option::is_some) {
            Small::take_for_lost(&mut views);
        }
        for (at, told) in plan(&views, &wish).steps {
            self.hear_at(world, at, true, told);
        }
    }

    /// Shows each member that is not seen as one that answers and has forgotten, in the place of a
    /// former member: then each slot counts as seen.
    fn take_for_lost(views: &mut [Option<View>]) {
        let newest = views.iter().flatten().filter_map(|view| view.configuration.clone());
        let newest = newest.max_by_key(|one| one.epoch()).expect("it was founded");
        let seen: BTreeSet<NodeId> = views.iter().flatten().map(|view| view.id).collect();
        let mut unseen = newest.slots().iter().filter(|slot| !seen.contains(&slot.id));
        let former =
            |view: &&mut View| matches!(view.gate, Gate::Open | Gate::Out) && !newest.has(view.id);
        for view in views.iter_mut().flatten().filter(former) {
            let Some(slot) = unseen.next() else { return };
            (view.id, view.gate) = (slot.id, Gate::Forgot);
        }
    }

    /// Somebody looks, one node may be silent, and says what follows; one word may come later.
    fn look(&self, world: &mut World, silent: Option<usize>, late: Option<usize>) {
        let views = self.views(world, silent, false);
        self.act(world, &views, &self.wish(), silent, late);
    }

    /// What follows from what was seen.
    fn act(
        &self,
        world: &mut World,
        views: &[Option<View>],
        wish: &Wish,
        silent: Option<usize>,
        late: Option<usize>,
    ) {
        if self.torn > 0 {
            world.seen = world.places.iter().map(|place| place.node.view()).collect();
        }
        let mut planned = plan(views, wish);
        if let (Some(Planted::Stamped), Some(silent)) = (self.planted, silent) {
            let newest = views.iter().flatten().filter_map(|view| view.configuration.clone());
            let mut assumed = world.places[silent].node.view();
            assumed.configuration = newest.max_by_key(|one| one.epoch());
            let mut all = views.to_vec();
            all[silent] = Some(assumed);
            planned = plan(&all, wish);
            planned.steps.retain(|(at, _)| *at != silent);
        }
        let agreed = matches!(planned.standing, Standing::Agreed(_));
        for (at, told) in planned.steps {
            let told = match (self.planted, told) {
                (Some(Planted::FloorOfTheForgetful), Told::Recover { episode, stamp, .. }) => {
                    let other = views.iter().flatten().find(|view| view.gate == Gate::Forgot);
                    let floor = other.map_or(0, |view| view.largest);
                    Told::Recover { episode, stamp, floor }
                }
                (_, told) => told,
            };
            match Some(at) == late {
                true => {
                    world.late += 1;
                    world.said.insert((at, told));
                }
                false => self.hear(world, at, told),
            }
        }
        if self.planted == Some(Planted::WaitBeforeAgreed) && agreed {
            let alive = world.alive();
            for place in &mut world.places {
                if place.node.gate == Gate::Forgot && place.node.quarantine.is_none() {
                    let (left, by_time) = (1_000_000, false);
                    let begun = crate::quorum::node::Quarantine { left, by_time };
                    place.node.quarantine = Some(begun);
                    place.waits_for.clone_from(&alive);
                }
            }
        }
    }

    /// A node loses its memory, or is replaced by one that has none.
    fn forget(&self, world: &mut World, node: usize, lives: bool) {
        if lives {
            world.old[node] = Some(world.places[node].clone());
        }
        world.forgotten += 1;
        world.clock += 1000;
        let number = 100 + world.forgotten;
        let marker = world.forgotten.to_string();
        let place = &mut world.places[node];
        match self.planted {
            Some(Planted::Unnoticed) => {
                place.node.largest = 0;
                place.register = Register::default();
            }
            _ => place.forget(marker, node_id(number)),
        }
    }

    /// The server that was there before is there again.
    fn come_back(world: &mut World, node: usize) {
        let Some(old) = world.old[node].take() else { return };
        world.old[node] = Some(std::mem::replace(&mut world.places[node], old));
        // Who is connected to a server stays connected to it.
        for attempt in &mut world.attempts {
            if !attempt.old.remove(&node) {
                attempt.old.insert(node);
            }
        }
    }

    fn look_torn(&self, world: &mut World, at: usize) {
        let mut views = self.views(world, None, false);
        views[at] = world.seen.get(at).cloned();
        world.torn += 1;
        self.act(world, &views, &self.wish(), None, None);
    }

    fn vouch(&self, world: &mut World, late: Option<usize>) {
        world.vouched += 1;
        let wish = Wish { vouched: true, ..self.wish() };
        let views = self.views(world, None, false);
        self.act(world, &views, &wish, None, late);
    }

    fn readmit(&self, world: &mut World, node: usize) {
        world.readmitted += 1;
        let (id, fresh) = (world.places[node].node.id, node_id(200 + world.readmitted));
        self.hear(world, node, Told::Readmit { id, fresh });
    }

    /// What operators do, and clients whose views are of different moments.
    fn of_operators(&self, world: &World, actions: &mut Vec<Action>) {
        let is_right = !self.clocks || world.alive().is_empty();
        if world.vouched < self.vouches && is_right {
            let late = (0..self.nodes).filter(|_| world.late < self.late).map(Some);
            actions.extend(std::iter::once(None).chain(late).map(|late| Action::Vouch { late }));
        }
        for (node, place) in world.places.iter().enumerate() {
            let returns = world.readmitted < self.readmits && world.old[node].is_some();
            if returns && place.node.marker != "0" {
                actions.push(Action::Return { node });
            }
            if world.readmitted < self.readmits && place.node.gate == Gate::Out {
                actions.push(Action::Readmit { node });
            }
            let differs = |seen: &View| *seen != place.node.view();
            if world.torn < self.torn && world.seen.get(node).is_some_and(differs) {
                actions.push(Action::LookTorn { at: node });
            }
        }
    }

    /// One node forgets and is taken in again; what was said to it last is said once more. If an
    /// operator vouches, a majority forgets, and the operator's word is said once more. If servers
    /// are readmitted, another one was put in the node's place, and the old one is back.
    fn after_an_episode(&self, mut world: World) -> World {
        let vouched = self.vouches > 0;
        let replaced = self.readmits > 0;
        (0..=usize::from(vouched)).for_each(|node| self.forget(&mut world, node, replaced));
        let wish = Wish { vouched, ..self.wish() };
        let mut last = None;
        while world.places.iter().any(|place| place.node.gate != Gate::Open) {
            let views = self.views(&world, None, false);
            self.act(&mut world, &views, &wish, None, Some(0));
            for (at, told) in std::mem::take(&mut world.said) {
                self.hear(&mut world, at, told.clone());
                if !vouched || matches!(told, Told::Vouch { .. }) {
                    last = Some((at, told));
                }
            }
            if let Some(begun) = world.places[0].node.quarantine.as_mut().filter(|_| !vouched) {
                begun.left = 0;
            }
        }
        if replaced {
            Small::come_back(&mut world, 0);
            self.look(&mut world, None, None);
            return world;
        }
        world.said.extend(last);
        (world.late, world.vouched) = (1, self.vouches);
        world
    }

    /// A node comes back with what was written down of it, and that is noticed.
    fn restore(world: &mut World, node: usize) {
        let Some(mut copy) = world.copies[node].take() else { return };
        world.restored += 1;
        world.forgotten += 1;
        world.clock += 1000;
        let marker = world.forgotten.to_string();
        copy.waits_for.clear();
        copy.node.greet(&marker, node_id(100 + world.forgotten));
        world.places[node] = copy;
    }

    /// What an attempt may do next, and what may become of its lease.
    fn of_attempts(&self, world: &World, actions: &mut Vec<Action>) {
        for (attempt, of) in world.attempts.iter().enumerate() {
            // A request that was delayed arrives after the decision, too.
            let late = of.won.is_some() && self.late_votes;
            if of.life == Life::Open || late {
                let may_lose = world.losses < self.losses;
                let each = move |node: &usize| [(*node, false), (*node, true)];
                let asked = of.asked.iter().flat_map(each).filter(|(_, lost)| !lost || may_lose);
                actions.extend(asked.map(|(node, lost)| Action::Ask { attempt, node, lost }));
                let old = of.asked.iter().filter(|node| world.old[**node].is_some());
                let old = old.filter(|node| !of.old.contains(node));
                actions.extend(old.map(|node| Action::Meet { attempt, node: *node }));
            } else if of.won.is_none() && self.planted == Some(Planted::AskedAfterUndo) {
                let has =
                    |(_, place): &(usize, &Place)| place.register.holder() == Some(mine(of.id));
                let held = world.places.iter().enumerate().filter(has);
                actions.extend(held.map(|(node, _)| Action::Undo { attempt, node }));
                if world.attempts.len() < self.attempts {
                    actions.push(Action::Retry { attempt });
                }
            }
            if late {
                actions.push(Action::Release { attempt });
            }
            let writes = of.to_write.iter();
            let write = |(node, token): &(usize, u64)| {
                let (node, token) = (*node, *token);
                Action::Write { attempt, node, token }
            };
            actions.extend(writes.map(write));
            // Late ones too, of which nobody would believe the answer.
            if world.renewals < self.renewals && of.won.is_some() {
                let renew = |healer| Action::Renew { attempt, silent: None, healer };
                actions.extend([Healer::Winner, Healer::ByLeaseId].map(renew));
            }
            if of.life != Life::Over && self.clocks {
                actions.push(Action::End { attempt });
            }
        }
    }
}

impl Model for Small {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut set = Set::founded(self.nodes);
        set.nodes.iter_mut().for_each(|node| {
            node.marker = "0".to_owned();
            (node.largest, node.floor) = (0, 0);
        });
        let mut world = World {
            places: set.nodes.into_iter().map(Place::new).collect(),
            old: vec![None; self.nodes],
            copies: vec![None; self.nodes],
            saved: 0,
            restored: 0,
            attempts: Vec::new(),
            said: BTreeSet::new(),
            forgotten: 0,
            late: 0,
            losses: 0,
            renewals: 0,
            readmitted: 0,
            vouched: 0,
            seen: Vec::new(),
            torn: 0,
            clock: 10_000_000,
            broken: None,
            healed: false,
            by_winner: false,
        };
        if self.wrong {
            let stranger = Node::blank("0".to_owned(), node_id(STRANGER));
            world.old[WRONG] = Some(Place::new(stranger));
        }
        vec![if self.again { self.after_an_episode(world) } else { world }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        if world.attempts.len() < self.attempts {
            let configured = world.places.iter().filter_map(|p| p.node.configuration.as_ref());
            let stamps: BTreeSet<Stamp> = configured.map(|one| one.stamp()).collect();
            for ahead in [false, true].into_iter().filter(|ahead| !ahead || self.ahead) {
                actions.extend(stamps.iter().map(|stamp| Action::Begin { stamp: *stamp, ahead }));
            }
        }
        self.of_attempts(world, actions);
        for (node, place) in world.places.iter().enumerate() {
            let id = place.node.id;
            let held = place.register.holder().is_some();
            if held && !(self.clocks && Small::believed(world, id)) {
                actions.push(Action::Expire { node });
            }
            if let Some(old) = &world.old[node] {
                let held = old.register.holder().is_some();
                if held && !(self.clocks && Small::believed(world, old.node.id)) {
                    actions.push(Action::ExpireOld { node });
                }
            }
            if self.names_forgotten && !held && place.register.last() > 0 {
                actions.push(Action::ForgetName { node });
            }
            // Nodes are alike until one of them is written down or forgets.
            let alike = world.forgotten == 0 && world.saved == 0;
            if world.saved < self.restores && place.node.gate == Gate::Open && (!alike || node == 0)
            {
                actions.push(Action::Save { node });
            }
            if world.restored < self.restores && world.copies[node].is_some() {
                actions.push(Action::Restore { node });
            }
            let settled = || world.places.iter().all(|place| place.node.gate == Gate::Open);
            let may_forget = world.forgotten - world.restored < self.forgettings;
            if may_forget && (!alike || node == 0) && (!self.lists || settled()) {
                actions.push(Action::Forget { node, lives: false });
                if self.replaced && self.may_live_on(world, node) {
                    actions.push(Action::Forget { node, lives: true });
                }
            }
            if is_waiting(place) {
                let believes = |number: &usize| world.attempts[*number].life != Life::Over;
                if !self.clocks || !place.waits_for.iter().any(believes) {
                    actions.push(Action::EndQuarantine { node });
                }
            }
        }
        if self.wrong && world.old[WRONG].as_ref().is_some_and(is_waiting) {
            actions.push(Action::EndQuarantineOld { node: WRONG });
        }
        if world.forgotten > 0 || self.wrong {
            let each = || std::iter::once(None).chain((0..self.nodes).map(Some));
            let late = || each().filter(|late| late.is_none() || world.late < self.late);
            let silent = each().filter(|silent| silent.is_none() || self.silences);
            let looks = silent.flat_map(|silent| late().map(move |late| (silent, late)));
            actions.extend(looks.map(|(silent, late)| Action::Look { silent, late }));
            if self.lists {
                actions.extend(each().map(|silent| Action::LookStale { silent }));
            }
            if self.replaces {
                actions.extend(each().map(|silent| Action::Replace { node: WRONG, silent }));
            }
            self.of_operators(world, actions);
        }
        actions.extend((0..world.said.len()).map(|which| Action::Hear { which }));
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Begin { stamp, ahead } => {
                let number = world.attempts.len();
                self.begin(&mut world, stamp, number, ahead);
            }
            Action::Undo { attempt, node } => {
                world.places[node].register.release(mine(world.attempts[attempt].id));
            }
            Action::Release { attempt } => {
                let released = mine(world.attempts[attempt].id);
                world.attempts[attempt].life = Life::Over;
                world.attempts[attempt].asked.clear();
                for place in &mut world.places {
                    place.register.release(released);
                }
            }
            Action::Retry { attempt } => {
                let (stamp, id) = (world.attempts[attempt].stamp, world.attempts[attempt].id);
                self.begin(&mut world, stamp, id, false);
            }
            Action::Ask { attempt, node, lost } => self.ask(&mut world, attempt, node, lost),
            Action::Meet { attempt, node } => {
                world.attempts[attempt].old.insert(node);
            }
            Action::Write { attempt, node, token } => {
                self.write(&mut world, attempt, node, token);
            }
            Action::Renew { attempt, silent, healer } => {
                world.renewals += 1;
                self.renew(&mut world, attempt, silent, healer);
            }
            Action::End { attempt } => world.attempts[attempt].life = Life::Over,
            Action::Expire { node } => world.places[node].register.expire(),
            Action::ExpireOld { node } => {
                if let Some(old) = &mut world.old[node] {
                    old.register.expire();
                }
            }
            Action::ForgetName { node } => world.places[node].register = Register::default(),
            Action::Forget { node, lives } => self.forget(&mut world, node, lives),
            Action::Save { node } => {
                world.saved += 1;
                world.copies[node] = Some(world.places[node].clone());
            }
            Action::Restore { node } => Small::restore(&mut world, node),
            Action::Look { silent, late } => self.look(&mut world, silent, late),
            Action::LookStale { silent } => {
                self.look_stale(&mut world, silent, self.stale_wish());
            }
            Action::Replace { node, silent } => {
                let word = self.word(&world, node, silent)?;
                self.look_stale(&mut world, silent, word);
            }
            Action::EndQuarantineOld { node } => world.old[node].as_mut().map(end_wait)?,
            Action::LookTorn { at } => self.look_torn(&mut world, at),
            Action::Vouch { late } => self.vouch(&mut world, late),
            Action::Return { node } => Small::come_back(&mut world, node),
            Action::Readmit { node } => self.readmit(&mut world, node),
            Action::Hear { which } => {
                let (at, told) = world.said.iter().nth(which).cloned()?;
                world.said.remove(&(at, told.clone()));
                self.hear(&mut world, at, told);
            }
            Action::EndQuarantine { node } => end_wait(&mut world.places[node]),
        }
        let world = self.check(world);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties =
            vec![Property::always(SOUND, |_, world: &World| world.broken.is_none())];
        if self.lists {
            properties.push(Property::sometimes("two live on", |_, world: &World| {
                world.old.iter().flatten().count() > 1 && world.forgotten > 2
            }));
        }
        if self.replaces {
            properties.push(Property::sometimes("the other server votes", |_, world: &World| {
                world.old[WRONG].as_ref().is_some_and(|old| old.node.gate == Gate::Open)
            }));
        }
        if self.attempts > 0 {
            properties.push(Property::sometimes("a token", |_, world: &World| {
                world.attempts.iter().any(|attempt| attempt.won.is_some())
            }));
        }
        if self.forgettings + self.restores > 0 {
            let back = |_: &Small, world: &World| world.is_back(|_| true);
            properties.push(Property::sometimes("a node is back", back));
        }
        if self.forgettings + self.restores > 0 && self.attempts > 0 {
            properties.extend([
                Property::sometimes("a token with its help", |_, world: &World| {
                    world.is_back(|id| {
                        let mut won = world.attempts.iter().filter(|one| one.won.is_some());
                        won.any(|one| one.voters.iter().any(|(_, voter)| *voter == id))
                    })
                }),
                Property::sometimes("a token while it is away", |_, world: &World| {
                    let away = world.places.iter().any(|place| place.node.gate == Gate::Forgot);
                    away && world.attempts.iter().any(|one| one.won.is_some())
                }),
            ]);
        }
        if self.renewals > 0 {
            properties.push(Property::sometimes("healed", |_, world: &World| world.healed));
        }
        if self.renewals > 0 && self.late_votes {
            let by_winner = |_: &Small, world: &World| world.by_winner;
            properties.push(Property::sometimes("healed though nothing is proven", by_winner));
        }
        properties
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("short")
}

/// Explores all of a world; returns how many states it has.
fn explore(world: Small) -> usize {
    let checker = world.checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    println!("{} states, {} unique", checker.state_count(), checker.unique_state_count());
    checker.unique_state_count()
}

/// Searches a world for the shortest way to what a planted bug breaks.
fn finds(world: Small, what: &str) {
    let planted = world.planted;
    let any = HasDiscoveries::AnyFailures;
    let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
    let path = checker.discovery(SOUND).unwrap_or_else(|| panic!("{planted:?} was not found"));
    assert_eq!(path.last_state().broken, Some(what), "{planted:?}");
    let states = checker.unique_state_count();
    println!("{planted:?}: {states} states, {} steps", path.into_actions().len());
}

/// Walks through a world at random, many times; returns what broke, and how many steps all took.
fn walk(world: &Small, seed: u64, walks: usize) -> (Option<&'static str>, usize) {
    super::walk::walk(world, seed, walks, |world| world.broken)
}

/// More of everything than can be explored in full.
const LARGE: Small = Small {
    attempts: 4,
    forgettings: 2,
    late: 2,
    losses: 2,
    replaced: true,
    names_forgotten: true,
    ..SMALL
};

#[test]
fn one_node_forgets_without_clocks() {
    assert_eq!(explore(SMALL), 181_062);
}

#[test]
fn one_node_forgets_with_clocks() {
    assert_eq!(explore(Small { clocks: true, ..SMALL }), 121_618);
}

#[test]
fn two_nodes_forget_and_words_come_late() {
    let world = Small { attempts: 1, forgettings: 2, late: 1, clocks: true, ..SMALL };
    assert_eq!(explore(world), 160_474);
}

#[test]
fn two_attempts_one_node_forgets_and_words_are_lost_and_late() {
    let world = Small { late: 1, losses: 1, clocks: true, silences: false, ..SMALL };
    assert_eq!(explore(world), 2_941_029);
}

#[test]
fn tokens_are_proposed_from_clocks_and_one_node_forgets() {
    assert_eq!(explore(Small { ahead: true, ..SMALL }), 650_533);
}

/// A server that was replaced comes back, and an operator takes it in again.
const READMITTED: Small = Small { readmits: 1, again: true, clocks: true, ..SMALL };

#[test]
fn a_server_that_is_taken_in_again_as_what_it_was_is_found() {
    let planted = Some(Planted::ReadmittedAtOnce);
    finds(Small { clocks: false, planted, ..READMITTED }, GROW);
}

#[test]
fn a_server_that_was_replaced_is_taken_in_again() {
    assert_eq!(explore(READMITTED), 317_357);
}

#[test]
fn a_majority_forgets_and_an_operator_vouches() {
    let world = Small { attempts: 1, forgettings: 2, vouches: 1, late: 1, clocks: true, ..SMALL };
    assert_eq!(explore(world), 351_113);
}

#[test]
fn an_operators_word_that_ends_a_later_wait_is_found() {
    let planted = Some(Planted::VouchForAny);
    let world = Small { vouches: 1, forgettings: 3, again: true, clocks: true, ..SMALL };
    finds(Small { silences: false, planted, ..world }, ALONE);
}

#[test]
fn one_node_is_replaced_and_lives_on_elsewhere() {
    assert_eq!(explore(Small { replaced: true, clocks: true, ..SMALL }), 541_883);
}

#[test]
fn one_node_comes_back_with_an_old_copy_of_its_memory() {
    assert_eq!(explore(Small { restores: 1, forgettings: 0, clocks: true, ..SMALL }), 234_992);
}

/// Only who belongs to the set: nodes are replaced one after the other, and live on.
const LISTS: Small = Small { attempts: 0, forgettings: 3, replaced: true, lists: true, ..SMALL };

#[test]
fn clients_that_reach_only_former_members_cannot_split_the_set() {
    assert_eq!(explore(LISTS), 1_324);
}

#[test]
fn clients_with_a_wrong_list_evict_nobody() {
    explore(Small { wrong: true, ..LISTS });
}

#[test]
fn a_server_that_an_operator_gives_a_slot_never_makes_a_second_majority() {
    explore(Small { wrong: true, replaces: true, ..LISTS });
}

#[test]
fn rules_of_membership_that_are_left_out_are_missed() {
    finds(Small { planted: Some(Planted::StrangersCount), ..LISTS }, ONE);
    finds(Small { planted: Some(Planted::LeftoverTaken), wrong: true, ..LISTS }, EVICTED);
}

/// What makes two majorities then: former members answer in the place of those who belong to the
/// set, and one of its members has forgotten and is taken in again beside them.
#[test]
fn a_change_while_members_are_neither_seen_nor_placed_makes_two_majorities() {
    finds(Small { planted: Some(Planted::MembersUnseen), ..LISTS }, ONE);
}

#[test]
fn leases_are_healed_where_they_were_lost() {
    let world = Small { renewals: 2, forgettings: 0, losses: 1, clocks: true, ..SMALL };
    assert_eq!(explore(world), 140_803);
}

/// No clock is right here: a lease ends on a node at any moment, and requests arrive at any.
const LATE_VOTES: Small =
    Small { renewals: 2, forgettings: 0, late_votes: true, clocks: false, ..SMALL };

#[test]
fn requests_that_come_late_change_no_token_that_a_lease_id_is_asked_again_for() {
    for (forgettings, walks) in [(0, 60_000), (1, 15_000)] {
        let world = Small { renewals: 4, attempts: 3, forgettings, ..LATE_VOTES };
        let (broken, steps) = walk(&world, 1, walks);
        assert_eq!(broken, None, "{forgettings} forget");
        println!("{forgettings} forget: {steps} steps");
    }
    explore(LATE_VOTES);
}

#[test]
fn healing_with_an_unproven_token_and_healed_records_as_evidence_are_found() {
    finds(Small { planted: Some(Planted::HealedProves), ..LATE_VOTES }, SAME);
    finds(Small { planted: Some(Planted::HealedWithTheMost), ..LATE_VOTES }, HEALED);
}

#[test]
fn larger_worlds_at_random() {
    for clocks in [false, true] {
        for nodes in [3, 4, 5] {
            let world = Small { nodes, clocks, renewals: 4, restores: 2, ..LARGE };
            let world = Small { ahead: true, readmits: 1, vouches: 1, torn: 2, ..world };
            let (broken, steps) = walk(&world, 1, 3_000);
            assert_eq!(broken, None, "{nodes} nodes, clocks: {clocks}");
            println!("{nodes} nodes, clocks: {clocks}: {steps} steps");
        }
    }
}

#[test]
fn rules_that_are_left_out_are_missed() {
    for planted in PLANTED {
        let timed = Small { clocks: true, ..LARGE };
        let world = match planted {
            Planted::NoWait => timed,
            Planted::HealedAtOnce => Small { renewals: 4, ..timed },
            Planted::AskedAfterUndo => Small { forgettings: 0, ..timed },
            Planted::OldBase => Small { forgettings: 0, ..LARGE },
            Planted::ClockAlone => Small { forgettings: 2, ahead: true, ..SMALL },
            Planted::OldCopy => Small { attempts: 4, forgettings: 0, restores: 1, ..SMALL },
            Planted::AnyEpisode => {
                Small { forgettings: 2, again: true, clocks: true, names_forgotten: false, ..SMALL }
            }
            _ => Small { names_forgotten: false, ..LARGE },
        };
        let (broken, steps) = walk(&Small { planted: Some(planted), ..world }, 1, 30_000);
        let broken = broken.unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?}: {broken}, found after {steps} steps");
    }
}

/// It takes fourteen steps in one order, which no random walk finds.
#[test]
fn a_wait_that_begins_too_early_is_missed() {
    let planted = Some(Planted::WaitBeforeAgreed);
    let world = Small { replaced: true, late: 1, clocks: true, planted, ..SMALL };
    finds(world, ALONE);
}
