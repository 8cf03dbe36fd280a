//! Random histories of one node, held against the definition in the core, step by step: what it
//! answers, what it says of itself, and what it keeps of two names.
//!
//! A failure names the seed and the step; the same seed makes the same history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdline_core::ReleaseReply;
use holdline_core::quorum::{
    Barred, Configuration, Gate, Node, NodeId, Register, Stamp, Told, View, Vote, Written,
};
use holdline_services::Flavour;

use super::ground::{Ground, HOLD, NODE, SKEW, Store, keep, lease_id, node_id, request, token};
use crate::node::Value;
use crate::quorum::replies::{Admitted, Record, Renewed, Voted};
use crate::quorum::requests::{Asked, Pass};

/// Lease ids of the name `a`, and of the name `b`.
const IDS: [u8; 6] = [1, 2, 3, 101, 102, 103];
const LOCKS: [&str; 2] = ["holdline:{a}", "holdline:{b}"];
const MARKERS: [&str; 4] = ["run-1", "run-2", "run-3", "run-4"];
/// Longer than a history, and than any lease in it.
const AGES: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);
const LONG_WAIT: Duration = Duration::from_millis(606_001);
/// Beyond any clock of a history.
const FAR: u64 = 8_000_000_000_000_000;

/// What the definition says of a node.
#[derive(Clone)]
struct Oracle {
    /// `None` once it was flushed, until it is greeted.
    node: Option<Node>,
    /// Under which marker it was greeted last.
    marker: String,
    /// What an operator has raised its floor to while nobody had greeted it.
    raised: u64,
    names: [Register; 2],
    given_up: BTreeSet<u8>,
}

/// What was written down of a server, by key: its kind, its contents, its end.
type Copy = (Oracle, Vec<(String, Vec<String>, i64)>);

struct History {
    ground: Ground,
    dice: u64,
    oracle: Oracle,
    /// Configurations that somebody may speak of.
    known: Vec<Configuration>,
    records: BTreeMap<u8, (Record, u64)>,
    copy: Option<Copy>,
    seen: BTreeMap<&'static str, u32>,
}

fn place(number: u8) -> usize {
    usize::from(number >= 100)
}

impl Oracle {
    fn blank() -> Oracle {
        Oracle {
            node: None,
            marker: String::new(),
            raised: 0,
            names: [Register::default(); 2],
            given_up: BTreeSet::new(),
        }
    }

    fn admit(&self, marker: &str, stamp: Stamp) -> Admitted<()> {
        self.node.as_ref().map_or(Err(Barred::Marker), |node| node.admit(marker, stamp))
    }

    fn greet(&mut self, marker: &str, fresh: NodeId) -> bool {
        let raised = std::mem::take(&mut self.raised);
        let node = self.node.get_or_insert_with(|| {
            let mut node = Node::blank(marker.to_owned(), fresh);
            node.raise_floor(raised);
            node
        });
        let accepted = node.greet(marker, fresh);
        if accepted {
            marker.clone_into(&mut self.marker);
        }
        accepted
    }

    fn view(&self) -> Option<View> {
        self.node.as_ref().map(Node::view)
    }

    /// What a counter of a name is counted on above of, and what an operator would have to read.
    fn floor(&self, place: usize) -> u64 {
        self.node.as_ref().map_or(self.raised, |node| node.floor(self.names[place].last()))
    }

    fn raise(&mut self, token: u64) {
        if let Some(node) = &mut self.node {
            node.raise(token);
        }
    }
}

impl History {
    fn new(ground: Ground, seed: u64) -> History {
        History {
            ground,
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            oracle: Oracle::blank(),
            known: Vec::new(),
            records: BTreeMap::new(),
            copy: None,
            seen: BTreeMap::new(),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        usize::try_from(self.dice % limit as u64).expect("below")
    }

    fn often(&mut self) -> bool {
        self.below(8) > 0
    }

    fn one_of<T: Clone>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())].clone()
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    async fn time(&self) -> u64 {
        let time = self.ground.raw(&["TIME"]).await;
        let parts = time.as_array().expect("two numbers").iter();
        let mut parts =
            parts.map(|part| u64::try_from(part.as_integer().expect("a number")).expect("a time"));
        parts.next().expect("seconds") * 1_000_000 + parts.next().expect("micros")
    }

    async fn field(&self, field: &str) -> Option<u64> {
        let text = self.ground.text(&["HGET", NODE, field]).await;
        text.map(|text| text.parse().expect("a number"))
    }

    /// The marker and the stamp that the node has, or, now and then, others.
    fn shown(&mut self) -> (String, Stamp) {
        let mine = self.oracle.view().and_then(|view| view.configuration);
        let marker = match self.often() && !self.oracle.marker.is_empty() {
            true => self.oracle.marker.clone(),
            false => self.one_of(&MARKERS).to_owned(),
        };
        let stamp = match (self.often(), mine, self.known.is_empty()) {
            (true, Some(mine), _) => mine.stamp(),
            (_, _, false) => {
                let known = self.below(self.known.len());
                self.known[known].stamp()
            }
            _ => Configuration::founded(&[(node_id(90), "x")], HOUR).stamp(),
        };
        (marker, stamp)
    }

    async fn step(&mut self) {
        match self.below(40) {
            0 => self.greet().await,
            1..=7 => self.tell().await,
            8..=17 => self.acquire().await,
            18..=21 => self.write_back().await,
            22..=25 => self.renew().await,
            26..=29 => self.release().await,
            30..=31 => self.heal().await,
            32..=33 => self.expire().await,
            34 => self.forget_name().await,
            35 => self.raise().await,
            36 => self.save().await,
            37..=38 => self.stay_open().await,
            _ => self.lose().await,
        }
        self.compare().await;
    }

    async fn greet(&mut self) {
        let marker = self.one_of(&MARKERS);
        self.greet_as(marker).await;
    }

    async fn greet_as(&mut self, marker: &str) {
        let fresh = u8::try_from(10 + self.below(60)).expect("small");
        let greeted = self.ground.greet(marker, fresh).await.expect("ours");
        let accepted = self.oracle.greet(marker, node_id(fresh));
        assert_eq!(greeted.accepted, accepted);
        assert_eq!(Some(greeted.view), self.oracle.view());
        self.note(if accepted { "greeted" } else { "not greeted" });
    }

    /// Says something that fits how the node stands, or, now and then, that does not.
    fn draw_told(&mut self) -> Told {
        let view = self.oracle.view();
        let id = view.as_ref().map_or(node_id(1), |view| view.id);
        let mine = view.as_ref().and_then(|view| view.configuration.clone());
        let (_, stamp) = self.shown();
        let from = if self.often() { mine.as_ref().map(Configuration::stamp) } else { Some(stamp) };
        let quarantine = self.one_of(&[Duration::ZERO, Duration::ZERO, LONG_WAIT]);
        let fitting = view.as_ref().map_or(Gate::Blank, |view| view.gate);
        let kinds = [Gate::Blank, Gate::Proposed, Gate::Open, Gate::Forgot, Gate::Out];
        match if self.often() { fitting } else { self.one_of(&kinds) } {
            Gate::Blank => Told::Propose { from, configuration: self.draw_first(id) },
            Gate::Proposed => {
                let quarantine = (self.below(2) == 0).then_some(quarantine);
                Told::Activate { stamp, quarantine }
            }
            Gate::Out if self.below(2) == 0 => {
                let fresh = u8::try_from(10 + self.below(60)).expect("small");
                let id = if self.often() { id } else { node_id(9) };
                Told::Readmit { id, fresh: node_id(fresh) }
            }
            Gate::Forgot if mine.as_ref().is_some_and(|mine| mine.has(id)) && self.often() => {
                let episode = if self.often() { id } else { node_id(9) };
                let begun = view.as_ref().and_then(|view| view.quarantine);
                match self.below(7) {
                    5 | 6 if begun.is_some() => {
                        let (left, by_time) = begun.unwrap_or_default();
                        let left = if self.often() { left } else { LONG_WAIT };
                        let by_time = by_time == self.often();
                        let passed = self.one_of(&[Duration::ZERO, left / 2, left, LONG_WAIT]);
                        Told::Waited { episode, stamp, by_time, left, passed }
                    }
                    0 => Told::Vouch { episode, stamp },
                    1 | 2 => {
                        let by_time = self.below(2) == 0;
                        Told::Begin { episode, stamp, quarantine, by_time }
                    }
                    _ => {
                        let last = self.oracle.names[0].last();
                        let floor = self.one_of(&[0, 5, last, last + 3, last + 1_000]);
                        Told::Recover { episode, stamp, floor }
                    }
                }
            }
            Gate::Open | Gate::Out | Gate::Forgot => {
                Told::Adopt { from, configuration: self.draw_next(id, mine) }
            }
        }
    }

    fn draw_first(&mut self, id: NodeId) -> Configuration {
        let member = if self.often() { id } else { node_id(9) };
        let third = self.one_of(&[node_id(82), node_id(83)]);
        let nodes = [(member, "a:1"), (node_id(81), "b:2"), (third, "c:3")];
        let first = Configuration::founded(&nodes, Duration::from_secs(60));
        self.known.push(first.clone());
        first
    }

    /// Draws what comes after what the node has: often with the node in it.
    fn draw_next(&mut self, id: NodeId, mine: Option<Configuration>) -> Configuration {
        let before = match (self.often(), mine, self.known.is_empty()) {
            (true, Some(mine), _) => mine,
            (_, _, false) => {
                let known = self.below(self.known.len());
                self.known[known].clone()
            }
            _ => self.draw_first(id),
        };
        let slots: Vec<NodeId> = before.slots().iter().map(|slot| slot.id).collect();
        let others: Vec<NodeId> = slots.iter().copied().filter(|slot| *slot != id).collect();
        let next = match self.below(8) {
            0 => before.successor(&[(id, node_id(84), "d:4")]),
            1 => before.successor(&[(self.one_of(&slots), node_id(85), "e:5")]),
            _ if before.has(id) || others.is_empty() => before.successor(&[]),
            _ => before.successor(&[(self.one_of(&others), id, "a:1")]),
        };
        self.known.push(next.clone());
        next
    }

    async fn tell(&mut self) {
        let (marker, _) = self.shown();
        let told = self.draw_told();
        self.tell_it(&marker, told).await;
    }

    async fn tell_it(&mut self, marker: &str, told: Told) {
        let before = self.time().await;
        let fitted = self.ground.tell(marker, &told).await.expect("ours");
        let after = self.time().await;
        let now = match (&told, fitted) {
            (Told::Activate { .. } | Told::Recover { .. }, true) => {
                let ahead = u64::try_from(SKEW.as_micros()).expect("short");
                let floor = self.field("f").await.expect("a floor");
                let when = floor.saturating_sub(ahead);
                if (before..=after).contains(&when) { when } else { before }
            }
            _ => before,
        };
        assert!((before..=after).contains(&now), "{before} {now} {after}");
        let what = match (&told, fitted) {
            (_, false) => "refused",
            (Told::Propose { .. }, _) => "proposed",
            (Told::Activate { .. }, _) => "activated",
            (Told::Adopt { .. }, _) => "adopted",
            (Told::Begin { .. }, _) => "began",
            (Told::Recover { .. }, _) => "recovered",
            (Told::Waited { .. }, _) => "waited",
            (Told::Vouch { .. }, _) => "vouched for",
            (Told::Readmit { .. }, _) => "readmitted",
        };
        self.note(what);
        let expected = match &mut self.oracle.node {
            Some(node) => node.told(marker, told.clone(), now),
            None => false,
        };
        assert_eq!(fitted, expected, "{told:?}");
    }

    /// Does what brings a node that does not vote back to voting.
    async fn stay_open(&mut self) {
        for _ in 0..6 {
            let marker = match self.oracle.marker.is_empty() {
                true => "run-1".to_owned(),
                false => self.oracle.marker.clone(),
            };
            self.greet_as(&marker).await;
            let view = self.oracle.view().expect("it was greeted");
            let stamp = view.configuration.as_ref().map(Configuration::stamp);
            let member = view.configuration.as_ref().is_some_and(|mine| mine.has(view.id));
            let told = match (view.gate, stamp) {
                (Gate::Open | Gate::Out, _) => return,
                (Gate::Proposed, Some(stamp)) => Told::Activate { stamp, quarantine: None },
                (Gate::Forgot, Some(stamp))
                    if member && view.quarantine.is_some_and(|(left, _)| !left.is_zero()) =>
                {
                    let (left, by_time) = view.quarantine.unwrap_or_default();
                    Told::Waited { episode: view.id, stamp, by_time, left, passed: left }
                }
                (Gate::Forgot, Some(stamp)) if member && view.quarantine.is_some() => {
                    let floor = self.oracle.names[0].last() + 7;
                    Told::Recover { episode: view.id, stamp, floor }
                }
                (Gate::Forgot, Some(stamp)) if member => {
                    let (episode, quarantine) = (view.id, Duration::ZERO);
                    Told::Begin { episode, stamp, quarantine, by_time: false }
                }
                (Gate::Forgot, from) => {
                    let configuration = self.draw_next(view.id, view.configuration);
                    Told::Adopt { from, configuration }
                }
                (_, from) => Told::Propose { from, configuration: self.draw_first(view.id) },
            };
            self.tell_it(&marker, told).await;
        }
    }

    async fn acquire(&mut self) {
        let number = self.one_of(&IDS);
        let (marker, stamp) = self.shown();
        let before = self.time().await;
        let near = self.oracle.names[place(number)].last();
        let choices = [1, near, near + 1, near + 40, before - 5, before + 500_000, FAR];
        let proposed = self.one_of(&choices);
        let asked = if self.below(4) == 0 { Asked::Again } else { Asked::Anew };
        let pass = Pass::new(&marker, stamp);
        let voted = self.ground.acquire(&pass, &request(number), proposed, asked).await;
        let voted = voted.expect("ours");
        let after = self.time().await;
        if let Err(why) = self.oracle.admit(&marker, stamp) {
            self.note("barred");
            return assert_eq!(voted, Voted::Barred(why));
        }
        let floor = self.oracle.floor(place(number));
        let register = &mut self.oracle.names[place(number)];
        let mine = register.holder() == Some(lease_id(number));
        if !mine && self.oracle.given_up.contains(&number) {
            self.note("cancelled");
            return assert_eq!(voted, Voted::Cancelled { revoked: None });
        }
        if asked == Asked::Again {
            let evidence = register.evidence(lease_id(number));
            self.note(if mine { "held" } else { "unknown" });
            return match voted {
                Voted::Held { last, .. } => assert_eq!(Some(last), evidence),
                Voted::Healed { .. } => assert!(mine && evidence.is_none()),
                other => assert!(!mine && other == Voted::Unknown, "{other:?}"),
            };
        }
        // Where the node's own clock decides, it is known to be between two looks at it.
        let skew = u64::try_from(SKEW.as_micros()).expect("short");
        let [least, most] = [before, after].map(|now| proposed.min(now + skew));
        let clamped = match &voted {
            Voted::Granted { last } if (least..=most).contains(&last.get()) => last.get(),
            _ => least,
        };
        let expected = register.acquire(lease_id(number), floor, clamped).expect("not spent");
        match (voted, expected) {
            // An id that has the name since before is told so, and what is left of it.
            (Voted::Held { last, .. }, Vote::Granted { last: expected }) if mine => {
                assert_eq!(last, expected);
                self.note("held since before");
            }
            (Voted::Granted { last }, Vote::Granted { last: expected }) if !mine => {
                assert_eq!(last, expected);
                self.oracle.raise(last.get());
                let record = self.ground.record(number).await.expect("ours").expect("it is held");
                let kept = record.token().expect("a token");
                self.records.insert(number, (record, kept.get()));
                self.note("granted");
            }
            (Voted::Healed { .. }, Vote::Healed) => self.note("healed since before"),
            (Voted::Busy { holder: Some(holder), .. }, Vote::Busy) => {
                let expected = self.oracle.names[place(number)].holder().expect("busy");
                assert_eq!(holder.lease_id, expected.short());
                self.note("busy");
            }
            (voted, expected) => panic!("{voted:?}, not {expected:?}"),
        }
    }

    async fn write_back(&mut self) {
        let number = self.one_of(&IDS);
        let (marker, stamp) = self.shown();
        let last = self.oracle.names[place(number)].last();
        let written = self.one_of(&[last.max(1), last + 1, last + 17, last / 2 + 1]);
        let answer = self.ground.write_back(&Pass::new(&marker, stamp), number, written).await;
        let answer = answer.expect("ours");
        let expected = self.oracle.admit(&marker, stamp).map(|()| {
            self.oracle.names[place(number)].write_back(lease_id(number), token(written))
        });
        assert_eq!(answer, expected);
        if let Ok(Written::Stands(last)) = answer {
            self.oracle.raise(last.get());
            self.note("written back");
        }
    }

    async fn renew(&mut self) {
        let (marker, stamp) = self.shown();
        let lines = IDS.map(|number| keep(number, HOLD));
        let answer = self.ground.renew(&Pass::new(&marker, stamp), &lines).await.expect("ours");
        let answer = match (answer, self.oracle.admit(&marker, stamp)) {
            (Ok(answer), Ok(())) => answer,
            (answer, expected) => return assert_eq!(answer.map(drop), expected),
        };
        for (number, renewed) in IDS.into_iter().zip(answer) {
            let holder = self.oracle.names[place(number)].holder();
            match renewed.expect("ours") {
                Renewed::Kept { left } => {
                    assert_eq!(holder, Some(lease_id(number)));
                    assert!(left > Duration::ZERO && Some(left) <= HOLD.duration());
                    self.note("kept");
                }
                Renewed::Gone { free } => {
                    assert_ne!(holder, Some(lease_id(number)));
                    assert_eq!(free, holder.is_none());
                    self.note("gone");
                }
                other => panic!("nothing was revoked: {other:?}"),
            }
        }
    }

    async fn release(&mut self) {
        let number = self.one_of(&IDS);
        let tombstone = (self.below(6) == 0).then_some(AGES);
        let answer = self.ground.release(number, tombstone).await.expect("ours");
        let released = self.oracle.names[place(number)].release(lease_id(number));
        match (answer, released) {
            (ReleaseReply::Released { .. }, true) => self.note("released"),
            (ReleaseReply::NotHeld { revoked: None }, false) => self.note("not held"),
            (answer, released) => panic!("{answer:?}, and held: {released}"),
        }
        if tombstone.is_some() {
            self.oracle.given_up.insert(number);
        }
    }

    async fn heal(&mut self) {
        let number = self.one_of(&IDS);
        let Some((record, kept)) = self.records.get(&number).cloned() else { return };
        let (marker, stamp) = self.shown();
        let answer = self.ground.heal(&Pass::new(&marker, stamp), number, &record).await;
        let answer = answer.expect("ours");
        let given_up = self.oracle.given_up.contains(&number);
        let floor = self.oracle.floor(place(number));
        let expected = self.oracle.admit(&marker, stamp).map(|()| {
            let register = &mut self.oracle.names[place(number)];
            !given_up && register.heal(lease_id(number), floor, token(kept))
        });
        assert_eq!(answer, expected);
        if answer == Ok(true) {
            self.oracle.raise(self.oracle.names[place(number)].last());
            self.note("healed");
        }
    }

    /// Ends leases, as time does: where time can be moved, all of them.
    async fn expire(&mut self) {
        if let Store::Fake(clock) = &self.ground.store {
            clock.advance(Duration::from_millis(30_001));
            return self.oracle.names.iter_mut().for_each(Register::expire);
        }
        let which = self.below(LOCKS.len());
        self.ground.raw(&["DEL", LOCKS[which]]).await;
        self.oracle.names[which].expire();
    }

    /// The counter of a name is old, and ends.
    async fn forget_name(&mut self) {
        let which = self.below(LOCKS.len());
        if self.oracle.names[which].holder().is_none() {
            self.ground.raw(&["DEL", &format!("{}:1l", LOCKS[which])]).await;
            self.oracle.names[which] = Register::default();
        }
    }

    async fn raise(&mut self) {
        let last = self.oracle.names[0].last();
        let to = self.one_of(&[1, last + 1, last + 30]);
        self.ground.raise(to).await.expect("ours");
        match &mut self.oracle.node {
            Some(node) => node.raise_floor(to),
            None => self.oracle.raised = self.oracle.raised.max(to),
        }
    }

    async fn save(&mut self) {
        let mut entries = Vec::new();
        for key in self.ground.keys().await {
            let mut words = match self.ground.text(&["TYPE", &key]).await.as_deref() {
                Some("hash") => vec!["HSET".to_owned(), key.clone()],
                _ => vec!["SET".to_owned(), key.clone()],
            };
            let read = if words[0] == "HSET" { "HGETALL" } else { "GET" };
            let parts = match self.ground.raw(&[read, &key]).await {
                Value::Array(parts) => parts,
                one => vec![one],
            };
            words.extend(parts.iter().map(|part| part.as_text().expect("text").to_owned()));
            let left = self.ground.number(&["PTTL", &key]).await.expect("a number");
            entries.push((key, words, left));
        }
        self.copy = Some((self.oracle.clone(), entries));
    }

    /// The server comes back without its memory, or with an old copy of it.
    async fn lose(&mut self) {
        self.ground.raw(&["FLUSHALL"]).await;
        self.oracle = Oracle::blank();
        if self.below(3) > 0
            && let Some((oracle, entries)) = self.copy.take()
        {
            for (key, words, left) in entries {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.ground.raw(&words).await;
                if left > 0 {
                    self.ground.raw(&["PEXPIRE", &key, &left.to_string()]).await;
                }
            }
            self.oracle = oracle;
            self.note("restored");
        }
        if self.often() {
            self.greet().await;
        }
    }

    /// Looks at all that the node keeps.
    async fn compare(&mut self) {
        for (which, lock) in LOCKS.iter().enumerate() {
            let register = self.oracle.names[which];
            let record = self.ground.text(&["GET", lock]).await;
            let holder = record.map(|record| record[..32].to_owned());
            assert_eq!(holder, register.holder().map(|id| id.to_hex()));
            let last = self.ground.text(&["GET", &format!("{lock}:1l")]).await;
            assert_eq!(last.map_or(0, |last| last.parse().expect("a token")), register.last());
        }
        let pass = self.ground.text(&["HGET", NODE, "p"]).await;
        let floor = self.field("f").await.unwrap_or(0);
        let Some(node) = self.oracle.node.clone() else {
            assert_eq!((pass, floor), (None, self.oracle.raised));
            return;
        };
        assert_eq!(floor, node.floor(1));
        let view = node.view();
        let open = view.configuration.filter(|_| view.gate == Gate::Open);
        let expected = open.map(|mine| format!("{}/{}", self.oracle.marker, mine.stamp()));
        assert_eq!(pass, expected);
        let marker = self.oracle.marker.clone();
        let seen = self.ground.look(&marker).await.expect("ours");
        assert_eq!(Some(seen.view), self.oracle.view());
    }
}

/// How long a history is.
const STEPS: usize = 600;
/// What must happen in some histories.
const COMMON: &[&str] = &[
    "greeted",
    "refused",
    "proposed",
    "activated",
    "adopted",
    "began",
    "recovered",
    "barred",
    "cancelled",
    "granted",
    "busy",
    "unknown",
    "written back",
    "kept",
    "gone",
    "released",
    "not held",
    "healed",
    "restored",
];
/// What must happen in many.
const RARE: &[&str] = &["not greeted", "held", "waited", "vouched for", "readmitted"];

/// Tells where a history stood when it broke.
struct Where {
    seed: u64,
    step: usize,
}

impl Drop for Where {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}", self.seed, self.step);
        }
    }
}

/// Runs histories of these seeds, each on a server of its own; all that can happen must.
async fn run(seeds: std::ops::Range<u64>, rare: &[&str], ground: impl Fn() -> Ground) {
    let mut seen: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in seeds {
        let mut history = History::new(ground(), seed);
        let mut at = Where { seed, step: 0 };
        history.stay_open().await;
        for step in 0..STEPS {
            at.step = step;
            history.step().await;
        }
        for (what, times) in history.seen {
            *seen.entry(what).or_default() += times;
        }
    }
    for what in COMMON.iter().chain(rare) {
        assert!(seen.contains_key(*what), "never {what}: {seen:?}");
    }
}

#[tokio::test]
async fn a_node_on_redis_answers_as_the_definition_does() {
    run(0..5, &[], || Ground::new(Flavour::Debian)).await;
}

#[tokio::test]
async fn a_node_on_valkey_answers_as_the_definition_does() {
    run(10..15, &[], || Ground::new(Flavour::Valkey)).await;
}

#[tokio::test]
async fn a_node_on_redis_8_answers_as_the_definition_does() {
    run(20..25, &[], || Ground::new(Flavour::Redis8)).await;
}

#[tokio::test]
async fn a_node_on_the_fake_server_answers_as_the_definition_does() {
    run(30..50, RARE, Ground::fake).await;
}
