//! Many contenders at once, through the library; the checker judges what they saw.
//!
//! Some hold for a moment and release, some drop their guard, some give up half-way, some only try,
//! some outlive a lease that is not renewed and then write late. The engine is right if the checker
//! finds nothing, the resource rejected every late write that came after a newer one, and the store
//! is empty at the end.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, Guard, Keep, LockOptions, by_mode};
use holdline_core::{ErrorKind, Expiry, LockError, LockName, Mode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::bench::{Bench, SOON};
use crate::checker::{Event, Rules, check};
use crate::contenders::Contenders;
use crate::failure::{Failure, ensure};
use crate::report::{Row, Status};

/// How many clients there are, how many tasks each has, and how often each task tries.
const CLIENTS: usize = 4;
const TASKS: usize = 6;
const ATTEMPTS: usize = 25;
/// How many permits the semaphore has.
const PERMITS: u32 = 3;
/// How long any attempt may wait.
const WAIT: Duration = Duration::from_secs(60);

/// What everybody in the storm shares.
struct Storm {
    contenders: Contenders,
    names: Vec<LockName>,
    semaphore: LockName,
    /// The lease that is outstayed.
    lease: Duration,
    /// After how long from its loss another contender has surely taken the name, if one waits.
    late: Duration,
    shared: bool,
    permits: bool,
}

/// How an attempt goes about it.
#[derive(Clone, Copy)]
enum Behaviour {
    Hold,
    Drop,
    Try,
    GiveUp,
    Outstay,
}

/// Runs the storm, as one row of the report.
pub async fn run(bench: &Bench) -> Row {
    let name = String::from("many contenders at once see nothing that must not be");
    let status = if bench.time().is_manual() {
        Status::Impossible("no lease expires by itself on a manual clock")
    } else {
        match rage(bench).await {
            Ok(more) => Status::Ran(more),
            Err(failure) => Status::Failed(failure.to_string()),
        }
    };
    Row { promise: None, name, status }
}

/// The lease with which a hand-off to a client begins.
const HAND_OFF_LEASE: Duration = Duration::from_secs(2);

async fn rage(bench: &Bench) -> Result<String, Failure> {
    let names: Vec<LockName> = (0..3).map(|_| bench.name()).collect();
    let capabilities = bench.capabilities();
    let mut late = capabilities.lag + capabilities.lease.step + bench.scale().lease / 2;
    if capabilities.queue && capabilities.expiry == Expiry::Lease {
        // The store keeps a hand-off for that long, also if the lease is shorter.
        late += HAND_OFF_LEASE;
    }
    let storm = Arc::new(Storm {
        contenders: Contenders::new(&names)?,
        names,
        semaphore: bench.name(),
        lease: bench.scale().lease,
        late,
        shared: bench.capabilities().shared,
        permits: bench.capabilities().permits,
    });
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(storm.contenders.client(bench.factory().open().await?)?);
    }
    let mut tasks = JoinSet::new();
    for task in 0..CLIENTS * TASKS {
        let storm = storm.clone();
        let client = clients[task % CLIENTS].clone();
        tasks.spawn(async move { storm.contend(&client, task).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(Failure::new)??;
    }
    for client in &clients {
        let report = client.shutdown(SOON).await;
        ensure!(report.is_clean(), "a client leaves something behind: {report:?}");
    }
    storm.is_calm(bench).await?;
    // Otherwise there was no late write, and the resource was not needed.
    let refused = storm.contenders.refused();
    ensure!(refused > 0 || !bench.capabilities().fencing, "no late write was refused");
    let events = storm.contenders.take_events();
    judge(&events, Rules::of(bench.capabilities()))?;
    let attempts = storm.contenders.attempts();
    Ok(format!("{attempts} attempts, {} events, {refused} late writes refused", events.len()))
}

/// Asks the checker; a violation is a failure with its witnesses.
pub(crate) fn judge(events: &[Event], rules: Rules) -> Result<(), Failure> {
    let violations = check(events, rules).map_err(Failure::new)?;
    let found: Vec<String> = violations.iter().map(ToString::to_string).collect();
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

impl Storm {
    async fn contend(&self, client: &Client, task: usize) -> Result<(), Failure> {
        // What happens is up to the scheduler anyway; the seed only keeps tasks different.
        let mut random = StdRng::seed_from_u64(task as u64);
        // Each keeps a name for a lease and more.
        let outstays = task.is_multiple_of(2).then(|| random.random_range(0..ATTEMPTS));
        for attempt in 0..ATTEMPTS {
            let name = &self.names[random.random_range(0..self.names.len())];
            let behaviour = match random.random_range(0..20) {
                _ if Some(attempt) == outstays => Behaviour::Outstay,
                0..=3 => Behaviour::Drop,
                4..=5 => Behaviour::Try,
                6..=8 => Behaviour::GiveUp,
                _ => Behaviour::Hold,
            };
            let mode = match random.random_range(0..10) {
                0..=2 if self.shared => Mode::Shared,
                3..=4 if self.permits => {
                    Mode::Permits { count: random.random_range(1..=2), of: PERMITS }
                }
                _ => Mode::Exclusive,
            };
            let name = if mode.permits_of().is_some() { &self.semaphore } else { name };
            let pause = Duration::from_micros(random.random_range(0..3_000));
            self.attempt(client, name, mode, behaviour, pause).await?;
        }
        Ok(())
    }

    async fn attempt(
        &self,
        client: &Client,
        name: &LockName,
        mode: Mode,
        behaviour: Behaviour,
        pause: Duration,
    ) -> Result<(), Failure> {
        let options = match behaviour {
            Behaviour::Outstay => {
                LockOptions::default().with_lease_duration(self.lease).with_keep(Keep::Fixed)
            }
            _ => LockOptions::default(),
        };
        let options = options.with_wait(WAIT);
        let attempt = self.contenders.call(name, mode);
        let acquire = Box::pin(acquire(client, name, mode, behaviour, options));
        let answer = match behaviour {
            Behaviour::GiveUp => tokio::time::timeout(pause, acquire).await.ok(),
            _ => Some(acquire.await),
        };
        match answer {
            Some(Ok(guard)) => self.hold(attempt, guard, behaviour, pause).await,
            Some(Err(error)) if matches!(behaviour, Behaviour::Try) && is_busy(&error) => {
                self.contenders.recorder.failed(attempt);
                Ok(())
            }
            // The short lease, after a stall: it must not be valid.
            Some(Err(error))
                if matches!(behaviour, Behaviour::Outstay) && came_too_late(&error) =>
            {
                self.contenders.recorder.failed(attempt);
                Ok(())
            }
            Some(Err(error)) => Err(error.into()),
            None => {
                self.contenders.recorder.failed(attempt);
                Ok(())
            }
        }
    }

    async fn hold(
        &self,
        attempt: u64,
        guard: Guard,
        behaviour: Behaviour,
        pause: Duration,
    ) -> Result<(), Failure> {
        self.contenders.recorder.granted(attempt, &guard);
        self.contenders.write(attempt, &guard)?;
        tokio::time::sleep(pause).await;
        if matches!(behaviour, Behaviour::Outstay) {
            let limit = self.lease + SOON;
            return self.contenders.outstay(attempt, &guard, limit, self.late).await;
        }
        self.contenders.write(attempt, &guard)?;
        self.contenders.recorder.renewed(attempt, &guard);
        self.contenders.recorder.released(attempt);
        if matches!(behaviour, Behaviour::Drop) {
            drop(guard);
        } else {
            let outcome = guard.release().await;
            ensure!(!outcome.is_lost(), "released, and the outcome is {outcome:?}");
        }
        Ok(())
    }

    /// Waits until there are no holders and waiters: outlived leases expire, and nothing else is
    /// left.
    async fn is_calm(&self, bench: &Bench) -> Result<(), Failure> {
        bench.outlive(self.lease).await;
        for name in self.names.iter().chain([&self.semaphore]) {
            let snapshot = bench.inspect(name).await?;
            let left = (snapshot.holder_count, snapshot.queue_length);
            ensure!(left == (0, 0), "{name}: holders and waiters are left: {left:?}");
        }
        Ok(())
    }
}

async fn acquire(
    client: &Client,
    name: &LockName,
    mode: Mode,
    behaviour: Behaviour,
    options: LockOptions,
) -> Result<Guard, LockError> {
    if matches!(behaviour, Behaviour::Try) {
        by_mode::try_lock(client, name, mode, &options).await
    } else {
        by_mode::lock(client, name, mode, &options).await
    }
}

fn is_busy(error: &LockError) -> bool {
    matches!(error.kind(), ErrorKind::Busy { .. })
}

fn came_too_late(error: &LockError) -> bool {
    error.to_string().contains("had expired when its answer arrived")
}
