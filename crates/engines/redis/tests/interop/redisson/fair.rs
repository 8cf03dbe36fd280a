//! Fair locks, in one queue: `RFairLock` and ours on request. And permits without leases.

use std::time::Instant;

use holdline::{Guard, LockOptions};

use super::world::{LONG, SHORT, SOON, World, acquired, long, release, soon, until};
use crate::ours::message_of;

/// The messages about a semaphore.
const PERMITS_CHANNEL: &str = "redisson_sc:{}";

type Case = Result<(), String>;

fn fair() -> LockOptions {
    long().with_fair(true)
}

/// Starts to wait for a fair lock.
fn waiting(
    world: &World<'_>,
    name: &str,
) -> Result<tokio::task::JoinHandle<Result<Guard, holdline::LockError>>, String> {
    let mutex = world.fenced.client.mutex_with(name, &fair()).map_err(message_of)?;
    Ok(tokio::spawn(async move { mutex.lock().await }))
}

/// Waits until this many stand in the queue.
async fn await_queue(world: &World<'_>, name: &str, count: i64) -> Case {
    let queue = format!("redisson_lock_queue:{{{name}}}");
    until(&format!("{count} in the queue"), || {
        Ok((world.number(name, &["LLEN", &queue])? == count).then_some(()))
    })
    .await
}

/// Five of each side queue in turn, and are served in that order.
pub(crate) async fn in_order(world: &World<'_>, name: &str) -> Case {
    const EACH: usize = 5;
    let object = format!("fair {name}");
    let mut holder = world.thread(name, "holds");
    holder.take(&object, LONG).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for at in 0..EACH {
        ours.push(waiting(world, name)?);
        await_queue(world, name, i64::try_from(2 * at + 1).map_err(message_of)?).await?;
        let thread = world.thread(name, &format!("waits-{at}"));
        thread.wait_for(&object, LONG)?;
        await_queue(world, name, i64::try_from(2 * at + 2).map_err(message_of)?).await?;
        theirs.push(thread);
    }
    holder.release(&object).await?;
    let mut waiting = ours.into_iter();
    for mut thread in theirs {
        let since = Instant::now();
        let guard = acquired(waiting.next().ok_or("one of ours for each of Java's")?).await?;
        world.note("Java wakes ours, fair", since);
        thread.is_still_waiting()?;
        let since = Instant::now();
        release(guard).await?;
        thread.gets(SOON).await?;
        world.note("ours wakes Java, fair", since);
        thread.release(&object).await?;
    }
    until("the lock is free", || Ok((!world.exists(name)?).then_some(()))).await?;
    await_queue(world, name, 0).await
}

/// A holder whose lease ends is followed by the head of the queue, on either side.
pub(crate) async fn expiry(world: &World<'_>, name: &str) -> Case {
    let object = format!("fair {name}");
    let (mut holder, mut waiter) = (world.thread(name, "holds"), world.thread(name, "waits"));
    holder.take(&object, SHORT).await?;
    let guard = acquired(waiting(world, name)?).await?;
    // In Java the late release of a fair lock succeeds if the lock is free, and fails if it is not.
    holder.expect(&format!("release {object}"), "not-held").await?;
    ensure!(guard.is_valid(), "Java's late release changed our lock");
    waiter.wait_for(&object, LONG)?;
    await_queue(world, name, 1).await?;
    release(guard).await?;
    waiter.gets(SOON).await?;
    waiter.release(&object).await
}

/// Permits without leases: both sides acquire and release what the other sees.
pub(crate) async fn counting(world: &World<'_>, name: &str) -> Case {
    let object = format!("semaphore {name}");
    let mut java = world.thread(name, "a");
    let semaphore = world.fenced.client.counting_semaphore(name).map_err(message_of)?;
    ensure!(semaphore.try_set_permits(2).await.map_err(message_of)?, "it was set already");
    java.expect(&format!("set {object} 5"), "false").await?;
    ensure!(semaphore.try_acquire(1).await.map_err(message_of)?, "one of two is free");
    java.take(&object, LONG).await?;
    ensure!(!semaphore.try_acquire(1).await.map_err(message_of)?, "none is free");
    java.is_refused(&object).await?;
    // Java is woken by our release.
    java.wait_for(&object, LONG)?;
    java.parks().await?;
    let since = Instant::now();
    semaphore.release(1).await.map_err(message_of)?;
    java.gets(SOON).await?;
    world.note("our release of a permit wakes Java", since);
    // Ours is woken by Java's.
    let ours = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire(2).await }
    });
    world.await_subscribers(name, PERMITS_CHANNEL, 1).await?;
    java.release(&object).await?;
    java.release(&object).await?;
    soon("our waiter gets two", ours).await?.map_err(message_of)?.map_err(message_of)?;
    java.expect(&format!("free {object}"), "0").await?;
    ensure!(semaphore.release(2).await.map_err(message_of)? == 2, "two are free");
    java.expect(&format!("drain {object}"), "2").await?;
    ensure!(semaphore.available().await.map_err(message_of)? == 0, "Java drained it");
    Ok(())
}
