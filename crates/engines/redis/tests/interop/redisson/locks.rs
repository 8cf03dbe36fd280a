//! Exclusive locks: `RLock`, `RFencedLock`, the spin lock and the lock that does not re-enter are
//! one hash, and exclude ours and each other.

use std::time::{Duration, Instant};

use holdline::{ErrorKind, LockError, Owner, ReleaseOutcome};
use holdline_core::{HolderFields, LockName, Operation, OperationReply, ReleaseReply, RenewReply};

use super::world::{LONG, SHORT, SOON, World, acquired, long, release, soon, until, waiting};
use crate::ours::{Ours, message_of};

/// The messages about a lock.
const CHANNEL: &str = "redisson_lock__channel:{}";
type Case = Result<(), String>;

/// Which lock of Java's shares its name with ours.
#[derive(Clone, Copy)]
struct Pair {
    kind: &'static str,
    fenced: bool,
    /// Its release publishes a message, and its waiters receive them.
    messages: bool,
}

const PLAIN: Pair = Pair { kind: "lock", fenced: false, messages: true };
const FENCED: Pair = Pair { kind: "fenced", fenced: true, messages: true };
const SPIN: Pair = Pair { kind: "spin", fenced: false, messages: false };
const ONCE: Pair = Pair { kind: "once", fenced: false, messages: true };

impl Pair {
    fn ours<'a>(&self, world: &'a World<'_>) -> &'a Ours {
        if self.fenced { &world.fenced } else { &world.bare }
    }
}

/// Our attempt must be refused; returns what we are shown of the holder.
pub(crate) async fn we_are_refused(ours: &Ours, name: &str) -> Result<HolderFields, String> {
    let mutex = ours.client.mutex_with(name, &long()).map_err(message_of)?;
    let Err(error) = mutex.try_lock().await else {
        return Err("we got a lock that Java holds".to_owned());
    };
    let ErrorKind::Busy { holder: Some(holder) } = error.kind() else {
        return Err(format!("Java holds it, and we got {error:?}"));
    };
    let left = holder.left.ok_or("the holder has no time left")?;
    ensure!(!left.is_zero() && left <= LONG, "{left:?} left of {LONG:?}");
    Ok(holder.metadata.fields())
}

pub(crate) async fn both_ways(world: &World<'_>, name: &str) -> Case {
    ours_then_theirs(world, name, PLAIN).await?;
    theirs_then_ours(world, name, PLAIN).await
}

pub(crate) async fn fenced(world: &World<'_>, name: &str) -> Case {
    ours_then_theirs(world, name, FENCED).await?;
    theirs_then_ours(world, name, FENCED).await
}

pub(crate) async fn spin(world: &World<'_>, name: &str) -> Case {
    ours_then_theirs(world, name, SPIN).await?;
    theirs_then_ours(world, name, SPIN).await
}

/// Since 4.4.
pub(crate) async fn once(world: &World<'_>, name: &str) -> Case {
    if world.java.version.starts_with("3.") {
        return world
            .thread(name, "a")
            .ask(&format!("acquire once {name} 0 1000"))
            .await
            .map_or_else(
                |failed| if failed.contains("has it not") { Ok(()) } else { Err(failed) },
                |answer| Err(format!("version 3 has it: {answer}")),
            );
    }
    ours_then_theirs(world, name, ONCE).await?;
    theirs_then_ours(world, name, ONCE).await
}

/// Ours holds, Java waits, and our release wakes it.
async fn ours_then_theirs(world: &World<'_>, name: &str, pair: Pair) -> Case {
    let object = format!("{} {name}", pair.kind);
    let mut java = world.thread(name, "waits");
    let mutex = pair.ours(world).client.mutex_with(name, &long()).map_err(message_of)?;
    let guard = mutex.try_lock().await.map_err(message_of)?;
    java.is_refused(&object).await?;
    java.wait_for(&object, LONG)?;
    if pair.messages {
        world.await_subscribers(name, CHANNEL, 1).await?;
    }
    let since = Instant::now();
    release(guard).await?;
    java.gets(SOON).await?;
    world.note("ours wakes Java", since);
    we_are_refused(pair.ours(world), name).await?;
    java.release(&object).await?;
    ensure!(!world.exists(name)?, "Java's release left the key");
    Ok(())
}

/// Java holds, ours waits, and Java's release wakes it.
async fn theirs_then_ours(world: &World<'_>, name: &str, pair: Pair) -> Case {
    let object = format!("{} {name}", pair.kind);
    let mut java = world.thread(name, "holds");
    java.take(&object, LONG).await?;
    let shown = we_are_refused(pair.ours(world), name).await?;
    let thread = java.ask("id").await?;
    let labels = [("client", &*world.java.client), ("holds", "1"), ("thread", &*thread)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let is_right = shown.program == "a Redisson client" && shown.labels == labels.into();
    ensure!(is_right, "the holder is shown as {shown:?}");
    let before = world.hash(name)?;
    let ours = waiting(&pair.ours(world).client, name)?;
    world.await_subscribers(name, CHANNEL, 1).await?;
    ensure!(world.hash(name)? == before, "waiting changed Java's lock");
    let since = Instant::now();
    java.release(&object).await?;
    let guard = acquired(ours).await?;
    world.note(if pair.messages { "Java wakes ours" } else { "a spin lock wakes ours" }, since);
    java.is_refused(&object).await?;
    release(guard).await?;
    java.take(&object, LONG).await?;
    java.release(&object).await
}

/// Java's lock is ours only after its last release; the threads of one process are different
/// owners, and so are our clients.
pub(crate) async fn re_entry(world: &World<'_>, name: &str) -> Case {
    let object = format!("lock {name}");
    let (mut java, mut other) = (world.thread(name, "a"), world.thread(name, "b"));
    java.take(&object, LONG).await?;
    java.take(&object, LONG).await?;
    java.expect(&format!("count {object}"), "2").await?;
    other.is_refused(&object).await?;
    let ours = waiting(&world.bare.client, name)?;
    world.await_subscribers(name, CHANNEL, 1).await?;
    java.release(&object).await?;
    let held = world.hash(name)?;
    ensure!(held.iter().any(|(_, count)| count == "1"), "one hold is left: {held:?}");
    ensure!(!ours.is_finished(), "we got it after a partial release");
    java.release(&object).await?;
    let guard = acquired(ours).await?;
    // An owner of ours holds it twice; the first release changes nothing.
    release(guard).await?;
    let mutex = world.bare.client.mutex_with(name, &long()).map_err(message_of)?;
    let owner = Owner::new();
    let outer = mutex.lock_as(&owner).await.map_err(message_of)?;
    let inner = mutex.lock_as(&owner).await.map_err(message_of)?;
    java.wait_for(&object, LONG)?;
    world.await_subscribers(name, CHANNEL, 1).await?;
    let outcome = inner.release().await;
    ensure!(matches!(outcome, ReleaseOutcome::Nested { depth: 1 }), "{outcome:?}");
    other.is_refused(&object).await?;
    release(outer).await?;
    java.gets(SOON).await?;
    java.release(&object).await
}

/// A holder of ours that no longer renews, as after a crash, and its late requests.
pub(crate) async fn our_lease_ends(world: &World<'_>, name: &str) -> Case {
    let object = format!("fenced {name}");
    let mut java = world.thread(name, "a");
    let attempt = world.fenced.attempt(name, SHORT);
    attempt.take().await?;
    java.wait_for(&object, LONG)?;
    java.gets(SOON).await?;
    let before = world.hash(name)?;
    let renewed = attempt.renew(LONG).await?;
    ensure!(renewed == RenewReply::Unknown, "our lease is over, and renewing gave {renewed:?}");
    let released = attempt.release().await?;
    ensure!(released == ReleaseReply::NotHeld { revoked: None }, "{released:?}");
    ensure!(world.hash(name)? == before, "our late requests changed Java's lock");
    java.release(&object).await
}

/// A holder of Java's whose fixed lease ends, and its late release.
pub(crate) async fn its_lease_ends(world: &World<'_>, name: &str) -> Case {
    let object = format!("lock {name}");
    let mut java = world.thread(name, "a");
    java.take(&object, SHORT).await?;
    let guard = acquired(waiting(&world.bare.client, name)?).await?;
    let before = world.hash(name)?;
    java.expect(&format!("release {object}"), "not-held").await?;
    ensure!(
        world.hash(name)? == before && guard.is_valid(),
        "Java's late release changed our lock"
    );
    release(guard).await
}

/// Each renews a lock that it holds: Java by its watchdog, ours by its keeper.
pub(crate) async fn renewals(world: &World<'_>, name: &str) -> Case {
    let lease = Duration::from_secs(9);
    let options = long().with_lease_duration(lease).with_renew_interval(Duration::from_secs(1));
    let mutex = world.fenced.client.mutex_with(name, &options).map_err(message_of)?;
    let guard = mutex.lock().await.map_err(message_of)?;
    await_renewal(world, name, lease).await?;
    release(guard).await?;
    let mut java = world.thread(name, "a");
    let answer = java.ask(&format!("acquire fenced {name} 0 -1")).await?;
    ensure!(answer.starts_with("held "), "Java did not get it: {answer}");
    await_renewal(world, name, LONG).await?;
    we_are_refused(&world.fenced, name).await?;
    java.release(&format!("fenced {name}")).await
}

/// Waits until the time that is left grows.
async fn await_renewal(world: &World<'_>, name: &str, lease: Duration) -> Case {
    let most = i64::try_from(lease.as_millis()).map_err(message_of)?;
    let mut least = i64::MAX;
    until("it is renewed", || {
        let left = world.number(name, &["PTTL", name])?;
        ensure!(left > 0 && left <= most, "{left} ms left of {most}");
        least = least.min(left);
        Ok((left > least + 500).then_some(()))
    })
    .await
}

/// Java forces our lock open: we are notified of the loss, and release nothing of the next holder.
pub(crate) async fn java_forces_ours(world: &World<'_>, name: &str) -> Case {
    let object = format!("fenced {name}");
    let mut java = world.thread(name, "a");
    let options = long().with_renew_interval(Duration::from_secs(1));
    let mutex = world.fenced.client.mutex_with(name, &options).map_err(message_of)?;
    let guard = mutex.lock().await.map_err(message_of)?;
    java.expect(&format!("force {object}"), "true").await?;
    java.take(&object, LONG).await?;
    soon("our guard reports its loss", guard.lost()).await?;
    ensure!(!guard.is_valid(), "a lost guard is valid");
    let outcome = guard.release().await;
    ensure!(outcome.is_lost(), "we released what we had lost: {outcome:?}");
    java.expect(&format!("mine {object}"), "true").await?;
    java.release(&object).await
}

/// An operator of ours revokes Java's lock by its token: another token changes nothing.
pub(crate) async fn we_revoke_java(world: &World<'_>, name: &str) -> Case {
    let object = format!("fenced {name}");
    let mut java = world.thread(name, "a");
    let token: u64 = java.take(&object, LONG).await?.parse().map_err(message_of)?;
    let lock_name = LockName::new(name).map_err(message_of)?;
    let engine = &world.fenced.engine;
    let revoke = |token: u64| {
        let token = holdline_core::FencingToken::new(token).map_err(message_of)?;
        let (name, reason) = (lock_name.clone(), "maintenance".to_owned());
        Ok::<_, String>(Operation::Revoke { name, token, reason, now: true })
    };
    let other = engine.operate(&revoke(token + 1)?).await.map_err(message_of)?;
    ensure!(other == OperationReply::NothingThere, "another token: {other:?}");
    java.expect(&format!("mine {object}"), "true").await?;
    let ours = waiting(&world.fenced.client, name)?;
    world.await_subscribers(name, CHANNEL, 1).await?;
    let done = engine.operate(&revoke(token)?).await.map_err(message_of)?;
    ensure!(done == OperationReply::Done, "its token: {done:?}");
    let guard = acquired(ours).await?;
    java.expect(&format!("mine {object}"), "false").await?;
    java.expect(&format!("release {object}"), "not-held").await?;
    ensure!(guard.is_valid(), "Java's late release changed our lock");
    release(guard).await
}

/// An operator of ours revokes a plain lock of Java's by its client and thread: it has no token.
pub(crate) async fn we_revoke_java_by_its_id(world: &World<'_>, name: &str) -> Case {
    let object = format!("lock {name}");
    let mut java = world.thread(name, "a");
    java.take(&object, LONG).await?;
    let lock_name = LockName::new(name).map_err(message_of)?;
    let engine = &world.fenced.engine;
    let shown = engine.inspect(&lock_name).await.map_err(message_of)?;
    let fields = shown.holders.first().ok_or("no holder")?.summary.metadata.fields();
    let label = |key: &str| fields.labels.get(key).cloned().unwrap_or_default();
    let revoke = |thread: &str| {
        let (name, reason) = (lock_name.clone(), "maintenance".to_owned());
        let holder = format!("{}:{thread}", label("client"));
        Operation::RevokeHolder { name, holder, reason }
    };
    let other = engine.operate(&revoke("0")).await.map_err(message_of)?;
    ensure!(other == OperationReply::NothingThere, "another thread: {other:?}");
    java.expect(&format!("mine {object}"), "true").await?;
    let ours = waiting(&world.bare.client, name)?;
    world.await_subscribers(name, CHANNEL, 1).await?;
    let done = engine.operate(&revoke(&label("thread"))).await.map_err(message_of)?;
    ensure!(done == OperationReply::Done, "its thread: {done:?}");
    let guard = acquired(ours).await?;
    java.expect(&format!("release {object}"), "not-held").await?;
    ensure!(guard.is_valid(), "Java's late release changed our lock");
    release(guard).await
}

/// The tokens of both are one rising history, with holders, re-entry and waiters of both.
pub(crate) async fn one_history_of_tokens(world: &World<'_>, name: &str) -> Case {
    let object = format!("fenced {name}");
    let mut java = world.thread(name, "a");
    let mutex = world.fenced.client.mutex_with(name, &long()).map_err(message_of)?;
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..4 {
        let guard = mutex.lock().await.map_err(message_of)?;
        seen.push(guard.fencing_token().get());
        java.is_refused(&object).await?;
        java.wait_for(&object, LONG)?;
        release(guard).await?;
        seen.push(java.gets(SOON).await?.parse().map_err(message_of)?);
        // Re-entry draws a token too.
        seen.push(java.take(&object, LONG).await?.parse().map_err(message_of)?);
        let last = seen.last().map(u64::to_string).unwrap_or_default();
        java.expect(&format!("token {object}"), &last).await?;
        java.release(&object).await?;
        java.release(&object).await?;
    }
    ensure!(seen.is_sorted_by(|a, b| a < b), "the tokens do not rise: {seen:?}");
    Ok(())
}

/// A waiter that gives up, ours or Java's, leaves nothing that could hold or hinder.
pub(crate) async fn waiters_give_up(world: &World<'_>, name: &str) -> Case {
    let object = format!("lock {name}");
    let (mut java, mut other) = (world.thread(name, "a"), world.thread(name, "b"));
    java.take(&object, LONG).await?;
    let ours = waiting(&world.bare.client, name)?;
    world.await_subscribers(name, CHANNEL, 1).await?;
    ours.abort();
    other.wait_for(&object, LONG)?;
    other.parks().await?;
    other.send("interrupt")?;
    let failed = other.answer().await.err().unwrap_or_default();
    ensure!(failed.contains("InterruptedException"), "the interrupted waiter: {failed}");
    java.release(&object).await?;
    // A request of ours that was on its way is undone.
    is_free(world, name, "a waiter that gave up has it").await?;
    other.take(&object, LONG).await?;
    other.release(&object).await?;
    let limited = long().with_wait(SHORT);
    java.take(&object, LONG).await?;
    let mutex = world.bare.client.mutex_with(name, &limited).map_err(message_of)?;
    let timed_out = mutex.lock().await.map(|_| ());
    let is_one = |error: &LockError| matches!(error.kind(), ErrorKind::TimedOut { .. });
    ensure!(timed_out.as_ref().is_err_and(is_one), "a limited wait: {timed_out:?}");
    java.release(&object).await?;
    is_free(world, name, "a waiter that timed out has it").await
}

async fn is_free(world: &World<'_>, name: &str, otherwise: &str) -> Case {
    until(otherwise, || Ok((!world.exists(name)?).then_some(()))).await
}

/// Redisson's read/write lock takes a held `RLock` for a free one; ours reports what it found.
pub(crate) async fn another_kind_is_foreign(world: &World<'_>, name: &str) -> Case {
    let mut java = world.thread(name, "a");
    let foreign = async |wanted: &str| {
        let rwlock = world.fenced.client.rwlock_with(name, &long()).map_err(message_of)?;
        for attempt in [rwlock.try_read().await, rwlock.try_write().await] {
            let Err(error) = attempt else { return Err(format!("we got a held {wanted}")) };
            let is_one = matches!(error.kind(), ErrorKind::Foreign { .. });
            ensure!(is_one && error.to_string().contains(wanted), "{wanted}: {error}");
        }
        Ok(())
    };
    java.take(&format!("lock {name}"), LONG).await?;
    let before = world.hash(name)?;
    foreign("RLock").await?;
    ensure!(world.hash(name)? == before, "we changed what is foreign");
    java.release(&format!("lock {name}")).await?;
    java.take(&format!("write {name}"), LONG).await?;
    let mutex = world.fenced.client.mutex_with(name, &long()).map_err(message_of)?;
    let Err(error) = mutex.try_lock().await else {
        return Err("we got a held RReadWriteLock".to_owned());
    };
    ensure!(matches!(error.kind(), ErrorKind::Foreign { .. }), "a read/write lock: {error:?}");
    java.release(&format!("write {name}")).await
}
