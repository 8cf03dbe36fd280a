//! Storms: contenders of both sides on one name.

use super::history::{History, Party, Storm, Wanted};
use super::world::{World, long};
use crate::ours::{Ours, message_of};

type Case = Result<(), String>;

/// How many contend of each side.
const CONTENDERS: usize = 8;
/// The permits of a semaphore; also what readers can be at once, and what a writer takes.
const PERMITS: u32 = 3;
const ALL: u64 = 1000;

fn done(world: &World<'_>, what: &'static str, history: &History, capacity: u64) -> Case {
    let (ours, theirs) = history.shares();
    world.shares.lock().expect("no panic holds it").push((what, ours, theirs));
    history.fits(capacity)?;
    history.is_mixed()
}

async fn exclusive(
    world: &World<'_>,
    name: &str,
    ours: &Ours,
    kind: &'static str,
) -> Result<History, String> {
    let mutex = ours.client.mutex_with(name, &long()).map_err(message_of)?;
    let party = Party { kind, ours: Wanted::Mutex(Box::new(mutex)), count: CONTENDERS, weight: 1 };
    Storm::CALM.run(&world.java, name, &[party]).await
}

pub(crate) async fn locks(world: &World<'_>, name: &str) -> Case {
    let history = exclusive(world, name, &world.bare, "lock").await?;
    done(world, "lock", &history, 1)
}

pub(crate) async fn fenced(world: &World<'_>, name: &str) -> Case {
    let history = exclusive(world, name, &world.fenced, "fenced").await?;
    done(world, "fenced", &history, 1)?;
    history.has_rising_tokens()
}

/// In a fair lock each side has a share of 30 to 70 percent.
pub(crate) async fn fair(world: &World<'_>, name: &str) -> Case {
    let options = long().with_fair(true);
    let mutex = world.fenced.client.mutex_with(name, &options).map_err(message_of)?;
    let ours = Wanted::Mutex(Box::new(mutex));
    let party = Party { kind: "fair", ours, count: CONTENDERS, weight: 1 };
    let history = Storm::CALM.run(&world.java, name, &[party]).await?;
    done(world, "fair", &history, 1)?;
    let (ours, theirs) = history.shares();
    let percent = 100 * ours / (ours + theirs);
    ensure!((30..=70).contains(&percent), "{percent} % of the holds are ours");
    Ok(())
}

pub(crate) async fn readers_and_writers(world: &World<'_>, name: &str) -> Case {
    let rwlock = world.bare.client.rwlock_with(name, &long()).map_err(message_of)?;
    let readers = Party { kind: "read", ours: Wanted::Read(rwlock.clone()), count: 2, weight: 1 };
    let writers = Party { kind: "write", ours: Wanted::Write(rwlock), count: 4, weight: ALL };
    let history = Storm::CALM.run(&world.java, name, &[readers, writers]).await?;
    done(world, "read/write", &history, ALL)
}

pub(crate) async fn permits(world: &World<'_>, name: &str) -> Case {
    let semaphore = world.bare.client.semaphore_with(name, PERMITS, &long()).map_err(message_of)?;
    let first = format!("set permits {name} {PERMITS}");
    world.thread(name, "sets").expect(&first, "true").await?;
    let ours = Wanted::Permit(Box::new(semaphore));
    let party = Party { kind: "permits", ours, count: CONTENDERS, weight: 1 };
    let history = Storm::CALM.run(&world.java, name, &[party]).await?;
    done(world, "permits", &history, u64::from(PERMITS))
}
