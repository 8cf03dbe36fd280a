//! Locks with several holders, and what is no lock: readers and writers, permits, latches, several
//! names at once.

use std::time::Instant;

use holdline::{ErrorKind, Guard, LockError};

use super::java::Thread;
use super::world::{LONG, SHORT, SOON, World, acquired, long, release, soon, until};
use crate::ours::message_of;

type Case = Result<(), String>;

/// The messages about a read/write lock.
const RW_CHANNEL: &str = "redisson_rwlock:{}";
/// The messages about a semaphore.
const PERMITS_CHANNEL: &str = "redisson_sc:{}";
/// The messages about a latch.
const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__{}";

/// Fails unless the attempt was refused because of another holder.
fn is_busy(what: &str, attempt: Result<Guard, LockError>) -> Result<(), String> {
    match attempt {
        Ok(_) => Err(format!("we got {what}")),
        Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => Ok(()),
        Err(error) => Err(format!("{what}: {error:?}")),
    }
}

/// Readers of both sides hold together; a writer waits for the last of them, on either side.
pub(crate) async fn readers(world: &World<'_>, name: &str) -> Case {
    let (read, write) = (format!("read {name}"), format!("write {name}"));
    let (mut reader, mut writer) = (world.thread(name, "reads"), world.thread(name, "writes"));
    let rwlock = world.fenced.client.rwlock_with(name, &long()).map_err(message_of)?;
    let ours = rwlock.try_read().await.map_err(message_of)?;
    reader.take(&read, LONG).await?;
    let second = rwlock.try_read().await.map_err(message_of)?;
    is_busy("a write lock among readers", rwlock.try_write().await)?;
    writer.is_refused(&write).await?;
    // Java's writer is woken by our last reader.
    writer.wait_for(&write, LONG)?;
    world.await_subscribers(name, RW_CHANNEL, 1).await?;
    reader.release(&read).await?;
    release(second).await?;
    is_busy("a write lock beside a reader of ours", rwlock.try_write().await)?;
    let since = Instant::now();
    release(ours).await?;
    writer.gets(SOON).await?;
    world.note("our reader wakes Java's writer", since);
    writer.release(&write).await?;
    // Ours is woken by Java's last reader, which reads twice.
    reader.take(&read, LONG).await?;
    reader.take(&read, LONG).await?;
    let ours = rwlock.try_read().await.map_err(message_of)?;
    let waiting = tokio::spawn({
        let rwlock = rwlock.clone();
        async move { rwlock.write().await }
    });
    world.await_subscribers(name, RW_CHANNEL, 1).await?;
    release(ours).await?;
    reader.release(&read).await?;
    ensure!(!waiting.is_finished(), "we write beside a reader");
    let since = Instant::now();
    reader.release(&read).await?;
    let guard = acquired(waiting).await?;
    world.note("Java's reader wakes our writer", since);
    release(guard).await?;
    nothing_is_left(world, name)
}

fn nothing_is_left(world: &World<'_>, name: &str) -> Case {
    ensure!(!world.exists(name)?, "the lock is free and its key is there");
    let pattern = format!("*{name}*rwlock_timeout*");
    let reply = world.servers.send(name, &["KEYS", &pattern])?;
    let left: Vec<_> = reply.items().unwrap_or_default().iter().map(|key| key.text()).collect();
    ensure!(left.is_empty(), "the lock is free, and these are there: {left:?}");
    Ok(())
}

/// A writer of either side is alone; its release wakes readers and writers.
pub(crate) async fn writers(world: &World<'_>, name: &str) -> Case {
    let (read, write) = (format!("read {name}"), format!("write {name}"));
    let mut java = [world.thread(name, "reads"), world.thread(name, "reads-too")];
    let mut writer = world.thread(name, "writes");
    let rwlock = world.fenced.client.rwlock_with(name, &long()).map_err(message_of)?;
    let guard = rwlock.try_write().await.map_err(message_of)?;
    java[0].is_refused(&read).await?;
    writer.is_refused(&write).await?;
    for reader in &java {
        reader.wait_for(&read, LONG)?;
        reader.parks().await?;
    }
    let since = Instant::now();
    release(guard).await?;
    for reader in &mut java {
        reader.gets(SOON).await?;
    }
    world.note("our writer wakes Java's readers", since);
    for reader in &mut java {
        reader.release(&read).await?;
    }
    writer.take(&write, LONG).await?;
    is_busy("a read lock beside a writer", rwlock.try_read().await)?;
    is_busy("a write lock beside a writer", rwlock.try_write().await)?;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let rwlock = rwlock.clone();
            tokio::spawn(async move { rwlock.read().await })
        })
        .collect();
    world.await_subscribers(name, RW_CHANNEL, 1).await?;
    let since = Instant::now();
    writer.release(&write).await?;
    let mut guards = Vec::new();
    for reader in waiting {
        guards.push(acquired(reader).await?);
    }
    world.note("Java's writer wakes our readers", since);
    java[0].take(&read, LONG).await?;
    java[0].release(&read).await?;
    for guard in guards {
        release(guard).await?;
    }
    nothing_is_left(world, name)
}

/// A reader whose lease ends no longer keeps writers out, whichever side it is of.
pub(crate) async fn readers_expire(world: &World<'_>, name: &str) -> Case {
    let (read, write) = (format!("read {name}"), format!("write {name}"));
    let (mut reader, mut writer) = (world.thread(name, "reads"), world.thread(name, "writes"));
    let rwlock = world.fenced.client.rwlock_with(name, &long()).map_err(message_of)?;
    reader.take(&read, SHORT).await?;
    let guard = soon("our writer gets it", rwlock.write()).await?.map_err(message_of)?;
    reader.expect(&format!("release {read}"), "not-held").await?;
    ensure!(guard.is_valid(), "the late release of a reader changed our lock");
    release(guard).await?;
    let attempt = world.fenced.attempt_to_read(name, SHORT);
    attempt.take().await?;
    writer.wait_for(&write, LONG)?;
    writer.gets(SOON).await?;
    let before = world.hash(name)?;
    let released = attempt.release().await?;
    let over = holdline_core::ReleaseReply::NotHeld { revoked: None };
    ensure!(released == over, "our lease is over, and releasing gave {released:?}");
    ensure!(world.hash(name)? == before, "our late release changed Java's lock");
    writer.release(&write).await?;
    nothing_is_left(world, name)
}

/// Permits of both sides come from one number, with leases.
pub(crate) async fn permits(world: &World<'_>, name: &str) -> Case {
    let object = format!("permits {name}");
    let mut java = [world.thread(name, "a"), world.thread(name, "b"), world.thread(name, "c")];
    java[0].expect(&format!("set {object} 3"), "true").await?;
    let semaphore = world.fenced.client.semaphore_with(name, 3, &long()).map_err(message_of)?;
    let ours = semaphore.try_acquire().await.map_err(message_of)?;
    let mut ids = Vec::new();
    for one in &mut java[..2] {
        ids.push(one.take(&object, LONG).await?);
    }
    java[2].is_refused(&object).await?;
    is_busy("a fourth permit", semaphore.try_acquire().await)?;
    java[0].expect(&format!("free {object}"), "0").await?;
    java[2].wait_for(&object, LONG)?;
    world.await_subscribers(name, PERMITS_CHANNEL, 1).await?;
    let since = Instant::now();
    release(ours).await?;
    ids.push(java[2].gets(SOON).await?);
    world.note("our permit wakes Java", since);
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many(2).await }
    });
    world.await_subscribers(name, PERMITS_CHANNEL, 1).await?;
    java[0].release(&format!("{object} {}", ids[0])).await?;
    is_busy("permits beside a waiter of two", semaphore.try_acquire_many(3).await)?;
    let since = Instant::now();
    java[1].release(&format!("{object} {}", ids[1])).await?;
    let guard = acquired(waiting).await?;
    world.note("Java's permit wakes ours", since);
    java[0].is_refused(&object).await?;
    release(guard).await?;
    java[2].release(&format!("{object} {}", ids[2])).await?;
    java[2].expect(&format!("release {object} {}", ids[2]), "not-held").await?;
    java[0].expect(&format!("free {object}"), "3").await
}

/// A permit whose lease ends is free again, whichever side it is of.
pub(crate) async fn permits_expire(world: &World<'_>, name: &str) -> Case {
    let object = format!("permits {name}");
    let mut java = world.thread(name, "a");
    let semaphore = world.fenced.client.semaphore_with(name, 1, &long()).map_err(message_of)?;
    // Ours makes the semaphore if there is none.
    release(semaphore.acquire().await.map_err(message_of)?).await?;
    let id = java.take(&object, SHORT).await?;
    let guard = soon("ours gets an expired permit", semaphore.acquire()).await?;
    let guard = guard.map_err(message_of)?;
    java.expect(&format!("release {object} {id}"), "not-held").await?;
    java.is_refused(&object).await?;
    release(guard).await?;
    let attempt = world.fenced.attempt_at_permit(name, SHORT);
    attempt.take().await?;
    java.wait_for(&object, LONG)?;
    let id = java.gets(SOON).await?;
    let released = attempt.release().await?;
    let over = holdline_core::ReleaseReply::NotHeld { revoked: None };
    ensure!(released == over, "our lease is over, and releasing gave {released:?}");
    java.release(&format!("{object} {id}")).await?;
    java.expect(&format!("free {object}"), "1").await
}

/// A latch that either side sets and counts down opens for waiters of both.
pub(crate) async fn latch(world: &World<'_>, name: &str) -> Case {
    let object = format!("latch {name}");
    let (mut java, mut counter) = (world.thread(name, "waits"), world.thread(name, "counts"));
    let latch = world.fenced.client.latch(name).map_err(message_of)?;
    for ours_counts_last in [true, false] {
        if ours_counts_last {
            ensure!(latch.try_set(2).await.map_err(message_of)?, "the latch was set already");
            counter.expect(&format!("set {object} 5"), "false").await?;
        } else {
            counter.expect(&format!("set {object} 2"), "true").await?;
            ensure!(!latch.try_set(5).await.map_err(message_of)?, "a set latch was set");
        }
        let ours = tokio::spawn({
            let latch = latch.clone();
            async move { latch.wait().await }
        });
        java.send(&format!("await {object} 60000"))?;
        world.await_subscribers(name, LATCH_CHANNEL, 1).await?;
        one_down(&latch, &mut counter, &object, !ours_counts_last).await?;
        counter.expect(&format!("count {object}"), "1").await?;
        ensure!(
            latch.count().await.map_err(message_of)? == 1 && !ours.is_finished(),
            "one is left"
        );
        let since = Instant::now();
        one_down(&latch, &mut counter, &object, ours_counts_last).await?;
        let opened = soon("Java's waiter passes", java.answer()).await??;
        ensure!(opened == "open", "the latch is open, and Java's waiter got {opened}");
        if ours_counts_last {
            world.note("our count opens Java's latch", since);
        }
        soon("our waiter passes", ours).await?.map_err(message_of)?.map_err(message_of)?;
        ensure!(!world.exists(name)?, "an open latch has a key");
    }
    Ok(())
}

async fn one_down(latch: &holdline::Latch, counter: &mut Thread, object: &str, ours: bool) -> Case {
    if ours {
        return latch.count_down(1).await.map(|_| ()).map_err(message_of);
    }
    counter.expect(&format!("down {object}"), "done").await
}

/// Several names at once, in one order.
pub(crate) async fn several_names(world: &World<'_>, name: &str) -> Case {
    take_several(world, name, 5, |names| names.to_vec()).await
}

/// The same in opposite orders, in which each side at times waits for what the other holds.
/// Redisson gives up and begins again after 1.5 s for each name.
pub(crate) async fn opposite_orders(world: &World<'_>, name: &str) -> Case {
    take_several(world, name, 3, |names| names.iter().rev().cloned().collect()).await
}

/// Some rounds of both sides at once: nobody waits for ever, and nobody holds one of the names
/// while the other side holds it.
async fn take_several(
    world: &World<'_>,
    name: &str,
    rounds: usize,
    order: impl Fn(&[String]) -> Vec<String>,
) -> Case {
    let names = ["x", "y", "z"].map(|one| format!("{name}-{one}"));
    let theirs = |one: &String| {
        let held = world.hash(one)?;
        Ok::<_, String>(held.iter().any(|(field, _)| field.contains(&world.java.client)))
    };
    let ours = async {
        for _ in 0..rounds {
            let guards = world.bare.client.lock_all(&names).await.map_err(message_of)?;
            for one in &names {
                ensure!(!theirs(one)?, "we hold all names, and Java holds {one}");
            }
            for outcome in guards.release().await {
                ensure!(outcome.is_released(), "our release: {outcome:?}");
            }
        }
        Ok::<(), String>(())
    };
    let object = format!("multi {}", order(&names).join(","));
    let mut java = world.thread(name, "a");
    let java_too = async {
        for _ in 0..rounds {
            java.send(&format!("acquire {object} -1 -1"))?;
            java.gets(6 * SOON).await?;
            for one in &names {
                ensure!(theirs(one)?, "Java says that it holds all names, and does not hold {one}");
            }
            java.release(&object).await?;
        }
        Ok::<(), String>(())
    };
    let both = async { tokio::try_join!(ours, java_too) };
    tokio::time::timeout(6 * SOON, both).await.map_err(|_| "they wait for each other")??;
    until("all names are free", || {
        for one in &names {
            if world.exists(one)? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}
