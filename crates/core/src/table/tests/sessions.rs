//! Leases that end together, and direct hand-offs.

use std::time::Duration;

use super::super::{Command, MemoryStore, Reply, Table};
use super::world::{World, ask, id, name, renewal};
use crate::contract::{AcquireReply, AcquireRequest, Hint, Purpose, RenewReply, RenewRequest};
use crate::operation::Operation;
use crate::{ClientId, Hold, Mode};

const SECOND: Duration = Duration::from_secs(1);

fn keep(seconds: u64) -> Purpose {
    Purpose::Keep(Hold::Leased(SECOND * u32::try_from(seconds).expect("few")))
}

fn left(reply: &RenewReply) -> Option<u64> {
    match reply {
        RenewReply::Renewed { left } => left.map(|left| left.as_secs()),
        _ => None,
    }
}

#[test]
fn a_session_ends_with_all_its_grants_and_queue_entries() {
    let mut world = World::of_sessions();
    world.grant(0x11, Mode::Exclusive);
    for number in [0x12, 0x21] {
        assert!(matches!(
            world.acquire(number, Mode::Exclusive, true),
            AcquireReply::Queued { .. }
        ));
        world.pass(SECOND * 4);
    }
    // The first client's last request was eight seconds ago, the second's four.
    world.pass(SECOND * 3);
    assert!(matches!(world.renew(0x21, Purpose::Wait), RenewReply::Held { .. }));
    for number in [0x11, 0x12] {
        assert_eq!(world.renew(number, Purpose::Wait), RenewReply::Unknown, "{number:x}");
    }
}

#[test]
fn a_heartbeat_renews_its_whole_session_and_a_repeated_request_renews_nothing() {
    let mut world = World::of_sessions();
    world.grant(0x11, Mode::Exclusive);
    world.acquire(0x12, Mode::Exclusive, true);
    world.pass(SECOND * 6);
    world.renew(0x12, Purpose::Wait);
    world.pass(SECOND * 6);
    let AcquireReply::Granted { left, .. } = world.acquire(0x11, Mode::Exclusive, true) else {
        panic!("the grant is gone");
    };
    assert_eq!(left, Some(SECOND * 4));
    world.pass(SECOND * 4);
    assert_eq!(world.renew(0x11, keep(10)), RenewReply::Unknown);
}

#[test]
fn a_renewal_of_a_grant_keeps_the_queue_entries_of_its_session() {
    let mut world = World::of_sessions();
    world.grant(0x11, Mode::Exclusive);
    world.acquire(0x12, Mode::Exclusive, true);
    world.pass(SECOND * 6);
    world.renew(0x11, keep(10));
    world.pass(SECOND * 6);
    assert!(matches!(world.renew(0x12, Purpose::Wait), RenewReply::Queued { .. }));
}

#[test]
fn a_renewal_for_longer_moves_a_grant_and_one_for_less_does_not() {
    let mut world = World::of_sessions();
    world.grant(0x11, Mode::Shared);
    world.grant(0x12, Mode::Shared);
    assert_eq!(left(&world.renew(0x11, keep(20))), Some(20));
    assert_eq!(left(&world.renew(0x11, keep(5))), Some(20));
    world.pass(SECOND * 11);
    assert_eq!(world.renew(0x12, keep(10)), RenewReply::Unknown);
    assert_eq!(left(&world.renew(0x11, keep(10))), Some(20));
}

#[test]
fn a_fresh_request_renews_the_session_of_its_client_only() {
    let mut world = World::of_sessions();
    world.grant(0x11, Mode::Shared);
    world.grant(0x21, Mode::Shared);
    world.pass(SECOND * 6);
    world.grant(0x12, Mode::Shared);
    world.pass(SECOND * 6);
    assert_eq!(world.renew(0x21, Purpose::Wait), RenewReply::Unknown);
    assert!(matches!(world.renew(0x11, Purpose::Wait), RenewReply::Held { .. }));
}

#[test]
fn a_fresh_request_under_a_given_up_id_renews_its_session_too() {
    for known in [false, true] {
        let mut world = World::of_sessions();
        world.grant(0x11, Mode::Shared);
        world.release(0x12, true);
        world.pass(SECOND * 6);
        let request = AcquireRequest { known, ..ask(0x12, Mode::Shared, true) };
        let (reply, _) = world.step(&Command::Acquire(request));
        assert!(matches!(reply, Reply::Acquire(Err(_))), "{reply:?}");
        world.pass(SECOND * 6);
        let is_held = matches!(world.renew(0x11, Purpose::Wait), RenewReply::Held { .. });
        assert_eq!(is_held, !known);
    }
}

#[test]
fn a_renewal_by_another_client_takes_a_grant_over_only_if_it_is_longer() {
    for (seconds, moves) in [(5, false), (10, false), (20, true)] {
        let mut world = World::of_sessions();
        world.grant(0x11, Mode::Shared);
        let by_another =
            RenewRequest { client: ClientId::from_u64(2), ..renewal(0x11, keep(seconds)) };
        world.step(&Command::Renew(by_another));
        let (state, counter) = (&mut world.state, &mut world.counter);
        let mut store = MemoryStore { queue: &mut state.queue, counter };
        let mut table = Table::new(&mut state.head, &mut store, &world.profile, world.now);
        let Ok(()) = table.end_client(ClientId::from_u64(1));
        assert_eq!(world.state.head.holder(id(0x11)).is_some(), moves, "{seconds} s");
    }
}

#[test]
fn an_id_stays_given_up_and_a_revoked_one_revoked_while_the_name_settles() {
    let mut world = World::of_sessions();
    let token = world.grant(0x11, Mode::Exclusive);
    let reason = "why".to_owned();
    world.operate(Operation::Revoke { name: name(), token, reason, now: true });
    world.release(0x12, true);
    world.pass(SECOND);
    for number in [0x11, 0x12] {
        let (reply, _) = world.step(&Command::Acquire(ask(number, Mode::Exclusive, true)));
        assert!(matches!(reply, Reply::Acquire(Err(_))), "{number:x}: {reply:?}");
    }
}

#[test]
fn a_detached_lease_has_a_session_of_its_own() {
    let mut world = World::of_sessions();
    world.grant(0x11, Mode::Shared);
    world.grant(0x12, Mode::Shared);
    world.renew(0x11, Purpose::Keep(Hold::Detached(SECOND * 10)));
    world.pass(SECOND * 6);
    world.renew(0x12, keep(10));
    world.pass(SECOND * 5);
    assert_eq!(world.renew(0x11, Purpose::Wait), RenewReply::Unknown);
    assert_eq!(left(&world.renew(0x12, keep(10))), Some(10));
}

#[test]
fn a_direct_hand_off_is_a_grant_that_lasts_as_long_as_its_session() {
    let mut world = World::of_sessions();
    world.grant(0x11, Mode::Exclusive);
    world.acquire(0x21, Mode::Exclusive, true);
    world.pass(SECOND * 5);
    let (Reply::Release(_), wake_ups) = world.release(0x11, false) else {
        panic!("a release was answered by something else");
    };
    assert!(
        wake_ups
            .iter()
            .any(|wake_up| (wake_up.lease_id, wake_up.hint) == (id(0x21), Hint::LookAgain))
    );
    assert_eq!(world.pending(0x21), Some(Hint::LookAgain));
    // Longer than any lease of a hand-off, without a renewal.
    world.pass(SECOND * 4);
    assert_eq!(left(&world.renew(0x21, keep(10))), Some(10));
    assert!(matches!(world.acquire(0x21, Mode::Exclusive, true), AcquireReply::Granted { .. }));
}
