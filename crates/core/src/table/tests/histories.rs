//! Random histories: after any sequence of commands, the invariants hold.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::{Command, Mutant};
use super::world::{World, ask, ending, name, renewal};
use crate::contract::{AcquireRequest, Purpose};
use crate::operation::Operation;
use crate::{FencingToken, Hold, LeaseId, Mode};

#[derive(Clone, Debug)]
enum Move {
    Do(Command),
    Pass(Duration),
    /// Revoke the grant at this index among the holders.
    Revoke(usize, bool),
    /// Remove the waiter at this index of the queue.
    RemoveWaiter(usize),
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        4 => Just(Mode::Exclusive),
        4 => Just(Mode::Shared),
        1 => (1..=3_u32).prop_map(|count| Mode::Permits { count, of: 3 }),
    ]
}

/// Lease ids of three clients with four ids each.
fn number() -> impl Strategy<Value = u8> {
    (1..=3_u8, 0..4_u8).prop_map(|(client, nth)| client << 4 | nth)
}

fn purpose() -> impl Strategy<Value = Purpose> {
    prop_oneof![
        Just(Purpose::Wait),
        (1..40_u64).prop_map(|s| Purpose::Keep(Hold::Leased(Duration::from_secs(s)))),
        Just(Purpose::Keep(Hold::Detached(Duration::from_secs(5)))),
    ]
}

fn step() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => (number(), mode(), any::<bool>(), prop::bool::weighted(0.3)).prop_map(
            |(n, mode, queue, known)| {
                let request = AcquireRequest { known, ..ask(n, mode, queue) };
                Move::Do(Command::Acquire(request))
            }
        ),
        4 => (number(), purpose()).prop_map(|(n, p)| Move::Do(Command::Renew(renewal(n, p)))),
        6 => (number(), prop::bool::weighted(0.2))
            .prop_map(|(n, for_good)| Move::Do(Command::Release(ending(n, for_good)))),
        4 => (0..2_500_u64).prop_map(|ms| Move::Pass(Duration::from_millis(ms))),
        1 => (3..40_u64).prop_map(|s| Move::Pass(Duration::from_secs(s))),
        1 => (0..3_usize, any::<bool>()).prop_map(|(nth, now)| Move::Revoke(nth, now)),
        1 => (0..3_usize).prop_map(Move::RemoveWaiter),
        1 => (1..20_u64).prop_map(|s| Move::Do(Command::Operate(Operation::Freeze {
            name: name(), duration: Duration::from_secs(s), reason: "r".into() }))),
        1 => Just(Move::Do(Command::Operate(Operation::Unfreeze { name: name() }))),
        1 => Just(Move::Do(Command::Inspect(name()))),
    ]
}

fn play(world: &mut World, moves: &[Move]) {
    for one in moves {
        match one {
            Move::Do(command) => {
                world.step(command);
            }
            Move::Pass(time) => world.pass(*time),
            Move::Revoke(nth, now) => {
                let token = world.state.head.holders().get(*nth).map(|holder| holder.token());
                let token = token.unwrap_or(FencingToken::MAX);
                let reason = "r".to_string();
                world.operate(Operation::Revoke { name: name(), token, reason, now: *now });
            }
            Move::RemoveWaiter(nth) => {
                let entry = world.state.queue.entries().nth(*nth);
                let waiter = entry.map_or(LeaseId::from_bytes([0; 16]), |entry| entry.lease_id);
                let (waiter, reason) = (waiter.short(), "r".to_string());
                world.operate(Operation::RemoveWaiter { name: name(), waiter, reason });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_invariant_holds_in_every_history(moves in prop::collection::vec(step(), 1..60)) {
        play(&mut World::new(), &moves);
    }

    #[test]
    fn every_invariant_holds_where_leases_end_by_session(
        moves in prop::collection::vec(step(), 1..60)
    ) {
        play(&mut World::of_sessions(), &moves);
    }

    #[test]
    fn time_alone_empties_every_name(moves in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        play(&mut world, &moves);
        // Longer than any lease, freeze, mark and silence; each hand-off may need a window more.
        for _ in 0..20 {
            world.pass(Duration::from_secs(60));
            world.step(&Command::Inspect(name()));
        }
        prop_assert!(world.state.head.is_idle());
    }
}

/// The invariants prove something only if a broken rule breaks one of them.
#[test]
fn every_mutant_breaks_an_invariant() {
    for mutant in Mutant::ALL {
        let config = Config {
            cases: 4_000,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..Config::default()
        };
        let found = TestRunner::new(config).run(&prop::collection::vec(step(), 1..60), |moves| {
            let mut world = World::new();
            world.mutant = Some(mutant);
            play(&mut world, &moves);
            Ok(())
        });
        assert!(found.is_err(), "{mutant:?} was not found");
    }
}
