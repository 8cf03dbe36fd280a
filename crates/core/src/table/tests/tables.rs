//! Small scripts, each about one rule.

use std::time::Duration;

use super::super::state::Remembered;
use super::super::{Command, MAX_REMEMBERED, Reply};
use super::world::{LEASE, World, ask, id, name, renewal};
use crate::contract::{
    AcquireReply, HAND_OVER_BATCH, Hint, Purpose, QUEUE_SILENCE, ReleaseReply, RenewReply,
};
use crate::operation::{Operation, OperationReply};
use crate::{
    ClientId, ErrorKind, FencingToken, Hold, LeaseId, LockError, LostReason, Mode, Moment,
};

const S: Duration = Duration::from_secs(1);
const X: Mode = Mode::Exclusive;
const R: Mode = Mode::Shared;

fn permits(count: u32, of: u32) -> Mode {
    Mode::permits(count, of).expect("good permits")
}

fn refused(world: &mut World, command: &Command) -> LockError {
    match world.step(command).0 {
        Reply::Acquire(Err(error)) | Reply::Renew(Err(error)) | Reply::Operate(Err(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

fn position(reply: &AcquireReply) -> usize {
    match reply {
        AcquireReply::Queued { position: Some(position), .. } => *position,
        other => panic!("not queued: {other:?}"),
    }
}

#[test]
fn a_release_hands_over_in_order_and_notifies_only_the_next() {
    let mut world = World::new();
    let first = world.grant(0x10, X);
    assert_eq!(position(&world.acquire(0x20, X, true)), 0);
    assert_eq!(position(&world.acquire(0x30, X, true)), 1);
    let (reply, wake_ups) = world.release(0x10, false);
    assert!(matches!(reply, Reply::Release(ReleaseReply::Released { .. })));
    assert_eq!(wake_ups.len(), 1);
    let second = world.grant(0x20, X);
    let hint = Hint::Granted { token: second };
    assert_eq!((wake_ups[0].lease_id, wake_ups[0].hint), (id(0x20), hint));
    assert!(second > first);
    assert_eq!(position(&world.acquire(0x30, X, true)), 0);
}

#[test]
fn a_try_on_a_busy_name_leaves_nothing() {
    let mut world = World::new();
    world.grant(0x10, X);
    let before = world.state.clone();
    match world.acquire(0x20, X, false) {
        AcquireReply::Busy { holder, at_most, .. } => {
            assert_eq!(holder.expect("a holder").lease_id, id(0x10).short());
            assert_eq!(at_most, Some(10 * S));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.state, before);
}

#[test]
fn a_hand_off_begins_with_a_short_lease_and_a_renewal_gives_the_whole() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.release(0x10, false);
    let token = world.state.head.holders()[0].token();
    world.pass(S / 2);
    assert_eq!(world.renew(0x20, Purpose::Wait), RenewReply::Held { left: Some(S / 2) });
    match world.acquire(0x20, X, true) {
        AcquireReply::Granted { token: again, left, .. } => {
            assert_eq!((again, left), (token, Some(S / 2)));
        }
        other => panic!("{other:?}"),
    }
    let renewed = world.renew(0x20, Purpose::Keep(LEASE));
    assert_eq!(renewed, RenewReply::Renewed { left: Some(10 * S) });
}

#[test]
fn a_hand_off_that_nobody_extends_goes_to_the_next() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.acquire(0x30, X, true);
    world.release(0x10, false);
    world.pass(S);
    assert_eq!(world.renew(0x20, Purpose::Wait), RenewReply::Unknown);
    assert!(matches!(world.renew(0x30, Purpose::Wait), RenewReply::Held { .. }));
}

#[test]
fn silent_waiters_are_removed_and_others_stay() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.acquire(0x30, X, true);
    for _ in 0..4 {
        world.pass(S);
        world.renew(0x30, Purpose::Wait);
    }
    assert!(matches!(
        world.renew(0x30, Purpose::Wait),
        RenewReply::Queued { position: Some(0), .. }
    ));
    assert_eq!(world.renew(0x20, Purpose::Wait), RenewReply::Unknown);
}

#[test]
fn a_waiting_writer_stops_later_readers() {
    let mut world = World::new();
    world.grant(0x10, R);
    world.grant(0x20, R);
    world.acquire(0x30, X, true);
    assert!(matches!(world.acquire(0x40, R, false), AcquireReply::Busy { .. }));
    assert_eq!(position(&world.acquire(0x50, R, true)), 1);
    world.release(0x10, false);
    let (_, wake_ups) = world.release(0x20, false);
    assert_eq!(wake_ups[0].lease_id, id(0x30));
    world.grant(0x30, X);
    let (_, wake_ups) = world.release(0x30, false);
    assert_eq!(wake_ups[0].lease_id, id(0x50));
}

#[test]
fn a_writer_that_leaves_the_queue_lets_the_readers_behind_it_in() {
    let mut world = World::new();
    world.grant(0x10, R);
    world.acquire(0x20, X, true);
    world.acquire(0x30, R, true);
    let (reply, wake_ups) = world.release(0x20, false);
    assert!(matches!(reply, Reply::Release(ReleaseReply::Withdrawn)));
    assert_eq!(wake_ups[0].lease_id, id(0x30));
}

#[test]
fn readers_are_admitted_in_batches() {
    let mut world = World::new();
    world.profile.max_waiters = 1_000;
    world.grant(0x01, X);
    for reader in 0..70 {
        world.acquire(0x10 + reader, R, true);
    }
    let (_, wake_ups) = world.release(0x01, false);
    assert_eq!(wake_ups.len(), HAND_OVER_BATCH);
    world.grant(0x10, R);
    assert_eq!(world.state.head.holders().len(), 70);
}

/// Permits had no batch: the command that ended a freeze handed over to the whole queue. And a
/// release handed over twice, once before and once after.
#[test]
fn one_command_hands_over_to_one_batch_of_any_mode() {
    for mode in [R, permits(1, 1_000)] {
        let mut world = World::new();
        world.profile.max_waiters = 1_000;
        let reason = "r".to_string();
        world.operate(Operation::Freeze { name: name(), duration: 3 * S, reason });
        for contender in 0..200 {
            world.acquire(contender, mode, true);
        }
        world.pass(3 * S);
        let mut handed = Vec::new();
        for _ in 0..4 {
            // Settles, and hands over once more although it has released nothing.
            handed.push(world.release(0xff, false).1.len());
        }
        assert_eq!(handed, [64, 64, 64, 8], "{mode}");
        assert_eq!(world.state.head.holders().len(), 200);
        world.pass(S);
        assert_eq!(world.renew(0, Purpose::Wait), RenewReply::Unknown);
        assert!(world.state.head.is_idle());
    }
}

#[test]
fn asking_again_is_a_heartbeat() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    for _ in 0..3 {
        world.pass(2 * S);
        let again = crate::AcquireRequest { known: true, ..ask(0x20, X, true) };
        let reply = world.step(&Command::Acquire(again)).0;
        assert!(matches!(reply, Reply::Acquire(Ok(AcquireReply::Queued { .. }))), "{reply:?}");
    }
}

#[test]
fn asking_again_reports_the_same_position() {
    let mut world = World::new();
    world.grant(0x10, X);
    assert!(world.state.queue.is_empty());
    for (at, number) in [0x20, 0x30, 0x40].into_iter().enumerate() {
        assert_eq!(position(&world.acquire(number, X, true)), at);
    }
    assert!(!world.state.queue.is_empty());
    for (at, number) in [0x20, 0x30, 0x40].into_iter().enumerate() {
        assert_eq!(position(&world.acquire(number, X, true)), at);
    }
}

#[test]
fn permits_are_counted_and_a_large_request_at_the_head_blocks() {
    let mut world = World::new();
    world.grant(0x10, permits(2, 3));
    assert!(matches!(world.acquire(0x20, permits(2, 3), true), AcquireReply::Queued { .. }));
    assert!(matches!(world.acquire(0x30, permits(1, 3), false), AcquireReply::Busy { .. }));
    let error = refused(&mut world, &Command::Acquire(ask(0x40, permits(1, 4), true)));
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "mode", .. }), "{error}");
    let error = refused(&mut world, &Command::Acquire(ask(0x40, X, true)));
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "mode", .. }), "{error}");
    world.release(0x10, false);
    world.grant(0x20, permits(2, 3));
    world.grant(0x30, permits(1, 3));
    world.release(0x20, false);
    world.release(0x30, false);
    world.grant(0x50, X);
}

#[test]
fn asking_about_a_hand_off_begins_the_whole_lease() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.release(0x10, false);
    let again = Command::Acquire(crate::AcquireRequest { known: true, ..ask(0x20, X, true) });
    let left = |world: &mut World| match world.step(&again).0 {
        Reply::Acquire(Ok(AcquireReply::Granted { token, left: Some(left), .. })) => (token, left),
        other => panic!("{other:?}"),
    };
    let (token, whole) = left(&mut world);
    assert_eq!(whole, 10 * S);
    world.pass(9 * S);
    assert_eq!(left(&mut world), (token, 10 * S));
    // What lasts longer stays as it is, and so does what an operator has revoked.
    world.renew(0x20, Purpose::Keep(Hold::Leased(60 * S)));
    assert_eq!(left(&mut world), (token, 60 * S));
    world.operate(Operation::Revoke { name: name(), token, reason: "why".into(), now: false });
    world.pass(55 * S);
    assert_eq!(left(&mut world), (token, 5 * S));
}

#[test]
fn asking_again_changes_nothing_and_other_terms_are_refused() {
    let mut world = World::new();
    let token = world.grant(0x10, X);
    world.pass(3 * S);
    match world.acquire(0x10, X, false) {
        AcquireReply::Granted { token: again, left, .. } => {
            assert_eq!((again, left), (token, Some(7 * S)));
        }
        other => panic!("{other:?}"),
    }
    let error = refused(&mut world, &Command::Acquire(ask(0x10, R, true)));
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "lease_id", .. }));
    let mut longer = ask(0x10, X, true);
    longer.hold = Hold::Leased(11 * S);
    let error = refused(&mut world, &Command::Acquire(longer));
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "lease_id", .. }));
}

#[test]
fn an_id_that_is_no_longer_known_is_reported_and_not_queued_anew() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.release(0x10, false);
    world.pass(S);
    let mut repeated = ask(0x20, X, true);
    repeated.known = true;
    let reply = world.step(&Command::Acquire(repeated)).0;
    assert!(matches!(reply, Reply::Acquire(Ok(AcquireReply::Unknown))), "{reply:?}");
    assert!(world.state.head.is_idle());
    world.grant(0x20, X);
}

#[test]
fn a_given_up_id_never_comes_back_while_it_could_matter() {
    let mut world = World::new();
    let (reply, _) = world.release(0x10, true);
    assert!(matches!(reply, Reply::Release(ReleaseReply::NotHeld { revoked: None })));
    let error = refused(&mut world, &Command::Acquire(ask(0x10, X, true)));
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
    world.pass(30 * S);
    world.grant(0x10, X);
    world.release(0x10, true);
    assert!(!world.state.head.is_idle());
    world.pass(30 * S);
    world.renew(0x10, Purpose::Wait);
    assert!(world.state.head.is_idle());
}

#[test]
fn renewal_prolongs_never_shortens_and_never_resurrects() {
    let mut world = World::new();
    world.grant(0x10, X);
    let keep = |seconds| Purpose::Keep(Hold::Leased(Duration::from_secs(seconds)));
    assert_eq!(world.renew(0x10, keep(60)), RenewReply::Renewed { left: Some(60 * S) });
    assert_eq!(world.renew(0x10, keep(5)), RenewReply::Renewed { left: Some(60 * S) });
    world.pass(60 * S);
    assert_eq!(world.renew(0x10, keep(60)), RenewReply::Unknown);
    assert!(world.state.head.is_idle());
    assert_eq!(world.renew(0x20, keep(60)), RenewReply::Unknown);
}

#[test]
fn holds_change_between_leased_and_detached_only() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.renew(0x10, Purpose::Keep(Hold::Detached(10 * S)));
    assert_eq!(world.state.head.holders()[0].hold(), Hold::Detached(10 * S));
    let mut attach = renewal(0x10, Purpose::Keep(Hold::Leased(10 * S)));
    attach.client = ClientId::from_u64(9);
    world.step(&Command::Renew(attach));
    assert_eq!(world.state.head.holders()[0].client(), ClientId::from_u64(9));
    let live = Command::Renew(renewal(0x10, Purpose::Keep(Hold::Live)));
    let error = refused(&mut world, &live);
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "hold", .. }));
}

#[test]
fn a_live_grant_is_not_ended_by_time() {
    let mut world = World::new();
    let mut request = ask(0x10, X, true);
    request.hold = Hold::Live;
    let reply = world.step(&Command::Acquire(request)).0;
    assert!(matches!(reply, Reply::Acquire(Ok(AcquireReply::Granted { left: None, .. }))));
    world.pass(Duration::from_secs(1_000_000));
    assert_eq!(world.renew(0x10, Purpose::Keep(Hold::Live)), RenewReply::Renewed { left: None });
    match world.acquire(0x20, X, false) {
        AcquireReply::Busy { at_most, .. } => assert_eq!(at_most, None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_polite_revoke_notifies_and_refuses_renewals_until_the_lease_ends() {
    let mut world = World::new();
    let token = world.grant(0x10, X);
    let revoke = |token, now| Operation::Revoke { name: name(), token, reason: "why".into(), now };
    let wrong = FencingToken::new(token.get() + 1).expect("in range");
    let reply = world.operate(revoke(wrong, true));
    assert!(matches!(reply, Reply::Operate(Ok(OperationReply::NothingThere))));
    world.pass(4 * S);
    let reply = world.operate(revoke(token, false));
    let Reply::Operate(Ok(OperationReply::Notified { left })) = reply else {
        panic!("not notified: {reply:?}");
    };
    assert_eq!(left, Some(6 * S));
    let revoked = |left| RenewReply::Revoked { reason: "why".into(), left: Some(left) };
    assert_eq!(world.renew(0x10, Purpose::Keep(LEASE)), revoked(6 * S));
    world.pass(6 * S);
    assert_eq!(world.renew(0x10, Purpose::Keep(LEASE)), revoked(Duration::ZERO));
    let error = refused(&mut world, &Command::Acquire(ask(0x10, X, true)));
    let reason = LostReason::Revoked("why".into());
    assert_eq!(error.kind(), &ErrorKind::Lost { reason });
    world.grant(0x20, X);
}

#[test]
fn a_revoked_grant_that_was_released_is_remembered_as_revoked() {
    let mut world = World::new();
    let token = world.grant(0x10, X);
    let reason = "why".to_string();
    world.operate(Operation::Revoke { name: name(), token, reason, now: false });
    world.release(0x10, false);
    let revoked = RenewReply::Revoked { reason: "why".into(), left: Some(Duration::ZERO) };
    assert_eq!(world.renew(0x10, Purpose::Keep(LEASE)), revoked);
    world.pass(30 * S);
    assert_eq!(world.renew(0x10, Purpose::Keep(LEASE)), RenewReply::Unknown);
    assert!(world.state.head.is_idle());
}

#[test]
fn a_removed_waiter_leaves_the_queue_and_receives_the_reason() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.acquire(0x30, X, true);
    let remove = |number, reason: &str| Operation::RemoveWaiter {
        name: name(),
        waiter: ask(number, X, true).lease_id.short(),
        reason: reason.to_owned(),
    };
    // A holder is no waiter, and is not affected.
    for number in [0x10, 0x40] {
        let reply = world.operate(remove(number, "why"));
        assert!(matches!(reply, Reply::Operate(Ok(OperationReply::NothingThere))), "{reply:?}");
    }
    let reply = world.operate(remove(0x20, "why"));
    assert!(matches!(reply, Reply::Operate(Ok(OperationReply::Done))), "{reply:?}");
    let reason = "removed from the queue: why".to_owned();
    let revoked = RenewReply::Revoked { reason: reason.clone(), left: Some(Duration::ZERO) };
    assert_eq!(world.renew(0x20, Purpose::Wait), revoked);
    let error = refused(&mut world, &Command::Acquire(ask(0x20, X, true)));
    assert_eq!(error.kind(), &ErrorKind::Lost { reason: LostReason::Revoked(reason) });
    match world.renew(0x30, Purpose::Wait) {
        RenewReply::Queued { position, .. } => assert_eq!(position, Some(0)),
        other => panic!("{other:?}"),
    }
    let long = "r".repeat(crate::operation::MAX_REMOVAL_REASON_BYTES + 1);
    let error = refused(&mut world, &Command::Operate(remove(0x30, &long)));
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "reason", .. }), "{error}");
    world.profile.remove_waiter = false;
    let error = refused(&mut world, &Command::Operate(remove(0x30, "why")));
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
}

/// No command came meanwhile: the revoke is not remembered for longer because of that.
#[test]
fn a_revoked_grant_that_ran_out_unseen_is_remembered_from_its_end_on() {
    let revoked = RenewReply::Revoked { reason: "why".into(), left: Some(Duration::ZERO) };
    for (unseen, expected) in [(39, revoked), (40, RenewReply::Unknown)] {
        let mut world = World::new();
        let token = world.grant(0x10, X);
        let reason = "why".to_string();
        world.operate(Operation::Revoke { name: name(), token, reason, now: false });
        world.pass(unseen * S);
        assert_eq!(world.renew(0x10, Purpose::Keep(LEASE)), expected, "after {unseen} s");
        assert_eq!(world.state.head.is_idle(), expected == RenewReply::Unknown);
    }
}

/// A watch begins with the state that its lease id had before the watch was opened.
#[test]
fn a_watch_begins_with_earlier_events() {
    let mut world = World::new();
    let first = world.grant(0x10, X);
    world.acquire(0x20, X, true);
    let hint = Some(Hint::Granted { token: first });
    assert_eq!((world.pending(0x10), world.pending(0x20)), (hint, None));
    let revoke = |token, now| Operation::Revoke { name: name(), token, reason: "r".into(), now };
    world.operate(revoke(first, false));
    assert_eq!((world.pending(0x10), world.pending(0x20)), (Some(Hint::CheckLease), None));
    world.operate(revoke(first, true));
    let token = world.state.head.holders()[0].token();
    let both = (Some(Hint::CheckLease), Some(Hint::Granted { token }));
    assert_eq!((world.pending(0x10), world.pending(0x20)), both);
    world.pass(S);
    assert_eq!(world.pending(0x20), Some(Hint::CheckLease), "it was not extended");
}

#[test]
fn a_profile_without_polite_revoke_has_the_forced_one() {
    let mut world = World::new();
    world.profile.polite_revoke = false;
    let token = world.grant(0x10, X);
    let revoke = |now| Operation::Revoke { name: name(), token, reason: "r".into(), now };
    let revoked = refused(&mut world, &Command::Operate(revoke(false)));
    assert!(matches!(revoked.kind(), ErrorKind::Unsupported { .. }), "{revoked}");
    let done = world.operate(revoke(true));
    assert!(matches!(done, Reply::Operate(Ok(OperationReply::Done))), "{done:?}");
}

#[test]
fn a_freeze_that_is_prolonged_keeps_its_token() {
    let mut world = World::new();
    let freeze = |seconds| Operation::Freeze {
        name: name(),
        duration: Duration::from_secs(seconds),
        reason: String::new(),
    };
    world.operate(freeze(5));
    let token = world.state.head.freeze.as_ref().and_then(|freeze| freeze.token);
    world.operate(freeze(9));
    let again = world.state.head.freeze.as_ref().and_then(|freeze| freeze.token);
    assert!(token.is_some() && token == again, "{token:?} became {again:?}");
}

#[test]
fn a_hand_off_is_revoked_as_any_grant_and_the_head_looks_at_its_end() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.acquire(0x30, X, true);
    world.release(0x10, false);
    world.pass(S - S / 4);
    match world.renew(0x30, Purpose::Wait) {
        RenewReply::Queued { next_look, .. } => assert_eq!(next_look, S / 4),
        other => panic!("{other:?}"),
    }
    let token = world.state.head.holders()[0].token();
    let revoke = Operation::Revoke { name: name(), token, reason: "r".into(), now: false };
    let reply = world.operate(revoke);
    let notified = OperationReply::Notified { left: Some(S / 4) };
    assert!(matches!(reply, Reply::Operate(Ok(reply)) if reply == notified));
    let renewed = world.renew(0x20, Purpose::Keep(LEASE));
    assert!(matches!(renewed, RenewReply::Revoked { .. }), "{renewed:?}");
    world.pass(S / 4);
    assert!(matches!(world.renew(0x30, Purpose::Wait), RenewReply::Held { .. }));
}

#[test]
fn a_busy_name_is_free_when_the_last_of_its_holders_ends() {
    let mut world = World::new();
    world.grant(0x10, R);
    world.pass(4 * S);
    world.grant(0x20, R);
    match world.acquire(0x30, X, false) {
        AcquireReply::Busy { at_most, .. } => assert_eq!(at_most, Some(10 * S)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_of_a_client_leaves_detached_grants_and_only_live_ones_end_with_their_anchor() {
    let mut world = World::new();
    world.grant(0x10, X);
    let detached = crate::AcquireRequest { hold: Hold::Detached(9 * S), ..ask(0x20, X, true) };
    world.step(&Command::Acquire(detached));
    let end = |world: &mut World, client: Option<u64>, live: u8| {
        let (state, counter) = (&mut world.state, &mut world.counter);
        let mut store = super::super::MemoryStore { queue: &mut state.queue, counter };
        let (head, profile) = (&mut state.head, &world.profile);
        let mut table = super::super::Table::new(head, &mut store, profile, world.now);
        let Ok(()) = match client {
            Some(client) => table.end_client(ClientId::from_u64(client)),
            None => table.end_live_grant(id(live)),
        };
        state.head.holders().len()
    };
    assert_eq!(end(&mut world, None, 0x10), 1);
    assert_eq!(world.state.head.holders()[0].lease_id(), id(0x10), "a lease has no anchor");
    world.release(0x10, false);
    assert_eq!(world.state.head.holders()[0].lease_id(), id(0x20));
    assert_eq!(end(&mut world, Some(2), 0), 1, "its detached lease may be somebody else's by now");
    world.pass(S);
    assert_eq!(end(&mut world, Some(2), 0), 0, "nobody has extended it");
    let live = crate::AcquireRequest { hold: Hold::Live, ..ask(0x30, X, true) };
    world.step(&Command::Acquire(live));
    assert_eq!(end(&mut world, None, 0x30), 0);
}

#[test]
fn kinds_do_not_mix_in_the_queue_of_a_frozen_name() {
    let mut world = World::new();
    let reason = String::new();
    world.operate(Operation::Freeze { name: name(), duration: 9 * S, reason });
    world.acquire(0x10, X, true);
    let error = refused(&mut world, &Command::Acquire(ask(0x20, permits(1, 2), true)));
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "mode", .. }), "{error}");
    world.acquire(0x30, R, true);
}

#[test]
fn a_head_says_who_queues_and_when_time_alone_changes_it() {
    let mut world = World::new();
    assert!(!world.state.head.was_queued_for());
    assert_eq!(world.state.head.next_change(), Moment::NEVER);
    world.grant(0x10, X);
    let end = world.now.after(10 * S);
    let head = &world.state.head;
    assert_eq!((head.next_change(), head.over_at()), (end, end));
    assert_eq!((head.queued(), head.was_queued_for()), (0, false));
    world.acquire(0x20, X, true);
    let head = &world.state.head;
    assert_eq!(
        (head.next_change(), head.over_at()),
        (world.now.after(QUEUE_SILENCE), Moment::NEVER)
    );
    assert_eq!((head.queued(), head.was_queued_for()), (1, true));
}

#[test]
fn a_reboot_does_not_extend_the_lease_of_a_hand_off() {
    let mut world = World::new();
    world.grant(0x10, X);
    let detached = crate::AcquireRequest { hold: Hold::Detached(9 * S), ..ask(0x20, X, true) };
    world.step(&Command::Acquire(detached));
    world.release(0x10, false);
    world.state.head.restart(Moment::ORIGIN);
    assert_eq!(world.state.head.holders()[0].left(Moment::ORIGIN), Some(S));
}

#[test]
fn marks_are_prolonged_and_the_oldest_go_when_there_are_too_many() {
    let mut marks = Vec::new();
    let mark = |number: u128, seconds| Remembered {
        lease_id: LeaseId::from_bytes(number.to_be_bytes()),
        until: Moment::ORIGIN.after(S * seconds),
        reason: String::new(),
    };
    for number in 0..=MAX_REMEMBERED as u128 {
        Remembered::add(&mut marks, mark(number, if number == 7 { 1 } else { 5 }));
    }
    assert_eq!(marks.len(), MAX_REMEMBERED);
    assert!(!marks.contains(&mark(7, 1)));
    Remembered::add(&mut marks, mark(9, 8));
    Remembered::add(&mut marks, mark(10, 2));
    assert!(marks.contains(&mark(9, 8)) && marks.contains(&mark(10, 5)));
}

#[test]
fn a_forced_revoke_hands_over_at_once() {
    let mut world = World::new();
    let token = world.grant(0x10, X);
    world.acquire(0x20, X, true);
    let reason = "now".to_string();
    let command = Command::Operate(Operation::Revoke { name: name(), token, reason, now: true });
    let (reply, wake_ups) = world.step(&command);
    assert!(matches!(reply, Reply::Operate(Ok(OperationReply::Done))));
    let hints: Vec<_> = wake_ups.iter().map(|wake| (wake.lease_id, wake.hint)).collect();
    assert_eq!(
        hints,
        [
            (id(0x10), Hint::CheckLease),
            (id(0x20), Hint::Granted { token: world.state.head.holders()[0].token() })
        ]
    );
    let (reply, _) = world.release(0x10, false);
    match reply {
        Reply::Release(ReleaseReply::NotHeld { revoked }) => {
            assert_eq!(revoked.as_deref(), Some("now"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_freeze_is_next_before_the_queue_and_ends_by_itself() {
    let mut world = World::new();
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    let freeze = |s| Operation::Freeze {
        name: name(),
        duration: Duration::from_secs(s),
        reason: "upgrade".into(),
    };
    world.operate(freeze(20));
    let (_, wake_ups) = world.release(0x10, false);
    assert!(wake_ups.is_empty());
    for _ in 0..19 {
        world.pass(S);
        assert!(matches!(world.renew(0x20, Purpose::Wait), RenewReply::Queued { .. }));
        match world.acquire(0x30, X, false) {
            AcquireReply::Busy { holder: Some(freeze), .. } => {
                assert_eq!(freeze.metadata.fields().program, "an operator's freeze");
                assert_eq!(freeze.metadata.fields().reason, "upgrade");
            }
            other => panic!("the freeze is not reported: {other:?}"),
        }
    }
    world.pass(S);
    assert!(matches!(world.renew(0x20, Purpose::Wait), RenewReply::Held { .. }));
    world.operate(freeze(20));
    world.release(0x20, false);
    let reply = world.operate(Operation::Unfreeze { name: name() });
    assert!(matches!(reply, Reply::Operate(Ok(OperationReply::Done))));
    let reply = world.operate(Operation::Unfreeze { name: name() });
    assert!(matches!(reply, Reply::Operate(Ok(OperationReply::NothingThere))));
    world.grant(0x40, X);
}

#[test]
fn the_queue_has_an_end() {
    let mut world = World::new();
    world.profile.max_waiters = 2;
    world.grant(0x10, X);
    world.acquire(0x20, X, true);
    world.acquire(0x30, X, true);
    let error = refused(&mut world, &Command::Acquire(ask(0x40, X, true)));
    assert!(matches!(error.kind(), ErrorKind::TooManyWaiters { limit: 2 }));
}

#[test]
fn a_dead_client_loses_its_grants_and_queue_entries_and_no_others() {
    let mut world = World::new();
    world.grant(0x10, R);
    world.grant(0x20, R);
    world.renew(0x20, Purpose::Keep(Hold::Detached(10 * S)));
    world.acquire(0x11, X, true);
    world.acquire(0x30, R, true);
    let (state, counter) = (&mut world.state, &mut world.counter);
    let mut store = super::super::MemoryStore { queue: &mut state.queue, counter };
    let mut table =
        super::super::Table::new(&mut state.head, &mut store, &world.profile, world.now);
    for client in [1, 2] {
        let Ok(()) = table.end_client(ClientId::from_u64(client));
    }
    let ids: Vec<_> = world.state.head.holders().iter().map(|holder| holder.lease_id()).collect();
    assert_eq!(ids, [id(0x20), id(0x30)]);
    assert_eq!(world.state.head.queued(), 0);
}

#[test]
fn a_fence_that_leaves_no_tokens_is_refused() {
    let mut world = World::new();
    let to = FencingToken::MAX;
    let error = refused(&mut world, &Command::Operate(Operation::RaiseFence { to }));
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "to", .. }), "{error}");
    assert_eq!(world.grant(0x10, X), FencingToken::MIN);
}

#[test]
fn invalid_requests_are_refused() {
    let mut world = World::new();
    let mut long = ask(0x10, X, true);
    long.hold = Hold::Leased(31 * S);
    let mut short = ask(0x10, X, true);
    short.hold = Hold::Leased(Duration::from_millis(49));
    let mut window = ask(0x10, X, true);
    window.hand_off_lease = Duration::ZERO;
    let none = ask(0x10, Mode::Permits { count: 0, of: 3 }, true);
    let cases = [
        (long, "lease_duration"),
        (short, "lease_duration"),
        (window, "hand_off_lease"),
        (none, "permits"),
    ];
    for (request, wrong) in cases {
        let error = refused(&mut world, &Command::Acquire(request));
        assert!(
            matches!(error.kind(), ErrorKind::Invalid { field, .. } if *field == wrong),
            "{error}"
        );
    }
    let reason = "x".repeat(513);
    let freeze = Operation::Freeze { name: name(), duration: S, reason };
    assert!(refused(&mut world, &Command::Operate(freeze)).to_string().contains("reason"));
    let freeze = Operation::Freeze { name: name(), duration: Duration::MAX, reason: String::new() };
    assert!(refused(&mut world, &Command::Operate(freeze)).to_string().contains("duration"));
    assert!(world.state.head.is_idle());
}

#[test]
fn after_a_restart_only_detached_grants_stay_and_begin_anew() {
    let mut world = World::new();
    let detached = Hold::Detached(9 * S);
    let request = crate::AcquireRequest { hold: detached, ..ask(1, Mode::Shared, true) };
    world.step(&Command::Acquire(request));
    world.grant(2, Mode::Shared);
    world.operate(Operation::Freeze { name: name(), duration: 20 * S, reason: "move".into() });
    world.release(9, true);
    world.pass(8 * S);
    let token = world.state.head.holder(id(1)).expect("held").token();
    let rebooted = Moment::ORIGIN.after(S);
    world.state.head.restart(rebooted);
    let head = &world.state.head;
    assert_eq!(head.holders().len(), 1);
    assert_eq!((head.holders()[0].lease_id(), head.holders()[0].token()), (id(1), token));
    assert_eq!(head.holders()[0].left(rebooted), Some(9 * S));
    assert_eq!(head.freeze.as_ref().map(|freeze| freeze.until), Some(rebooted.after(20 * S)));
    assert!(head.is_given_up(id(9)) && head.queued() == 0);
}
