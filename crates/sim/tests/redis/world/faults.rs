//! What goes wrong in a world.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_sim::Memory;

use super::run::{CLIENTS, DataAfter, END, Event, PEACE, World, at};
use super::tasks::Process;
use super::view::NameView;

impl World {
    /// Lets one fault happen.
    pub(super) fn fault(&mut self) {
        let now = self.now();
        let slot = self.victim();
        let process = self.slots[slot].process;
        if self.restores && !self.is_stopped() && self.rng.percent(30) {
            return self.copy_or_crash();
        }
        match self.rng.below(22) {
            0 | 1 => self.pause(process),
            2 if self.slots[slot].alive => self.kill(slot),
            3 => {
                self.plan(now, Event::Reset(process));
            }
            4..=7 => self.stall(process),
            8 if !self.frozen => {
                self.note("the server freezes");
                self.frozen = true;
                self.host.server().freeze();
                let until = self.after(200, 5_000);
                self.plan(until, Event::Thaw);
                self.rules.disturbed(until);
            }
            9 if !self.is_stopped() => {
                let pause = Duration::from_millis(200 + self.rng.below(2_800));
                let until = now.after(pause);
                let whom: &[u8] = if self.rng.percent(50) { b"ALL" } else { b"WRITE" };
                let ms = pause.as_millis().to_string();
                self.note(&format!("clients pause for {ms} ms"));
                let words: [&[u8]; 4] = [b"CLIENT", b"PAUSE", ms.as_bytes(), whom];
                self.operator.ask(&mut self.host.server(), &words);
                self.rules.paused_until = until;
                self.rules.disturbed(until);
            }
            10 if !self.frozen => self.crash(),
            11 if self.lose_data && !self.is_stopped() => {
                self.note("FLUSHALL");
                self.rules.disturbed(now);
                self.host.server().flush();
                self.recorder.lock().forgot = Some(now);
                self.mark_unobserved();
            }
            12 => {
                self.note("the network is slow");
                self.net.lock().slowest_ms = self.rng.one_of(&[40, 200, 700]);
                let until = self.after(500, 3_000);
                self.plan(until, Event::Calm);
                self.rules.disturbed(until);
                // What is believed after a slow answer shows only while nobody renews it.
                let stop = self.after(200, 3_000);
                self.plan(stop, Event::Pause(process));
            }
            13 => {
                self.note("messages are lost");
                self.host.server().lose_messages(400_000);
                self.rules.loses_messages = true;
                let until = self.after(1_000, 4_000);
                self.plan(until, Event::Loud);
            }
            14 => self.cut_all(),
            16 | 17 => self.revoke(),
            18 => self.freeze_name(),
            19 => self.unfreeze_name(),
            // With a memory lost and a clock set back, tokens have nothing to grow from.
            20 if !self.lose_data && !self.restores => self.set_clock(),
            _ => self.cut(process),
        }
    }

    /// A process is paused, as by a signal or a busy machine, and continues later.
    pub(super) fn pause(&mut self, process: Process) {
        let now = self.now();
        let mut recorder = self.recorder.lock();
        let alive = self.slots.iter().any(|slot| slot.process == process && slot.alive);
        match recorder.lives.get_mut(&process) {
            Some(life) if alive && life.paused_since.is_none() => life.paused_since = Some(now),
            _ => return,
        }
        recorder.note(now, &format!("{process} is paused"));
        drop(recorder);
        self.rules.disturbed(now);
        self.tasks.pause(process);
        let until = self.after(300, 9_000);
        self.plan(until, Event::Resume(process));
    }

    pub(super) fn resume(&mut self, process: Process) {
        let now = self.now();
        self.tasks.resume(process);
        let mut recorder = self.recorder.lock();
        recorder.note(now, &format!("{process} goes on"));
        if let Some(life) = recorder.lives.get_mut(&process)
            && let Some(since) = life.paused_since.take()
        {
            life.paused_for += since.until(now);
            life.awake_since = now;
        }
        self.rules.disturbed(now);
    }

    /// Draws the process of a fault: mostly one that holds a lock.
    fn victim(&mut self) -> usize {
        let recorder = self.recorder.lock();
        let holders: Vec<Process> = recorder.holds.values().map(|hold| hold.process).collect();
        drop(recorder);
        if !holders.is_empty() && self.rng.percent(70) {
            let process = self.rng.one_of(&holders);
            if let Some(slot) = self.slots.iter().position(|slot| slot.process == process) {
                return slot;
            }
        }
        self.rng.below(CLIENTS as u64) as usize
    }

    /// Sometimes loses the message of a hand-off with its connection, and sometimes pauses the
    /// process right after.
    pub(super) fn disturb_hand_off(&mut self, before: &BTreeMap<&'static str, NameView>) {
        let mut met = Vec::new();
        for (name, view) in &self.views {
            for record in &view.holders {
                let handed = before.get(name).is_some_and(|old| old.waiter(&record.id).is_some());
                let owner = self.recorder.lock().clients.get(&record.client).copied();
                if handed && let Some(owner) = owner {
                    met.push(owner);
                }
            }
        }
        for process in met {
            if self.rng.percent(8) {
                self.note(&format!("{process} is cut off during a hand-off"));
                self.net.lock().reset(process, None);
            } else if self.rng.percent(3) && self.now() < at(PEACE) {
                let stop = self.after(5, 500);
                self.plan(stop, Event::Pause(process));
            }
        }
    }

    /// A process is killed, and another one starts in its place.
    fn kill(&mut self, slot: usize) {
        let (now, process) = (self.now(), self.slots[slot].process);
        self.note(&format!("{process} is killed"));
        self.rules.disturbed(now);
        let mut recorder = self.recorder.lock();
        recorder.process_ended(process);
        if let Some(life) = recorder.lives.get_mut(&process) {
            life.killed = Some(now);
        }
        drop(recorder);
        self.slots[slot].alive = false;
        self.slots[slot].client = None;
        self.tasks.kill(process);
        let again = self.after(100, 2_000);
        self.plan(again, Event::Begin(slot));
    }

    /// Copies the data, or ends a server whose copy is of some time ago.
    fn copy_or_crash(&mut self) {
        if self.copy.is_some() && self.rng.percent(60) {
            return self.crash();
        }
        self.note("the data are copied");
        self.copy = Some(self.host.server().snapshot());
    }

    fn crash(&mut self) {
        let now = self.now();
        let data = match self.copy {
            Some(_) if self.rng.percent(70) => DataAfter::Old,
            _ if self.lose_data && !self.rng.percent(50) => DataAfter::None,
            _ => DataAfter::All,
        };
        self.note("the server crashes");
        self.frozen = true;
        self.rules.paused_until = now;
        self.host.server().crash();
        self.net.lock().collect();
        let until = self.after(20, 2_000);
        self.plan(until, Event::Restart(data));
        self.rules.disturbed(until);
    }

    pub(super) fn restart(&mut self, data: DataAfter) {
        let now = self.now();
        let (what, memory) = match (data, &self.copy) {
            (DataAfter::Old, Some(copy)) => {
                ("the server is back, with old data", Memory::Restored(copy.clone()))
            }
            (DataAfter::None, _) => ("the server is back, empty", Memory::Lost),
            _ => ("the server is back", Memory::Kept),
        };
        self.note(what);
        self.frozen = false;
        self.host.server().restart(memory);
        self.operator.id = self.host.server().connect().expect("it is up");
        match data {
            DataAfter::All => {}
            DataAfter::None => self.recorder.lock().forgot = Some(now),
            DataAfter::Old => self.recorder.lock().restored = Some(now),
        }
        // The clients make it wait until what it may lack is over.
        let quarantine = self.longest_lease.map_or(Duration::ZERO, |longest| longest * 2);
        self.rules.disturbed(now.after(quarantine));
        self.mark_unobserved();
    }

    /// The server closes the connections of a process.
    fn cut(&mut self, process: Process) {
        let ids = self.net.lock().connections(process);
        self.note(&format!("{process} loses {} connections", ids.len()));
        for id in ids {
            self.host.server().kill_connection(id);
        }
        self.net.lock().collect();
    }

    /// The server closes all connections.
    pub(super) fn cut_all(&mut self) {
        let processes: Vec<Process> = self.slots.iter().map(|slot| slot.process).collect();
        processes.into_iter().for_each(|process| self.cut(process));
    }

    /// Messages on a process's links are late, or lost with them.
    fn stall(&mut self, process: Process) {
        let until = self.after(200, 6_000);
        let (up, down) = self.rng.one_of(&[(true, false), (false, true), (true, true)]);
        let lost = self.rng.percent(50);
        self.note(&format!("{process} stalls, up: {up}, down: {down}, lost: {lost}"));
        if lost {
            self.net.lock().stall(process, None, (up, down), at(END));
            self.plan(until, Event::Reset(process));
        } else {
            self.net.lock().stall(process, None, (up, down), until);
        }
        self.rules.disturbed(until);
    }
}
