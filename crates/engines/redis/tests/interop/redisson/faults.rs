//! Processes that die or stand still, and servers that change, under holders of both sides.

use std::time::{Duration, Instant};

use base64_of::base64;
use holdline::fence::{Proof, RedisCall, RedisFence};
use holdline_core::FencingToken;
use holdline_services::Reply;
use rustix::process::Signal;

use super::history::{History, Party, Storm, Wanted};
use super::java::{Java, Thread};
use super::locks::we_are_refused;
use super::servers::Servers;
use super::world::{LONG, SOON, acquired, long, open, release, until, waiting};
use crate::ours::message_of;

type Case = Result<(), String>;

/// The lease of a Java process that must lose its locks.
const BRIEF: &str = "watchdog=4000";

mod base64_of {
    //! The alphabet of RFC 4648, for a script on one line.

    pub(super) fn base64(text: &str) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for chunk in text.as_bytes().chunks(3) {
            let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            let bits = bits << (8 * (3 - chunk.len()));
            for digit in 0..4 {
                let value = usize::try_from(bits >> (18 - 6 * digit) & 63).expect("six bits");
                let is_there = digit <= chunk.len();
                out.push(if is_there { char::from(DIGITS[value]) } else { '=' });
            }
        }
        out
    }

    #[test]
    fn it_is_that_of_the_rfc() {
        let pairs = [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        assert!(pairs.iter().all(|(text, digits)| base64(text) == *digits));
    }
}

fn java(servers: &Servers, setting: &str) -> Result<std::sync::Arc<Java>, String> {
    let mut arguments = servers.arguments();
    arguments.push(setting.to_owned());
    Java::start("4", &arguments)
}

/// The process of a holder is killed: its watchdog ends with it, and its lease is awaited.
async fn killed(servers: &Servers) -> Case {
    let ours = open(servers, "").await?;
    let java = java(servers, BRIEF)?;
    let mut holder = java.thread("holder");
    let token: u64 = watched(&mut holder, "fenced killed").await?;
    let waiter = waiting(&ours.client, "killed")?;
    we_are_refused(&ours, "killed").await?;
    java.signal(Signal::KILL);
    let guard = acquired(waiter).await?;
    let next = guard.fencing_token().get();
    ensure!(next > token, "after the token {token} came {next}");
    release(guard).await
}

/// Acquires a lock that the watchdog renews.
async fn watched(thread: &mut Thread, object: &str) -> Result<u64, String> {
    let answer = thread.ask(&format!("acquire {object} 0 -1")).await?;
    let token = answer.strip_prefix("held ").and_then(|token| token.parse().ok());
    token.ok_or_else(|| format!("Java did not get {object}: {answer}"))
}

#[tokio::test]
async fn a_killed_java_process_loses_its_locks() {
    killed(&Servers::single()).await.expect("our waiter gets it");
}

/// A holder of Java stands still for longer than its lease, and continues: the fence refuses its
/// write.
async fn stopped(servers: &Servers) -> Case {
    let ours = open(servers, "").await?;
    let java = java(servers, BRIEF)?;
    let mut holder = java.thread("holder");
    let old: u64 = watched(&mut holder, "fenced stopped").await?;
    let fence = RedisFence::new("stock").map_err(message_of)?;
    let call = write(&fence, old, "Java")?;
    let answer = holder.ask(&eval(&call)).await?;
    call.outcome(&answer).map_err(message_of)?;
    java.signal(Signal::STOP);
    let guard = acquired(waiting(&ours.client, "stopped")?).await?;
    let new = guard.fencing_token().get();
    ensure!(new > old, "after the token {old} came {new}");
    let call = write(&fence, new, "ours")?;
    let mut words =
        vec!["EVAL".to_owned(), call.script().to_owned(), call.keys().len().to_string()];
    words.extend(texts(call.keys()).chain(texts(call.arguments())));
    let reply = servers.raw("stock").send(&words).map_err(message_of)?;
    call.outcome(&reply.text().unwrap_or_default()).map_err(message_of)?;
    java.signal(Signal::CONT);
    // It still believes that it holds the lock.
    let late = write(&fence, old, "late")?;
    let answer = holder.ask(&eval(&late)).await?;
    let Err(refusal) = late.outcome(&answer) else { return Err("a late write passed".to_owned()) };
    ensure!(answer == format!("stale {new}"), "the fence answered {answer}: {refusal}");
    let value = servers.send("stock", &["GET", "stock"])?;
    ensure!(value == Reply::Bulk(b"ours".to_vec()), "the late write is there: {value:?}");
    holder.expect("release fenced stopped", "not-held").await?;
    ensure!(guard.is_valid(), "its late release changed our lock");
    release(guard).await
}

fn write(fence: &RedisFence, token: u64, value: &str) -> Result<RedisCall, String> {
    let token = FencingToken::new(token).map_err(message_of)?;
    fence.check_and_set(&Proof::exclusive(token), value).map_err(message_of)
}

fn texts(words: &[Vec<u8>]) -> impl Iterator<Item = String> {
    words.iter().map(|word| String::from_utf8_lossy(word).into_owned())
}

/// The request to Java that sends this call. An empty word stands for itself at the end of a line
/// only, so no limit of jumps is sent as a limit that nothing exceeds.
fn eval(call: &RedisCall) -> String {
    let words: Vec<String> = texts(call.keys()).chain(texts(call.arguments())).collect();
    let words: Vec<&str> =
        words.iter().map(|word| if word.is_empty() { "9007199254740991" } else { word }).collect();
    format!("eval {} {} {}", base64(call.script()), call.keys().len(), words.join(" "))
}

#[tokio::test]
async fn a_stopped_java_process_is_refused_by_the_fence() {
    stopped(&Servers::single()).await.expect("its late write is refused");
}

/// The death of a server leaves none that knows more than the next one, since all was replicated.
#[tokio::test(flavor = "multi_thread")]
async fn holders_of_both_sides_outlive_the_death_of_the_master() {
    let servers = Servers::watched();
    let Servers::Sentinels(group) = &servers else { unreachable!("they have sentinels") };
    let change = || {
        group.await_replicated();
        let dead = group.master();
        group.servers()[dead].kill();
        group.settle(group.await_promotion(dead));
    };
    under_a_change(&servers, change).await.expect("a replica that takes over");
}

/// A slot moves to and fro while both sides contend for a lock in it.
async fn contended_while_it_moves(servers: &Servers) -> Result<History, String> {
    const LASTS: Duration = Duration::from_secs(10);
    let Servers::Cluster(cluster) = servers else { return Err("it is a cluster".to_owned()) };
    let (ours, java) = (open(servers, "").await?, java(servers, "timeout=3000")?);
    let lease = Duration::from_secs(4);
    let options = holdline::LockOptions::default().with_lease_duration(lease);
    let mutex = ours.client.mutex_with("to-and-fro", &options).map_err(message_of)?;
    let party = Party { kind: "fenced", ours: Wanted::Mutex(Box::new(mutex)), count: 4, weight: 1 };
    let storm = Storm { lasts: LASTS, lease, may_fail: true };
    let slot = cluster.slot_of("to-and-fro");
    let moves = async {
        // A waiter of Redisson's that lost its subscription looks again when the lease ends.
        let end = Instant::now() + LASTS * 2 / 5;
        let mut count = 0;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(200)).await; // event: contenders hold it
            tokio::task::block_in_place(|| {
                let from = cluster.owner(slot, 0).expect("a node serves it");
                cluster.move_slot(slot, from, (from + 1) % 3);
            });
            count += 1;
        }
        count
    };
    let parties = [party];
    let (history, moved) = tokio::join!(storm.run(&java, "to-and-fro", &parties), moves);
    let history = history?;
    let (count, first) = &history.failures;
    let (mine, theirs) = history.shares();
    println!("{moved} moves, {mine} holds of ours, {theirs} of Java's, {count} failures: {first}");
    ensure!(moved > 1, "the slot moved {moved} times");
    Ok(history)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_holds_overlap_while_a_slot_moves() {
    let history = contended_while_it_moves(&Servers::cluster()).await.expect("a storm");
    history.fits(1).expect("one at a time");
    history.has_rising_tokens().expect("one history");
    let (ours, theirs) = history.shares();
    assert!(ours + theirs > 20, "{ours} holds of ours, {theirs} of Java's");
}

/// Holders and waiters of both sides before, and the same after a change of the servers: each
/// release wakes the other side, and tokens rise.
async fn under_a_change(servers: &Servers, change: impl FnOnce()) -> Case {
    let ours = open(servers, "").await?;
    let java = java(servers, "timeout=5000")?;
    let (mut holder, mut waiter) = (java.thread("holder"), java.thread("waiter"));
    let theirs: u64 = watched(&mut holder, "fenced {change}-theirs").await?;
    let mutex = ours.client.mutex_with("{change}-ours", &long()).map_err(message_of)?;
    let guard = mutex.lock().await.map_err(message_of)?;
    let token = guard.fencing_token().get();
    let our_waiter = waiting(&ours.client, "{change}-theirs")?;
    waiter.wait_for("fenced {change}-ours", LONG)?;
    for name in ["ours", "theirs"] {
        let key = format!("{{change}}-{name}");
        let channel = format!("redisson_lock__channel:{key}");
        until("both wait", || Ok((servers.subscribers(&key, &channel)? > 0).then_some(()))).await?;
    }
    tokio::task::block_in_place(change);
    ensure!(guard.is_valid(), "our guard was lost by a change that keeps all data");
    ensure!(!our_waiter.is_finished(), "we got what Java holds");
    release(guard).await?;
    let next: u64 = waiter.gets(4 * SOON).await?.parse().map_err(message_of)?;
    ensure!(next > token, "after the token {token} came {next}");
    // At once: Redisson may take longer than a lease for its next request after a failover.
    waiter.release("fenced {change}-ours").await?;
    holder.release("fenced {change}-theirs").await?;
    let late = tokio::time::timeout(4 * SOON, our_waiter).await;
    let late = late.map_err(|_| "our waiter still waits")?.map_err(message_of)?;
    let guard = late.map_err(message_of)?;
    let next = guard.fencing_token().get();
    ensure!(next > theirs, "after the token {theirs} came {next}");
    release(guard).await
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_both_sides_outlive_a_failover() {
    let servers = Servers::sentinels();
    let Servers::Sentinels(group) = &servers else { unreachable!("they have sentinels") };
    let change = || {
        group.await_replicated();
        // It has all data, so it may grant at once.
        group.settle(group.fail_over());
    };
    under_a_change(&servers, change).await.expect("a failover in good order");
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_both_sides_outlive_the_move_of_a_slot() {
    let servers = Servers::cluster();
    let Servers::Cluster(cluster) = &servers else { unreachable!("it is one") };
    let change = || {
        let slot = cluster.slot_of("{change}-ours");
        let from = cluster.owner(slot, 0).expect("a node serves it");
        cluster.move_slot(slot, from, (from + 1) % 3);
    };
    under_a_change(&servers, change).await.expect("a slot that moves");
}
