//! P5: what a node keeps of a name for nobody ends within its bound.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::Moment;

use super::client::NAMES;
use super::run::{Kind, MAX_LEASE, MENDED, STOP, World, at};
use crate::world::tasks::Process;

/// How long anything may be left for nobody: a lease, with clocks that differ and may have been
/// looked at a moment late.
const BOUND: Duration = MAX_LEASE.saturating_add(Duration::from_secs(1));
/// How long, where nothing is wrong: the request that gives it up is under way.
const PROMPT: Duration = Duration::from_secs(3);

/// Which grant on which node.
type Left = (usize, &'static str, String);

/// Since when grants have nobody who stands for them.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    since: BTreeMap<Left, Moment>,
    /// When a node last heard of a process: what one that was killed had under way still counts.
    heard: BTreeMap<(Process, usize), Moment>,
}

impl Orphans {
    pub(crate) fn heard(&mut self, process: Process, node: usize, now: Moment) {
        self.heard.insert((process, node), now);
    }
}

impl World {
    /// Looks for what nodes keep, and nobody holds or asks for.
    pub(crate) fn look_for_orphans(&mut self) {
        if self.kind == Kind::Clocks {
            // A lease ends by the node's clock: where that is set back, it lasts longer.
            return;
        }
        let now = self.now();
        let quiet = now > at(MENDED) && now < at(STOP);
        let mut left = BTreeMap::new();
        for node in 0..self.nodes.len() {
            for name in NAMES {
                let Some((id, client)) = self.nodes[node].holder(name) else { continue };
                let book = self.book.lock();
                let owner = book.clients.get(&client).copied();
                if book.stands_for(&id, owner, name) {
                    continue;
                }
                // Of a guard that was forgotten its lease is the end.
                let gone = owner.filter(|owner| !book.lives.contains_key(owner));
                let lives = owner.is_some() && gone.is_none() && !book.was_held(&id);
                let key = (node, name, id);
                let since = self.orphans.since.get(&key).copied().unwrap_or(now);
                let heard = gone.and_then(|gone| self.orphans.heard.get(&(gone, node)).copied());
                let since = heard.map_or(since, |heard| since.max(heard));
                left.insert(key, (since, lives));
            }
        }
        self.book.lock().count_more("orphans seen", left.len() as u64);
        for ((node, name, id), (since, lives)) in &left {
            let bound = if quiet && *lives { PROMPT } else { BOUND };
            let from = if bound == PROMPT { (*since).max(at(MENDED)) } else { *since };
            if from.after(bound) < now {
                let (short, age) = (&id[..8], since.until(now));
                let what = format!("{name}: n{node} keeps {short} for nobody since {age:?}");
                self.book.lock().break_promise(now, "P5", what);
            }
        }
        self.orphans.since = left.into_iter().map(|(key, (since, _))| (key, since)).collect();
    }
}
