//! The nodes to which the control connection may be made.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Host and port of a server.
pub(crate) type HostPort = (String, u16);

/// The nodes that the URL names, and the masters that were discovered since.
#[derive(Debug)]
pub(crate) struct SeedList {
    seeds: Vec<HostPort>,
    known: Mutex<Vec<HostPort>>,
    turn: AtomicUsize,
}

impl SeedList {
    /// Starts with the nodes that the URL names, at this index.
    pub(crate) fn new(seeds: Vec<HostPort>, begin: usize) -> SeedList {
        SeedList { seeds, known: Mutex::default(), turn: AtomicUsize::new(begin) }
    }

    /// Returns the next node to dial: all known ones in turn, including those of the URL.
    pub(crate) fn next(&self) -> HostPort {
        let known = self.known.lock();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % (self.seeds.len() + known.len());
        let all = known.iter().chain(&self.seeds);
        all.cycle().nth(turn).cloned().unwrap_or_default()
    }

    /// Replaces the discovered masters.
    pub(crate) fn set_masters<'a>(&self, masters: impl Iterator<Item = &'a HostPort>) {
        let mut known = self.known.lock();
        *known = masters.filter(|host_port| !self.seeds.contains(host_port)).cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_turn_and_those_of_the_url_remain() {
        let at = |port| ("h".to_owned(), port);
        let seed_list = SeedList::new(vec![at(1), at(2)], 1);
        let ports = |count: usize| (0..count).map(|_| seed_list.next().1).collect::<Vec<_>>();
        assert_eq!(ports(3), [2, 1, 2]);
        seed_list.set_masters([at(2), at(3)].iter());
        let mut all = ports(3);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    }
}
