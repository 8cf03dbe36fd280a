//! The set that the nodes are, and who looks after it.
//!
//! One task asks all nodes how they stand, finds by [`plan`] what is to be done, does it, and asks
//! again. All clients do the same, side by side; the nodes refuse what comes too late. What comes
//! of it is the [`Roster`]: who votes, and under which configuration. Whoever meets a node that
//! does not agree with it rings, and the task looks at once.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::quorum::{Gate, Plan, Standing, Told, View, Wish, majority, plan};
use holdline_core::{Backoff, Certainty, Clock, ErrorKind, LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::ENGINE;
use super::bare::Bare;
use super::healing::{Tokens, Visits};
use super::member::{Member, Said};
use super::options::QuorumOptions;
use super::race::Race;
use super::release::Debts;
use super::roster::Roster;
use crate::native::Asker;

/// How often a set in which all is well is looked at.
const CALM: Duration = Duration::from_secs(5);
/// How often one is in which a node is not.
const UNWELL: Duration = Duration::from_millis(200);
/// The pauses after steps that no node took: somebody else is at work.
const CROSSED: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How much faster than ours a node's clock may run, in parts of a million.
const DRIFT_PPM: u32 = holdline_core::lease::DEFAULT_DRIFT_PPM;

/// The nodes, and what is known of them together.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) members: Vec<Member>,
    pub(super) asker: Asker,
    pub(super) clock: Arc<dyn Clock>,
    /// How they are asked where no tokens are given: then they are no set that anybody looks after.
    pub(super) bare: Option<Bare>,
    wish: Wish,
    /// Nothing of the set is changed, whatever is seen.
    only_looks: bool,
    looked: Mutex<Looked>,
    /// The largest token that was proposed or heard of.
    largest: AtomicU64,
    pub(super) visits: Visits,
    pub(super) tokens: Tokens,
    pub(super) debts: Debts,
    /// Those who watch a lease.
    pub(super) watches: Arc<Watches>,
    /// Those who wait for a roster.
    changed: Notify,
    /// Those who look after the set.
    bell: Arc<Notify>,
}

/// Who votes, or why the set cannot be used; `None` before the first look.
type Known = Option<Result<Arc<Roster>, LockError>>;

#[derive(Debug, Default)]
struct Looked {
    roster: Known,
    /// How many rounds have ended.
    rounds: u64,
    /// One is under way.
    looking: bool,
    /// Somebody looks after it.
    tended: bool,
    /// Somebody has asked for a name: servers that belong to nothing are made a set.
    may_found: bool,
}

impl Set {
    pub(super) fn new(
        options: &QuorumOptions,
        asker: Asker,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Set>, LockError> {
        let nodes = options.nodes().iter();
        let members: Vec<Member> =
            nodes.map(|node| Member::new(node, clock.clone())).collect::<Result<_, _>>()?;
        let wish = Wish {
            addresses: members.iter().map(|member| member.address().to_owned()).collect(),
            max_lease: options.max_lease(),
            vouched: false,
            drift_ppm: DRIFT_PPM,
            replace: Vec::new(),
        };
        let set = Set {
            members,
            asker,
            clock,
            bare: Bare::of(&options.nodes()[0]),
            wish,
            only_looks: options.only_looks(),
            looked: Mutex::default(),
            largest: AtomicU64::new(0),
            visits: Visits::default(),
            tokens: Tokens::default(),
            debts: Debts::default(),
            watches: Arc::default(),
            changed: Notify::new(),
            bell: Arc::default(),
        };
        Ok(Arc::new(set))
    }

    /// Has somebody look after the set, unless somebody does.
    pub(super) fn tend(self: &Arc<Set>) {
        if std::mem::replace(&mut self.looked.lock().tended, true) {
            return;
        }
        let (set, bell) = (Arc::downgrade(self), self.bell.clone());
        let tender = Tender(set.clone());
        self.members[0].node().spawn(Box::pin(async move {
            let _tender = tender;
            tend(set, bell).await;
        }));
    }

    /// Has servers that belong to nothing made a set from now on: somebody asks for a name. Whoever
    /// only looks makes none.
    pub(super) fn may_found(&self) {
        let mut looked = self.looked.lock();
        if std::mem::replace(&mut looked.may_found, true) {
            return;
        }
        if is_uninitialised(&looked.roster) {
            (looked.roster, looked.rounds) = (None, 0);
            drop(looked);
            self.ring();
        }
    }

    /// Has the set looked at soon: a node did not agree.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Returns who votes; waits for the first look, as long as a connection may take.
    ///
    /// # Errors
    /// Why the set cannot be used. Nothing was asked for.
    pub(super) async fn roster(self: &Arc<Set>) -> Result<Arc<Roster>, LockError> {
        self.tend();
        let mut limit = None;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let known = self.looked.lock().roster.clone();
            if let Some(known) = known {
                return known;
            }
            let end = *limit.get_or_insert_with(|| self.clock.now().after(FIRST_LOOK));
            tokio::select! {
                biased;
                () = changed => {}
                () = self.clock.sleep_until(end) => return Err(self.no_quorum(&[])),
            }
        }
    }

    /// Has the set looked at, and waits until that is done or another configuration is known, for
    /// so long at most.
    pub(super) async fn look_anew(&self, known: &Roster, limit: Duration) {
        let end = self.clock.now().after(limit);
        let enough = {
            let looked = self.looked.lock();
            // A look that is under way may have asked before.
            looked.rounds + 1 + u64::from(looked.looking)
        };
        let is_newer = || {
            let looked = self.looked.lock();
            let stamp = |roster: &Roster| roster.configuration.stamp();
            let agreed = looked.roster.as_ref().and_then(|roster| roster.as_ref().ok());
            looked.rounds >= enough || agreed.is_some_and(|now| stamp(now) != stamp(known))
        };
        self.ring();
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_newer() {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.clock.sleep_until(end) => return,
            }
        }
    }

    /// Tells whether a node has a connection that answers in time.
    pub(super) fn answers(&self, node: usize) -> bool {
        self.members[node].node().well().is_some()
    }

    /// How long one node may take, for a lease of this length. A slow majority is better than none
    /// as long as enough of the lease is left; a renewal is over before the next one is due.
    pub(super) fn node_deadline(&self, lease: Duration) -> Duration {
        (lease / 4).max(SHORTEST_DEADLINE).min(self.asker.deadline)
    }

    /// Notes a token that was heard of.
    pub(super) fn saw(&self, token: u64) {
        self.largest.fetch_max(token, Ordering::Relaxed);
    }

    /// Proposes a token: the nodes' clock, or one more than the largest that was heard of.
    pub(super) fn propose(&self, roster: &Roster, now: Moment) -> u64 {
        let mut last = self.largest.load(Ordering::Relaxed);
        loop {
            let proposed = roster.time_us(now).max(last + 1);
            // No two attempts of one process propose the same.
            match self.largest.compare_exchange_weak(
                last,
                proposed,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return proposed,
                Err(seen) => last = seen,
            }
        }
    }

    /// Draws a pause of more than one round and at most so many.
    pub(super) fn part(&self, rounds: u32) -> Duration {
        let round = self.round_trip().max(SHORTEST_ROUND);
        let random = f64::from(self.members[0].node().random()) / f64::from(u32::MAX);
        round + round.mul_f64(random * f64::from(rounds - 1))
    }

    /// How long the slowest of the fastest majority took to answer when it was last greeted.
    fn round_trip(&self) -> Duration {
        let trip = |member: &Member| match &self.bare {
            Some(_) => member.node().well().map(|facts| facts.round_trip),
            None => member.said().heard.map(|heard| heard.round_trip),
        };
        let mut trips: Vec<Duration> = self.members.iter().filter_map(trip).collect();
        trips.sort_unstable();
        trips.get(majority(self.members.len()) - 1).copied().unwrap_or(self.asker.deadline)
    }

    /// Looks once: asks all, does what is to be done. Returns when to look again.
    async fn round(&self, crossed: &mut Backoff) -> Duration {
        let may_found = {
            let mut looked = self.looked.lock();
            looked.looking = true;
            looked.may_found
        };
        if !self.only_looks && !may_found && self.is_unfounded().await {
            let said = self.said();
            let (_, mut plan) = self.judge(&said, &self.wish);
            plan.steps.clear();
            self.publish(&plan, &said, true);
            return UNWELL;
        }
        self.greet().await;
        let said = self.said();
        let (views, mut plan) = self.judge(&said, &self.wish);
        if self.only_looks {
            plan.steps.clear();
        }
        self.publish(&plan, &said, true);
        if plan.steps.is_empty() {
            crossed.reset();
            return self.pause(&plan, &views);
        }
        if self.carry_out(&plan).await {
            crossed.reset();
            return Duration::ZERO;
        }
        crossed.next_pause(self.members[0].node().random())
    }

    /// Tells the nodes what is to be done; tells whether any of them took it.
    pub(super) async fn carry_out(&self, plan: &Plan) -> bool {
        self.tell_all(&plan.steps).await
    }

    /// Reports what we have measured of the waits of nodes, however short that is: this process
    /// ends, and the next one measures from its own first look.
    pub(super) async fn report_waits(&self) {
        if self.only_looks {
            return;
        }
        let now = self.clock.now();
        let reports = self.members.iter().enumerate();
        let reports: Vec<_> =
            reports.filter_map(|(node, member)| Some((node, member.measured(now)?))).collect();
        self.tell_all(&reports).await;
    }

    async fn tell_all(&self, steps: &[(usize, Told)]) -> bool {
        let mut race = Race::with_room(steps.len());
        for (node, told) in steps {
            race.add(*node, self.members[*node].tell(&self.asker, told));
        }
        let mut taken = false;
        while let Some((node, answer)) = race.next().await {
            let address = self.members[node].address();
            match answer {
                Ok(true) => taken = true,
                Ok(false) => tracing::debug!(address, "a step for a node came too late"),
                Err(error) => tracing::debug!(address, %error, "a node was not told a step"),
            }
        }
        taken
    }

    /// Asks all nodes how they stand, and changes nothing.
    pub(super) async fn look(&self) {
        let mut race = self.looks();
        while race.next().await.is_some() {}
    }

    /// Tells whether no node belongs to a set that was founded, and changes nothing. One that does
    /// is enough to know.
    async fn is_unfounded(&self) -> bool {
        let mut race = self.looks();
        while let Some((node, ())) = race.next().await {
            let heard = self.members[node].said().heard;
            let gate = heard.map_or(Gate::Blank, |heard| heard.view.gate);
            if !matches!(gate, Gate::Blank | Gate::Proposed) {
                return false;
            }
        }
        true
    }

    fn looks(&self) -> Race<'_, ()> {
        let mut race = Race::with_room(self.members.len());
        for (at, member) in self.members.iter().enumerate() {
            race.add(at, member.greet(&self.asker, &*self.clock, true));
        }
        race
    }

    /// Asks all nodes how they stand, and tells them who they are, unless this client only looks.
    /// What a majority says is of use at once.
    pub(super) async fn greet(&self) {
        let mut race = Race::with_room(self.members.len());
        for (at, member) in self.members.iter().enumerate() {
            race.add(at, member.greet(&self.asker, &*self.clock, self.only_looks));
        }
        let (mut answers, mut grace) = (0, None);
        loop {
            let next = race.next();
            let answered = match grace {
                Some(end) => tokio::select! {
                    biased;
                    next = next => next.is_some(),
                    () = self.clock.sleep_until(end) => {
                        grace = None;
                        self.publish_early();
                        continue;
                    }
                },
                None => next.await.is_some(),
            };
            if !answered {
                return;
            }
            answers += 1;
            if answers < majority(self.members.len()) || race.is_empty() {
                continue;
            }
            // At first nothing is known of the others: they are given a moment, so that nobody
            // goes by three of five that are well.
            match self.looked.lock().roster {
                Some(_) => grace = None,
                None if grace.is_none() => grace = Some(self.clock.now().after(FIRST_GRACE)),
                None => {}
            }
            if grace.is_none() {
                self.publish_early();
            }
        }
    }

    /// Tells who votes before the slowest has answered. Those that failed have answered as well:
    /// they are no majority of votes.
    fn publish_early(&self) {
        let said = self.said();
        let (_, plan) = self.judge(&said, &self.wish);
        if self.find(&plan, &said).is_ok_and(|roster| roster.has_majority()) {
            self.publish(&plan, &said, false);
        }
    }

    pub(super) fn said(&self) -> Vec<Said> {
        self.members.iter().map(Member::said).collect()
    }

    pub(super) fn judge(&self, said: &[Said], wish: &Wish) -> (Vec<Option<View>>, Plan) {
        let heard = said.iter().map(|said| said.heard.as_ref());
        let views: Vec<Option<View>> =
            heard.map(|heard| heard.map(|heard| heard.as_of(self.clock.now()))).collect();
        let plan = plan(&views, wish);
        (views, plan)
    }

    pub(super) fn wish(&self) -> &Wish {
        &self.wish
    }

    fn publish(&self, plan: &Plan, said: &[Said], round: bool) {
        let roster = self.find(plan, said).map(Arc::new);
        let mut heals = false;
        let mut looked = self.looked.lock();
        looked.rounds += u64::from(round);
        looked.looking &= !round;
        // At first a connection may take its time, and founding takes some steps.
        let settled = looked.rounds >= FIRST_ROUNDS && plan.steps.is_empty();
        let silent =
            matches!(&roster, Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }));
        let found = Some(roster);
        // All of them were heard to be no set, and nobody is there to make them one.
        let blank = is_uninitialised(&found) && !looked.may_found;
        if silent && matches!(looked.roster, Some(Ok(_))) {
            // Nobody answered in time: that changes nothing of who belongs to the set.
        } else if matches!(found, Some(Ok(_)))
            || settled && !is_uninitialised(&found)
            || blank
            || looked.rounds >= MOST_FIRST_ROUNDS
        {
            heals = match (&looked.roster, &found) {
                (Some(Ok(before)), Some(Ok(now))) => now.has_new_voter(before),
                _ => false,
            };
            looked.roster = found;
        }
        drop(looked);
        self.changed.notify_waiters();
        if heals {
            // Each lease is renewed at once, and so healed where it lacks: who restarts the next
            // server need not wait for a renewal that is due later.
            self.watches.tell_all();
        }
    }

    /// The clock of the nodes: that of the one in the middle.
    pub(super) fn clock_of(&self, said: &[Said]) -> (Moment, u64) {
        let now = self.clock.now();
        let heard = said.iter().filter_map(|said| said.heard.as_ref());
        let mut times: Vec<u64> = heard.map(|heard| heard.time_us_at(now)).collect();
        times.sort_unstable();
        (now, times.get(times.len() / 2).copied().unwrap_or(0))
    }

    /// How long a look stays good.
    fn pause(&self, plan: &Plan, views: &[Option<View>]) -> Duration {
        if !matches!(plan.standing, Standing::Agreed(_)) {
            return UNWELL;
        }
        let open = |view: &&Option<View>| matches!(view, Some(View { gate: Gate::Open, .. }));
        let works = views.iter().filter(open).count() >= majority(views.len());
        let waits = self.members.iter().zip(views).enumerate();
        let waits = waits.map(|(at, (member, view))| match view {
            Some(View { gate: Gate::Open, .. }) => CALM,
            // Only an operator can do something about it.
            Some(_) if works && plan.mislisted.contains(&at) => CALM,
            Some(View { quarantine: Some((left, _)), measured, .. }) => {
                member.pause(left.saturating_sub(*measured))
            }
            Some(View { gate: Gate::Out, .. }) => CALM,
            _ => UNWELL,
        });
        waits.min().unwrap_or(CALM).min(CALM)
    }

    /// Says that too few nodes answered, with what is known of each.
    pub(super) fn no_quorum(&self, lines: &[Option<String>]) -> LockError {
        let line = |(at, member): (usize, &Member)| {
            let known = lines.get(at).cloned().flatten();
            let said = || match member.said() {
                Said { heard: Some(_), .. } => "answers".to_owned(),
                Said { failure: Some(failure), .. } => failure.kind().to_string(),
                Said { .. } => "no answer yet".to_owned(),
            };
            format!("{}: {}", member.address(), known.unwrap_or_else(said))
        };
        let nodes: Vec<String> = self.members.iter().enumerate().map(line).collect();
        let refuses = |member: &&Member| {
            let failure = member.said().failure;
            failure.is_some_and(|failure| matches!(failure.kind(), ErrorKind::Refused { .. }))
        };
        // What waiting does not mend is told as that.
        let refused = self.members.iter().filter(refuses).count();
        if refused > nodes.len() - majority(nodes.len()) {
            let message = format!("no majority lets us in: {}", nodes.join("; "));
            return misconfigured(message);
        }
        LockError::new(ENGINE, ErrorKind::NoQuorum { nodes }, Certainty::NotApplied)
    }
}

/// No round is taken for shorter.
const SHORTEST_ROUND: Duration = Duration::from_micros(100);
/// A node is given this long at least.
const SHORTEST_DEADLINE: Duration = Duration::from_millis(50);
/// How long the first look is waited for.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// How long the slower nodes are waited for at the first look, once a majority has answered.
pub(super) const FIRST_GRACE: Duration = Duration::from_millis(50);
/// How many rounds are made before it is said that a set cannot be used; and while it changes.
const FIRST_ROUNDS: u64 = 2;
const MOST_FIRST_ROUNDS: u64 = 8;

fn is_uninitialised(roster: &Known) -> bool {
    let Some(Err(error)) = roster else { return false };
    matches!(error.kind(), ErrorKind::NotInitialised)
}

pub(super) fn misconfigured(message: String) -> LockError {
    LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
}

/// Whoever looks after the set; the end of it is told, also when its runtime drops it.
struct Tender(Weak<Set>);

impl Drop for Tender {
    fn drop(&mut self) {
        if let Some(set) = self.0.upgrade() {
            set.looked.lock().tended = false;
        }
    }
}

async fn tend(set: Weak<Set>, bell: Arc<Notify>) {
    let mut crossed = Backoff::new(CROSSED.0, CROSSED.1);
    loop {
        let Some(here) = set.upgrade() else { return };
        let pause = here.round(&mut crossed).await;
        let sleep = here.clock.sleep_until(here.clock.now().after(pause));
        drop(here);
        tokio::select! {
            biased;
            () = bell.notified() => {}
            () = sleep => {}
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}
