//! Judges what contenders of several processes report, by the machine's monotonic clock.

use std::collections::HashMap;
use std::ops::Range;

use crate::rounds::Failure;

/// One grant. Moments are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The process, and the contender in it.
    contender: (usize, usize),
    asked: u64,
    granted: u64,
    /// Just before the release is sent: until then nobody else may hold the lock.
    releasing: u64,
}

impl Grant {
    /// Reads a line of a driver.
    pub(super) fn parse(process: usize, line: &str) -> Result<Grant, Failure> {
        let words: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        match words.as_deref() {
            Ok(&[contender, asked, granted, releasing, _released]) => {
                let contender = (process, usize::try_from(contender)?);
                Ok(Grant { contender, asked, granted, releasing })
            }
            _ => Err(format!("a driver reported {line:?}").into()),
        }
    }
}

/// What the grants of one round come to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// In the window.
    pub(super) grants: usize,
    /// Those of them that follow a grant to another contender.
    pub(super) hand_offs: usize,
    /// Grants that began before the holder began to release.
    pub(super) overlaps: usize,
    /// Nanoseconds from the request to the grant.
    pub(super) wait_p50: u64,
    pub(super) wait_p99: u64,
    /// The grants of the contender with the most, and of the one with the least.
    pub(super) most: usize,
    pub(super) least: usize,
}

/// Judges a round. Grants outside of the window count for overlaps only.
pub(super) fn judge(grants: &[Grant], window: &Range<u64>, contenders: usize) -> Verdict {
    let mut sorted = grants.to_vec();
    sorted.sort_unstable_by_key(|grant| grant.granted);
    let mut verdict = Verdict::default();
    let mut held_until = 0;
    for grant in &sorted {
        verdict.overlaps += usize::from(grant.granted < held_until);
        held_until = held_until.max(grant.releasing);
    }
    sorted.retain(|grant| window.contains(&grant.granted));
    verdict.grants = sorted.len();
    verdict.hand_offs =
        sorted.windows(2).filter(|pair| pair[0].contender != pair[1].contender).count();
    let mut waits: Vec<u64> = sorted.iter().map(|grant| grant.granted - grant.asked).collect();
    waits.sort_unstable();
    let percentile = |percent| waits.get(waits.len() * percent / 100).copied().unwrap_or(0);
    verdict.wait_p50 = percentile(50);
    verdict.wait_p99 = percentile(99);
    let mut counts: HashMap<_, usize> = HashMap::new();
    for grant in &sorted {
        *counts.entry(grant.contender).or_default() += 1;
    }
    verdict.most = counts.values().copied().max().unwrap_or(0);
    let all_had_some = counts.len() == contenders;
    verdict.least = if all_had_some { counts.values().copied().min().unwrap_or(0) } else { 0 };
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(process: usize, contender: usize, times: [u64; 3]) -> Grant {
        let [asked, granted, releasing] = times;
        Grant { contender: (process, contender), asked, granted, releasing }
    }

    #[test]
    fn a_grant_before_the_release_began_is_an_overlap() {
        let apart = [grant(0, 0, [0, 1, 5]), grant(1, 0, [0, 5, 9])];
        assert_eq!(judge(&apart, &(0..100), 2).overlaps, 0);
        let overlapping = [grant(1, 0, [0, 4, 9]), grant(0, 0, [0, 1, 5])];
        assert_eq!(judge(&overlapping, &(0..100), 2).overlaps, 1);
        // One that holds for long overlaps all that come meanwhile, not only the next.
        let long = [grant(0, 0, [0, 1, 50]), grant(0, 1, [0, 10, 11]), grant(0, 2, [0, 20, 21])];
        assert_eq!(judge(&long, &(0..100), 3).overlaps, 2);
        // Nor does it matter when it is.
        assert_eq!(judge(&long, &(60..100), 3).overlaps, 2);
    }

    #[test]
    fn only_grants_to_another_contender_are_hand_offs() {
        let same = [grant(0, 0, [0, 1, 2]), grant(0, 0, [2, 3, 4]), grant(0, 0, [4, 5, 6])];
        let verdict = judge(&same, &(0..100), 1);
        assert_eq!((verdict.grants, verdict.hand_offs), (3, 0));
        // The same number in another process is another contender.
        let other = [grant(0, 0, [0, 1, 2]), grant(1, 0, [0, 3, 4]), grant(0, 0, [2, 5, 6])];
        assert_eq!(judge(&other, &(0..100), 2).hand_offs, 2);
    }

    #[test]
    fn the_window_bounds_what_is_counted() {
        let grants = [grant(0, 0, [0, 1, 2]), grant(0, 1, [5, 12, 13]), grant(0, 0, [14, 20, 21])];
        let verdict = judge(&grants, &(10..20), 2);
        assert_eq!((verdict.grants, verdict.hand_offs, verdict.wait_p50), (1, 0, 7));
    }

    #[test]
    fn a_contender_without_a_grant_is_the_least() {
        let grants = [grant(0, 0, [0, 1, 2]), grant(0, 0, [2, 3, 4]), grant(0, 1, [0, 5, 6])];
        let spread = |verdict: Verdict| (verdict.most, verdict.least);
        assert_eq!(spread(judge(&grants, &(0..100), 2)), (2, 1));
        assert_eq!(spread(judge(&grants, &(0..100), 3)), (2, 0));
        assert_eq!(judge(&[], &(0..100), 3), Verdict::default());
    }

    #[test]
    fn a_line_that_is_no_grant_is_refused() {
        let read = Grant::parse(3, "7 10 20 30 40").expect("a grant");
        assert_eq!((read.contender, read.asked, read.granted), ((3, 7), 10, 20));
        assert!(Grant::parse(0, "7 10 20 30").is_err());
        assert!(Grant::parse(0, "panic: something").is_err());
    }
}
