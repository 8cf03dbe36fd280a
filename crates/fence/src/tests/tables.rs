//! What is accepted and what is refused, by tables, and the order of seal and read.

use super::*;
use crate::{Rules, SqliteFence};
use holdline_core::LockName;
use std::num::NonZeroU64;

/// Runs a test on each kind of resource.
fn on_each(test: impl Fn(&dyn Fn(Rules) -> Box<dyn Kind>)) {
    test(&|rules| Box::new(FencedCell::new(0).with_rules(rules)));
    let home = Home::new();
    test(&|rules| {
        let path = home.join("shelf");
        if path.exists() {
            std::fs::remove_file(&path).expect("ours");
        }
        Box::new(FencedFile::at(path).expect("a place").with_rules(rules))
    });
    test(&|rules| {
        let db = shelf_database(Path::new(":memory:"));
        Box::new(Database { fence: SqliteFence::new("shelf").with_rules(rules), db })
    });
}

struct Database {
    fence: SqliteFence,
    db: rusqlite::Connection,
}

/// A [`Shelf`] as an object, so that tables can be written once.
trait Kind {
    fn seal(&self, proof: &Proof) -> Result<(), FenceError>;
    fn put(&self, proof: &Proof, number: u64) -> Result<(), FenceError>;
    fn look(&self, proof: &Proof) -> Result<u64, FenceError>;
    fn check_shared(&self, number: u64) -> Result<(), FenceError>;
    fn mark(&self) -> Option<u64>;
}

impl<S: Shelf> Kind for S {
    fn seal(&self, proof: &Proof) -> Result<(), FenceError> {
        Fenced::seal(self, proof)
    }
    fn put(&self, proof: &Proof, number: u64) -> Result<(), FenceError> {
        Shelf::put(self, proof, number)
    }
    fn look(&self, proof: &Proof) -> Result<u64, FenceError> {
        Shelf::look(self, proof)
    }
    fn check_shared(&self, number: u64) -> Result<(), FenceError> {
        Fenced::check(self, &Proof::shared(token(number)))
    }
    fn mark(&self) -> Option<u64> {
        Fenced::mark(self).expect("readable").map(FencingToken::get)
    }
}

impl Kind for Database {
    fn seal(&self, proof: &Proof) -> Result<(), FenceError> {
        Kind::seal(&self.fence.on(&self.db), proof)
    }
    fn put(&self, proof: &Proof, number: u64) -> Result<(), FenceError> {
        Kind::put(&self.fence.on(&self.db), proof, number)
    }
    fn look(&self, proof: &Proof) -> Result<u64, FenceError> {
        Kind::look(&self.fence.on(&self.db), proof)
    }
    fn check_shared(&self, number: u64) -> Result<(), FenceError> {
        Kind::check_shared(&self.fence.on(&self.db), number)
    }
    fn mark(&self) -> Option<u64> {
        Kind::mark(&self.fence.on(&self.db))
    }
}

#[test]
fn a_mark_is_raised_by_seals_and_writes_and_never_falls() {
    on_each(|make| {
        let shelf = make(Rules::default());
        assert_eq!(shelf.mark(), None);
        shelf.check_shared(1).expect("no mark refuses nobody");
        assert_eq!(shelf.mark(), None, "a check raises nothing");
        for (seals, number, accepted, mark) in [
            (true, 33, true, 33),
            (true, 33, true, 33),
            (false, 33, true, 33),
            (false, 34, true, 34),
            (false, 33, false, 34),
            (true, 33, false, 34),
            (true, 40, true, 40),
            (false, 39, false, 40),
            (false, FencingToken::MAX.get(), true, FencingToken::MAX.get()),
            (true, FencingToken::MAX.get() - 1, false, FencingToken::MAX.get()),
        ] {
            let mine = proof(number);
            let answer = if seals { shelf.seal(&mine) } else { shelf.put(&mine, number) };
            assert_eq!(is_stale(&answer), !accepted, "{number}: {answer:?}");
            assert_eq!(answer.is_ok(), accepted, "{number}: {answer:?}");
            assert_eq!(shelf.mark(), Some(mark));
        }
        assert_eq!(shelf.look(&proof(FencingToken::MAX.get())).ok(), Some(FencingToken::MAX.get()));
    });
}

#[test]
fn a_refused_write_changes_nothing_and_returns_both_tokens() {
    on_each(|make| {
        let shelf = make(Rules::default());
        shelf.put(&proof(34), 7).expect("first");
        match shelf.put(&proof(33), 8) {
            Err(FenceError::Stale(stale)) => {
                assert_eq!((stale.mine, stale.seen), (token(33), token(34)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(shelf.look(&proof(34)).expect("mine"), 7);
        assert!(is_stale(&shelf.look(&proof(33))));
    });
}

#[test]
fn shared_holders_are_checked_and_raise_nothing() {
    on_each(|make| {
        let shelf = make(Rules::default());
        shelf.seal(&proof(34)).expect("first");
        // Two readers hold at once. The one with the larger token must not shut out the other.
        shelf.check_shared(36).expect("a reader");
        shelf.check_shared(35).expect("the other reader");
        assert_eq!(shelf.mark(), Some(34));
        shelf.seal(&proof(37)).expect("the next writer");
        assert!(is_stale(&shelf.check_shared(36)));
    });
}

#[test]
fn rules_are_asked_by_every_resource() {
    let name = |text| LockName::new(text).expect("allowed");
    on_each(|make| {
        let limit = NonZeroU64::new(10).expect("not zero");
        let rules = Rules::default().guarded_by(name("a")).max_jump(limit);
        let shelf = make(rules);
        let mine = |number| proof(number).with_name(name("a"));
        shelf.put(&mine(34), 7).expect("first");
        for (bad, says) in [
            (mine(45), "limit of 10"),
            (mine(FencingToken::MAX.get()), "limit of 10"),
            (proof(35), "guarded by the lock a"),
            (proof(35).with_name(name("b")), "guarded by the lock a"),
        ] {
            let seal = shelf.seal(&bad).expect_err("refused").to_string();
            let put = shelf.put(&bad, 8).expect_err("refused").to_string();
            assert!(seal.contains(says) && put.contains(says), "{seal} / {put}");
        }
        assert_eq!(shelf.mark(), Some(34));
        assert_eq!(shelf.look(&mine(34)).expect("mine"), 7);
        shelf.put(&mine(44), 9).expect("within the limit");
    });
}

/// A holds 33, reads and is paused past its lease; B is granted 34, reads, and is slow to write.
/// A wakes up and writes. Returns what A's write answered and what the shelf held at the end,
/// B having added one to what it read.
fn a_33_and_b_34(shelf: &dyn Kind, b_seals: bool) -> (Result<(), FenceError>, u64) {
    let (a, b) = (proof(33), proof(34));
    shelf.seal(&a).expect("A holds");
    let a_read = shelf.look(&a).expect("A holds");
    if b_seals {
        shelf.seal(&b).expect("B is newer");
    }
    let b_read = shelf.look(&b).expect("B is newer");
    let a_wrote = shelf.put(&a, a_read + 100);
    shelf.put(&b, b_read + 1).expect("B is newer");
    (a_wrote, shelf.look(&b).expect("B is newer"))
}

#[test]
fn sealing_before_the_first_read_keeps_an_acknowledged_write_from_being_lost() {
    on_each(|make| {
        let (a_wrote, end) = a_33_and_b_34(&*make(Rules::default()), true);
        assert!(is_stale(&a_wrote), "{a_wrote:?}");
        assert_eq!(end, 1);
    });
}

#[test]
fn without_the_seal_an_acknowledged_write_is_lost() {
    on_each(|make| {
        let (a_wrote, end) = a_33_and_b_34(&*make(Rules::default()), false);
        // A received a confirmation for its 100, and they are not stored: this is why B must seal.
        assert!(a_wrote.is_ok());
        assert_eq!(end, 1);
    });
}
