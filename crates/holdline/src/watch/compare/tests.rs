//! Tables of what two looks at one name show.

use holdline_core::{FreezeView, Metadata, Mode};

use super::*;

const S: Duration = Duration::from_secs(1);

fn name() -> LockName {
    LockName::new("n").expect("a good name")
}

fn lease_id(byte: u8) -> ShortLeaseId {
    holdline_core::LeaseId::from_bytes([byte; 16]).short()
}

/// A holder with this lease id, token and rest of its lease.
fn holder(id: u8, token: u64, left: Option<Duration>) -> HolderView {
    HolderView {
        summary: HolderSummary {
            lease_id: lease_id(id),
            token: Some(FencingToken::new(token).expect("in range")),
            mode: Mode::Exclusive,
            held_for: Some(100 * S),
            left,
            no_expiry: false,
            metadata: Metadata::default(),
        },
        state: GrantState::Held,
        detached: false,
        live: left.is_none(),
        pids: Vec::new(),
    }
}

fn in_state(mut holder: HolderView, state: GrantState) -> HolderView {
    holder.state = state;
    holder
}

fn waiter(id: u8) -> WaiterView {
    WaiterView {
        lease_id: lease_id(id),
        mode: Mode::Exclusive,
        waited: Some(100 * S),
        metadata: Metadata::default(),
    }
}

fn snapshot(holders: Vec<HolderView>, queue: Vec<WaiterView>) -> Snapshot {
    Snapshot {
        holder_count: holders.len(),
        queue_length: queue.len(),
        holders,
        queue,
        ..Snapshot::free(name())
    }
}

fn at(seconds: u64) -> Moment {
    Moment::ORIGIN.after(Duration::from_secs(seconds))
}

/// The rounds at second 10 and at second 12; each look takes no time.
fn changes_of(before: Option<Snapshot>, now: Option<Snapshot>, known: bool) -> Vec<Change> {
    let look = |snapshot: Option<Snapshot>, at| {
        let seen = snapshot.map(|snapshot| WatchedName::new(snapshot, at, at));
        seen.map(|seen| (name(), seen)).into_iter().collect::<Names>()
    };
    let mut first = look(before, at(10));
    for seen in first.values_mut() {
        seen.slack = slack_of(None, seen);
    }
    let precision = Precision { step: Duration::ZERO, asked_before: at(10), answered: at(12) };
    let mut changes = Vec::new();
    let mut second = look(now, at(12));
    compare(&first, &mut second, &Coverage::All, &|_| known, &precision, &mut changes);
    changes
}

fn words(before: Option<Snapshot>, now: Option<Snapshot>) -> Vec<&'static str> {
    changes_of(before, now, true).iter().map(|change| change.event.word()).collect()
}

#[test]
fn holders_and_waiters_come_and_go() {
    let held = |id, token| holder(id, token, Some(20 * S));
    let later = |id, token| holder(id, token, Some(18 * S));
    let free: fn() -> Option<Snapshot> = || None;
    let of = |holders, queue| Some(snapshot(holders, queue));
    for (before, now, expected) in [
        (free(), of(vec![held(1, 1)], vec![]), &["granted"][..]),
        (of(vec![held(1, 1)], vec![]), free(), &["ended"]),
        (of(vec![held(1, 1)], vec![]), of(vec![held(2, 2)], vec![]), &["ended", "granted"]),
        (of(vec![held(1, 1)], vec![]), of(vec![held(1, 2)], vec![]), &["ended", "granted"]),
        (of(vec![held(1, 1)], vec![]), of(vec![later(1, 1)], vec![waiter(2)]), &["queued"]),
        (of(vec![held(1, 1)], vec![waiter(2)]), of(vec![later(1, 1)], vec![]), &["left_queue"]),
        (of(vec![held(1, 1)], vec![waiter(2)]), free(), &["ended", "left_queue"]),
        (
            of(vec![held(1, 1)], vec![waiter(2)]),
            of(vec![held(2, 2)], vec![]),
            &["ended", "granted"],
        ),
        (
            of(vec![held(1, 1)], vec![]),
            of(vec![in_state(holder(1, 1, Some(18 * S)), GrantState::Revoked("r".into()))], vec![]),
            &["revoked"],
        ),
    ] {
        let text = format!("{before:?} {now:?}");
        assert_eq!(words(before, now), expected, "{text}");
    }
}

#[test]
fn a_waiter_that_is_granted_has_not_left_the_queue() {
    let before = snapshot(vec![holder(1, 1, Some(20 * S))], vec![waiter(2)]);
    let now = snapshot(vec![holder(2, 2, Some(20 * S))], vec![]);
    let changes = changes_of(Some(before), Some(now), true);
    let LockEvent::Granted { waited, .. } = &changes[1].event else { panic!("{changes:?}") };
    assert_eq!(*waited, Some(100 * S));
}

#[test]
fn an_end_is_early_only_if_the_lease_was_certain_to_last() {
    for (left, expected) in [
        (Some(20 * S), EndedWhen::BeforeLeaseEnd),
        (Some(Duration::from_millis(2_100)), EndedWhen::BeforeLeaseEnd),
        // With clocks that differ by 1 % it may have ended before this round.
        (Some(Duration::from_millis(2_010)), EndedWhen::PerhapsExpired),
        (Some(S), EndedWhen::PerhapsExpired),
        (None, EndedWhen::NoLease),
    ] {
        let changes = changes_of(Some(snapshot(vec![holder(1, 1, left)], vec![])), None, true);
        let LockEvent::Ended { when, slack, .. } = &changes[0].event else { panic!("{changes:?}") };
        assert_eq!((*when, *slack), (expected, left));
    }
}

#[test]
fn a_lease_is_renewed_only_if_more_is_left_than_could_be() {
    let seen = |left| Some(snapshot(vec![holder(1, 1, Some(left))], vec![]));
    for (left, expected) in [
        (18 * S, &[][..]),
        // A clock that is 1 % slower.
        (Duration::from_millis(18_020), &[]),
        (Duration::from_millis(18_100), &["renewed"]),
        (30 * S, &["renewed"]),
        (S, &[]),
    ] {
        assert_eq!(words(seen(20 * S), seen(left)), expected, "{left:?}");
    }
    let changes = changes_of(seen(20 * S), seen(30 * S), true);
    let LockEvent::Renewed { slack, .. } = changes[0].event else { panic!("{changes:?}") };
    assert_eq!(slack, 20 * S);
}

#[test]
fn a_name_that_the_round_before_did_not_cover_is_found() {
    let now = snapshot(vec![holder(1, 1, Some(20 * S))], vec![waiter(2)]);
    let changes = changes_of(None, Some(now), false);
    assert_eq!(changes.len(), 2);
    assert!(changes.iter().all(|change| change.found), "{changes:?}");
}

#[test]
fn what_moves_up_in_a_list_that_was_cut_off_is_found() {
    let mut before = snapshot(vec![], vec![waiter(1), waiter(2)]);
    before.queue_length = 4;
    let (young, old) = (WaiterView { waited: Some(S), ..waiter(4) }, waiter(3));
    let now = snapshot(vec![], vec![waiter(2), old, young]);
    let changes = changes_of(Some(before), Some(now), true);
    let seen: Vec<_> = changes.iter().map(|c| (c.event.word(), c.found)).collect();
    assert_eq!(seen, [("left_queue", false), ("queued", true), ("queued", false)]);
}

#[test]
fn names_beyond_the_coverage_do_not_end() {
    let look = Snapshot { holder_count: 1, ..snapshot(vec![holder(1, 1, Some(20 * S))], vec![]) };
    let before = Names::from([(name(), WatchedName::new(look, at(10), at(10)))]);
    let precision = Precision { step: Duration::ZERO, asked_before: at(10), answered: at(12) };
    let coverage = Coverage::UpTo(LockName::new("m").expect("a good name"));
    let mut changes = Vec::new();
    compare(&before, &mut Names::new(), &coverage, &|_| true, &precision, &mut changes);
    assert_eq!(changes, []);
}

#[test]
fn freezes_begin_change_and_end() {
    let frozen = |active, reason: &str, left| {
        let freeze = FreezeView { reason: reason.to_owned(), left, active, token: None };
        Some(Snapshot { freeze: Some(freeze), ..snapshot(vec![], vec![]) })
    };
    for (before, now, expected) in [
        (None, frozen(true, "a", 60 * S), &["frozen"][..]),
        (frozen(true, "a", 60 * S), frozen(true, "a", 58 * S), &[]),
        (frozen(false, "a", 60 * S), frozen(true, "a", 58 * S), &["frozen"]),
        (frozen(true, "a", 60 * S), frozen(true, "b", 58 * S), &["frozen"]),
        (frozen(true, "a", 60 * S), frozen(true, "a", 90 * S), &["frozen"]),
        (frozen(true, "a", 60 * S), None, &["unfrozen"]),
    ] {
        assert_eq!(words(before, now), expected);
    }
}
