//! Cycles and hand-offs over any server: what the sections of the databases have in common.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdline::Client;

use crate::rounds::{Failure, each, median};

pub(crate) const CYCLES: usize = 400;
pub(crate) const NAMES: usize = 16;
pub(crate) const WAITERS: [usize; 3] = [2, 16, 64];
/// How many clients, each with a connection of its own, the waiters share.
pub(crate) const CLIENTS: usize = 4;
const TIME: Duration = Duration::from_millis(1_500);

/// The middle time of a cycle of one task, over names of its own.
pub(crate) async fn cycle(client: &Client) -> Result<f64, Failure> {
    let locks: Result<Vec<_>, _> =
        (0..NAMES).map(|name| client.mutex(format!("cycle/{name}"))).collect();
    let locks = locks?;
    let mut taken = Vec::with_capacity(CYCLES);
    for cycle in 0..CYCLES {
        let start = Instant::now();
        let guard = locks[cycle % NAMES].lock().await?;
        let _ = black_box(guard.release().await);
        taken.push(each(start.elapsed(), 1));
    }
    Ok(median(taken.into_iter()))
}

/// Everybody wants the same name; how long it takes from the release of one to the next.
pub(crate) async fn hand_off(
    url: &str,
    waiters: usize,
    connections: usize,
) -> Result<f64, Failure> {
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
