//! The resource: for each name a register that checks fencing tokens, and one that does not.
//!
//! A register holds a set. A contender reads it, waits, and writes it back with one element more.
//! So a writer that has not seen another's write removes that write's element. Only the base of
//! each write is stored: the set is the path back from the newest write.
//!
//! Invariant R1: one process orders the arrivals, and stamps them by its own clock.

use std::collections::HashSet;

use holdline::fence::{Fenced, FencedCell, Proof};
use holdline_core::{FencingToken, Moment};
use serde::{Deserialize, Serialize};

/// The number of a write; zero is the empty set.
pub(crate) type Version = u64;

/// What the resource answers to a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The newest write of the fenced register; `None` if the token was too old.
    pub(crate) fenced: Option<Version>,
    /// The newest write of the other.
    pub(crate) unfenced: Version,
}

/// A write that was accepted.
#[derive(Clone, Copy, Debug)]
struct RegisterWrite {
    base: Version,
    by: u64,
    at: Moment,
}

/// All that was written to one register.
#[derive(Debug, Default)]
pub(crate) struct Chain(Vec<RegisterWrite>);

/// An accepted write whose element is not in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The writer, and when.
    pub(crate) by: u64,
    pub(crate) at: Moment,
    /// The next writer, which had not seen it.
    pub(crate) over: u64,
}

impl Chain {
    pub(crate) fn newest(&self) -> Version {
        self.0.len() as Version
    }

    fn write(&mut self, base: Version, by: u64, at: Moment) {
        self.0.push(RegisterWrite { base, by, at });
    }

    fn of(&self, version: Version) -> Option<&RegisterWrite> {
        self.0.get(usize::try_from(version.checked_sub(1)?).ok()?)
    }

    /// Returns what was written and is not there any more.
    pub(crate) fn lost(&self) -> Vec<Lost> {
        let mut there = HashSet::new();
        let mut version = self.newest();
        // A base is older than its write, so the way back ends.
        while let Some(write) = self.of(version) {
            there.insert(version);
            version = write.base.min(version - 1);
        }
        let lost = (1..=self.newest()).filter(|version| !there.contains(version));
        lost.filter_map(|version| {
            let write = self.of(version)?;
            let over = self.of(version + 1)?;
            Some(Lost { by: write.by, at: write.at, over: over.by })
        })
        .collect()
    }
}

/// A contender as the resource knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub(crate) attempt: u64,
    pub(crate) token: FencingToken,
    /// When it asked for the name.
    pub(crate) called: Moment,
    /// When it knew that it holds it.
    pub(crate) granted: Moment,
}

/// A write of an earlier holder that was accepted after a later one had read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stale {
    pub(crate) at: Moment,
    pub(crate) writer: Contender,
    pub(crate) reader: Contender,
}

/// What one name guards.
#[derive(Debug, Default)]
pub(crate) struct Register {
    fenced: FencedCell<Chain>,
    unfenced: Chain,
    /// Of those that have read the fenced one, who asked for the name last.
    newest_reader: Option<Contender>,
    /// A planted bug: no write is rejected.
    accepts_all: bool,
    pub(crate) stale: Vec<Stale>,
    pub(crate) refused: u64,
}

impl Register {
    pub(crate) fn new(accepts_all: bool) -> Register {
        Register { accepts_all, ..Register::default() }
    }

    /// Seals and reads: the newest write of the fenced register, unless the token is too old, and
    /// that of the other.
    pub(crate) fn read(&mut self, by: Contender) -> Answer {
        let proof = Proof::exclusive(by.token);
        let sealed = self.fenced.seal(&proof).is_ok() || self.accepts_all;
        // Read under the current mark, which no other task changes meanwhile.
        let newest = self.peek();
        if sealed {
            if self.newest_reader.is_none_or(|newest| newest.called < by.called) {
                self.newest_reader = Some(by);
            }
        } else {
            self.refused += 1;
        }
        Answer { fenced: sealed.then_some(newest), unfenced: self.unfenced.newest() }
    }

    /// Writes to both; returns whether the fenced register accepted it. `base` is what was read.
    pub(crate) fn write(&mut self, by: Contender, base: Answer, at: Moment) -> Option<bool> {
        self.unfenced.write(base.unfenced, by.attempt, at);
        let fenced = base.fenced?;
        let token = if self.accepts_all { FencingToken::MAX } else { by.token };
        let answer = self.fenced.check_and_write(&Proof::exclusive(token), |chain| {
            chain.write(fenced, by.attempt, at);
            Ok(())
        });
        if answer.is_err() {
            self.refused += 1;
            return Some(false);
        }
        if let Some(reader) = self.newest_reader
            && reader.attempt != by.attempt
            && reader.called > by.granted
        {
            self.stale.push(Stale { at, writer: by, reader });
        }
        Some(true)
    }

    fn peek(&self) -> Version {
        // The largest token there is may always look.
        let all = Proof::shared(FencingToken::MAX);
        self.fenced.read(&all, Chain::newest).unwrap_or_default()
    }

    pub(crate) fn unfenced(&self) -> &Chain {
        &self.unfenced
    }

    /// Returns the elements that the fenced register has lost.
    pub(crate) fn fenced_lost(&self) -> Vec<Lost> {
        let all = Proof::shared(FencingToken::MAX);
        self.fenced.read(&all, Chain::lost).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(attempt: u64, token: u64, called: u64) -> Contender {
        Contender {
            attempt,
            token: FencingToken::new(token).expect("in range"),
            called: Moment::from_nanos(called),
            granted: Moment::from_nanos(called + 1),
        }
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    /// One reads, another takes over, reads and writes, then the first writes what it has.
    fn late_writer(register: &mut Register) -> Option<bool> {
        let early = contender(1, 1, 10);
        let late = contender(2, 2, 20);
        let old = register.read(early);
        let new = register.read(late);
        assert_eq!(register.write(late, new, at(30)), Some(true));
        register.write(early, old, at(40))
    }

    #[test]
    fn a_late_write_is_refused_where_tokens_are_checked_and_costs_an_element_elsewhere() {
        let mut register = Register::new(false);
        assert_eq!(late_writer(&mut register), Some(false));
        assert_eq!((register.refused, register.stale.len()), (1, 0));
        assert_eq!(register.fenced_lost(), []);
        assert_eq!(register.unfenced().lost(), [Lost { by: 2, at: at(30), over: 1 }]);
    }

    #[test]
    fn a_resource_that_takes_every_token_is_found_out() {
        let mut register = Register::new(true);
        assert_eq!(late_writer(&mut register), Some(true));
        assert_eq!(register.stale.len(), 1);
        assert_eq!(register.fenced_lost(), [Lost { by: 2, at: at(30), over: 1 }]);
    }

    #[test]
    fn a_token_that_does_not_grow_is_found_as_a_stale_write() {
        let mut register = Register::new(false);
        let early = contender(1, 5, 10);
        let late = contender(2, 5, 20);
        let old = register.read(early);
        let new = register.read(late);
        assert_eq!(register.write(late, new, at(30)), Some(true));
        assert_eq!(register.write(early, old, at(40)), Some(true));
        assert_eq!(register.stale.len(), 1);
    }

    #[test]
    fn a_refused_reader_writes_nothing() {
        let mut register = Register::new(false);
        let early = contender(1, 1, 10);
        let late = contender(2, 2, 20);
        register.read(late);
        let none = register.read(early);
        assert_eq!(none.fenced, None);
        assert_eq!(register.write(early, none, at(30)), None);
        assert_eq!(register.refused, 1);
    }

    #[test]
    fn writes_one_after_the_other_lose_nothing() {
        let mut chain = Chain::default();
        for version in 0..5 {
            chain.write(version, version, at(version));
        }
        assert_eq!(chain.lost(), []);
        // The next one saw only the second, and its follower only that.
        chain.write(2, 9, at(9));
        chain.write(6, 10, at(10));
        assert_eq!(chain.lost().iter().map(|lost| lost.by).collect::<Vec<_>>(), [2, 3, 4]);
    }
}
