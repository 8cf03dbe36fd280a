//! What goes wrong in a world.

use std::time::Duration;

use holdline_core::quorum::majority;
use holdline_sim::RedisHost;

use super::happens::{Event, Recalls};
use super::nodes::{NODES, Node};
use super::run::{CLIENTS, END, Kind, MAX_LEASE, SHARED, World, at};
use crate::world::tasks::Process;

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    StandStill,
    Kill,
    Cut,
    Stall,
    Freeze,
    Crash,
    Flush,
    /// All at once, and mostly somebody vouches for them.
    FlushAll,
    Replace,
    Slow,
    LoseMessages,
    Snapshot,
    /// The file that a server writes all down in is switched off, and the server ends: it comes
    /// back with the file.
    SwitchOff,
    /// Another set's dump is put back.
    Dump,
    SetClock,
    /// The clock of a server that gives no vote is set forward by more than its wait.
    LeapInWait,
    Revoke,
    Help,
}

impl Fault {
    /// Tells which it is in the worlds that are drawn, of 26.
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
            _ => Fault::Help,
        }
    }
}

impl World {
    /// Lets one fault happen.
    pub(crate) fn fault(&mut self) {
        let slot = self.victim();
        let process = self.slots[slot].process;
        let mut node = self.dice.below(NODES as u64) as usize;
        if self.kind == Kind::Rivals && self.dice.percent(40) {
            node = SHARED;
        }
        let fault = match self.heat {
            Some(heat) => {
                node = heat.node.unwrap_or(node);
                self.dice.one_of(heat.faults)
            }
            None => Fault::drawn(self.dice.below(26)),
        };
        match fault {
            Fault::StandStill => self.stand_still(process),
            Fault::Kill if self.slots[slot].alive => self.kill(slot),
            Fault::Cut => {
                let whom = self.dice.percent(50).then_some(node);
                self.happens("connections are cut", format_args!("{process} {whom:?}"));
                self.net.lock().reset(process, whom);
            }
            Fault::Stall => self.stall(process, node),
            Fault::Freeze => self.freeze(node),
            Fault::Crash => self.crash(node),
            Fault::Flush => self.flush(node, false),
            Fault::FlushAll => self.flush(node, true),
            Fault::Replace => self.replace(node),
            Fault::Slow => {
                let slowest = self.dice.one_of(&[20, 80, 250]);
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
            Fault::SwitchOff => self.switch_off(node),
            Fault::Dump => self.put_dump_back(node),
            Fault::SetClock => self.set_clock(node),
            Fault::LeapInWait => self.leap_in_wait(node),
            Fault::Revoke => self.revoke(),
            Fault::Help => self.help(),
            Fault::Kill | Fault::Snapshot => {}
        }
    }

    /// Tells whether one more node may forget.
    fn may_forget(&mut self, node: usize) -> bool {
        // Where it is always the same that forgets, it is given time to be of use again.
        if self.heat.is_some_and(|heat| heat.node.is_some()) && !self.nodes[node].votes() {
            return false;
        }
        match self.kind {
            Kind::Wild => return true,
            Kind::Rivals => return false,
            Kind::Tame | Kind::Clocks => {}
        }
        let others = self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != node);
        let voting = others.map(|(_, other)| other.votes()).filter(|votes| *votes).count();
        voting >= majority(NODES)
    }

    /// A node forgets: where too few remember what is held, nothing is promised of it.
    pub(crate) fn forgets(&mut self, node: usize) {
        let now = self.now();
        let others = self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != node);
        let voting = others.map(|(_, other)| other.votes()).filter(|votes| *votes).count();
        if voting < majority(NODES) {
            let mut book = self.book.lock();
            book.count("more forgot than may");
            book.excused = Some(now);
        }
    }

    /// A process is stopped, as by a signal or a busy machine, and goes on later.
    fn stand_still(&mut self, process: Process) {
        let now = self.now();
        let mut book = self.book.lock();
        let alive = self.slots.iter().any(|slot| slot.process == process && slot.alive);
        match book.lives.get_mut(&process) {
            Some(life) if alive && life.paused_since.is_none() => life.paused_since = Some(now),
            _ => return,
        }
        drop(book);
        self.happens("a client stands still", format_args!("{process}"));
        self.tasks.pause(process);
        let (least, most) = self.heat.map_or((200, 14_000), |heat| heat.stands_ms);
        let until = self.after(least, most);
        self.plan(until, Event::Resume(process));
    }

    pub(crate) fn go_on(&mut self, process: Process) {
        let now = self.now();
        self.tasks.resume(process);
        let mut book = self.book.lock();
        book.note(now, format_args!("{process} goes on"));
        if let Some(life) = book.lives.get_mut(&process)
            && let Some(since) = life.paused_since.take()
        {
            life.paused_for += since.until(now);
        }
    }

    /// Draws whom a fault meets: mostly one that holds something.
    fn victim(&mut self) -> usize {
        let holders: Vec<Process> =
            self.book.lock().holders().into_iter().map(|(process, ..)| process).collect();
        let chance = self.heat.map_or(70, |heat| heat.holders);
        if !holders.is_empty() && self.dice.percent(chance) {
            let process = self.dice.one_of(&holders);
            if let Some(slot) = self.slots.iter().position(|slot| slot.process == process) {
                return slot;
            }
        }
        self.dice.below(CLIENTS as u64) as usize
    }

    /// A process ends without a word, and another begins in its place.
    fn kill(&mut self, slot: usize) {
        let process = self.slots[slot].process;
        self.happens("a client is killed", format_args!("{process}"));
        self.book.lock().bury(process);
        self.slots[slot].alive = false;
        self.tasks.kill(process);
        let again = self.after(50, 2_000);
        self.plan(again, Event::Begin(slot));
    }

    fn freeze(&mut self, node: usize) {
        if self.nodes[node].frozen {
            return;
        }
        self.happens("a server stands still", format_args!("n{node}"));
        self.nodes[node].frozen = true;
        self.nodes[node].host.server().freeze();
        let until = self.after(100, 6_000);
        self.plan(until, Event::Thaw(node));
    }

    /// A server ends, and comes back with what it knows then, also where it was set to write down
    /// all that it answers. It counts as one that forgot, however much it knows.
    fn crash(&mut self, node: usize) {
        if self.nodes[node].frozen {
            return;
        }
        let recalls = match self.nodes[node].snapshot.is_some() {
            true if self.heat.is_some() => Recalls::Old,
            true => self.dice.one_of(&[Recalls::All, Recalls::Old, Recalls::Nothing]),
            false => self.dice.one_of(&[Recalls::All, Recalls::Nothing]),
        };
        self.fall(node, recalls);
    }

    /// A server ends, and comes back with this.
    pub(crate) fn fall(&mut self, node: usize, recalls: Recalls) {
        if self.nodes[node].frozen || !self.may_forget(node) {
            return;
        }
        self.forgets(node);
        self.happens("a server crashes", format_args!("n{node}, recalls {recalls:?}"));
        self.nodes[node].frozen = true;
        self.nodes[node].host.server().crash();
        self.net.lock().collect();
        let until = self.after(20, 4_000);
        self.plan(until, Event::Restart(node, recalls));
    }

    /// The configuration file still says `appendfsync always`, and an operator has switched it off
    /// at run time: all that was answered since is lost.
    fn switch_off(&mut self, node: usize) {
        if self.nodes[node].frozen {
            return;
        }
        self.happens("a file is switched off", format_args!("n{node}"));
        let file = self.nodes[node].host.server().snapshot();
        self.nodes[node].snapshot = Some(file);
        let end = self.after(100, 4_000);
        self.plan(end, Event::Fall(node));
    }

    /// From then on one server is of another set, until somebody empties it: nobody does.
    fn put_dump_back(&mut self, node: usize) {
        if !self.nodes[node].frozen && !std::mem::replace(&mut self.book.lock().odd, true) {
            self.nodes[node].snapshot = Some(super::nodes::dump_of_others(&self.clock));
            self.fall(node, Recalls::OfOthers);
        }
    }

    fn flush(&mut self, node: usize, all: bool) {
        if self.nodes[node].frozen {
            return;
        }
        let all = all || (self.kind == Kind::Wild && self.dice.percent(40));
        let nodes = if all { 0..NODES } else { node..node + 1 };
        for node in nodes {
            if self.nodes[node].frozen || !self.may_forget(node) {
                continue;
            }
            self.forgets(node);
            self.happens("FLUSHALL", format_args!("n{node}"));
            self.nodes[node].host.server().flush();
        }
        self.net.lock().collect();
        if all {
            self.throw_copies_away();
        }
        if all && self.dice.percent(70) {
            self.vouch();
        }
    }

    /// What is founded anew is another set. A copy of the one before would make every client
    /// refuse all, as it should, until an operator has emptied it: here nobody puts one back.
    fn throw_copies_away(&mut self) {
        for node in &mut self.nodes {
            node.snapshot = None;
            if let Some(old) = node.old.take() {
                old.server().crash();
            }
        }
        self.net.lock().collect();
    }

    /// Tells whether a copy that comes back is of a set before the one that the other servers are
    /// now: they were all emptied in the meantime, one by one.
    pub(crate) fn is_of_another_set(&self, node: usize, copy: &RedisHost) -> bool {
        let Some(set) = super::nodes::set_of(copy) else { return false };
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(at, one)| *at != node && !one.frozen);
        let mut others = others.filter_map(|(_, one)| super::nodes::set_of(&one.host));
        others.any(|other| other != set)
    }

    /// Another server that knows nothing takes over an address; the one that was there is gone, or
    /// comes back later.
    fn replace(&mut self, node: usize) {
        if self.nodes[node].frozen || self.nodes[node].stale || !self.may_forget(node) {
            return;
        }
        self.forgets(node);
        let new = Node::new(&self.clock, &mut self.dice, 1);
        let old = self.nodes[node].put(new.host.clone());
        self.net.lock().replace(node, new.host);
        let comes_back = self.dice.percent(40);
        self.happens("a server is replaced", format_args!("n{node}, comes back: {comes_back}"));
        if comes_back {
            // Whoever is connected to it still reaches it.
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
        if late || self.nodes[node].frozen || !self.may_forget(node) {
            old.server().crash();
            return self.net.lock().collect();
        }
        self.forgets(node);
        let gone = self.nodes[node].put(old.clone());
        self.nodes[node].stale = true;
        gone.server().crash();
        self.net.lock().replace(node, old);
        self.net.lock().collect();
        self.happens("a server that was replaced comes back", format_args!("n{node}"));
    }

    /// What travels between a process and servers is late, or lost with the connection.
    fn stall(&mut self, process: Process, node: usize) {
        let until = self.after(50, 6_000);
        let (up, down) = self.dice.one_of(&[(true, false), (false, true), (true, true)]);
        let lost = self.dice.percent(50);
        let whom = self.dice.percent(75).then_some(node);
        let what = match (up, down) {
            (true, false) => "requests stall",
            (false, true) => "replies stall",
            _ => "a line stalls",
        };
        self.happens(what, format_args!("{process}, {whom:?}, lost: {lost}"));
        if lost {
            self.book.lock().count("what was under way is lost");
            self.net.lock().stall(process, whom, (up, down), at(END));
            self.plan(until, Event::Reset(process, whom));
        } else {
            self.net.lock().stall(process, whom, (up, down), until);
        }
    }

    /// A server's clock is set. Tokens are promised over that.
    fn set_clock(&mut self, node: usize) {
        if self.kind != Kind::Clocks {
            return;
        }
        let by = Duration::from_millis(1 + self.dice.below(5_000));
        // Where it is done all the time, leases end early only: nobody would get anything else.
        let forward = self.dice.percent(50) || self.heat.is_some();
        let way = if forward { "forward" } else { "back" };
        self.happens("a clock is set", format_args!("n{node} {way} by {by:?}"));
        let mut server = self.nodes[node].host.server();
        match forward {
            true => server.clock().step_forward(by),
            false => server.clock().step_back(by),
        }
        drop(server);
        // What it holds ends sooner. What waits for its vote holds nothing that counts.
        if !self.nodes[node].waits() {
            let now = self.now();
            self.book.lock().excused = Some(now);
        }
        self.net.lock().collect();
    }

    /// The clock of a server that waits for its vote is set right. That excuses nothing: what it
    /// granted before counts for nobody.
    fn leap_in_wait(&mut self, node: usize) {
        if !self.nodes[node].waits() {
            return;
        }
        let by = 2 * MAX_LEASE;
        self.happens("a clock is set during a wait", format_args!("n{node} forward by {by:?}"));
        self.nodes[node].host.server().clock().step_forward(by);
        self.net.lock().collect();
    }
}
