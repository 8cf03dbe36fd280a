//! The planned events of a world.

use std::time::Duration;

use holdline_sim::Memory;

use super::client::NAMES;
use super::run::{END, PEACE, ScenarioKind, World, at};
use crate::world::frame::Frame;
use crate::world::tasks::Process;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// An operator initialises the servers.
    Init,
    /// An operator raises the fence far above all clocks.
    Raise,
    /// A fault, which plans the next one.
    Fault,
    Resume(Process),
    Begin(usize),
    Reset(Process, Option<usize>),
    Thaw(usize),
    Restart(usize, RestoredData),
    /// A server crashes whose file was switched off.
    Fall(usize),
    /// The replaced server comes back.
    Back(usize),
    Calm,
    Loud(usize),
    /// Faults end.
    Peace,
    /// An operator repairs what clients cannot.
    Repair,
    /// The observer checks the nodes' keys, and plans the next check.
    Look,
    /// Everything must have recovered.
    Mended,
    /// No attempt starts any more.
    Stop,
    End,
}

/// The data of a server after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoredData {
    All,
    Old,
    Nothing,
    /// The data of a server of another set.
    OfOthers,
}

/// The interval of the checks of the nodes' keys.
const LOOKS: Duration = Duration::from_secs(1);

impl World {
    pub(crate) fn happen(&mut self, event: Event) -> bool {
        let now = self.now();
        match event {
            Event::Fault if now >= at(PEACE) => {}
            Event::Fault => {
                self.fault();
                let (least, most) = self.stress.map_or((100, 1_500), |stress| stress.every_ms);
                let next = self.after(least, most);
                self.plan(next, Event::Fault);
            }
            Event::Init => self.init(),
            Event::Raise => self.raise_above_clocks(),
            Event::Repair => self.repair(),
            Event::Resume(process) => self.resume(process),
            Event::Begin(slot) => self.begin(slot),
            Event::Reset(process, node) => {
                self.note(format_args!("{process} is cut off from {node:?}"));
                self.net.lock().reset(process, node);
            }
            Event::Thaw(node) => {
                self.note(format_args!("n{node} thaws"));
                self.nodes[node].frozen = false;
                self.nodes[node].host.server().thaw();
                self.net.lock().collect();
            }
            Event::Restart(node, restored) => self.restart(node, restored),
            Event::Fall(node) => self.crash_with(node, RestoredData::Old),
            Event::Back(node) => self.bring_back(node),
            Event::Calm => self.net.lock().slowest_ms = 3,
            Event::Loud(node) => self.nodes[node].host.server().lose_messages(0),
            Event::Look => {
                self.check_orphans();
                self.note_current_servers();
                self.empty_minority_set();
                self.help_clients_that_could_not_begin();
                let next = now.after(LOOKS);
                self.plan(next, Event::Look);
            }
            Event::Peace => {
                self.note(format_args!("peace"));
                self.net.lock().reach = None;
            }
            Event::Mended => {
                self.before_mended = Some(self.recorder.lock().counted("acquisitions"));
            }
            Event::Stop => {
                self.check_progress();
                self.recorder.lock().stopping = true;
            }
            Event::End => {
                self.check_nothing_left();
                return false;
            }
        }
        true
    }

    fn restart(&mut self, node: usize, restored: RestoredData) {
        let one = &mut self.nodes[node];
        one.frozen = false;
        let memory = match (restored, one.snapshot.clone()) {
            (RestoredData::All, _) => Memory::Kept,
            (RestoredData::Old | RestoredData::OfOthers, Some(snapshot)) => {
                Memory::Restored(snapshot)
            }
            (RestoredData::Old | RestoredData::OfOthers | RestoredData::Nothing, _) => Memory::Lost,
        };
        one.host.server().restart(memory);
        let host = one.host.clone();
        if restored == RestoredData::Old && self.is_of_another_set(node, &host) {
            host.server().flush();
        }
        let what = match restored {
            RestoredData::All => "a server is back as it was",
            RestoredData::Old => "a server is back with an old snapshot",
            RestoredData::Nothing => "a server is back empty",
            RestoredData::OfOthers => "a server is back with another set's dump",
        };
        self.happens(what, format_args!("n{node}"));
    }

    /// P7: the effects of the faults are over, and names are acquired again.
    fn check_progress(&mut self) {
        let now = self.now();
        let before = self.before_mended.unwrap_or(0);
        let mut recorder = self.recorder.lock();
        // Of two rivals one may have prevented the other, and have stopped.
        if self.kind != ScenarioKind::Rivals && recorder.counted("acquisitions") <= before {
            let what = "nobody had a name any more after the faults were over".to_owned();
            recorder.record_violation(now, "P7", what);
        }
    }

    /// P5: only each node's own key and its counters remain.
    fn check_nothing_left(&mut self) {
        let now = self.now();
        let mut recorder = self.recorder.lock();
        for (at, node) in self.nodes.iter().enumerate() {
            let left = node.host.server().key_count(0);
            if left > 1 + NAMES.len() {
                recorder.record_violation(now, "P5", format!("n{at}: {left} keys are left"));
            }
        }
        recorder.check_all_ended(now);
        recorder.note(now, format_args!("the end, after {END:?}"));
    }
}

/// Names a request, for the log.
pub(crate) fn verb_of(frame: &Frame) -> String {
    // The rest of a handshake names the process of the test.
    let most = if &frame[0] == b"CLIENT" { 2 } else { frame.len() };
    let words = frame.words().take(most).enumerate().map(|(at, word)| {
        let text = String::from_utf8_lossy(word);
        // The last comment about its arguments identifies a script.
        let from = if at == 1 { text.rfind("-- ARGV:").map_or(0, |at| at + 9) } else { 0 };
        text[from..].chars().take(40).collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ").replace(['\r', '\n'], " ")
}
