//! Where exclusion is soft: what a leader does not know yet.

use std::time::{Duration, Instant};

use holdline::fence::{Fenced, FencedCell, Proof};
use holdline::{Client, FencingToken, Guard, Mode};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use rustix::process::Signal;

use crate::children::{Process, next_command};
use crate::support::{lease, let_go, patient, queued, soon, take, taking};

/// Every second a member reports to its leader which sessions it has received messages from.
const TICK_MS: u32 = 2_000;
/// How much of a lease is counted on after a renewal, where the process has not stood still.
const COUNTED: Duration = Duration::from_millis(7_500);
/// How long the holder stands still: it may believe in its lease for longer.
const PAUSE: Duration = Duration::from_millis(4_500);
const TRIES: usize = 20;
/// How often a process is stopped for the most of the time: for several times its lease.
const STARVED: usize = 80;
const URL: &str = "HOLDLINE_TEST_SOFT_URL";
const SECONDS: &str = "HOLDLINE_TEST_SOFT_LEASE";

/// The process that is stopped; does nothing when run by itself. It holds, and waits for another
/// name too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder() {
    let Ok(url) = std::env::var(URL) else { return };
    let seconds = std::env::var(SECONDS).expect("set by the test").parse().expect("a number");
    let client = Client::connect(&url).await.expect("connected");
    let held = take(&client, "a", &lease(seconds)).await;
    // Of the same duration, so of the same session.
    let mutex = client.mutex_with("b", &lease(seconds)).expect("a good lock");
    let waits = tokio::spawn(async move { mutex.lock().await.map(drop) });
    let mut waits = Some(waits);
    queued(&client, "b", 1).await;
    println!("\nholds {}", held.fencing_token());
    while let Some(asked) = next_command().await {
        match asked.as_str() {
            "wait" => {
                let waits = waits.take().expect("it waits");
                println!("waited {:?}", waits.await.expect("no panic"));
            }
            "take" => {
                let mutex = client.mutex_with("c", &lease(seconds)).expect("a good lock");
                println!("took {:?}", mutex.lock().await.map(drop));
            }
            "renew" => println!("renewed {}", held.renew().await.is_ok()),
            _ => println!("believes {}", held.is_valid()),
        }
    }
}

/// Where exclusion was soft: a holder's process is paused, goes on, and renews through a member.
/// That member dies before it has reported the session to the leader. A majority decided the
/// renewal. But the leader counts the session from the last report, which was before the pause. So
/// must the holder, which reaches no other member.
///
/// Two events spoil a try: the holder gives up its connection when it goes on, so that the next one
/// asks the leader about the session; or the member reports to the leader at that very moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_holder_is_valid_no_longer_than_the_leader_keeps_its_session() {
    let config = ZooKeeperConfig::default().with_tick(TICK_MS).with_sessions(4_000, 60_000);
    let servers = ZooKeeper::start_three(&config);
    for _ in 0..TRIES {
        if ended_by_the_old_report(&servers).await {
            return;
        }
    }
    panic!("spoilt {TRIES} times: the leader knew that the holder lived");
}

/// Returns whether the leader ended the session by what it knew before the pause.
async fn ended_by_the_old_report(servers: &ZooKeeper) -> bool {
    let leader = servers.leader();
    let (near, far) = ((leader + 1) % 3, (leader + 2) % 3);
    let only = |member: usize| format!("zk://{}?command_timeout_ms=60000", servers.address(member));
    let other = Client::connect(&only(far)).await.expect("connected");
    let noise = take(&other, "b", &patient()).await;
    let variables = [(URL, &*only(near)), (SECONDS, "10")];
    let mut holder = Process::start("soft::one_holder", &variables);
    let mine = holder.says("holds ").parse().expect("a number");
    let mine = FencingToken::new(mine).expect("a token");
    let next = taking(&other, "a");
    queued(&other, "a", 1).await;
    holder.stop();
    // This wakes the holder when it goes on, so that its connection does not seem silent.
    let_go(noise).await;
    tokio::time::sleep(PAUSE).await; // event: the pause itself
    holder.send("renew");
    let goes_on = Instant::now();
    holder.signal(Signal::CONT);
    let renewed = holder.says("renewed ");
    servers.kill(near);
    let next = soon("the next one", next).await.expect("no panic");
    let after = goes_on.elapsed();
    holder.send("valid");
    let believes = holder.says("believes ") == "true";
    assert!(!believes, "beside the next holder, {after:?} after it was {renewed} that it renewed");
    assert!(next.fencing_token() > mine);
    the_resource_refuses(mine, &next);
    let_go(next).await;
    servers.relaunch(near);
    servers.await_ready(near);
    renewed == "true" && after < COUNTED
}

/// A client that holds a name, and a process that waits for it with short leases.
async fn one_that_waits(server: &ZooKeeper) -> (Client, Guard, Process) {
    let other = Client::connect(&server.url()).await.expect("connected");
    let first = take(&other, "b", &patient()).await;
    let variables = [(URL, &*server.url()), (SECONDS, "4")];
    let mut process = Process::start("soft::one_holder", &variables);
    process.says("holds ");
    (other, first, process)
}

/// A pause that is nearly as long as the session: what the session proves counts for nothing until
/// the process has run for a while. A newcomer gets another, and a waiter gets its turn later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stood_still_takes_a_name_and_claims_its_turn_when_it_goes_on() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let (_other, first, mut process) = one_that_waits(&server).await;
    process.stop();
    let_go(first).await;
    tokio::time::sleep(Duration::from_millis(3_200)).await; // event: the pause itself
    process.send("take");
    process.send("wait");
    process.signal(Signal::CONT);
    assert_eq!(process.says("took "), "Ok(())");
    assert_eq!(process.says("waited "), "Ok(())");
}

/// A process that hardly ever runs: what its session proves counts for nothing once that has gone
/// on for a while. It keeps nobody out for ever, and has its turn by a new session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_starved_process_excludes_nobody_for_ever() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let (other, first, mut process) = one_that_waits(&server).await;
    process.send("wait");
    let mut first = Some(first);
    let next = taking(&other, "b");
    for turn in 0..STARVED {
        process.stop();
        tokio::time::sleep(Duration::from_millis(500)).await; // event: the process stands still
        process.signal(Signal::CONT);
        tokio::time::sleep(Duration::from_millis(60)).await; // event: the process runs
        if turn == STARVED / 4 {
            queued(&other, "b", 2).await;
            let_go(first.take().expect("held until now")).await;
        }
        if next.is_finished() {
            break;
        }
    }
    assert!(next.is_finished(), "the waiter behind it has its turn too");
    let_go(soon("the next one", next).await.expect("no panic")).await;
    assert_eq!(process.says("waited "), "Ok(())");
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
