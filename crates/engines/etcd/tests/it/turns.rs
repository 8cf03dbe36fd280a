//! Whose turn it is when contenders leave in any order: waiters that only follow their hints.

use std::collections::{BTreeMap, BTreeSet};

use holdline_core::sequenced_queue::Contender as InQueue;
use holdline_core::{
    AcquireReply, Hint, LeaseId, Mode, Purpose, ReleaseReply, RenewReply, SequencedQueue,
};
use holdline_services::{EtcdConfig, EtcdServer};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::AbortHandle;

use crate::support::{Contender, contender, engine, hint, next_granted, until, wait_its_turn};

const PERMITS: u32 = 4;

fn permits(count: u32) -> Mode {
    Mode::Permits { count, of: PERMITS }
}

/// A contender of the model.
#[derive(Clone, Copy, Debug)]
struct Modelled(LeaseId, Mode);

impl InQueue for Modelled {
    fn mode(&self) -> Mode {
        self.1
    }

    fn is(&self, id: LeaseId) -> bool {
        self.0 == id
    }
}

/// One contender leaves after another: a holder, or a waiter anywhere in the queue. After each,
/// those whose turn it is must be granted by their hints alone, and nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_whose_turn_it_is_are_woken_and_nobody_else_holds() {
    const SEEDS: u64 = 6;
    let server = EtcdServer::start(EtcdConfig::default());
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        // Seeds with permits, and seeds with readers and writers.
        let kinds = match seed % 2 {
            0 => [permits(1), permits(1), permits(2), permits(3), permits(4)],
            _ => [Mode::Shared, Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Exclusive],
        };
        // Two engines: the hints of one come over one stream, in order.
        let engines = [engine(&server.url()).await, engine(&server.url()).await];
        let name = format!("seed {seed}");
        let (sender, mut granted) = unbounded_channel();
        let mut model: Vec<Modelled> = Vec::new();
        let mut holders: BTreeMap<LeaseId, Contender> = BTreeMap::new();
        let mut waiters: BTreeMap<LeaseId, (Contender, AbortHandle)> = BTreeMap::new();
        for number in 0..24 {
            let mode = kinds[random.random_range(0..kinds.len())];
            let mut one = contender(&engines[number % 2], &name).in_mode(mode);
            let id = one.request.lease_id;
            model.push(Modelled(id, mode));
            match one.ask().await.expect("an answer") {
                AcquireReply::Granted { .. } => {
                    holders.insert(id, one);
                }
                _ => {
                    let waiting = tokio::spawn(wait_its_turn(one.clone(), sender.clone()));
                    waiters.insert(id, (one, waiting.abort_handle()));
                }
            }
        }
        while !model.is_empty() {
            let expected: BTreeSet<LeaseId> =
                SequencedQueue::new(model.clone()).holders().iter().map(|one| one.0).collect();
            while holders.len() < expected.len() {
                let one = next_granted(&mut granted).await;
                waiters.remove(&one.request.lease_id);
                holders.insert(one.request.lease_id, one);
            }
            let holding: BTreeSet<LeaseId> = holders.keys().copied().collect();
            assert_eq!(holding, expected, "seed {seed}");
            // Holders leave more often, so that the queue moves.
            let leaver = match random.random_bool(0.7) || waiters.is_empty() {
                true => model[random.random_range(0..holders.len())].0,
                false => model[random.random_range(holders.len()..model.len())].0,
            };
            model.retain(|one| one.0 != leaver);
            if let Some(holder) = holders.remove(&leaver) {
                holder.let_go().await;
            } else if let Some((waiter, waiting)) = waiters.remove(&leaver) {
                waiting.abort();
                let reply = waiter.release(true).await.expect("an answer");
                assert_eq!(reply, ReleaseReply::Withdrawn, "seed {seed}");
            }
        }
    }
}

/// The waiter before it leaves, and the holder only then.
#[tokio::test]
async fn a_waiter_whose_predecessor_gives_up_follows_the_one_before() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    let mut between = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    between.queue().await;
    waiter.queue().await;
    let mut hints = waiter.watch();
    assert_eq!(between.release(true).await.expect("a reply"), ReleaseReply::Withdrawn);
    hint(&mut hints, Hint::LookAgain).await;
    let reply = waiter.ask().await;
    assert!(matches!(reply, Ok(AcquireReply::Queued { position: Some(0), .. })), "{reply:?}");
    holder.let_go().await;
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
}

/// The session of one of two holders ends: its key is deleted by the server.
#[tokio::test]
async fn a_holder_that_expires_lets_in_the_next_for_permits() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut kept = contender(&engine, "a").in_mode(permits(2));
    let mut dead = contender(&engine, "a").in_mode(permits(2)).for_seconds(1);
    let mut waiter = contender(&engine, "a").in_mode(permits(1));
    kept.take().await;
    dead.take().await;
    waiter.queue().await;
    let mut hints = waiter.watch();
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
    assert!(matches!(kept.keep().await, Ok(RenewReply::Renewed { .. })));
}

/// No watch is open, as if all its events were lost.
#[tokio::test]
async fn without_any_event_the_heartbeat_hands_over_permits() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut holders = Vec::new();
    for _ in 0..PERMITS {
        let mut holder = contender(&engine, "a").in_mode(permits(1));
        holder.take().await;
        holders.push(holder);
    }
    let mut first = contender(&engine, "a").in_mode(permits(1));
    let mut second = contender(&engine, "a").in_mode(permits(2));
    first.queue().await;
    second.queue().await;
    let beat = async |waiter: &Contender| waiter.renew(Purpose::Wait).await.expect("a reply");
    assert!(matches!(beat(&first).await, RenewReply::Queued { .. }));
    for (holder, later) in [(2, false), (0, false), (1, true)] {
        holders[holder].let_go().await;
        assert!(matches!(beat(&first).await, RenewReply::Held { .. }), "{holder}");
        let reply = beat(&second).await;
        assert_eq!(matches!(reply, RenewReply::Held { .. }), later, "{holder}: {reply:?}");
    }
    first.take().await;
    second.take().await;
}

/// The stream of the watches breaks while holders leave.
#[tokio::test]
async fn a_waiter_for_permits_is_woken_after_its_stream_broke() {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    let mut holders = Vec::new();
    for _ in 0..2 {
        let mut holder = contender(&engine, "a").in_mode(permits(2));
        holder.take().await;
        holders.push(holder);
    }
    let mut waiter = contender(&engine, "a").in_mode(permits(2));
    waiter.queue().await;
    let mut hints = waiter.watch();
    server.restart();
    until("one is released", async || {
        let reply = holders[0].release(false).await;
        matches!(reply, Ok(ReleaseReply::Released { .. } | ReleaseReply::NotHeld { .. }))
    })
    .await;
    hint(&mut hints, Hint::LookAgain).await;
    until("it holds", async || matches!(waiter.ask().await, Ok(AcquireReply::Granted { .. })))
        .await;
}
