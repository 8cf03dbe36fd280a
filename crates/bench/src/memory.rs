//! Memory: uncontended `lock` and `release` against a tokio mutex found by name.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use holdline::Client;
use tokio::sync::Mutex;

use crate::rounds::{Failure, ROUNDS, Round, each, report};

const CYCLES: usize = 200_000;
const NAMES: usize = 64;

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rounds = runtime.block_on(async {
        let names: Vec<String> = (0..NAMES).map(|n| format!("stock/{n}")).collect();
        let plain: HashMap<String, Arc<Mutex<()>>> =
            names.iter().map(|name| (name.clone(), Arc::default())).collect();
        let client = Client::connect("memory:bench").await?;
        let locks: Result<Vec<_>, _> = names.iter().map(|name| client.mutex(name)).collect();
        let locks = locks?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for cycle in 0..CYCLES {
                let name = &names[cycle % NAMES];
                let mutex = black_box(&plain).get(name.as_str()).ok_or("a missing name")?;
                drop(black_box(mutex.lock().await));
            }
            let floor = each(start.elapsed(), CYCLES);
            let start = Instant::now();
            for cycle in 0..CYCLES {
                let guard = locks[cycle % NAMES].lock().await?;
                let _ = black_box(guard.release().await);
            }
            rounds.push(Round { floor, subject: each(start.elapsed(), CYCLES) });
        }
        Ok::<_, Failure>(rounds)
    })?;
    report("memory: lock + release, uncontended", &rounds, "at most 10");
    Ok(())
}
