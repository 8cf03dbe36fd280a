//! What happens at a planned moment.

use std::time::Duration;

use holdline_sim::Memory;

use super::client::NAMES;
use super::run::{END, Kind, PEACE, World, at};
use crate::world::frame::Frame;
use crate::world::tasks::Process;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// An operator sets the servers up.
    Init,
    /// An operator raises the fence far above all clocks.
    Raise,
    /// Something goes wrong, and then the next.
    Fault,
    Resume(Process),
    Begin(usize),
    Reset(Process, Option<usize>),
    Thaw(usize),
    Restart(usize, Recalls),
    /// A server ends whose file was switched off.
    Fall(usize),
    /// The server that was replaced comes back.
    Back(usize),
    Calm,
    Loud(usize),
    /// Faults end.
    Peace,
    /// An operator does what only operators may.
    Repair,
    /// Somebody looks at what the nodes keep, and then again.
    Look,
    /// All must have mended.
    Mended,
    /// Nobody begins an attempt any more.
    Stop,
    End,
}

/// What a server knows when it is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalls {
    All,
    Old,
    Nothing,
    /// What a server of another set knew.
    OfOthers,
}

/// How often somebody looks at what the nodes keep.
const LOOKS: Duration = Duration::from_secs(1);

impl World {
    pub(crate) fn happen(&mut self, event: Event) -> bool {
        let now = self.now();
        match event {
            Event::Fault if now >= at(PEACE) => {}
            Event::Fault => {
                self.fault();
                let (least, most) = self.heat.map_or((100, 1_500), |heat| heat.every_ms);
                let next = self.after(least, most);
                self.plan(next, Event::Fault);
            }
            Event::Init => self.init(),
            Event::Raise => self.raise(super::operators::RAISED),
            Event::Repair => self.repair(),
            Event::Resume(process) => self.go_on(process),
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
            Event::Restart(node, recalls) => self.restart(node, recalls),
            Event::Fall(node) => self.fall(node, Recalls::Old),
            Event::Back(node) => self.bring_back(node),
            Event::Calm => self.net.lock().slowest_ms = 3,
            Event::Loud(node) => self.nodes[node].host.server().lose_messages(0),
            Event::Look => {
                self.look_for_orphans();
                self.part_sets();
                let next = now.after(LOOKS);
                self.plan(next, Event::Look);
            }
            Event::Peace => {
                self.note(format_args!("peace"));
                self.net.lock().reach = None;
            }
            Event::Mended => {
                self.before_mended = Some(self.book.lock().counted("acquisitions"));
            }
            Event::Stop => {
                self.check_progress();
                self.book.lock().stopping = true;
            }
            Event::End => {
                self.last_look();
                return false;
            }
        }
        true
    }

    fn restart(&mut self, node: usize, recalls: Recalls) {
        let one = &mut self.nodes[node];
        one.frozen = false;
        let memory = match (recalls, one.snapshot.clone()) {
            (Recalls::All, _) => Memory::Kept,
            (Recalls::Old | Recalls::OfOthers, Some(snapshot)) => Memory::Restored(snapshot),
            (Recalls::Old | Recalls::OfOthers | Recalls::Nothing, _) => Memory::Lost,
        };
        one.host.server().restart(memory);
        let host = one.host.clone();
        if recalls == Recalls::Old && self.is_of_another_set(node, &host) {
            host.server().flush();
        }
        let what = match recalls {
            Recalls::All => "a server is back as it was",
            Recalls::Old => "a server is back with an old snapshot",
            Recalls::Nothing => "a server is back empty",
            Recalls::OfOthers => "a server is back with another set's dump",
        };
        self.happens(what, format_args!("n{node}"));
    }

    /// P7: what the faults left has mended, and names are had again.
    fn check_progress(&mut self) {
        let now = self.now();
        let before = self.before_mended.unwrap_or(0);
        let mut book = self.book.lock();
        // Of rivals the one may have kept the other from it, and gone.
        if self.kind != Kind::Rivals && book.counted("acquisitions") <= before {
            let what = "nobody had a name any more after the faults were over".to_owned();
            book.break_promise(now, "P7", what);
        }
    }

    /// P5: nothing is left but each node's own and its counters.
    fn last_look(&mut self) {
        let now = self.now();
        let mut book = self.book.lock();
        for (at, node) in self.nodes.iter().enumerate() {
            let left = node.host.server().key_count(0);
            if left > 1 + NAMES.len() {
                book.break_promise(now, "P5", format!("n{at}: {left} keys are left"));
            }
        }
        book.check_all_ended(now);
        book.note(now, format_args!("the end, after {END:?}"));
    }
}

/// Names what a request is, for whoever reads the story.
pub(crate) fn verb_of(frame: &Frame) -> String {
    // Of what a connection says first the rest names the process that runs the test.
    let most = if &frame[0] == b"CLIENT" { 2 } else { frame.len() };
    let words = frame.words().take(most).enumerate().map(|(at, word)| {
        let text = String::from_utf8_lossy(word);
        // Of a script, the last comment that tells its arguments tells which it is.
        let from = if at == 1 { text.rfind("-- ARGV:").map_or(0, |at| at + 9) } else { 0 };
        text[from..].chars().take(40).collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ").replace(['\r', '\n'], " ")
}
