//! Each rule must find a planted violation, and must accept unusual but correct histories.

use super::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * MS)
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("in range")
}

fn name() -> LockName {
    LockName::new("n").expect("good")
}

/// Writes a history down, times in milliseconds.
#[derive(Default)]
struct Script(Vec<Event>);

impl Script {
    fn see(mut self, attempt: u64, ms: u64, seen: Seen) -> Script {
        self.0.push(Event { at: at(ms), attempt, seen });
        self
    }

    fn call(self, attempt: u64, ms: u64, mode: Mode) -> Script {
        self.see(attempt, ms, Seen::Called { name: name(), mode })
    }

    fn queued(self, attempt: u64, ms: u64) -> Script {
        self.see(attempt, ms, Seen::Queued)
    }

    fn grant(self, attempt: u64, ms: u64, number: u64, until: u64) -> Script {
        self.see(attempt, ms, Seen::Granted { token: token(number), valid_until: at(until) })
    }

    fn release(self, attempt: u64, ms: u64) -> Script {
        self.see(attempt, ms, Seen::Released)
    }

    /// A whole exclusive attempt.
    fn held(self, attempt: u64, call: u64, from: u64, to: u64, number: u64) -> Script {
        self.call(attempt, call, Mode::Exclusive)
            .grant(attempt, from, number, to + 1_000)
            .release(attempt, to)
    }

    fn wrote(self, attempt: u64, sent: u64, answered: u64, number: u64) -> Script {
        let seen = Seen::Wrote { sent: at(sent), token: token(number), accepted: true };
        self.see(attempt, answered, seen)
    }

    fn kinds(&self, fair: bool) -> Vec<ViolationKind> {
        let found = check(&self.0, Rules { fair, ..Rules::default() }).expect("well formed");
        found.into_iter().map(|violation| violation.kind).collect()
    }

    /// Asserts that the fair checker finds exactly this.
    fn shows(&self, kinds: &[ViolationKind]) {
        assert_eq!(self.kinds(true), kinds);
    }
}

fn permits(count: u32, of: u32) -> Mode {
    Mode::permits(count, of).expect("good")
}

#[test]
fn a_good_history_shows_nothing() {
    Script::default()
        .held(1, 0, 1, 10, 1)
        .call(2, 2, Mode::Exclusive)
        .queued(2, 3)
        .call(3, 4, Mode::Exclusive)
        .queued(3, 5)
        .grant(2, 11, 2, 500)
        .release(2, 20)
        .grant(3, 21, 3, 500)
        .release(3, 30)
        .shows(&[]);
}

#[test]
fn two_exclusive_holders_at_once() {
    Script::default().held(1, 0, 1, 10, 1).held(2, 0, 9, 20, 2).shows(&[ViolationKind::Overlap]);
}

#[test]
fn an_overlap_with_a_much_earlier_long_hold_is_found() {
    Script::default()
        .held(1, 0, 1, 100, 1)
        .call(2, 0, Mode::Shared)
        .grant(2, 200, 2, 300)
        .release(2, 210)
        .call(3, 0, Mode::Exclusive)
        .grant(3, 99, 3, 150)
        .release(3, 120)
        .shows(&[ViolationKind::Overlap]);
}

#[test]
fn a_hold_ends_when_it_may_no_longer_be_believed() {
    // The first one never releases: a paused process, whose lease ran out at 8.
    let paused = Script::default().call(1, 0, Mode::Exclusive).grant(1, 1, 1, 8);
    paused.held(2, 0, 9, 20, 2).release(1, 30).shows(&[]);
    // A grant that is known only after its end was never a certain hold.
    let late = Script::default().call(1, 0, Mode::Exclusive).grant(1, 15, 1, 8);
    late.held(2, 0, 9, 20, 2).shows(&[]);
}

#[test]
fn a_renewal_makes_a_hold_longer() {
    let renewed = Seen::Renewed { valid_until: at(15) };
    Script::default()
        .call(1, 0, Mode::Exclusive)
        .grant(1, 1, 1, 8)
        .see(1, 4, renewed)
        .held(2, 0, 9, 20, 2)
        .shows(&[ViolationKind::Overlap]);
}

#[test]
fn a_notification_of_the_loss_ends_a_hold() {
    let reply = Script::default().call(1, 0, Mode::Exclusive).grant(1, 1, 1, 100);
    reply.see(1, 8, Seen::Lost).held(2, 0, 9, 20, 2).shows(&[]);
}

#[test]
fn shared_holders_exclude_only_exclusive_ones() {
    let shared = |script: Script, attempt, from, to, number| {
        script.call(attempt, 0, Mode::Shared).grant(attempt, from, number, 500).release(attempt, to)
    };
    let two = shared(shared(Script::default(), 1, 1, 10, 1), 2, 5, 20, 2);
    two.shows(&[]);
    two.held(3, 0, 19, 30, 3).shows(&[ViolationKind::Overlap]);
}

#[test]
fn more_permits_than_there_are() {
    let semaphore = |third| {
        Script::default()
            .call(1, 0, permits(2, 4))
            .grant(1, 1, 1, 500)
            .call(2, 0, permits(1, 4))
            .grant(2, 2, 2, 500)
            .call(3, 0, permits(third, 4))
            .grant(3, 3, 3, 500)
            .release(1, 10)
            .call(4, 0, permits(2, 4))
            .grant(4, 10, 4, 500)
    };
    semaphore(1).shows(&[]);
    semaphore(2).shows(&[ViolationKind::OverAdmission]);
}

/// Overlap is judged all the same.
#[test]
fn without_tokens_none_are_judged() {
    let rules = Rules { without_tokens: true, ..Rules::default() };
    let script = Script::default().held(1, 0, 1, 10, 1).held(2, 0, 5, 20, 1).wrote(1, 30, 31, 1);
    let found = check(&script.0, rules).expect("well formed");
    let kinds: Vec<_> = found.into_iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [ViolationKind::Overlap]);
}

#[test]
fn one_token_twice() {
    Script::default()
        .held(1, 0, 1, 10, 7)
        .held(2, 0, 11, 20, 7)
        .shows(&[ViolationKind::DuplicateToken]);
    // Shared grants have distinct numbers too.
    Script::default()
        .call(1, 0, Mode::Shared)
        .grant(1, 1, 7, 10)
        .call(2, 0, Mode::Shared)
        .grant(2, 1, 7, 10)
        .shows(&[ViolationKind::DuplicateToken]);
}

#[test]
fn asked_for_later_with_a_smaller_token() {
    // The first lease had run out long before: only the order of asking shows the fault.
    Script::default()
        .call(1, 0, Mode::Exclusive)
        .grant(1, 9, 5, 8)
        .held(2, 30, 40, 50, 4)
        .shows(&[ViolationKind::TokenOrder]);
}

#[test]
fn held_later_with_a_smaller_token() {
    // Both asked at once, so only the order of holding shows the fault.
    Script::default()
        .held(1, 0, 1, 10, 5)
        .held(2, 0, 11, 20, 4)
        .shows(&[ViolationKind::TokenOrder]);
}

#[test]
fn concurrent_requests_may_have_tokens_in_any_order() {
    // The one with the larger token was known first, and ended without ever being certain.
    Script::default()
        .call(1, 0, Mode::Exclusive)
        .grant(1, 10, 5, 9)
        .held(2, 9, 11, 20, 4)
        .shows(&[]);
}

#[test]
fn shared_tokens_are_not_ordered() {
    Script::default()
        .call(1, 0, Mode::Shared)
        .grant(1, 1, 5, 10)
        .call(2, 20, Mode::Shared)
        .grant(2, 21, 4, 30)
        .shows(&[]);
}

#[test]
fn a_resource_that_takes_an_older_token() {
    let two = || Script::default().held(1, 0, 1, 10, 1).held(2, 11, 12, 30, 2);
    two().wrote(2, 13, 14, 2).wrote(1, 15, 16, 1).shows(&[ViolationKind::StaleWrite]);
    // Sent before the larger one was answered: the resource may have taken it first.
    two().wrote(2, 13, 16, 2).wrote(1, 15, 17, 1).shows(&[]);
    // Refused is right.
    let refused = Seen::Wrote { sent: at(15), token: token(1), accepted: false };
    two().wrote(2, 13, 14, 2).see(1, 16, refused).shows(&[]);
}

/// One holder, one that was queued by 5 and one that was asked for at 6; the later one is first.
fn passing(waiter: Mode, passer: Mode) -> Script {
    Script::default()
        .held(1, 0, 1, 10, 1)
        .call(2, 2, waiter)
        .queued(2, 5)
        .call(3, 6, passer)
        .queued(3, 7)
        .grant(3, 11, 2, 500)
        .release(3, 20)
        .grant(2, 21, 3, 500)
        .release(2, 30)
}

#[test]
fn a_later_contender_passes_an_earlier_one() {
    let script = passing(Mode::Exclusive, Mode::Exclusive);
    assert_eq!(script.kinds(true), [ViolationKind::Passed]);
    assert_eq!(script.kinds(false), []);
    assert_eq!(passing(Mode::Exclusive, Mode::Shared).kinds(true), [ViolationKind::Passed]);
    assert_eq!(passing(Mode::Shared, Mode::Exclusive).kinds(true), [ViolationKind::Passed]);
    // Two readers are admitted in one batch and learn of it in any order.
    assert_eq!(passing(Mode::Shared, Mode::Shared).kinds(true), []);
}

#[test]
fn permits_pass_only_where_they_exclude_each_other() {
    let script = |waiter, passer| {
        Script::default()
            .call(2, 2, permits(waiter, 3))
            .queued(2, 5)
            .call(3, 6, permits(passer, 3))
            .grant(3, 11, 2, 500)
            .release(3, 20)
            .grant(2, 21, 3, 500)
    };
    script(3, 1).shows(&[ViolationKind::Passed]);
    script(1, 1).shows(&[]);
}

#[test]
fn one_that_queued_anew_counts_from_then() {
    Script::default()
        .call(2, 2, Mode::Exclusive)
        .queued(2, 5)
        .call(3, 6, Mode::Exclusive)
        .queued(3, 7)
        .queued(2, 8)
        .grant(3, 11, 2, 500)
        .release(3, 20)
        .grant(2, 21, 3, 500)
        .shows(&[]);
}

#[test]
fn one_that_never_ended() {
    Script::default().call(1, 0, Mode::Exclusive).queued(1, 1).shows(&[ViolationKind::Hung]);
    Script::default().call(1, 0, Mode::Exclusive).see(1, 5, Seen::Killed).shows(&[]);
    Script::default().call(1, 0, Mode::Exclusive).see(1, 5, Seen::Failed).shows(&[]);
}

#[test]
fn one_that_came_back_to_life() {
    Script::default()
        .call(1, 0, Mode::Exclusive)
        .grant(1, 1, 1, 10)
        .see(1, 10, Seen::Lost)
        .see(1, 11, Seen::Renewed { valid_until: at(20) })
        .shows(&[ViolationKind::Resurrected]);
}

#[test]
fn names_do_not_meet() {
    let other = LockName::new("other").expect("good");
    Script::default()
        .held(1, 0, 1, 10, 1)
        .see(2, 0, Seen::Called { name: other, mode: Mode::Exclusive })
        .grant(2, 5, 1, 500)
        .release(2, 8)
        .shows(&[]);
}

#[test]
fn senseless_events_are_the_harness_s_fault() {
    let unasked = Script::default().grant(1, 1, 1, 10);
    assert!(check(&unasked.0, Rules::default()).is_err());
    let twice = Script::default().call(1, 0, Mode::Shared).call(1, 1, Mode::Shared);
    assert!(check(&twice.0, Rules::default()).is_err());
    let again = Script::default().held(1, 0, 1, 10, 1).grant(1, 11, 2, 20);
    let error = check(&again.0, Rules::default()).expect_err("granted twice").to_string();
    assert!(error.contains("attempt 1"), "{error}");
}

/// Many contenders queue for one name and hold it one after the other.
fn long_history(attempts: u64) -> Script {
    let mut script = Script::default();
    for attempt in 0..attempts {
        let call = attempt * 10;
        let from = (attempt + 50) * 10;
        script = script
            .call(attempt, call, Mode::Exclusive)
            .queued(attempt, call + 1)
            .grant(attempt, from, attempt + 1, from + 100)
            .release(attempt, from + 9);
    }
    script
}

#[test]
fn a_hundred_thousand_operations_are_searched_for_one_fault() {
    let attempts = 100_000;
    let mut script = long_history(attempts);
    let started = std::time::Instant::now();
    script.shows(&[]);
    println!("{attempts} attempts, {} events: {:?}", script.0.len(), started.elapsed());
    let last = script.0.len() - 2;
    assert!(matches!(script.0[last].seen, Seen::Granted { .. }));
    script.0[last].at = script.0[last].at.before(std::time::Duration::from_millis(5));
    let found = check(&script.0, Rules { fair: true, ..Rules::default() }).expect("well formed");
    let witnesses: Vec<u64> = found[0].witnesses.iter().map(|one| one.attempt).collect();
    assert_eq!((found[0].kind, witnesses), (ViolationKind::Overlap, vec![99_998, 99_999]));
    assert!(found[0].to_string().contains("attempt 99998"), "{}", found[0]);
}
