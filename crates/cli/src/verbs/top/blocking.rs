//! Who blocks whom: a tree of names with waiters, below the contenders that hold them. Pure.
//!
//! A contender is a process on a host, or a lease if it does not report a process. A name whose
//! holders wait for nothing is a root: they block, and nobody blocks them. A name that is held by
//! somebody who waits is below that waiter, also if it is a name of another store. Names that block
//! each other are a deadlock, which is marked; no lock of Holdline is taken from anybody because of
//! it.
//!
//! - Invariant B1: each name with waiters appears exactly once as [`Node::Name`].
//! - Invariant B2: at most [`MAX_WAITERS`] waiters of a name appear, and those that block others.

use std::collections::{BTreeMap, BTreeSet};

use holdline_core::{Metadata, ShortLeaseId};

use super::rows::Filter;
use super::stores::{NamePosition, Stores};

/// How many waiters of a name are shown that block nobody.
pub(crate) const MAX_WAITERS: usize = 10;

/// How deep the tree is drawn.
const MAX_DEPTH: usize = 64;

/// A line of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeLine {
    /// How many steps below a root.
    pub(crate) depth: usize,
    /// What stands there.
    pub(crate) node: Node,
}

/// What stands in the tree; the number of a waiter is its position in the name's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A name with its holders. `deadlock`: its holders wait for it, directly or not.
    Name { name: NamePosition, deadlock: bool },
    /// A waiter of the name above.
    Waiter { name: NamePosition, waiter: usize },
    /// The waiter above holds this name, which is shown elsewhere in the tree.
    Again { name: NamePosition },
    /// Waiters of the name above that are not shown.
    More { name: NamePosition, waiters: usize },
}

/// Who holds or waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Process(String, u32),
    /// A lease of a store: another store knows nothing of it.
    Lease(usize, ShortLeaseId),
}

impl Party {
    fn new(name: NamePosition, lease_id: ShortLeaseId, metadata: &Metadata) -> Party {
        let fields = metadata.fields();
        match fields.pid {
            Some(pid) if !fields.host.is_empty() => Party::Process(fields.host, pid),
            _ => Party::Lease(name.store, lease_id),
        }
    }
}

/// Returns the lines of the tree: the roots with the most waiters first.
pub(crate) fn tree(stores: &Stores, filter: &str) -> Vec<TreeLine> {
    let contended: Vec<NamePosition> = stores
        .names()
        .filter(|(_, snapshot)| snapshot.queue_length > 0)
        .map(|(name, _)| name)
        .collect();
    let mut holds: BTreeMap<Party, Vec<NamePosition>> = BTreeMap::new();
    for &name in &contended {
        for holder in &stores.at(name).holders {
            let party = Party::new(name, holder.summary.lease_id, &holder.summary.metadata);
            holds.entry(party).or_default().push(name);
        }
    }
    let mut blocks = Vec::new();
    for &above in &contended {
        for waiter in &stores.at(above).queue {
            let held = holds.get(&Party::new(above, waiter.lease_id, &waiter.metadata));
            blocks.extend(held.into_iter().flatten().map(|&below| (above, below)));
        }
    }
    let blocked: BTreeSet<NamePosition> = blocks.iter().map(|&(_, below)| below).collect();
    let deadlocks = cycles(blocks);
    let mut order = contended;
    // Roots first, then deadlocks; all others are below one of these.
    order.sort_by_key(|&name| {
        let is_blocked = blocked.contains(&name);
        let group = (is_blocked, is_blocked && !deadlocks.contains(&name));
        (group, std::cmp::Reverse(stores.at(name).queue_length), name)
    });
    let shown = BTreeSet::new();
    let lines = Vec::new();
    let mut walk = Walk { stores, holds: &holds, deadlocks: &deadlocks, shown, lines };
    let filters = Filter::of_stores(filter, stores);
    let mut kept = Vec::new();
    for name in order {
        if walk.shown.contains(&name) {
            continue;
        }
        walk.name(name, 0);
        let group = std::mem::take(&mut walk.lines);
        // A whole tree is shown if one of its lines matches.
        if filter.is_empty() || group.iter().any(|line| matches(stores, &filters, line)) {
            kept.extend(group);
        }
    }
    kept
}

/// Returns the names that are on a cycle, or between two.
fn cycles(blocks: Vec<(NamePosition, NamePosition)>) -> BTreeSet<NamePosition> {
    let flipped = |blocks: Vec<(NamePosition, NamePosition)>| {
        blocks.into_iter().map(|(a, b)| (b, a)).collect()
    };
    let blocks = without_roots(flipped(without_roots(blocks)));
    blocks.into_iter().map(|(name, _)| name).collect()
}

/// Removes the names that nothing blocks, then those that nothing else blocks, and so on.
fn without_roots(
    mut blocks: Vec<(NamePosition, NamePosition)>,
) -> Vec<(NamePosition, NamePosition)> {
    let mut below: BTreeMap<NamePosition, Vec<NamePosition>> = BTreeMap::new();
    let mut blockers: BTreeMap<NamePosition, usize> = BTreeMap::new();
    for &(from, to) in &blocks {
        below.entry(from).or_default().push(to);
        blockers.entry(from).or_default();
        *blockers.entry(to).or_default() += 1;
    }
    let mut roots: Vec<NamePosition> =
        blockers.iter().filter(|(_, blockers)| **blockers == 0).map(|(&name, _)| name).collect();
    while let Some(root) = roots.pop() {
        for name in below.remove(&root).unwrap_or_default() {
            let left = blockers.entry(name).or_default();
            *left -= 1;
            if *left == 0 {
                roots.push(name);
            }
        }
    }
    blocks.retain(|(from, _)| blockers.get(from).is_some_and(|&left| left > 0));
    blocks
}

fn matches(stores: &Stores, filters: &[Filter], line: &TreeLine) -> bool {
    match line.node {
        Node::Name { name, .. } => {
            let snapshot = stores.at(name);
            let filter = &filters[name.store];
            let mut holders = snapshot.holders.iter();
            filter.matches_name(snapshot)
                || holders.any(|holder| filter.matches(snapshot, &holder.summary.metadata))
        }
        Node::Waiter { name, waiter } => {
            let snapshot = stores.at(name);
            let filter = &filters[name.store];
            filter.matches(snapshot, &snapshot.queue[waiter].metadata)
        }
        Node::Again { .. } | Node::More { .. } => false,
    }
}

struct Walk<'a> {
    stores: &'a Stores,
    holds: &'a BTreeMap<Party, Vec<NamePosition>>,
    deadlocks: &'a BTreeSet<NamePosition>,
    shown: BTreeSet<NamePosition>,
    lines: Vec<TreeLine>,
}

impl Walk<'_> {
    fn name(&mut self, name: NamePosition, depth: usize) {
        self.shown.insert(name);
        let deadlock = self.deadlocks.contains(&name);
        self.lines.push(TreeLine { depth, node: Node::Name { name, deadlock } });
        let snapshot = self.stores.at(name);
        let mut plain = 0;
        let mut shown = 0;
        for (waiter, view) in snapshot.queue.iter().enumerate() {
            let party = Party::new(name, view.lease_id, &view.metadata);
            let held: &[NamePosition] = self.holds.get(&party).map_or(&[], Vec::as_slice);
            if held.is_empty() {
                plain += 1;
                if plain > MAX_WAITERS {
                    continue;
                }
            }
            shown += 1;
            self.lines.push(TreeLine { depth: depth + 1, node: Node::Waiter { name, waiter } });
            for &below in held {
                if self.shown.contains(&below) || depth + 2 > MAX_DEPTH {
                    let node = Node::Again { name: below };
                    self.lines.push(TreeLine { depth: depth + 2, node });
                } else {
                    self.name(below, depth + 2);
                }
            }
        }
        let rest = snapshot.queue_length.saturating_sub(shown);
        if rest > 0 {
            let node = Node::More { name, waiters: rest };
            self.lines.push(TreeLine { depth: depth + 1, node });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{holder, snapshot, stores, waiter};
    use super::*;

    /// The tree as text, such as `a` for a name, `  -2` for its second waiter.
    fn drawn(stores: &Stores, filter: &str) -> Vec<String> {
        let text = |line: &TreeLine| {
            let shown = match line.node {
                Node::Name { name, deadlock } => {
                    let mark = if deadlock { "!" } else { "" };
                    let name = stores.labelled(name.store, stores.at(name).name.as_str());
                    format!("{name}{mark}")
                }
                Node::Waiter { waiter, .. } => format!("-{waiter}"),
                Node::Again { name } => format!("^{}", stores.at(name).name),
                Node::More { waiters, .. } => format!("+{waiters}"),
            };
            format!("{}{shown}", " ".repeat(line.depth))
        };
        tree(stores, filter).iter().map(text).collect()
    }

    #[test]
    fn a_waiter_that_holds_what_others_wait_for_has_them_below_it() {
        let stores = stores(vec![vec![
            // 2 waits for a and holds b; nobody waits for `idle`.
            snapshot("a", vec![holder(1, "x", 1)], vec![waiter(2, "y", 1), waiter(5, "v", 1)]),
            snapshot("b", vec![holder(2, "y", 1)], vec![waiter(3, "z", 1)]),
            snapshot("idle", vec![holder(9, "x", 1)], vec![]),
        ]]);
        assert_eq!(drawn(&stores, ""), ["a", " -0", "  b", "   -0", " -1"]);
        assert_eq!(drawn(&stores, "b").len(), 5, "a tree is shown in full");
        assert_eq!(drawn(&stores, "nothing").len(), 0);
    }

    #[test]
    fn those_who_block_each_other_are_a_deadlock() {
        let stores = stores(vec![vec![
            snapshot("a", vec![holder(1, "x", 1)], vec![waiter(2, "y", 1)]),
            snapshot("b", vec![holder(2, "y", 1)], vec![waiter(1, "x", 1)]),
            snapshot("c", vec![holder(3, "z", 1)], vec![waiter(4, "z", 1)]),
        ]]);
        assert_eq!(drawn(&stores, ""), ["c", " -0", "a!", " -0", "  b!", "   -0", "    ^a"]);
    }

    #[test]
    fn a_name_below_a_deadlock_is_blocked_and_none_itself() {
        // 3 waits for b, which is in a deadlock with a, and holds d.
        let stores = stores(vec![vec![
            snapshot("a", vec![holder(1, "x", 1)], vec![waiter(2, "y", 1)]),
            snapshot("b", vec![holder(2, "y", 1)], vec![waiter(1, "x", 1), waiter(3, "z", 1)]),
            snapshot("d", vec![holder(3, "z", 1)], vec![waiter(4, "v", 1), waiter(5, "v", 1)]),
        ]]);
        let lines = drawn(&stores, "");
        assert_eq!(lines[0], "b!", "{lines:?}");
        assert!(lines.contains(&"  d".to_owned()), "{lines:?}");
    }

    #[test]
    fn long_queues_are_cut_and_counted() {
        let waiters = (10..60).map(|number| waiter(number, "w", 1)).collect();
        let mut long = snapshot("a", vec![holder(1, "x", 1)], waiters);
        long.queue_length = 5_000;
        let stores = stores(vec![vec![long]]);
        let lines = drawn(&stores, "");
        assert_eq!(lines.len(), MAX_WAITERS + 2);
        assert_eq!(lines.last().map(String::as_str), Some(" +4990"));
    }

    #[test]
    fn a_process_that_holds_in_one_store_and_waits_in_another_is_found() {
        let stores = stores(vec![
            vec![snapshot("a", vec![holder(1, "x", 1)], vec![waiter(2, "y", 1)])],
            vec![snapshot("b", vec![holder(2, "y", 1)], vec![waiter(1, "x", 1)])],
        ]);
        assert_eq!(drawn(&stores, ""), ["0: a!", " -0", "  1: b!", "   -0", "    ^a"]);
    }
}
