//! P5: an orphaned grant on a node ends within its bound.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::Moment;

use super::client::NAMES;
use super::run::{MAX_LEASE, MENDED, STOP, ScenarioKind, World, at};
use crate::world::tasks::Process;

/// How long a grant may be orphaned: a lease, with the differences of clocks and a late check.
const BOUND: Duration = MAX_LEASE.saturating_add(Duration::from_secs(1));
/// How long without faults: the undo is in flight.
const PROMPT: Duration = Duration::from_secs(3);

/// A grant on a node.
type OrphanKey = (usize, &'static str, String);

/// The orphaned grants, with their start.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    since: BTreeMap<OrphanKey, Moment>,
    /// When a node last received a request of a process: those of a killed process still count.
    last_requests: BTreeMap<(Process, usize), Moment>,
}

impl Orphans {
    pub(crate) fn note_request(&mut self, process: Process, node: usize, now: Moment) {
        self.last_requests.insert((process, node), now);
    }
}

impl World {
    /// Finds grants on nodes that no client holds or requests.
    pub(crate) fn check_orphans(&mut self) {
        if self.kind == ScenarioKind::Clocks {
            // A lease ends by the node's clock; if that is set back, it lasts longer.
            return;
        }
        let now = self.now();
        let quiet = now > at(MENDED) && now < at(STOP);
        let mut left = BTreeMap::new();
        for node in 0..self.nodes.len() {
            for name in NAMES {
                let Some((id, client)) = self.nodes[node].holder(name) else { continue };
                let recorder = self.recorder.lock();
                let owner = recorder.clients.get(&client).copied();
                if recorder.stands_for(&id, owner, name) {
                    continue;
                }
                // The grant of a leaked guard ends with its lease.
                let gone = owner.filter(|owner| !recorder.lives.contains_key(owner));
                let lives = owner.is_some() && gone.is_none() && !recorder.was_held(&id);
                let key = (node, name, id);
                let since = self.orphans.since.get(&key).copied().unwrap_or(now);
                let last =
                    gone.and_then(|gone| self.orphans.last_requests.get(&(gone, node)).copied());
                let since = last.map_or(since, |last| since.max(last));
                left.insert(key, (since, lives));
            }
        }
        self.recorder.lock().count_more("orphans seen", left.len() as u64);
        for ((node, name, id), (since, lives)) in &left {
            let bound = if quiet && *lives { PROMPT } else { BOUND };
            let from = if bound == PROMPT { (*since).max(at(MENDED)) } else { *since };
            if from.after(bound) < now {
                let (short, age) = (&id[..8], since.until(now));
                let what = format!("{name}: n{node} keeps {short} for nobody since {age:?}");
                self.recorder.lock().record_violation(now, "P5", what);
            }
        }
        self.orphans.since = left.into_iter().map(|(key, (since, _))| (key, since)).collect();
    }
}
