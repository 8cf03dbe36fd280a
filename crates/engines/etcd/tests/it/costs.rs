//! What waiting costs a server, by its own count: it does not grow with the number of waiters.

use std::collections::VecDeque;

use holdline_core::{Mode, Purpose, RenewReply};
use holdline_services::{EtcdConfig, EtcdServer};
use tokio::sync::mpsc::unbounded_channel;

use crate::support::{Counts, contender, engine, next_granted, until, wait_its_turn};

/// Which holder leaves next.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Oldest,
    Newest,
    /// One after the other at each place.
    Any,
}

/// Lets so many waiters have their turn behind holders of all permits, one by one, and returns what
/// all hand-offs together have cost.
async fn hand_offs(server: &EtcdServer, waiters: usize, permits: u32, leaves: Leaves) -> Counts {
    let engine = engine(&server.url()).await;
    let name = format!("{waiters} of {permits}, {leaves:?}");
    let mode = Mode::Permits { count: 1, of: permits };
    let mut holders = VecDeque::new();
    for _ in 0..permits {
        let mut holder = contender(&engine, &name).in_mode(mode);
        holder.take().await;
        holders.push_back(holder);
    }
    let (sender, mut granted) = unbounded_channel();
    let start = Counts::read(server).await;
    for _ in 0..waiters {
        let mut waiter = contender(&engine, &name).in_mode(mode);
        waiter.queue().await;
        tokio::spawn(wait_its_turn(waiter, sender.clone()));
    }
    // The own key and each key that blocks it have a watch, which the server confirms.
    let watches = u64::try_from(waiters).expect("few") * u64::from(permits + 1);
    let since = async |start: &Counts| Counts::read(server).await.since(start);
    until("the watches are made", async || since(&start).await.watch_messages >= watches).await;
    let before = Counts::read(server).await;
    for turn in 0..waiters {
        let leaver = match leaves {
            Leaves::Oldest => holders.pop_front(),
            Leaves::Newest => holders.pop_back(),
            Leaves::Any => holders.remove(turn * 7 % 5 % holders.len()),
        };
        leaver.expect("somebody holds").let_go().await;
        holders.push_back(next_granted(&mut granted).await);
    }
    since(&before).await
}

/// With 20 and 40 waiters a hand-off of a permit cost 13 and 23 requests, and a mutex 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_costs_as_much_among_forty_waiters_as_among_ten() {
    let server = EtcdServer::start(EtcdConfig::default());
    for (permits, leaves, most) in [
        (1, Leaves::Oldest, 2),
        (4, Leaves::Oldest, 3),
        // Up to four waiters must look, at two requests each.
        (4, Leaves::Newest, 10),
        (4, Leaves::Any, 6),
        (8, Leaves::Any, 6),
    ] {
        for waiters in [10, 40] {
            let cost = hand_offs(&server, waiters, permits, leaves).await;
            let requests = cost.transactions + cost.reads;
            println!("{waiters} waiters, {permits} permits, {leaves:?}: {cost:?}");
            let most = most * u64::try_from(waiters).expect("few");
            // On a slow machine a few requests are repeated, or a heartbeat comes between.
            let most = most + most / 8;
            assert!(requests <= most, "{requests} for {waiters}, {permits}, {leaves:?}");
        }
    }
}

/// Makes a queue of this length, and returns what one more enqueue, heartbeat and release cost.
async fn cost_of_a_waiter(server: &EtcdServer, length: usize, mode: Mode) -> [Counts; 3] {
    let engine = engine(&server.url()).await;
    let name = format!("{length} {mode}");
    for _ in 0..length {
        let mut ahead = contender(&engine, &name).in_mode(mode);
        ahead.ask().await.expect("an answer");
    }
    let mut last = contender(&engine, &name).in_mode(mode);
    let start = Counts::read(server).await;
    last.queue().await;
    let queued = Counts::read(server).await;
    let reply = last.renew(Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Queued { .. })), "{reply:?}");
    let confirmed = Counts::read(server).await;
    last.release(true).await.expect("an answer");
    let released = Counts::read(server).await;
    [queued.since(&start), confirmed.since(&queued), released.since(&confirmed)]
}

/// Each of the three read the keys of the whole queue: 25 KB behind 400.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_costs_as_much_behind_four_hundred_as_behind_forty() {
    /// Numbers in replies have more digits as the revision grows.
    const DIGITS: u64 = 100;
    let server = EtcdServer::start(EtcdConfig::default());
    for mode in [Mode::Exclusive, Mode::Permits { count: 1, of: 4 }] {
        let few = cost_of_a_waiter(&server, 40, mode).await;
        let many = cost_of_a_waiter(&server, 400, mode).await;
        println!("{mode}: {few:?}, {many:?}");
        for (few, many) in few.iter().zip(&many) {
            assert_eq!((many.transactions, many.reads), (1, 0), "{mode}: {many:?}");
            assert!(many.bytes <= few.bytes + DIGITS, "{mode}: {few:?}, {many:?}");
        }
    }
}
