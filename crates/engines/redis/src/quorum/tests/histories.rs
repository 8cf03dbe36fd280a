//! Random histories of one node, compared step by step with the definition in the core: its
//! replies, its reports, and its keys for two names.
//!
//! A failure prints the seed and the step; the same seed makes the same history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdline_core::ReleaseReply;
use holdline_core::quorum::node::Run;
use holdline_core::quorum::{
    Configuration, MemberState, NameRegister, NodeCommand, NodeId, NodeReport, QuorumNode, Stamp,
    Vote, VoteRefusal, WriteBackReply,
};
use holdline_services::Flavour;

use super::test_node::{
    HOLD, NODE, SKEW, Store, TestNode, keep, lease_id, node_id, request, token,
};
use crate::link::Value;
use crate::quorum::replies::EpochProof;
use crate::quorum::replies::{Admitted, HolderRecord, NodeRenewal, VoteReply};
use crate::quorum::requests::AcquireKind;

/// Lease ids of the name `a`, and of the name `b`.
const IDS: [u8; 6] = [1, 2, 3, 101, 102, 103];
const LOCKS: [&str; 2] = ["holdline:{a}", "holdline:{b}"];
const MARKERS: [&str; 4] = ["run-1", "run-2", "run-3", "run-4"];
/// Longer than a history, and than any lease in it.
const AGES: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);
const LONG_WAIT: Duration = Duration::from_millis(606_001);
const SHORT_WAIT: Duration = Duration::from_millis(1);
/// Beyond any clock of a history.
const FAR: u64 = 8_000_000_000_000_000;

/// The definition's state of the node.
#[derive(Clone)]
struct Oracle {
    /// `None` after a flush, until the next handshake.
    node: Option<QuorumNode>,
    /// The marker of the last handshake.
    marker: String,
    /// The floor that an operator raised before the first handshake.
    raised: u64,
    names: [NameRegister; 2],
    given_up: BTreeSet<u8>,
}

/// A backup of a server: for each key the command that restores it, and the time left.
type Backup = (Oracle, Vec<(String, Vec<String>, i64)>);

struct History {
    node: TestNode,
    random: u64,
    oracle: Oracle,
    /// Configurations that a command may name.
    known: Vec<Configuration>,
    records: BTreeMap<u8, (HolderRecord, u64)>,
    backup: Option<Backup>,
    counts: BTreeMap<&'static str, u32>,
}

fn name_index(number: u8) -> usize {
    usize::from(number >= 100)
}

impl Oracle {
    fn blank() -> Oracle {
        Oracle {
            node: None,
            marker: String::new(),
            raised: 0,
            names: [NameRegister::default(); 2],
            given_up: BTreeSet::new(),
        }
    }

    fn admit(&self, marker: &str, stamp: Stamp) -> Admitted<()> {
        self.node.as_ref().map_or(Err(VoteRefusal::Marker), |node| node.admit(marker, stamp))
    }

    fn handshake(&mut self, run: &Run, fresh: NodeId) -> bool {
        let raised = std::mem::take(&mut self.raised);
        let node = self.node.get_or_insert_with(|| {
            let mut node = QuorumNode::blank(run.marker.clone(), fresh);
            node.raise_floor(raised);
            node
        });
        let accepted = node.handshake(run, fresh);
        if accepted {
            self.marker.clone_from(&run.marker);
        }
        accepted
    }

    fn report(&self) -> Option<NodeReport> {
        self.node.as_ref().map(QuorumNode::report)
    }

    /// The floor of a name's counter.
    fn floor(&self, name_index: usize) -> u64 {
        self.node.as_ref().map_or(self.raised, |node| node.floor(self.names[name_index].last()))
    }

    fn raise(&mut self, token: u64) {
        if let Some(node) = &mut self.node {
            node.raise(token);
        }
    }
}

impl History {
    fn new(node: TestNode, seed: u64) -> History {
        History {
            node,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            oracle: Oracle::blank(),
            known: Vec::new(),
            records: BTreeMap::new(),
            backup: None,
            counts: BTreeMap::new(),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % limit as u64).expect("below")
    }

    fn mostly(&mut self) -> bool {
        self.below(8) > 0
    }

    fn one_of<T: Clone>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())].clone()
    }

    fn note(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    async fn time(&self) -> u64 {
        let time = self.node.raw(&["TIME"]).await;
        let parts = time.as_array().expect("two numbers").iter();
        let mut parts =
            parts.map(|part| u64::try_from(part.as_integer().expect("a number")).expect("a time"));
        parts.next().expect("seconds") * 1_000_000 + parts.next().expect("micros")
    }

    async fn field(&self, field: &str) -> Option<u64> {
        let text = self.node.text(&["HGET", NODE, field]).await;
        text.map(|text| text.parse().expect("a number"))
    }

    /// The marker and the stamp of the node, or sometimes others.
    fn draw_proof(&mut self) -> (String, Stamp) {
        let mine = self.oracle.report().and_then(|report| report.configuration);
        let marker = match self.mostly() && !self.oracle.marker.is_empty() {
            true => self.oracle.marker.clone(),
            false => self.one_of(&MARKERS).to_owned(),
        };
        let stamp = match (self.mostly(), mine, self.known.is_empty()) {
            (true, Some(mine), _) => mine.stamp(),
            (_, _, false) => {
                let known = self.below(self.known.len());
                self.known[known].stamp()
            }
            _ => Configuration::initial(&[(node_id(90), "x")], HOUR).stamp(),
        };
        (marker, stamp)
    }

    async fn step(&mut self) {
        match self.below(40) {
            0 => self.handshake().await,
            1..=7 => self.send_command().await,
            8..=17 => self.acquire().await,
            18..=21 => self.write_back().await,
            22..=25 => self.renew().await,
            26..=29 => self.release().await,
            30..=31 => self.heal().await,
            32..=33 => self.expire().await,
            34 => self.delete_counter().await,
            35 => self.raise().await,
            36 => self.save().await,
            37..=38 => self.make_vote().await,
            _ => self.lose_data().await,
        }
        self.compare().await;
    }

    async fn handshake(&mut self) {
        let marker = self.one_of(&MARKERS);
        self.handshake_with(marker).await;
    }

    async fn handshake_with(&mut self, marker: &str) {
        let fresh = u8::try_from(10 + self.below(60)).expect("small");
        let replica_until = match self.below(24) {
            0 => Some("0123456789abcdef:1".to_owned()),
            1 => Some("0123456789abcdef:2".to_owned()),
            _ => None,
        };
        let run = Run { marker: marker.to_owned(), replica_until };
        let handshake = self.node.handshake_of(&run, fresh).await.expect("ours");
        let accepted = self.oracle.handshake(&run, node_id(fresh));
        assert_eq!(handshake.accepted, accepted);
        assert_eq!(Some(handshake.report), self.oracle.report());
        self.note(if accepted { "handshake" } else { "handshake rejected" });
    }

    /// Draws a command that matches the node's state, or sometimes one that does not.
    fn draw_command(&mut self) -> NodeCommand {
        let report = self.oracle.report();
        let id = report.as_ref().map_or(node_id(1), |report| report.id);
        let mine = report.as_ref().and_then(|report| report.configuration.clone());
        let (_, stamp) = self.draw_proof();
        let from =
            if self.mostly() { mine.as_ref().map(Configuration::stamp) } else { Some(stamp) };
        let quarantine = self.one_of(&[SHORT_WAIT, SHORT_WAIT, LONG_WAIT]);
        let fitting = report.as_ref().map_or(MemberState::Blank, |report| report.state);
        let kinds = [
            MemberState::Blank,
            MemberState::Proposed,
            MemberState::Voting,
            MemberState::Recovering,
            MemberState::Replaced,
        ];
        match if self.mostly() { fitting } else { self.one_of(&kinds) } {
            MemberState::Blank => {
                NodeCommand::Propose { from, configuration: self.draw_initial(id) }
            }
            MemberState::Proposed => NodeCommand::Activate { stamp, quarantine },
            MemberState::Replaced if self.below(2) == 0 => {
                let fresh = u8::try_from(10 + self.below(60)).expect("small");
                let id = if self.mostly() { id } else { node_id(9) };
                NodeCommand::Readmit { id, fresh: node_id(fresh) }
            }
            MemberState::Recovering
                if mine.as_ref().is_some_and(|mine| mine.has(id)) && self.mostly() =>
            {
                let episode = if self.mostly() { id } else { node_id(9) };
                let begun = report.as_ref().and_then(|report| report.quarantine);
                match (self.below(6), begun) {
                    (0, _) => NodeCommand::Vouch { episode },
                    (1..=3, Some((left, _))) => {
                        let left = if self.mostly() { left } else { LONG_WAIT };
                        let passed = self.one_of(&[Duration::ZERO, left / 2, left, LONG_WAIT]);
                        NodeCommand::ReportWait { episode, left, passed }
                    }
                    _ => {
                        let by_time = self.below(2) == 0;
                        let last = self.oracle.names[0].last();
                        let floor = self.one_of(&[0, 5, last, last + 3, last + 1_000]);
                        NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, floor }
                    }
                }
            }
            MemberState::Voting | MemberState::Replaced | MemberState::Recovering => {
                NodeCommand::Adopt { from, configuration: self.draw_next(id, mine) }
            }
        }
    }

    fn draw_initial(&mut self, id: NodeId) -> Configuration {
        let member = if self.mostly() { id } else { node_id(9) };
        let third = self.one_of(&[node_id(82), node_id(83)]);
        let nodes = [(member, "a:1"), (node_id(81), "b:2"), (third, "c:3")];
        let first = Configuration::initial(&nodes, Duration::from_secs(60));
        self.known.push(first.clone());
        first
    }

    /// Draws a successor of the node's configuration: mostly with the node in it.
    fn draw_next(&mut self, id: NodeId, mine: Option<Configuration>) -> Configuration {
        let before = match (self.mostly(), mine, self.known.is_empty()) {
            (true, Some(mine), _) => mine,
            (_, _, false) => {
                let known = self.below(self.known.len());
                self.known[known].clone()
            }
            _ => self.draw_initial(id),
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

    async fn send_command(&mut self) {
        let (marker, _) = self.draw_proof();
        let command = self.draw_command();
        self.send_it(&marker, command).await;
    }

    async fn send_it(&mut self, marker: &str, command: NodeCommand) {
        let before = self.time().await;
        let fitted = self.node.send_command(marker, &command).await.expect("ours");
        let after = self.time().await;
        let now = match (&command, fitted) {
            (NodeCommand::Vouch { .. } | NodeCommand::ReportWait { .. }, true) => {
                let ahead = u64::try_from(SKEW.as_micros()).expect("short");
                let floor = self.field("f").await.expect("a floor");
                let when = floor.saturating_sub(ahead);
                if (before..=after).contains(&when) { when } else { before }
            }
            _ => before,
        };
        assert!((before..=after).contains(&now), "{before} {now} {after}");
        let what = match (&command, fitted) {
            (_, false) => "refused",
            (NodeCommand::Propose { .. }, _) => "proposed",
            (NodeCommand::Activate { .. }, _) => "activated",
            (NodeCommand::Adopt { .. }, _) => "adopted",
            (NodeCommand::BeginQuarantine { .. }, _) => "began",
            (NodeCommand::ReportWait { .. }, _) => "wait reported",
            (NodeCommand::Vouch { .. }, _) => "vouched for",
            (NodeCommand::Readmit { .. }, _) => "readmitted",
        };
        self.note(what);
        let expected = match &mut self.oracle.node {
            Some(node) => node.apply(marker, command.clone(), now),
            None => false,
        };
        assert_eq!(fitted, expected, "{command:?}");
    }

    /// Sends the commands that make the node vote again.
    async fn make_vote(&mut self) {
        for _ in 0..6 {
            let marker = match self.oracle.marker.is_empty() {
                true => "run-1".to_owned(),
                false => self.oracle.marker.clone(),
            };
            self.handshake_with(&marker).await;
            let report = self.oracle.report().expect("it had a handshake");
            let stamp = report.configuration.as_ref().map(Configuration::stamp);
            let member = report.configuration.as_ref().is_some_and(|mine| mine.has(report.id));
            let command = match (report.state, stamp) {
                (MemberState::Voting | MemberState::Replaced, _) => return,
                (MemberState::Proposed, Some(stamp)) => {
                    NodeCommand::Activate { stamp, quarantine: SHORT_WAIT }
                }
                (MemberState::Recovering, Some(stamp)) if member => match report.quarantine {
                    Some((left, _)) => {
                        NodeCommand::ReportWait { episode: report.id, left, passed: left }
                    }
                    None => NodeCommand::BeginQuarantine {
                        episode: report.id,
                        stamp,
                        quarantine: SHORT_WAIT,
                        by_time: false,
                        floor: self.oracle.names[0].last() + 7,
                    },
                },
                (MemberState::Recovering, from) => {
                    let configuration = self.draw_next(report.id, report.configuration);
                    NodeCommand::Adopt { from, configuration }
                }
                (_, from) => {
                    NodeCommand::Propose { from, configuration: self.draw_initial(report.id) }
                }
            };
            self.send_it(&marker, command).await;
        }
    }

    async fn acquire(&mut self) {
        let number = self.one_of(&IDS);
        let (marker, stamp) = self.draw_proof();
        let before = self.time().await;
        let near = self.oracle.names[name_index(number)].last();
        let choices = [1, near, near + 1, near + 40, before - 5, before + 500_000, FAR];
        let proposed = self.one_of(&choices);
        let asked = if self.below(4) == 0 { AcquireKind::Known } else { AcquireKind::First };
        let proof = EpochProof::new(&marker, stamp);
        let voted = self.node.acquire(&proof, &request(number), proposed, asked).await;
        let voted = voted.expect("ours");
        let after = self.time().await;
        if let Err(why) = self.oracle.admit(&marker, stamp) {
            self.note("vote refused");
            return assert_eq!(voted, VoteReply::Refused(why));
        }
        let floor = self.oracle.floor(name_index(number));
        let register = &mut self.oracle.names[name_index(number)];
        let mine = register.holder() == Some(lease_id(number));
        if !mine && self.oracle.given_up.contains(&number) {
            self.note("cancelled");
            return assert_eq!(voted, VoteReply::Cancelled { revoked: None });
        }
        if asked == AcquireKind::Known {
            let evidence = register.evidence(lease_id(number));
            self.note(if mine { "held" } else { "unknown" });
            return match voted {
                VoteReply::Held { last, .. } => assert_eq!(Some(last), evidence),
                VoteReply::Healed { .. } => assert!(mine && evidence.is_none()),
                other => assert!(!mine && other == VoteReply::Unknown, "{other:?}"),
            };
        }
        // The node's clock is known to be between two readings of it.
        let skew = u64::try_from(SKEW.as_micros()).expect("short");
        let [least, most] = [before, after].map(|now| proposed.min(now + skew));
        let clamped = match &voted {
            VoteReply::Granted { last } if (least..=most).contains(&last.get()) => last.get(),
            _ => least,
        };
        let expected = register.acquire(lease_id(number), floor, clamped).expect("not spent");
        match (voted, expected) {
            // An id that held the name before gets the time left.
            (VoteReply::Held { last, .. }, Vote::Granted { last: expected }) if mine => {
                assert_eq!(last, expected);
                self.note("held since before");
            }
            (VoteReply::Granted { last }, Vote::Granted { last: expected }) if !mine => {
                assert_eq!(last, expected);
                self.oracle.raise(last.get());
                let record = self.node.record(number).await.expect("ours").expect("it is held");
                let kept = record.token().expect("a token");
                self.records.insert(number, (record, kept.get()));
                self.note("granted");
            }
            (VoteReply::Healed { .. }, Vote::Healed) => self.note("healed since before"),
            (VoteReply::Busy { holder: Some(holder), .. }, Vote::Busy) => {
                let expected = self.oracle.names[name_index(number)].holder().expect("busy");
                assert_eq!(holder.lease_id, expected.short());
                self.note("busy");
            }
            (voted, expected) => panic!("{voted:?}, not {expected:?}"),
        }
    }

    async fn write_back(&mut self) {
        let number = self.one_of(&IDS);
        let (marker, stamp) = self.draw_proof();
        let last = self.oracle.names[name_index(number)].last();
        let written = self.one_of(&[last.max(1), last + 1, last + 17, last / 2 + 1]);
        let answer = self.node.write_back(&EpochProof::new(&marker, stamp), number, written).await;
        let answer = answer.expect("ours");
        let expected = self.oracle.admit(&marker, stamp).map(|()| {
            self.oracle.names[name_index(number)].write_back(lease_id(number), token(written))
        });
        assert_eq!(answer, expected);
        if let Ok(WriteBackReply::Counter(last)) = answer {
            self.oracle.raise(last.get());
            self.note("written back");
        }
    }

    async fn renew(&mut self) {
        let (marker, stamp) = self.draw_proof();
        let renewals = IDS.map(|number| keep(number, HOLD));
        let answer =
            self.node.renew(&EpochProof::new(&marker, stamp), &renewals).await.expect("ours");
        let answer = match (answer, self.oracle.admit(&marker, stamp)) {
            (Ok(answer), Ok(())) => answer,
            (answer, expected) => return assert_eq!(answer.map(drop), expected),
        };
        for (number, renewed) in IDS.into_iter().zip(answer) {
            let holder = self.oracle.names[name_index(number)].holder();
            match renewed.expect("ours") {
                NodeRenewal::Kept { left } => {
                    assert_eq!(holder, Some(lease_id(number)));
                    assert!(left > Duration::ZERO && Some(left) <= HOLD.duration());
                    self.note("kept");
                }
                NodeRenewal::Gone { free } => {
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
        // Another draw would change the histories.
        let answer = match self.random.is_multiple_of(2) {
            true => self.node.release(number, tombstone).await,
            false => self.node.undo(number, tombstone).await,
        };
        let answer = answer.expect("ours");
        let released = self.oracle.names[name_index(number)].release(lease_id(number));
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
        let (marker, stamp) = self.draw_proof();
        let answer = self.node.heal(&EpochProof::new(&marker, stamp), number, &record).await;
        let answer = answer.expect("ours");
        let given_up = self.oracle.given_up.contains(&number);
        let floor = self.oracle.floor(name_index(number));
        let expected = self.oracle.admit(&marker, stamp).map(|()| {
            let register = &mut self.oracle.names[name_index(number)];
            !given_up && register.heal(lease_id(number), floor, token(kept))
        });
        assert_eq!(answer, expected);
        if answer == Ok(true) {
            self.oracle.raise(self.oracle.names[name_index(number)].last());
            self.note("healed");
        }
    }

    /// Ends leases, as their expiry does: all of them where the test moves the clock.
    async fn expire(&mut self) {
        if let Store::Fake(clock) = &self.node.store {
            clock.advance(Duration::from_millis(30_001));
            return self.oracle.names.iter_mut().for_each(NameRegister::expire);
        }
        let which = self.below(LOCKS.len());
        self.node.raw(&["DEL", LOCKS[which]]).await;
        self.oracle.names[which].expire();
    }

    /// The counter of a name expires.
    async fn delete_counter(&mut self) {
        let which = self.below(LOCKS.len());
        if self.oracle.names[which].holder().is_none() {
            self.node.raw(&["DEL", &format!("{}:1l", LOCKS[which])]).await;
            self.oracle.names[which] = NameRegister::default();
        }
    }

    async fn raise(&mut self) {
        let last = self.oracle.names[0].last();
        let to = self.one_of(&[1, last + 1, last + 30]);
        self.node.raise(to).await.expect("ours");
        match &mut self.oracle.node {
            Some(node) => node.raise_floor(to),
            None => self.oracle.raised = self.oracle.raised.max(to),
        }
    }

    async fn save(&mut self) {
        let mut entries = Vec::new();
        for key in self.node.keys().await {
            let mut args = match self.node.text(&["TYPE", &key]).await.as_deref() {
                Some("hash") => vec!["HSET".to_owned(), key.clone()],
                _ => vec!["SET".to_owned(), key.clone()],
            };
            let read = if args[0] == "HSET" { "HGETALL" } else { "GET" };
            let parts = match self.node.raw(&[read, &key]).await {
                Value::Array(parts) => parts,
                one => vec![one],
            };
            args.extend(parts.iter().map(|part| part.as_text().expect("text").to_owned()));
            let left = self.node.number(&["PTTL", &key]).await.expect("a number");
            entries.push((key, args, left));
        }
        self.backup = Some((self.oracle.clone(), entries));
    }

    /// The server comes back without its data, or with an old backup of it.
    async fn lose_data(&mut self) {
        self.node.raw(&["FLUSHALL"]).await;
        self.oracle = Oracle::blank();
        if self.below(3) > 0
            && let Some((oracle, entries)) = self.backup.take()
        {
            for (key, args, left) in entries {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                self.node.raw(&args).await;
                if left > 0 {
                    self.node.raw(&["PEXPIRE", &key, &left.to_string()]).await;
                }
            }
            self.oracle = oracle;
            self.note("restored");
        }
        if self.mostly() {
            self.handshake().await;
        }
    }

    /// Compares all keys of the node.
    async fn compare(&mut self) {
        for (which, lock) in LOCKS.iter().enumerate() {
            let register = self.oracle.names[which];
            let record = self.node.text(&["GET", lock]).await;
            let holder = record.map(|record| record[..32].to_owned());
            assert_eq!(holder, register.holder().map(|id| id.to_hex()));
            let last = self.node.text(&["GET", &format!("{lock}:1l")]).await;
            assert_eq!(last.map_or(0, |last| last.parse().expect("a token")), register.last());
        }
        let proof = self.node.text(&["HGET", NODE, "p"]).await;
        let floor = self.field("f").await.unwrap_or(0);
        let Some(node) = self.oracle.node.clone() else {
            assert_eq!((proof, floor), (None, self.oracle.raised));
            return;
        };
        assert_eq!(floor, node.floor(1));
        let report = node.report();
        let open = report.configuration.filter(|_| report.state == MemberState::Voting);
        let expected = open.map(|mine| format!("{}/{}", self.oracle.marker, mine.stamp()));
        assert_eq!(proof, expected);
        let marker = self.oracle.marker.clone();
        let counts = self.node.look(&marker).await.expect("ours");
        assert_eq!(Some(counts.report), self.oracle.report());
    }
}

/// The number of steps of a history.
const STEPS: usize = 600;
/// The events that must occur in some histories.
const COMMON: &[&str] = &[
    "handshake",
    "refused",
    "proposed",
    "activated",
    "adopted",
    "began",
    "vote refused",
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
/// The events that must occur in many histories.
const RARE: &[&str] = &["handshake rejected", "held", "wait reported", "vouched for", "readmitted"];

/// Prints the seed and the step of a failure.
struct FailureContext {
    seed: u64,
    step: usize,
}

impl Drop for FailureContext {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}", self.seed, self.step);
        }
    }
}

/// Runs histories of these seeds, each on a server of its own; every listed event must occur.
async fn run(seeds: std::ops::Range<u64>, rare: &[&str], node: impl Fn() -> TestNode) {
    let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in seeds {
        let mut history = History::new(node(), seed);
        let mut at = FailureContext { seed, step: 0 };
        history.make_vote().await;
        for step in 0..STEPS {
            at.step = step;
            history.step().await;
        }
        for (what, times) in history.counts {
            *counts.entry(what).or_default() += times;
        }
    }
    for what in COMMON.iter().chain(rare) {
        assert!(counts.contains_key(*what), "never {what}: {counts:?}");
    }
}

#[tokio::test]
async fn a_node_on_redis_answers_as_the_definition_does() {
    run(0..5, &[], || TestNode::new(Flavour::Debian)).await;
}

#[tokio::test]
async fn a_node_on_valkey_answers_as_the_definition_does() {
    run(10..15, &[], || TestNode::new(Flavour::Valkey)).await;
}

#[tokio::test]
async fn a_node_on_redis_8_answers_as_the_definition_does() {
    run(20..25, &[], || TestNode::new(Flavour::Redis8)).await;
}

#[tokio::test]
async fn a_node_on_the_fake_server_answers_as_the_definition_does() {
    run(30..50, RARE, || TestNode::fake(1_767_225_600)).await;
}

/// A machine without a battery for its clock: the time has fewer digits than today's.
#[tokio::test]
async fn a_node_on_a_fake_server_in_the_year_1970_answers_as_the_definition_does() {
    run(50..60, RARE, || TestNode::fake(31_536)).await;
}
