//! Very many leases that one process renews.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::{NATIVE, World};
use crate::rounds::Failure;

const LEASES: usize = 100_000;
const TOGETHER: usize = 500;
/// Two leases: each is renewed about six times.
const TIME: Duration = Duration::from_secs(60);

pub(crate) fn section(world: &World) -> Result<(), Failure> {
    world.runtime.block_on(async {
        let client = world.client(&NATIVE).await?;
        let before = resident_kib()?;
        let mut guards = Vec::with_capacity(LEASES);
        while guards.len() < LEASES {
            let locks: Result<Vec<_>, _> = (0..TOGETHER)
                .map(|next| client.mutex(format!("leases/{}", guards.len() + next)))
                .collect();
            let locks = locks?;
            let taken = futures_util::future::try_join_all(locks.iter().map(|lock| lock.lock()));
            guards.extend(taken.await?);
        }
        let start = Instant::now();
        let cpu = cpu_time();
        let mut least = Duration::MAX;
        while start.elapsed() < TIME {
            tokio::time::sleep(Duration::from_millis(500)).await; // event: a look twice a second
            let left = guards.iter().map(holdline::Guard::remaining).min();
            least = least.min(left.unwrap_or(Duration::ZERO));
        }
        let share = (cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        println!(
            "redis: {LEASES} leases of 30 s, for {} s: {:.1} % of a core, {} MiB, the least time \
             left was {:.1} s, {lost} lost  (to reach: below 25 %, below 250 MiB, above 5 s)",
            TIME.as_secs(),
            share * 100.0,
            (resident_kib()? - before) >> 10,
            least.as_secs_f64(),
        );
        Ok(())
    })
}

pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

fn resident_kib() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no size in the status")?.parse()?)
}
