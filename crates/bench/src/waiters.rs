//! Hand-offs of one name among waiters, for engines with servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::{Client, LockOptions};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::rounds::{Failure, each};

/// How often the name goes round.
const HAND_OFFS: usize = 256;
/// How many clients, each with a connection of its own, the waiters share.
const CLIENTS: usize = 4;

/// Returns what each hand-off took, from the call of a release to the next grant.
pub(crate) async fn go_round(url: &str, name: &str, waiters: usize) -> Result<Vec<f64>, Failure> {
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        clients.push(Client::connect(url).await?);
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
