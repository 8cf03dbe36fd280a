//! Hand-offs of one name among waiters, for engines with servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::{Client, LockOptions};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::rounds::{Failure, ROUNDS, Round, each, flat, median, middle, ratio, report};

const WAITERS: [usize; 3] = [2, 16, 64];
/// How many bare writes the floor of a round has.
const WRITES: usize = 500;
/// How often the name goes round.
const HAND_OFFS: usize = 256;
/// How many clients, each with a connection of its own, the waiters share.
const CLIENTS: usize = 4;

/// Prints the hand-offs among few and many, each beside one bare write, which `write` names. `url`
/// returns the URL of each client.
pub(crate) async fn beside_writes(
    store: &str,
    write: &str,
    url: impl Fn(usize) -> String,
    mut floor: impl AsyncFnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut ratios = Vec::new();
    for waiters in WAITERS {
        let mut rounds = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            let floor = middle(WRITES, async |_| floor().await).await?;
            let name = format!("bench/{waiters}/{round}");
            let taken = go_round(&url, &name, waiters).await?;
            rounds.push(Round { floor, subject: median(taken.into_iter()) });
        }
        let title = format!("{store}: hand-off among {waiters}, p50, beside one {write}");
        report(&title, &rounds, "at most 3");
        ratios.push(ratio(&rounds));
    }
    flat(&ratios);
    Ok(())
}

/// Returns what each hand-off took, from the call of a release to the next grant.
async fn go_round(
    url: impl Fn(usize) -> String,
    name: &str,
    waiters: usize,
) -> Result<Vec<f64>, Failure> {
    let mut clients = Vec::with_capacity(CLIENTS);
    for number in 0..CLIENTS {
        clients.push(Client::connect(&url(number)).await?);
    }
    let released: Arc<Mutex<Option<Instant>>> = Arc::default();
    let mut tasks = JoinSet::new();
    for waiter in 0..waiters {
        let wait = LockOptions::default().with_wait(Duration::from_secs(60));
        let mutex = clients[waiter % CLIENTS].mutex_with(name, &wait)?;
        let released = released.clone();
        tasks.spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..HAND_OFFS / waiters {
                let guard = mutex.lock().await?;
                let granted = Instant::now();
                let mut released = released.lock().await;
                taken.extend(released.map(|at| each(granted.duration_since(at), 1)));
                *released = Some(Instant::now());
                drop(released);
                let _ = guard.release().await;
            }
            Ok::<_, holdline::LockError>(taken)
        });
    }
    let mut all = Vec::with_capacity(HAND_OFFS);
    while let Some(taken) = tasks.join_next().await {
        all.extend(taken??);
    }
    Ok(all)
}
