//! Members in the order of their scores; equal scores in the order of their bytes.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// A score with a total order: never NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Score) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

/// The value of the Z commands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SortedSet {
    scores: HashMap<Vec<u8>, f64>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl SortedSet {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Adds or moves a member.
    pub(crate) fn insert(&mut self, member: &[u8], score: f64) {
        if let Some(old) = self.scores.insert(member.to_vec(), score) {
            self.order.remove(&(Score(old), member.to_vec()));
        }
        self.order.insert((Score(score), member.to_vec()));
    }

    /// Removes a member; returns whether it existed.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else { return false };
        self.order.remove(&(Score(score), member.to_vec()))
    }

    /// Returns all members, lowest score first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (f64, &Vec<u8>)> {
        self.order.iter().map(|(score, member)| (score.0, member))
    }

    /// Returns the members with at least the score `from`.
    pub(crate) fn starting_at(&self, from: f64) -> impl Iterator<Item = (f64, &Vec<u8>)> {
        self.order.range((Score(from), Vec::new())..).map(|(score, member)| (score.0, member))
    }

    /// Returns the number of members before this one.
    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.range(..(Score(score), member.to_vec())).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_follow_their_scores_and_then_their_bytes() {
        let mut set = SortedSet::default();
        for (member, score) in [("b", 1.0), ("a", 1.0), ("c", -2.0), ("d", 5.0)] {
            set.insert(member.as_bytes(), score);
        }
        set.insert(b"d", 0.0);
        let order: Vec<&[u8]> = set.iter().map(|(_, member)| member.as_slice()).collect();
        assert_eq!(order, [b"c", b"d", b"a", b"b"]);
        assert_eq!(set.rank(b"a"), Some(2));
        assert!(set.remove(b"a") && !set.remove(b"a"));
        assert_eq!(set.starting_at(0.0).count(), 2);
        assert_eq!(set.len(), 3);
    }
}
