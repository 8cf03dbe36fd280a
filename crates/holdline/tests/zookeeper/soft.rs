//! Where exclusion is soft: what a leader has not been told.

use std::time::{Duration, Instant};

use holdline::fence::{Fenced, FencedCell, Proof};
use holdline::{Client, FencingToken, Guard, Mode};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use rustix::process::Signal;

use crate::children::{Process, heard};
use crate::support::{lease, let_go, patient, queued, soon, take, taking};

/// A member tells its leader every second whom it has heard.
const TICK_MS: u32 = 2_000;
const LEASE: u64 = 10;
/// How much of a lease is counted on after a renewal, where the process has not stood still.
const COUNTED: Duration = Duration::from_secs(8);
/// How long the holder stands still: it may believe in its lease for longer.
const PAUSE: Duration = Duration::from_millis(4_500);
const TRIES: usize = 20;
const URL: &str = "HOLDLINE_TEST_SOFT_URL";

/// The process that is stopped; does nothing when run by itself. It holds, and waits for another
/// name too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = Client::connect(&url).await.expect("connected");
    let held = take(&client, "a", &lease(LEASE)).await;
    // Of the same duration, so of the same session.
    let mutex = client.mutex_with("b", &lease(LEASE)).expect("a good lock");
    tokio::spawn(async move { mutex.lock().await.map(drop) });
    queued(&client, "b", 1).await;
    println!("\nholds {}", held.fencing_token());
    while let Some(asked) = heard().await {
        match asked.as_str() {
            "renew" => println!("renewed {}", held.renew().await.is_ok()),
            _ => println!("believes {}", held.is_valid()),
        }
    }
}

/// Where exclusion was soft: a holder's process stands still, goes on, and renews by a member that
/// dies before it has told the leader whom it heard. A majority decided the renewal; but the
/// leader counts the session from the last that it was told, which was before the pause. So must
/// the holder: no other member is in its reach.
///
/// A connection that the holder gives up when it goes on spoils it, for the next one has the
/// leader asked whether the session stands; so does a leader that is told at that very moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_stood_still_believes_no_longer_than_a_leader_that_heard_nothing_since() {
    let config = ZooKeeperConfig::default().with_tick(TICK_MS).with_sessions(4_000, 60_000);
    let servers = ZooKeeper::start_three(&config);
    for _ in 0..TRIES {
        if heard_nothing_since(&servers).await {
            return;
        }
    }
    panic!("spoilt {TRIES} times: the leader knew that the holder lived");
}

/// Tells whether the leader ended the session by what it knew before the pause.
async fn heard_nothing_since(servers: &ZooKeeper) -> bool {
    let leader = servers.leader();
    let (near, far) = ((leader + 1) % 3, (leader + 2) % 3);
    let only = |member: usize| format!("zk://{}?command_timeout_ms=60000", servers.address(member));
    let other = Client::connect(&only(far)).await.expect("connected");
    let noise = take(&other, "b", &patient()).await;
    let mut holder = Process::start("soft::one_holder", &[(URL, &only(near))]);
    let mine = holder.says("holds ").parse().expect("a number");
    let mine = FencingToken::new(mine).expect("a token");
    let next = taking(&other, "a");
    queued(&other, "a", 1).await;
    holder.stop();
    // What the holder hears of when it goes on, so that its connection does not seem silent.
    let_go(noise).await;
    tokio::time::sleep(PAUSE).await; // event: the pause itself
    holder.hears("renew");
    let goes_on = Instant::now();
    holder.signal(Signal::CONT);
    let renewed = holder.says("renewed ");
    servers.kill(near);
    let next = soon("the next one", next).await.expect("no panic");
    let after = goes_on.elapsed();
    holder.hears("valid");
    let believes = holder.says("believes ") == "true";
    assert!(!believes, "beside the next holder, {after:?} after it was {renewed} that it renewed");
    assert!(next.fencing_token() > mine);
    the_resource_refuses(mine, &next);
    let_go(next).await;
    servers.relaunch(near);
    servers.await_ready(near);
    renewed == "true" && after < COUNTED
}

fn the_resource_refuses(late: FencingToken, newer: &Guard) {
    let late = Proof::try_from((Mode::Exclusive, late)).expect("exclusive");
    let resource = FencedCell::new(0);
    resource.seal(&Proof::exclusive_of(newer).expect("exclusive")).expect("newer");
    let refused = resource.check_and_write(&late, |value| {
        *value = 1;
        Ok(())
    });
    assert!(refused.is_err(), "{refused:?}");
}
