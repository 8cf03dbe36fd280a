//! The faults of a world.

use std::time::Duration;

use holdline_core::quorum::majority;
use holdline_sim::RedisHost;

use super::events::{Event, RestoredData};
use super::nodes::{NODES, SimNode};
use super::run::{CLIENTS, END, MAX_LEASE, SHARED, ScenarioKind, World, at};
use crate::world::tasks::Process;

/// The number of faults to draw from; some are there more than once.
const DRAWN: u64 = 28;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    StandStill,
    Kill,
    Cut,
    Stall,
    Freeze,
    Crash,
    Flush,
    /// All servers at once, and mostly an operator vouches for them.
    FlushAll,
    /// All servers but one, which then is silent for a while.
    FlushAllButOne,
    /// This one is silent while others are in quarantine.
    SilentSurvivor,
    /// A server in quarantine loses its data again, or another one does.
    LoseAgain,
    Replace,
    /// An address leads to a blank server and back.
    Detour,
    Slow,
    LoseMessages,
    Snapshot,
    /// The append-only file of a server is switched off, and the server crashes: it restarts with
    /// the old file.
    SwitchOff,
    /// The dump of another set is restored.
    Dump,
    SetClock,
    /// The clock of a server in quarantine is set forward by more than its rest.
    LeapInWait,
    Revoke,
    Help,
    /// An operator readmits servers.
    Rejoin,
}

impl Fault {
    /// Maps a number below [`DRAWN`] to a fault in random worlds.
    fn drawn(number: u64) -> Fault {
        match number {
            0 | 1 => Fault::StandStill,
            2 => Fault::Kill,
            3 => Fault::Cut,
            4..=8 => Fault::Stall,
            9 | 10 => Fault::Freeze,
            11..=15 => Fault::Crash,
            16 | 17 => Fault::Flush,
            18 => Fault::Replace,
            19 => Fault::Slow,
            20 => Fault::LoseMessages,
            21 => Fault::Snapshot,
            22 => Fault::SetClock,
            23 | 24 => Fault::Revoke,
            25 => Fault::Detour,
            26 => Fault::LoseAgain,
            _ => Fault::Help,
        }
    }
}

impl World {
    /// Injects one fault.
    pub(crate) fn fault(&mut self) {
        let slot = self.victim();
        let process = self.slots[slot].process;
        let mut node = self.rng.below(NODES as u64) as usize;
        if self.kind == ScenarioKind::Rivals && self.rng.percent(40) {
            node = SHARED;
        }
        let fault = match self.stress {
            Some(stress) => {
                node = stress.node.unwrap_or(node);
                self.rng.one_of(stress.faults)
            }
            None => Fault::drawn(self.rng.below(DRAWN)),
        };
        match fault {
            Fault::StandStill => self.pause(process),
            Fault::Kill if self.slots[slot].alive => self.kill(slot),
            Fault::Cut => {
                let whom = self.rng.percent(50).then_some(node);
                self.happens("connections are cut", format_args!("{process} {whom:?}"));
                self.net.lock().reset(process, whom);
            }
            Fault::Stall => self.stall(process, node),
            Fault::Freeze => self.freeze(node),
            Fault::Crash => self.crash(node),
            Fault::Flush => self.flush(node, false),
            Fault::FlushAll => self.flush(node, true),
            Fault::FlushAllButOne => self.flush_all_but(node),
            Fault::SilentSurvivor => self.silence_survivor(node),
            Fault::LoseAgain => self.lose_again(),
            Fault::Replace => self.replace(node),
            Fault::Detour => self.detour(node, process),
            Fault::Slow => {
                let slowest = self.rng.one_of(&[20, 80, 250]);
                self.happens("the network is slow", format_args!("{slowest} ms"));
                self.net.lock().slowest_ms = slowest;
                let until = self.after(300, 3_000);
                self.plan(until, Event::Calm);
            }
            Fault::LoseMessages => {
                self.happens("messages are lost", format_args!("n{node}"));
                self.nodes[node].host.server().lose_messages(500_000);
                let until = self.after(500, 3_000);
                self.plan(until, Event::Loud(node));
            }
            Fault::Snapshot if !self.nodes[node].frozen => {
                self.happens("a snapshot is taken", format_args!("n{node}"));
                let snapshot = self.nodes[node].host.server().snapshot();
                self.nodes[node].snapshot = Some(snapshot);
            }
            Fault::SwitchOff => self.switch_off_aof(node),
            Fault::Dump => self.restore_foreign_dump(node),
            Fault::SetClock => self.set_clock(node),
            Fault::LeapInWait => self.leap_in_quarantine(node),
            Fault::Revoke => self.revoke(),
            Fault::Help => self.help(),
            Fault::Rejoin => self.rejoin(),
            Fault::Kill | Fault::Snapshot => {}
        }
    }

    /// Returns whether one more node may lose its data.
    fn may_lose_data(&mut self, node: usize) -> bool {
        // If it is always the same node, it gets time to recover.
        if self.stress.is_some_and(|stress| stress.node.is_some()) && !self.nodes[node].votes() {
            return false;
        }
        self.may_lose_votes(node)
    }

    /// Returns whether the promises allow that a node loses its votes.
    fn may_lose_votes(&mut self, node: usize) -> bool {
        match self.kind {
            ScenarioKind::Wild => true,
            ScenarioKind::Rivals => false,
            ScenarioKind::Tame | ScenarioKind::Clocks => self.others_decide(node),
        }
    }

    /// Returns whether a majority votes without a node.
    fn others_decide(&mut self, node: usize) -> bool {
        let others = self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != node);
        let voting = others.map(|(_, other)| other.votes()).filter(|votes| *votes).count();
        voting >= majority(NODES)
    }

    /// Records a loss of data: if too few nodes keep what is held, exclusion is not promised.
    pub(crate) fn lose_data(&mut self, node: usize) {
        let now = self.now();
        if !self.others_decide(node) {
            let mut recorder = self.recorder.lock();
            recorder.count("more lost their data than allowed");
            recorder.excused = Some(now);
        }
    }

    /// A server that came back has a current state if most have its configuration.
    pub(crate) fn note_current_servers(&mut self) {
        let stamps: Vec<Option<String>> = self.nodes.iter_mut().map(SimNode::stamp).collect();
        for (node, stamp) in self.nodes.iter_mut().zip(&stamps) {
            let alike = stamps.iter().filter(|other| *other == stamp).count();
            if stamp.is_some() && alike >= majority(NODES) {
                node.stale = false;
            }
        }
    }

    /// A process is paused, as by a signal or a busy machine, and continues later.
    fn pause(&mut self, process: Process) {
        let now = self.now();
        let mut recorder = self.recorder.lock();
        let alive = self.slots.iter().any(|slot| slot.process == process && slot.alive);
        match recorder.lives.get_mut(&process) {
            Some(life) if alive && life.paused_since.is_none() => life.paused_since = Some(now),
            _ => return,
        }
        drop(recorder);
        self.happens("a client is paused", format_args!("{process}"));
        self.tasks.pause(process);
        let (least, most) = self.stress.map_or((200, 14_000), |stress| stress.stands_ms);
        let until = self.after(least, most);
        self.plan(until, Event::Resume(process));
    }

    pub(crate) fn resume(&mut self, process: Process) {
        let now = self.now();
        self.tasks.resume(process);
        let mut recorder = self.recorder.lock();
        recorder.note(now, format_args!("{process} goes on"));
        if let Some(life) = recorder.lives.get_mut(&process)
            && let Some(since) = life.paused_since.take()
        {
            life.paused_for += since.until(now);
        }
    }

    /// Draws the process of a fault: mostly one that holds a lock.
    fn victim(&mut self) -> usize {
        let holders: Vec<Process> =
            self.recorder.lock().holders().into_iter().map(|(process, ..)| process).collect();
        let chance = self.stress.map_or(70, |stress| stress.holders);
        if !holders.is_empty() && self.rng.percent(chance) {
            let process = self.rng.one_of(&holders);
            if let Some(slot) = self.slots.iter().position(|slot| slot.process == process) {
                return slot;
            }
        }
        self.rng.below(CLIENTS as u64) as usize
    }

    /// A process is killed, and another one starts in its place.
    fn kill(&mut self, slot: usize) {
        let process = self.slots[slot].process;
        self.happens("a client is killed", format_args!("{process}"));
        self.recorder.lock().process_ended(process);
        self.slots[slot].alive = false;
        self.tasks.kill(process);
        let again = self.after(50, 2_000);
        self.plan(again, Event::Begin(slot));
    }

    fn freeze(&mut self, node: usize) {
        if self.nodes[node].frozen {
            return;
        }
        self.happens("a server is stopped", format_args!("n{node}"));
        self.nodes[node].frozen = true;
        self.nodes[node].host.server().freeze();
        let until = self.after(100, 6_000);
        self.plan(until, Event::Thaw(node));
    }

    /// A server crashes, and restarts with some of its data, even if it was set to keep every
    /// acknowledged write. It counts as one that lost its data.
    fn crash(&mut self, node: usize) {
        if self.nodes[node].frozen {
            return;
        }
        let restored = match self.nodes[node].snapshot.is_some() {
            true if self.stress.is_some() => RestoredData::Old,
            true => self.rng.one_of(&[RestoredData::All, RestoredData::Old, RestoredData::Nothing]),
            false => self.rng.one_of(&[RestoredData::All, RestoredData::Nothing]),
        };
        self.crash_with(node, restored);
    }

    /// A server crashes, and restarts with this data.
    pub(crate) fn crash_with(&mut self, node: usize, restored: RestoredData) {
        if self.nodes[node].frozen || !self.may_lose_data(node) {
            return;
        }
        self.crash_now(node, restored);
    }

    fn crash_now(&mut self, node: usize, restored: RestoredData) {
        self.lose_data(node);
        self.happens("a server crashes", format_args!("n{node}, recalls {restored:?}"));
        self.nodes[node].frozen = true;
        self.nodes[node].host.server().crash();
        self.net.lock().collect();
        let until = self.after(20, 4_000);
        self.plan(until, Event::Restart(node, restored));
    }

    /// The configuration file has `appendfsync always`, and an operator switched it off at run
    /// time: every write since then is lost.
    fn switch_off_aof(&mut self, node: usize) {
        if self.nodes[node].frozen {
            return;
        }
        self.happens("a file is switched off", format_args!("n{node}"));
        let file = self.nodes[node].host.server().snapshot();
        self.nodes[node].snapshot = Some(file);
        let end = self.after(100, 4_000);
        self.plan(end, Event::Fall(node));
    }

    /// From then on one server belongs to another set; it is never emptied.
    fn restore_foreign_dump(&mut self, node: usize) {
        if !self.nodes[node].frozen && !std::mem::replace(&mut self.recorder.lock().odd, true) {
            self.nodes[node].snapshot = Some(super::nodes::foreign_dump(&self.clock));
            self.crash_with(node, RestoredData::OfOthers);
        }
    }

    fn flush(&mut self, node: usize, all: bool) {
        if self.nodes[node].frozen {
            return;
        }
        let all = all || (self.kind == ScenarioKind::Wild && self.rng.percent(40));
        let nodes = if all { 0..NODES } else { node..node + 1 };
        for node in nodes {
            if self.nodes[node].frozen || !self.may_lose_data(node) {
                continue;
            }
            self.flush_now(node);
        }
        if all {
            self.drop_snapshots();
        }
        if all && self.rng.percent(70) {
            self.vouch();
        }
    }

    fn flush_now(&mut self, node: usize) {
        self.lose_data(node);
        self.happens("FLUSHALL", format_args!("n{node}"));
        self.nodes[node].host.server().flush();
        self.net.lock().collect();
    }

    /// After a new initialisation it is another set. A copy of the former one would make every
    /// client fail, as it should, until an operator empties the server. Here no copy is restored.
    fn drop_snapshots(&mut self) {
        for node in &mut self.nodes {
            node.snapshot = None;
            if let Some(old) = node.old.take() {
                old.server().crash();
            }
        }
        self.net.lock().collect();
    }

    /// Returns whether a restored copy belongs to a former set: all other servers were emptied in
    /// the meantime, one by one.
    pub(crate) fn is_of_another_set(&self, node: usize, copy: &RedisHost) -> bool {
        let Some(set) = super::nodes::set_of(copy) else { return false };
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(at, one)| *at != node && !one.frozen);
        let mut others = others.filter_map(|(_, one)| super::nodes::set_of(&one.host));
        others.any(|other| other != set)
    }

    /// A blank server takes over an address; the old server is gone, or comes back later.
    fn replace(&mut self, node: usize) {
        if self.nodes[node].frozen || self.nodes[node].stale || !self.may_lose_data(node) {
            return;
        }
        self.lose_data(node);
        let new = SimNode::new(&self.clock, &mut self.rng, 1);
        let old = self.nodes[node].put(new.host.clone());
        self.net.lock().replace(node, new.host);
        let comes_back = self.rng.percent(40);
        self.happens("a server is replaced", format_args!("n{node}, comes back: {comes_back}"));
        if comes_back {
            // Existing connections still reach it.
            self.nodes[node].old = Some(old);
            let until = self.after(300, 25_000);
            self.plan(until, Event::Back(node));
        } else {
            old.server().crash();
            self.net.lock().collect();
        }
    }

    pub(crate) fn bring_back(&mut self, node: usize) {
        let Some(old) = self.nodes[node].old.take() else { return };
        let late = self.is_of_another_set(node, &old);
        if late || self.nodes[node].frozen || !self.may_lose_votes(node) {
            old.server().crash();
            return self.net.lock().collect();
        }
        self.lose_data(node);
        let gone = self.nodes[node].put(old.clone());
        self.nodes[node].stale = true;
        gone.server().crash();
        self.net.lock().replace(node, old);
        self.net.lock().collect();
        self.happens("a replaced server comes back", format_args!("n{node}"));
    }

    /// An address leads to a blank server, for all clients or for one, and later to the first
    /// server again. That one ran all the time, and has kept what it had, such as the rest of its
    /// quarantine.
    fn detour(&mut self, node: usize, process: Process) {
        let is_quarantined = self.nodes[node].is_quarantined();
        let votes = self.nodes[node].votes() && self.rng.percent(20);
        let leads_elsewhere = self.nodes[node].old.is_some();
        if !(is_quarantined || votes) || leads_elsewhere || !self.may_lose_votes(node) {
            return;
        }
        self.lose_data(node);
        let new = SimNode::new(&self.clock, &mut self.rng, 1);
        let old = self.nodes[node].put(new.host.clone());
        self.nodes[node].old = Some(old);
        self.net.lock().replace(node, new.host);
        let of = self.rng.percent(30).then_some(process);
        self.happens("an address leads elsewhere", format_args!("n{node}, only for {of:?}"));
        self.recorder.lock().count(match is_quarantined {
            true => "an address of a server in quarantine leads elsewhere",
            false => "an address of a server that votes leads elsewhere",
        });
        // The connections of the others still reach the first server.
        for slot in 0..CLIENTS {
            let process = self.slots[slot].process;
            if of.is_none_or(|of| of == process) {
                self.net.lock().reset(process, Some(node));
            }
        }
        let until = self.after(500, 14_000);
        self.plan(until, Event::Back(node));
    }

    /// A server in quarantine loses its data once more, or another server does.
    fn lose_again(&mut self) {
        let first = (0..NODES).find(|node| self.nodes[*node].is_quarantined());
        let Some(first) = first else { return };
        let other = (first + 1 + self.rng.below(NODES as u64 - 1) as usize) % NODES;
        let node = if self.rng.percent(60) { first } else { other };
        if self.nodes[node].frozen || !self.may_lose_votes(node) {
            return;
        }
        self.recorder.lock().count(match node == first {
            true => "a server in quarantine loses its data again",
            false => "another server loses its data in a quarantine",
        });
        if self.rng.percent(50) {
            return self.flush_now(node);
        }
        let all = [RestoredData::All, RestoredData::Nothing, RestoredData::Old];
        let known = if self.nodes[node].snapshot.is_some() { 3 } else { 2 };
        let restored = self.rng.one_of(&all[..known]);
        self.crash_now(node, restored);
    }

    /// All servers but one lose their data at once. Until then every majority had that one, so it
    /// knows all tokens. From then on clients reach all servers, so they can do without it. Before
    /// the next time an operator raises the fence above all tokens.
    fn flush_all_but(&mut self, survivor: usize) {
        if !(0..NODES).all(|node| self.nodes[node].votes()) {
            return;
        }
        let Some(stress) = self.stress else { return };
        if self.net.lock().reach.is_none() {
            let clients = CLIENTS as u64;
            self.net.lock().reach = Some((stress.reach, clients));
            for slot in 0..CLIENTS {
                let process = self.slots[slot].process;
                let far = |node: &usize| !stress.reach.leads(process, clients, *node);
                (0..NODES).filter(far).for_each(|node| self.net.lock().reset(process, Some(node)));
            }
            return self.raise_above_clocks();
        }
        if !self.all_know_the_raise() {
            return;
        }
        self.net.lock().reach = None;
        self.happens(
            "all servers but one lose their data",
            format_args!("n{survivor} has its own"),
        );
        (0..NODES).filter(|node| *node != survivor).for_each(|node| self.flush_now(node));
    }

    /// The server that has kept its data is silent while the others are in quarantine, or wait for
    /// it.
    fn silence_survivor(&mut self, survivor: usize) {
        let others = (0..NODES).filter(|node| *node != survivor);
        let waiting = others.filter(|node| self.nodes[*node].waits()).count();
        if waiting > 0 && !self.nodes[survivor].frozen {
            self.recorder.lock().count("a survivor is silent in a quarantine");
            self.freeze(survivor);
        }
    }

    /// Messages between a process and servers are late, or lost with the connection.
    fn stall(&mut self, process: Process, node: usize) {
        let until = self.after(50, 6_000);
        let (up, down) = self.rng.one_of(&[(true, false), (false, true), (true, true)]);
        let lost = self.rng.percent(50);
        let whom = self.rng.percent(75).then_some(node);
        let what = match (up, down) {
            (true, false) => "requests stall",
            (false, true) => "replies stall",
            _ => "a link stalls",
        };
        self.happens(what, format_args!("{process}, {whom:?}, lost: {lost}"));
        if lost {
            self.recorder.lock().count("packets in flight are lost");
            self.net.lock().stall(process, whom, (up, down), at(END));
            self.plan(until, Event::Reset(process, whom));
        } else {
            self.net.lock().stall(process, whom, (up, down), until);
        }
    }

    /// A server's clock is set. The promises about tokens hold nevertheless.
    fn set_clock(&mut self, node: usize) {
        if self.kind != ScenarioKind::Clocks {
            return;
        }
        let by = Duration::from_millis(1 + self.rng.below(5_000));
        // If clocks are set all the time, leases only end early; otherwise no client would get a
        // lock.
        let forward = self.rng.percent(50) || self.stress.is_some();
        let way = if forward { "forward" } else { "back" };
        self.happens("a clock is set", format_args!("n{node} {way} by {by:?}"));
        let mut server = self.nodes[node].host.server();
        match forward {
            true => server.clock().step_forward(by),
            false => server.clock().step_back(by),
        }
        drop(server);
        // Its leases end sooner. A server in quarantine has no lease that counts.
        if !self.nodes[node].waits() {
            let now = self.now();
            self.recorder.lock().excused = Some(now);
        }
        self.net.lock().collect();
    }

    /// The clock of a server in quarantine is corrected. That excuses nothing: its earlier grants
    /// do not count.
    fn leap_in_quarantine(&mut self, node: usize) {
        if !self.nodes[node].waits() {
            return;
        }
        let by = 2 * MAX_LEASE;
        self.happens(
            "a clock is set during a quarantine",
            format_args!("n{node} forward by {by:?}"),
        );
        self.nodes[node].host.server().clock().step_forward(by);
        self.net.lock().collect();
    }
}
