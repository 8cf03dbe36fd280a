//! Local: uncontended `lock` and `release` against two bare transactions on the same settings.

use std::hint::black_box;
use std::time::Instant;

use holdline::Client;

use crate::floor::Floor;
use crate::rounds::{Failure, ROUNDS, Round, each, report};
use crate::run::Scratch;

const CYCLES: usize = 3_000;

pub(crate) fn section() -> Result<(), Failure> {
    let directory = Scratch::new("cycle")?;
    let floor = Floor::open(&directory.path().join("floor.db"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = format!("local://{}/ours", directory.path().display());
    let rounds = runtime.block_on(async {
        let client = Client::connect(&url).await?;
        let lock = client.mutex("bench")?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for cycle in 0..CYCLES as u64 {
                // Two numbers: SQLite writes nothing for an update that changes nothing.
                floor.transaction(2 * cycle)?;
                floor.transaction(2 * cycle + 1)?;
            }
            let bare = each(start.elapsed(), CYCLES);
            let start = Instant::now();
            for _ in 0..CYCLES {
                let guard = lock.lock().await?;
                let _ = black_box(guard.release().await);
            }
            rounds.push(Round { floor: bare, subject: each(start.elapsed(), CYCLES) });
        }
        Ok::<_, Failure>(rounds)
    })?;
    report("local: lock + release, uncontended", &rounds, "at most 1.5");
    Ok(())
}
