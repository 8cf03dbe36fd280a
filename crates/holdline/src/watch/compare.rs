//! Finds what has changed between two rounds. Pure: no clock, no store.
//!
//! A store states how much of a lease is left when it reads it, at some time between the request
//! and the answer. So each rule takes the end of that span that makes it certain:
//!
//! - Invariant D1: a lease counts as renewed only if more is left than could be without a renewal.
//! - Invariant D2: an end counts as early only if the lease would have lasted past this round even
//!   if both clocks differ by 1 %.
//! - Invariant D3: where a list of holders or waiters was cut off, what appears in it is a change
//!   only if it is younger than the last round.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::lease::DEFAULT_DRIFT_PPM;
use holdline_core::{
    FencingToken, GrantState, HolderSummary, HolderView, LockName, Moment, ShortLeaseId, Snapshot,
    WaiterView,
};

use super::Coverage;
use super::change::{Change, EndedWhen, LockEvent};

/// The names of a round.
pub(super) type Names = BTreeMap<LockName, WatchedName>;

/// What a store may round away, beside its own step.
const TOLERANCE: Duration = Duration::from_millis(20);

/// A name, as one round has shown it.
#[derive(Clone, Debug)]
pub struct WatchedName {
    snapshot: Snapshot,
    asked: Moment,
    answered: Moment,
    slack: BTreeMap<HolderKey, Duration>,
}

/// What distinguishes the grants of a name.
type HolderKey = (ShortLeaseId, Option<FencingToken>);

impl WatchedName {
    pub(super) fn new(snapshot: Snapshot, asked: Moment, answered: Moment) -> WatchedName {
        WatchedName { snapshot, asked, answered, slack: BTreeMap::new() }
    }

    /// Returns the holders and the queue.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns when the answer arrived, by the client's clock.
    pub fn answered(&self) -> Moment {
        self.answered
    }

    /// Returns the least that was left of a holder's lease at any look since its grant; `None` for
    /// a live grant.
    pub fn slack(&self, holder: &HolderSummary) -> Option<Duration> {
        self.slack.get(&key(holder)).copied()
    }

    fn holds(&self) -> impl Iterator<Item = &HolderView> {
        self.snapshot.holders.iter()
    }

    fn find_hold(&self, sought: HolderKey) -> Option<&HolderView> {
        self.holds().find(|holder| key(&holder.summary) == sought)
    }

    fn waiters(&self) -> impl Iterator<Item = &WaiterView> {
        self.snapshot.queue.iter()
    }

    fn contends(&self, lease_id: ShortLeaseId) -> bool {
        let mut holders = self.snapshot.holders.iter();
        holders.any(|holder| holder.summary.lease_id == lease_id)
            || self.snapshot.queue.iter().any(|waiter| waiter.lease_id == lease_id)
    }

    fn holders_are_cut(&self) -> bool {
        self.snapshot.holder_count > self.snapshot.holders.len()
    }

    fn queue_is_cut(&self) -> bool {
        self.snapshot.queue_length > self.snapshot.queue.len()
    }
}

fn key(holder: &HolderSummary) -> HolderKey {
    (holder.lease_id, holder.token)
}

/// How exactly times are known.
pub(super) struct Precision {
    /// The store rounds leases to this.
    pub(super) step: Duration,
    /// When the round before was asked, for names that it did not show.
    pub(super) asked_before: Moment,
    /// When this round was complete.
    pub(super) answered: Moment,
}

/// Compares two rounds, and carries the slack of each hold over to `now`.
pub(super) fn compare(
    before: &Names,
    now: &mut Names,
    coverage: &Coverage,
    known: &dyn Fn(&LockName) -> bool,
    precision: &Precision,
    changes: &mut Vec<Change>,
) {
    for (name, before) in before {
        if !now.contains_key(name) && coverage.covers(name) {
            let mut pair = Pair::new(name, Some(before), None, true, precision, changes);
            pair.ends();
        }
    }
    for (name, seen) in now.iter_mut() {
        let earlier = before.get(name);
        let known = earlier.is_some() || known(name);
        let mut pair = Pair::new(name, earlier, Some(seen), known, precision, changes);
        pair.ends();
        pair.begins();
        let slack = slack_of(earlier, seen);
        seen.slack = slack;
    }
    // Names that are gone come first above; the order of the names is what readers expect.
    changes.sort_by(|one, other| one.name.cmp(&other.name));
}

fn slack_of(before: Option<&WatchedName>, now: &WatchedName) -> BTreeMap<HolderKey, Duration> {
    let seen = |holder: &HolderView| {
        let key = key(&holder.summary);
        let left = holder.summary.left?;
        let earlier = before.and_then(|before| before.slack.get(&key)).copied();
        Some((key, earlier.map_or(left, |earlier| earlier.min(left))))
    };
    now.holds().filter_map(seen).collect()
}

/// Two looks at one name.
struct Pair<'a> {
    name: &'a LockName,
    before: Option<&'a WatchedName>,
    now: Option<&'a WatchedName>,
    /// The round before covered the name.
    known: bool,
    within: Duration,
    precision: &'a Precision,
    changes: &'a mut Vec<Change>,
}

impl<'a> Pair<'a> {
    fn new(
        name: &'a LockName,
        before: Option<&'a WatchedName>,
        now: Option<&'a WatchedName>,
        known: bool,
        precision: &'a Precision,
        changes: &'a mut Vec<Change>,
    ) -> Pair<'a> {
        let from = before.map_or(precision.asked_before, |before| before.asked);
        let to = now.map_or(precision.answered, |now| now.answered);
        Pair { name, before, now, known, within: to.since(from), precision, changes }
    }

    fn add(&mut self, found: bool, event: LockEvent) {
        let name = self.name.clone();
        let within = self.within;
        self.changes.push(Change { name, event, found, within });
    }

    /// Adds what is over.
    fn ends(&mut self) {
        let Some(before) = self.before else { return };
        for holder in before.holds() {
            let key = key(&holder.summary);
            if self.now.is_none_or(|now| now.find_hold(key).is_none()) {
                let when = self.when(holder, before);
                let slack = before.slack.get(&key).copied();
                self.add(false, LockEvent::Ended { holder: Box::new(holder.clone()), when, slack });
            }
        }
        for waiter in before.waiters() {
            if self.now.is_none_or(|now| !now.contends(waiter.lease_id)) {
                self.add(false, LockEvent::LeftQueue { waiter: Box::new(waiter.clone()) });
            }
        }
        let freeze = self.now.and_then(|now| now.snapshot.freeze.as_ref());
        if let (Some(freeze), None) = (&before.snapshot.freeze, freeze) {
            self.add(false, LockEvent::Unfrozen { freeze: freeze.clone() });
        }
    }

    fn when(&self, holder: &HolderView, before: &WatchedName) -> EndedWhen {
        let Some(left) = holder.summary.left else { return EndedWhen::NoLease };
        let answered = self.now.map_or(self.precision.answered, |now| now.answered);
        let surely_until = before.asked.after(less_drift(left).saturating_sub(self.tolerance()));
        if answered < surely_until { EndedWhen::BeforeLeaseEnd } else { EndedWhen::PerhapsExpired }
    }

    fn tolerance(&self) -> Duration {
        self.precision.step + TOLERANCE
    }

    /// Adds what is new or different.
    fn begins(&mut self) {
        let Some(now) = self.now else { return };
        for holder in now.holds() {
            match self.before.and_then(|before| before.find_hold(key(&holder.summary))) {
                None => self.granted(holder),
                Some(earlier) => self.goes_on(earlier, holder, now),
            }
        }
        for (position, waiter) in now.waiters().enumerate() {
            if self.before.is_none_or(|before| !before.contends(waiter.lease_id)) {
                let is_cut = self.before.is_some_and(WatchedName::queue_is_cut);
                let found = self.is_found(is_cut, waiter.waited);
                self.add(found, LockEvent::Queued { waiter: Box::new(waiter.clone()), position });
            }
        }
        self.freezes(now);
    }

    /// Returns whether something that appears was there before. Only its age can show it where the
    /// round before did not see all.
    fn is_found(&self, is_cut: bool, age: Option<Duration>) -> bool {
        !self.known || (is_cut && age.is_none_or(|age| age > self.within))
    }

    fn granted(&mut self, holder: &HolderView) {
        let lease_id = holder.summary.lease_id;
        let waiter = self
            .before
            .and_then(|before| before.waiters().find(|waiter| waiter.lease_id == lease_id));
        let is_cut = self.before.is_some_and(WatchedName::holders_are_cut);
        let found = self.is_found(is_cut, holder.summary.held_for);
        let waited = waiter.and_then(|waiter| waiter.waited);
        self.add(found, LockEvent::Granted { holder: Box::new(holder.clone()), waited });
        if matches!(holder.state, GrantState::Revoked(_)) {
            self.add(found, LockEvent::Revoked { holder: Box::new(holder.clone()) });
        }
    }

    fn goes_on(&mut self, earlier: &HolderView, holder: &HolderView, now: &WatchedName) {
        let revoked = matches!(holder.state, GrantState::Revoked(_));
        if revoked && !matches!(earlier.state, GrantState::Revoked(_)) {
            self.add(false, LockEvent::Revoked { holder: Box::new(holder.clone()) });
        }
        let (Some(left_before), Some(left)) = (earlier.summary.left, holder.summary.left) else {
            return;
        };
        let Some(before) = self.before else { return };
        let passed = less_drift(now.asked.since(before.answered));
        let without_renewal = left_before.saturating_sub(passed) + self.tolerance();
        if left > without_renewal {
            let key = key(&holder.summary);
            let slack = before.slack.get(&key).copied().unwrap_or(left_before);
            self.add(false, LockEvent::Renewed { holder: Box::new(holder.clone()), slack });
        }
    }

    fn freezes(&mut self, now: &WatchedName) {
        let Some(freeze) = &now.snapshot.freeze else { return };
        let is_same = self.before.and_then(|before| {
            let earlier = before.snapshot.freeze.as_ref()?;
            let passed = less_drift(now.asked.since(before.answered));
            let unchanged = earlier.left.saturating_sub(passed) + self.tolerance();
            Some(
                earlier.active == freeze.active
                    && earlier.reason == freeze.reason
                    && freeze.left <= unchanged,
            )
        });
        if is_same != Some(true) {
            self.add(!self.known, LockEvent::Frozen { freeze: freeze.clone() });
        }
    }
}

/// The shortest that the other clock may count while this one counts `duration`.
fn less_drift(duration: Duration) -> Duration {
    duration.saturating_sub(duration.saturating_mul(DEFAULT_DRIFT_PPM) / 1_000_000)
}

#[cfg(test)]
mod tests;
