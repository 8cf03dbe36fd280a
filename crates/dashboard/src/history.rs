//! What this server has seen of a store's past, within bounds. Pure: no clock, no store.
//!
//! - R1: a hold begins and ends here when a round first shows it, and no longer shows it. So times
//!   are exact to the pause between two rounds, and what begins and ends between two rounds is not
//!   here.
//! - R2: at most [`MOST_HOLDS`] ended holds, [`MOST_WAITS`] ended waits and [`MOST_NAMES`] names of
//!   [`Blame`] are kept; the oldest go first. Open holds are as many as a round shows.
//! - R3: an overlap is two holders in one answer of the store of which one is exclusive. Times of
//!   two rounds never make one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime};

use holdline::watch::{Change, EndedWhen, LockEvent};
use holdline_core::{
    FencingToken, GrantState, HolderSummary, HolderView, LockName, Mode, ShortLeaseId, Snapshot,
    WaiterView,
};

/// How many ended holds are kept.
const MOST_HOLDS: usize = 20_000;
/// How many ended waits are kept.
const MOST_WAITS: usize = 20_000;
/// How many overlaps and late renewals are kept.
const MOST_NOTES: usize = 1_000;
/// For how many names waiting is summed up.
const MOST_NAMES: usize = 2_000;
/// For how many holders of a name waiting is summed up.
const MOST_HOLDERS: usize = 20;
/// The longest pause between two rounds that counts as waiting.
const LONGEST_STEP: Duration = Duration::from_secs(60);
/// A renewal is late when less than this part of the lease was left.
const LATE: u32 = 5;

/// A name that is held, waited for or frozen, as a round shows it.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) lock: Snapshot,
    /// The least that was seen left of the lease of each holder.
    pub(crate) slack: Vec<Option<Duration>>,
}

impl Row {
    /// Returns the first holder and its slack.
    pub(crate) fn first(&self) -> Option<(&HolderView, Option<Duration>)> {
        self.holders().next()
    }

    /// Returns the holders, each with its slack.
    fn holders(&self) -> impl Iterator<Item = (&HolderView, Option<Duration>)> {
        self.lock.holders.iter().zip(self.slack.iter().copied())
    }
}

/// A hold.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    pub(crate) holder: HolderSummary,
    pub(crate) from: SystemTime,
    /// The end, if it has ended.
    pub(crate) end: Option<(SystemTime, End)>,
    /// How long it waited before, as far as that was seen.
    pub(crate) waited: Option<Duration>,
    /// The least that was seen left of the lease.
    pub(crate) slack: Option<Duration>,
    /// The most that was seen left of the lease.
    pub(crate) lease: Option<Duration>,
}

/// How a hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Before its lease was over: released, unless the store lost data.
    Released,
    /// The lease may have run out; the hold is counted as lost.
    Lost,
    /// It had no lease.
    NoLease,
    /// An operator had revoked it, for this reason.
    Revoked(String),
}

impl End {
    /// Returns the word for pages.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            End::Released => "released",
            End::Lost => "perhaps expired",
            End::NoLease => "ended",
            End::Revoked(_) => "revoked",
        }
    }
}

impl Hold {
    /// Returns how long it has lasted at `now`.
    pub(crate) fn lasted(&self, now: SystemTime) -> Duration {
        let until = self.end.as_ref().map_or(now, |(at, _)| *at);
        until.duration_since(self.from).unwrap_or_default()
    }

    /// Returns whether it counts as lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.end.as_ref().is_some_and(|(_, end)| *end == End::Lost)
    }
}

/// A wait that is over.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) name: LockName,
    pub(crate) at: SystemTime,
    pub(crate) waited: Duration,
    /// Whether it ended with a grant.
    pub(crate) granted: bool,
}

/// Something to look into.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) name: LockName,
    pub(crate) at: SystemTime,
    pub(crate) what: What,
}

/// What a note is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// So many holders at once, one of them exclusive.
    Overlap(usize),
    /// A lease was renewed when this much was left.
    LateRenewal(Duration),
}

/// The waiting that was seen for a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blame {
    /// Seconds of all waiters together.
    pub(crate) seconds: f64,
    /// The most that waited at once.
    pub(crate) peak: usize,
    /// Seconds by who held the name meanwhile.
    pub(crate) holders: BTreeMap<String, f64>,
}

type HoldKey = (LockName, ShortLeaseId, Option<FencingToken>);

/// What was seen.
#[derive(Default)]
pub(crate) struct History {
    open: HashMap<HoldKey, Hold>,
    ended: VecDeque<Hold>,
    waits: VecDeque<Wait>,
    notes: VecDeque<Note>,
    blame: HashMap<LockName, Blame>,
    last: Option<SystemTime>,
}

impl History {
    /// Takes in a complete round: its changes, and what it shows.
    pub(crate) fn record(&mut self, at: SystemTime, changes: &[Change], rows: &[Row]) {
        for change in changes {
            self.change(at, change);
        }
        let step = self.last.and_then(|last| at.duration_since(last).ok()).unwrap_or_default();
        self.last = Some(at);
        let queued = changes.iter().filter_map(|change| match &change.event {
            LockEvent::Queued { waiter, .. } => Some((&change.name, waiter.lease_id)),
            _ => None,
        });
        let queued: HashSet<_> = queued.collect();
        for row in rows {
            self.look(at, step.min(LONGEST_STEP), row, &queued);
        }
    }

    fn change(&mut self, at: SystemTime, change: &Change) {
        let name = &change.name;
        match &change.event {
            LockEvent::Granted { holder, waited } => {
                self.begin(at, name, holder, *waited);
                if let Some(waited) = waited {
                    self.wait(Wait { name: name.clone(), at, waited: *waited, granted: true });
                }
            }
            LockEvent::Ended { holder, when, slack } => {
                let mut hold = self.take(at, name, holder);
                let end = match (&holder.state, when) {
                    (GrantState::Revoked(reason), _) => End::Revoked(reason.clone()),
                    (_, EndedWhen::BeforeLeaseEnd) => End::Released,
                    (_, EndedWhen::PerhapsExpired) => End::Lost,
                    (_, EndedWhen::NoLease) => End::NoLease,
                };
                hold.end = Some((at, end));
                hold.slack = slack.or(hold.slack);
                push(&mut self.ended, hold, MOST_HOLDS);
            }
            LockEvent::Renewed { holder, slack } => {
                let hold = self.open.get(&key(name, &holder.summary));
                let lease = hold.and_then(|hold| hold.lease);
                // The slack of the hold so far: only a new least is news.
                let before = hold.and_then(|hold| hold.slack);
                let is_news = before.is_none_or(|before| *slack < before);
                if is_news && lease.is_some_and(|lease| *slack * LATE < lease) {
                    self.note(name, at, What::LateRenewal(*slack));
                }
            }
            LockEvent::LeftQueue { waiter } => {
                if let Some(waited) = waiter.waited {
                    self.wait(Wait { name: name.clone(), at, waited, granted: false });
                }
            }
            LockEvent::Revoked { .. }
            | LockEvent::Queued { .. }
            | LockEvent::Frozen { .. }
            | LockEvent::Unfrozen { .. } => {}
        }
    }

    /// Updates what a round shows of a name that may be unchanged.
    fn look(
        &mut self,
        at: SystemTime,
        step: Duration,
        row: &Row,
        queued: &HashSet<(&LockName, ShortLeaseId)>,
    ) {
        let name = &row.lock.name;
        for (holder, slack) in row.holders() {
            if let Some(hold) = self.open.get_mut(&key(name, &holder.summary)) {
                hold.slack = slack;
                hold.lease = hold.lease.max(holder.summary.left);
            }
        }
        let holders = &row.lock.holders;
        let count = holders.len();
        if count > 1 && holders.iter().any(|holder| holder.summary.mode == Mode::Exclusive) {
            let last = self.notes.iter().rev().find(|note| note.name == *name);
            if last.is_none_or(|note| note.what != What::Overlap(count)) {
                self.note(name, at, What::Overlap(count));
            }
        }
        if row.lock.queue_length > 0 {
            // What each waiter has waited since the last round. If the store does not know when a
            // new one came, it is taken to have come in the middle of the pause.
            let since_last = |waiter: &WaiterView| match waiter.waited {
                Some(waited) => waited.min(step),
                None if queued.contains(&(name, waiter.lease_id)) => step / 2,
                None => step,
            };
            let shown: f64 = row.lock.queue.iter().map(|one| since_last(one).as_secs_f64()).sum();
            // Counts of waiters are small: no precision is lost.
            #[allow(clippy::cast_precision_loss)]
            let others = row.lock.queue_length.saturating_sub(row.lock.queue.len()) as f64;
            let seconds = shown + others * step.as_secs_f64();
            self.blame(seconds, row.lock.queue_length, name, holders.iter());
        }
    }

    fn blame<'a>(
        &mut self,
        seconds: f64,
        waiting: usize,
        name: &LockName,
        holders: impl Iterator<Item = &'a HolderView>,
    ) {
        if !self.blame.contains_key(name) && self.blame.len() >= MOST_NAMES {
            let least = self.blame.iter().min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
            if let Some(least) = least.map(|(name, _)| name.clone()) {
                self.blame.remove(&least);
            }
        }
        let blame = self.blame.entry(name.clone()).or_default();
        blame.seconds += seconds;
        blame.peak = blame.peak.max(waiting);
        for holder in holders {
            let who = who(&holder.summary);
            if blame.holders.len() < MOST_HOLDERS || blame.holders.contains_key(&who) {
                *blame.holders.entry(who).or_default() += seconds;
            }
        }
    }

    fn begin(
        &mut self,
        at: SystemTime,
        name: &LockName,
        holder: &HolderView,
        waited: Option<Duration>,
    ) {
        let summary = holder.summary.clone();
        let key = key(name, &summary);
        let from = summary.held_for.and_then(|held| at.checked_sub(held)).unwrap_or(at);
        let slack = summary.left;
        let lease = summary.left;
        let name = name.clone();
        let end = None;
        let hold = Hold { name, holder: summary, from, end, waited, slack, lease };
        self.open.insert(key, hold);
    }

    fn take(&mut self, at: SystemTime, name: &LockName, holder: &HolderView) -> Hold {
        let key = key(name, &holder.summary);
        if !self.open.contains_key(&key) {
            self.begin(at, name, holder, None);
        }
        // It was inserted above, if it was not there.
        self.open.remove(&key).unwrap_or_else(|| unreachable!("an open hold"))
    }

    fn wait(&mut self, wait: Wait) {
        push(&mut self.waits, wait, MOST_WAITS);
    }

    fn note(&mut self, name: &LockName, at: SystemTime, what: What) {
        push(&mut self.notes, Note { name: name.clone(), at, what }, MOST_NOTES);
    }

    /// Returns all holds: the ended ones, oldest first, then the open ones.
    pub(crate) fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.ended.iter().chain(self.open.values())
    }

    /// Returns the waits that are over, oldest first.
    pub(crate) fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.waits.iter()
    }

    /// Returns what to look into, oldest first.
    pub(crate) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter()
    }

    /// Returns the waiting by name.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&LockName, &Blame)> {
        self.blame.iter()
    }
}

fn push<T>(to: &mut VecDeque<T>, item: T, most: usize) {
    if to.len() >= most {
        to.pop_front();
    }
    to.push_back(item);
}

fn key(name: &LockName, holder: &HolderSummary) -> HoldKey {
    (name.clone(), holder.lease_id, holder.token)
}

/// Names a holder: its program, and its host.
pub(crate) fn who(holder: &HolderSummary) -> String {
    let fields = holder.metadata.fields();
    match (fields.program.as_str(), fields.host.as_str()) {
        ("", "") => format!("lease {}", holder.lease_id),
        ("", host) => format!("a program on {host}"),
        (program, "") => program.to_owned(),
        (program, host) => format!("{program} on {host}"),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::{LeaseId, Metadata};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name() -> LockName {
        LockName::new("n").expect("a good name")
    }

    fn holder(number: u8, left: u64) -> HolderView {
        let summary = HolderSummary {
            lease_id: LeaseId::from_bytes([number; 16]).short(),
            token: None,
            mode: Mode::Exclusive,
            held_for: None,
            left: Some(SECOND * u32::try_from(left).expect("small")),
            no_expiry: false,
            metadata: Metadata::default(),
        };
        let state = GrantState::Held;
        let pids = Vec::new();
        HolderView { summary, state, detached: false, live: false, pids }
    }

    fn row(holders: Vec<HolderView>, waiting: usize) -> Row {
        let slack = holders.iter().map(|holder| holder.summary.left).collect();
        let holder_count = holders.len();
        let queue_length = waiting;
        let lock = Snapshot { holders, holder_count, queue_length, ..Snapshot::free(name()) };
        Row { lock, slack }
    }

    fn change(event: LockEvent) -> Change {
        Change { name: name(), event, found: false, within: SECOND }
    }

    fn at(seconds: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + SECOND * seconds
    }

    fn granted(holder: HolderView) -> Change {
        change(LockEvent::Granted { holder: Box::new(holder), waited: Some(SECOND) })
    }

    fn ended(holder: HolderView, when: EndedWhen) -> Change {
        change(LockEvent::Ended { holder: Box::new(holder), when, slack: Some(SECOND) })
    }

    #[test]
    fn a_hold_ends_as_it_was_seen_to_end() {
        let revoked = HolderView { state: GrantState::Revoked("r".into()), ..holder(1, 9) };
        for (last, when, end) in [
            (holder(1, 9), EndedWhen::BeforeLeaseEnd, End::Released),
            (holder(1, 1), EndedWhen::PerhapsExpired, End::Lost),
            (holder(1, 1), EndedWhen::NoLease, End::NoLease),
            (revoked, EndedWhen::PerhapsExpired, End::Revoked("r".into())),
        ] {
            let mut history = History::default();
            history.record(at(10), &[granted(holder(1, 9))], &[row(vec![holder(1, 9)], 0)]);
            history.record(at(15), &[ended(last, when)], &[]);
            let holds: Vec<&Hold> = history.holds().collect();
            assert_eq!(holds.len(), 1);
            assert_eq!(holds[0].end, Some((at(15), end.clone())));
            assert_eq!(holds[0].is_lost(), end == End::Lost);
            assert_eq!((holds[0].from, holds[0].lasted(at(99))), (at(10), SECOND * 5));
            assert_eq!(history.waits().count(), 1);
        }
    }

    #[test]
    fn two_exclusive_holders_of_one_round_are_an_overlap_and_those_of_two_are_none() {
        let mut history = History::default();
        history.record(at(1), &[granted(holder(1, 9))], &[row(vec![holder(1, 9)], 0)]);
        let changes = [ended(holder(1, 9), EndedWhen::BeforeLeaseEnd), granted(holder(2, 9))];
        history.record(at(2), &changes, &[row(vec![holder(2, 9)], 0)]);
        assert_eq!(history.notes().count(), 0);
        let both = row(vec![holder(2, 9), holder(3, 9)], 0);
        history.record(at(3), &[granted(holder(3, 9))], std::slice::from_ref(&both));
        history.record(at(4), &[], &[both]);
        let notes: Vec<&Note> = history.notes().collect();
        assert!(notes.len() == 1 && notes[0].what == What::Overlap(2), "{notes:?}");
        let shared = |number| {
            let mut view = holder(number, 9);
            view.summary.mode = Mode::Shared;
            view
        };
        let mut readers = History::default();
        readers.record(at(1), &[], &[row(vec![shared(1), shared(2)], 0)]);
        assert_eq!(readers.notes().count(), 0, "readers may be many");
    }

    #[test]
    fn a_late_renewal_is_noted_once_for_each_new_least() {
        let mut history = History::default();
        history.record(at(1), &[granted(holder(1, 30))], &[row(vec![holder(1, 30)], 0)]);
        let renewed = |slack: u32| {
            change(LockEvent::Renewed { holder: Box::new(holder(1, 30)), slack: SECOND * slack })
        };
        for (slack, notes) in [(20, 0), (6, 0), (5, 1), (2, 2), (2, 2)] {
            let mut seen = row(vec![holder(1, 30)], 0);
            seen.slack = vec![Some(SECOND * slack)];
            history.record(at(2), &[renewed(slack)], &[seen]);
            assert_eq!(history.notes().count(), notes, "{slack}");
        }
    }

    #[test]
    fn waiting_is_charged_for_all_waiters_and_a_long_pause_is_cut() {
        let mut history = History::default();
        let busy = || row(vec![holder(1, 9)], 3);
        history.record(at(10), &[], &[busy()]);
        history.record(at(12), &[], &[busy()]);
        history.record(at(1_012), &[], &[busy()]);
        let (_, blame) = history.waiting().next().expect("one name");
        assert!((blame.seconds - 3.0 * 62.0).abs() < 1e-6 && blame.peak == 3, "{blame:?}");
        assert_eq!(blame.holders.len(), 1);
    }

    #[test]
    fn a_waiter_that_came_since_the_last_round_is_not_charged_for_the_whole_pause() {
        let waiter = |number, waited| WaiterView {
            lease_id: LeaseId::from_bytes([number; 16]).short(),
            mode: Mode::Exclusive,
            waited,
            metadata: Metadata::default(),
        };
        let busy = |queue: Vec<WaiterView>| {
            let mut row = row(vec![holder(1, 9)], queue.len());
            row.lock.queue = queue;
            row
        };
        let came = |waiter: WaiterView| {
            change(LockEvent::Queued { waiter: Box::new(waiter), position: 0 })
        };
        let mut history = History::default();
        history.record(at(10), &[], &[busy(Vec::new())]);
        let known = waiter(2, Some(SECOND));
        let unknown = waiter(3, None);
        let changes = [came(known.clone()), came(unknown.clone())];
        history.record(at(20), &changes, &[busy(vec![known, unknown.clone()])]);
        let seconds = |history: &History| history.waiting().next().expect("one name").1.seconds;
        assert!((seconds(&history) - (1.0 + 5.0)).abs() < 1e-6, "{}", seconds(&history));
        history.record(at(30), &[], &[busy(vec![unknown])]);
        assert!((seconds(&history) - (6.0 + 10.0)).abs() < 1e-6, "{}", seconds(&history));
    }

    #[test]
    fn a_wait_that_was_given_up_is_counted_and_what_is_kept_has_a_bound() {
        let mut history = History::default();
        let waiter = WaiterView {
            lease_id: LeaseId::from_bytes([7; 16]).short(),
            mode: Mode::Exclusive,
            waited: Some(SECOND),
            metadata: Metadata::default(),
        };
        let left = change(LockEvent::LeftQueue { waiter: Box::new(waiter) });
        history.record(at(1), &vec![left; MOST_WAITS + 5], &[]);
        assert_eq!(history.waits().filter(|wait| !wait.granted).count(), MOST_WAITS);
        let over = ended(holder(1, 9), EndedWhen::NoLease);
        history.record(at(2), &vec![over; MOST_HOLDS + 5], &[]);
        assert_eq!(history.holds().count(), MOST_HOLDS);
    }
}
