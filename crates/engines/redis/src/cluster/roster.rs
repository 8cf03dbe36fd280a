//! Which nodes may be asked for anything that any node knows.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Place;

/// The nodes that the URL names, and those that were heard of since.
#[derive(Debug)]
pub(crate) struct Roster {
    seeds: Vec<Place>,
    known: Mutex<Vec<Place>>,
    turn: AtomicUsize,
}

impl Roster {
    /// Begins with the nodes that the URL names, at this one.
    pub(crate) fn new(seeds: Vec<Place>, begin: usize) -> Roster {
        Roster { seeds, known: Mutex::default(), turn: AtomicUsize::new(begin) }
    }

    /// The node that is dialled next: each in turn, those of the URL too.
    pub(crate) fn next(&self) -> Place {
        let known = self.known.lock();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % (self.seeds.len() + known.len());
        let all = known.iter().chain(&self.seeds);
        all.cycle().nth(turn).cloned().unwrap_or_default()
    }

    /// Takes note of who serves slots now.
    pub(super) fn learn<'a>(&self, masters: impl Iterator<Item = &'a Place>) {
        let mut known = self.known.lock();
        *known = masters.filter(|place| !self.seeds.contains(place)).cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_turn_and_those_of_the_url_stay() {
        let at = |port| ("h".to_owned(), port);
        let roster = Roster::new(vec![at(1), at(2)], 1);
        let ports = |count: usize| (0..count).map(|_| roster.next().1).collect::<Vec<_>>();
        assert_eq!(ports(3), [2, 1, 2]);
        roster.learn([at(2), at(3)].iter());
        let mut all = ports(3);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    }
}
