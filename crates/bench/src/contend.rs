//! Cycles and hand-offs over any server: what the sections of the databases have in common.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdline::Client;

use crate::rounds::{Failure, ROUNDS, Round, each, flat, median, middle, ratio, report};

pub(crate) const CYCLES: usize = 400;
pub(crate) const NAMES: usize = 16;
const WAITERS: [usize; 3] = [2, 16, 64];
/// How many clients, each with a connection of its own, the waiters share.
const CLIENTS: usize = 4;
const TIME: Duration = Duration::from_millis(1_500);

/// Prints a cycle, and the hand-offs among few and many, beside updates of one row. `update`
/// returns the middle time of an update.
pub(crate) async fn beside_updates(
    database: &str,
    url: &str,
    cycle_budget: &str,
    mut update: impl AsyncFnMut() -> Result<f64, Failure>,
) -> Result<(), Failure> {
    let client = Client::connect(url).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let floor = 2.0 * update().await?;
        let subject = cycle(&client, CYCLES).await?;
        rounds.push(Round { floor, subject });
    }
    report(&format!("{database}: lock + release, one task, p50"), &rounds, cycle_budget);
    let mut ratios = Vec::new();
    for waiters in WAITERS {
        let title = format!("{database}: a hand-off among {waiters}, p50");
        let clients = CLIENTS.min(waiters);
        ratios.push(hand_offs(&title, url, waiters, clients, &mut update).await?);
    }
    flat(&ratios);
    let title = format!("{database}: among 64, each a client of its own, p50");
    hand_offs(&title, url, 64, 64, &mut update).await.map(drop)
}

/// Prints the hand-offs among this many waiters of this many clients; returns the middle ratio.
async fn hand_offs(
    title: &str,
    url: &str,
    waiters: usize,
    clients: usize,
    update: &mut impl AsyncFnMut() -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let floor = update().await?;
        let subject = hand_off(url, waiters, clients).await?;
        rounds.push(Round { floor, subject });
    }
    report(title, &rounds, "at most 3 updates");
    Ok(ratio(&rounds))
}

/// The middle time of a cycle of one task, over names of its own.
pub(crate) async fn cycle(client: &Client, cycles: usize) -> Result<f64, Failure> {
    let locks: Result<Vec<_>, _> =
        (0..NAMES).map(|name| client.mutex(format!("cycle/{name}"))).collect();
    let locks = locks?;
    middle(cycles, async |done| {
        let guard = locks[done % NAMES].lock().await?;
        let _ = black_box(guard.release().await);
        Ok(())
    })
    .await
}

/// Everybody wants the same name; how long it takes from the release of one to the next.
async fn hand_off(url: &str, waiters: usize, connections: usize) -> Result<f64, Failure> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(Client::connect(url).await?);
    }
    let deadline = Instant::now() + TIME;
    let last: Rc<std::cell::Cell<Option<Instant>>> = Rc::default();
    let mut running = Vec::new();
    for waiter in 0..waiters {
        let client = clients[waiter % connections].clone();
        let last = last.clone();
        running.push(tokio::task::spawn_local(async move {
            let lock = client.mutex("hand-off")?;
            let mut taken = Vec::new();
            while Instant::now() < deadline {
                let guard = lock.lock().await?;
                taken.extend(last.take().map(|released| each(released.elapsed(), 1)));
                last.set(Some(Instant::now()));
                let _ = black_box(guard.release().await);
            }
            Ok::<_, Failure>(taken)
        }));
    }
    let mut taken = Vec::new();
    for task in running {
        taken.extend(task.await??);
    }
    Ok(median(taken.into_iter()))
}
