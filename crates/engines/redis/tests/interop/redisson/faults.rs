//! Processes that die or stand still, and servers that change, under holders of both sides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64_of::base64;
use holdline::Guard;
use holdline::fence::{Proof, RedisCall, RedisFence};
use holdline_core::FencingToken;
use holdline_services::{RedisCluster, Reply};
use rustix::process::Signal;
use tokio::task::JoinSet;

use super::VERSIONS;
use super::history::{History, Party, Storm, Wanted};
use super::java::{Java, Thread};
use super::locks::we_are_refused;
use super::servers::Servers;
use super::world::{LONG, SOON, acquired, long, open, release, until, waiting};
use crate::ours::message_of;

type Case = Result<(), String>;

/// For how long both sides contend while a slot moves.
const MOVING: Duration = Duration::from_secs(10);
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

fn java(servers: &Servers, major: &str, setting: &str) -> Result<Arc<Java>, String> {
    let mut arguments = servers.arguments();
    arguments.push(setting.to_owned());
    Java::start(major, &arguments)
}

/// Runs a case with both versions of Redisson at once.
async fn with_both<T>(
    case: impl AsyncFn(&'static str) -> Result<T, String>,
) -> Result<[T; 2], String> {
    let case = async |major| case(major).await.map_err(|why| format!("Redisson {major}: {why}"));
    let [old, new] = VERSIONS;
    let (old, new) = tokio::try_join!(case(old), case(new))?;
    Ok([old, new])
}

/// The process of a holder is killed: its watchdog ends with it, and its lease is awaited.
async fn killed(servers: &Servers, major: &str) -> Case {
    let ours = open(servers, "").await?;
    let java = java(servers, major, BRIEF)?;
    let name = format!("killed-{major}");
    let mut holder = java.thread("holder");
    let token: u64 = watched(&mut holder, &format!("fenced {name}")).await?;
    let waiter = waiting(&ours.client, &name)?;
    we_are_refused(&ours, &name).await?;
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
    let servers = Servers::single();
    with_both(async |major| killed(&servers, major).await).await.expect("our waiter gets it");
}

/// A holder of Java stands still for longer than its lease, and continues: the fence refuses its
/// write.
async fn stopped(servers: &Servers, major: &str) -> Case {
    let ours = open(servers, "").await?;
    let java = java(servers, major, BRIEF)?;
    let (name, stock) = (format!("stopped-{major}"), format!("stock-{major}"));
    let mut holder = java.thread("holder");
    let old: u64 = watched(&mut holder, &format!("fenced {name}")).await?;
    let fence = RedisFence::new(&*stock).map_err(message_of)?;
    let call = write(&fence, old, "Java")?;
    let answer = holder.ask(&eval(&call)).await?;
    call.outcome(&answer).map_err(message_of)?;
    java.signal(Signal::STOP);
    let guard = acquired(waiting(&ours.client, &name)?).await?;
    let new = guard.fencing_token().get();
    ensure!(new > old, "after the token {old} came {new}");
    let call = write(&fence, new, "ours")?;
    let mut words =
        vec!["EVAL".to_owned(), call.script().to_owned(), call.keys().len().to_string()];
    words.extend(texts(call.keys()).chain(texts(call.arguments())));
    let reply = servers.raw(&stock).send(&words).map_err(message_of)?;
    call.outcome(&reply.text().unwrap_or_default()).map_err(message_of)?;
    java.signal(Signal::CONT);
    // It still believes that it holds the lock.
    let late = write(&fence, old, "late")?;
    let answer = holder.ask(&eval(&late)).await?;
    let Err(refusal) = late.outcome(&answer) else { return Err("a late write passed".to_owned()) };
    ensure!(answer == format!("stale {new}"), "the fence answered {answer}: {refusal}");
    let value = servers.send(&stock, &["GET", &stock])?;
    ensure!(value == Reply::Bulk(b"ours".to_vec()), "the late write is there: {value:?}");
    holder.expect(&format!("release fenced {name}"), "not-held").await?;
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
    let servers = Servers::single();
    with_both(async |major| stopped(&servers, major).await).await.expect("a late write is refused");
}

/// With the new version only: its clients can give up their requests while there is no master.
///
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
    under_a_change(&servers, &VERSIONS[1..], change).await.expect("a replica that takes over");
}

/// Both sides contend for a lock of this slot, which moves meanwhile.
async fn contended(servers: &Servers, java: &Arc<Java>) -> Result<History, String> {
    let ours = open(servers, "").await?;
    let name = format!("{{to-and-fro}}-{}", java.version);
    let lease = Duration::from_secs(4);
    let options = holdline::LockOptions::default().with_lease_duration(lease);
    let mutex = ours.client.mutex_with(&name, &options).map_err(message_of)?;
    let party = Party { kind: "fenced", ours: Wanted::Mutex(Box::new(mutex)), count: 4, weight: 1 };
    let storm = Storm { lasts: MOVING, lease, may_fail: true };
    let history = storm.run(java, &name, &[party]).await?;
    let (count, first) = &history.failures;
    let (mine, theirs) = history.shares();
    println!("{name}: {mine} holds of ours, {theirs} of Java's, {count} failures: {first}");
    Ok(history)
}

/// Moves a slot to and fro.
async fn move_to_and_fro(cluster: &RedisCluster) -> usize {
    let slot = cluster.slot_of("{to-and-fro}");
    // A waiter of Redisson's that lost its subscription looks again when the lease ends.
    let end = Instant::now() + MOVING * 2 / 5;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn no_holds_overlap_while_a_slot_moves() {
    let servers = Servers::cluster();
    let Servers::Cluster(cluster) = &servers else { unreachable!("it is one") };
    let both = with_both(async |major| java(&servers, major, "timeout=3000")).await;
    let [old, new] = &both.expect("both versions");
    let storms = (contended(&servers, old), contended(&servers, new));
    let (old, new, moved) = tokio::join!(storms.0, storms.1, move_to_and_fro(cluster));
    assert!(moved > 1, "the slot moved {moved} times");
    for history in [old, new] {
        let history = history.expect("a storm");
        history.fits(1).expect("one at a time");
        history.has_rising_tokens().expect("one history");
        let (ours, theirs) = history.shares();
        assert!(ours + theirs > 20, "{ours} holds of ours, {theirs} of Java's");
    }
}

/// A holder and a waiter of each side, each for what the other side holds.
struct Crossed {
    java: Arc<Java>,
    holder: Thread,
    waiter: Thread,
    guard: Guard,
    our_waiter: tokio::task::JoinHandle<Result<Guard, holdline::LockError>>,
    /// The names of what is ours and theirs, and the token of Java's hold.
    names: [String; 2],
    theirs: u64,
}

impl Crossed {
    async fn begin(servers: &Servers, major: &str) -> Result<Crossed, String> {
        let ours = open(servers, "").await?;
        let java = java(servers, major, "timeout=5000")?;
        let names = ["ours", "theirs"].map(|of| format!("{{change}}-{of}-{major}"));
        let [mine, theirs] = &names;
        let (mut holder, waiter) = (java.thread("holder"), java.thread("waiter"));
        let token: u64 = watched(&mut holder, &format!("fenced {theirs}")).await?;
        let mutex = ours.client.mutex_with(mine, &long()).map_err(message_of)?;
        let guard = mutex.lock().await.map_err(message_of)?;
        let our_waiter = waiting(&ours.client, theirs)?;
        waiter.wait_for(&format!("fenced {mine}"), LONG)?;
        for key in &names {
            let channel = format!("redisson_lock__channel:{key}");
            let subscribed = || Ok((servers.subscribers(key, &channel)? > 0).then_some(()));
            until("both wait", subscribed).await?;
        }
        Ok(Crossed { java, holder, waiter, guard, our_waiter, names, theirs: token })
    }

    async fn end(self) -> Case {
        let major = self.java.version.clone();
        self.release_all().await.map_err(|why| format!("Redisson {major}: {why}"))
    }

    async fn release_all(mut self) -> Case {
        let [mine, theirs] = &self.names;
        ensure!(self.guard.is_valid(), "our guard was lost by a change that keeps all data");
        ensure!(!self.our_waiter.is_finished(), "we got what Java holds");
        let token = self.guard.fencing_token().get();
        release(self.guard).await?;
        let mut got = self.waiter.gets(4 * SOON).await;
        if got.as_ref().is_err_and(|why| why.contains("NullPointerException")) {
            // While the nodes of a slot change, `lock()` of Redisson 4.7.0 sometimes throws it.
            self.waiter.wait_for(&format!("fenced {mine}"), LONG)?;
            got = self.waiter.gets(4 * SOON).await;
        }
        let got = got.map_err(|why| format!("Java's waiter: {why}"))?;
        let next: u64 = got.parse().map_err(message_of)?;
        ensure!(next > token, "after the token {token} came {next}");
        // At once: Redisson may take longer than a lease for its next request after a failover.
        self.waiter.release(&format!("fenced {mine}")).await?;
        let released = self.holder.release(&format!("fenced {theirs}")).await;
        released.map_err(|why| format!("Java's holder: {why}"))?;
        let late = tokio::time::timeout(4 * SOON, self.our_waiter).await;
        let late = late.map_err(|_| "our waiter still waits")?.map_err(message_of)?;
        let guard = late.map_err(message_of)?;
        let next = guard.fencing_token().get();
        ensure!(next > self.theirs, "after the token {} came {next}", self.theirs);
        release(guard).await
    }
}

/// Holders and waiters of both sides before, and the same after a change of the servers: each
/// release wakes the other side, and tokens rise.
async fn under_a_change(servers: &Servers, majors: &[&str], change: impl FnOnce()) -> Case {
    let mut all = Vec::new();
    for major in majors {
        all.push(Crossed::begin(servers, major).await?);
    }
    tokio::task::block_in_place(change);
    let mut ends: JoinSet<Case> = all.into_iter().map(Crossed::end).collect();
    while let Some(end) = ends.join_next().await {
        end.map_err(message_of)??;
    }
    Ok(())
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
    under_a_change(&servers, &VERSIONS, change).await.expect("a failover in good order");
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_both_sides_outlive_the_move_of_a_slot() {
    let servers = Servers::cluster();
    let Servers::Cluster(cluster) = &servers else { unreachable!("it is one") };
    let change = || {
        let slot = cluster.slot_of("{change}");
        let from = cluster.owner(slot, 0).expect("a node serves it");
        cluster.move_slot(slot, from, (from + 1) % 3);
    };
    under_a_change(&servers, &VERSIONS, change).await.expect("a slot that moves");
}
