//! The leases of this server's agent.
//!
//! Invariant L1: a lease holds all locks of its targets or none. Invariant L2: a lock is renewed by
//! the agent only, so that it ends soon after an agent that has stopped to work.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use holdline::{Client, Guard, LockOptions, ReleaseOutcome, ShortLeaseId};
use holdline_core::{LockError, LockName, Mode};
use tokio::time::Instant;

/// A lease of an agent.
#[derive(Debug)]
pub(super) struct Lease {
    /// What was asked for.
    pub(super) targets: Vec<String>,
    guards: Vec<Guard>,
}

/// The leases by their numbers.
#[derive(Debug, Default)]
pub(super) struct Leases {
    last: u64,
    held: BTreeMap<u64, Lease>,
}

impl Lease {
    /// Acquires all locks or none, and returns for how long they are valid. `wait` is the limit for
    /// all together; without it, each must be free at once.
    ///
    /// # Errors
    /// The first lock that could not be acquired. Nothing is held.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue. What is acquired is released in the background.
    pub(super) async fn acquire(
        client: &Client,
        (targets, needs): (Vec<String>, &BTreeMap<LockName, Mode>),
        options: &LockOptions,
        wait: Duration,
    ) -> Result<(Lease, Duration), LockError> {
        let end = Instant::now() + wait;
        let mut lease = Lease { targets, guards: Vec::with_capacity(needs.len()) };
        for (name, mode) in needs {
            match one(client, (name, *mode), options, end).await {
                Ok(guard) => lease.guards.push(guard),
                Err(error) => {
                    lease.release().await;
                    return Err(error);
                }
            }
        }
        // A first grant is short, and the first locks of a set are older than the last.
        match lease.renew().await {
            Ok(left) => Ok((lease, left)),
            Err(error) => {
                lease.release().await;
                Err(error)
            }
        }
    }

    /// Renews all locks, and returns for how long all are valid.
    ///
    /// # Errors
    /// The first lock that was not renewed.
    pub(super) async fn renew(&self) -> Result<Duration, LockError> {
        let renewed = join_all(self.guards.iter().map(Guard::renew)).await;
        let renewed: Vec<Duration> = renewed.into_iter().collect::<Result<_, _>>()?;
        Ok(renewed.into_iter().min().unwrap_or_default())
    }

    /// Releases all locks, and returns whether each was held until now.
    pub(super) async fn release(self) -> bool {
        let outcomes = join_all(self.guards.into_iter().map(Guard::release)).await;
        !outcomes.iter().any(|outcome| matches!(outcome, ReleaseOutcome::Lost { .. }))
    }

    fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }
}

async fn one(
    client: &Client,
    (name, mode): (&LockName, Mode),
    options: &LockOptions,
    end: Instant,
) -> Result<Guard, LockError> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        let lock = client.rwlock_with(name, options)?;
        return match mode {
            Mode::Shared => lock.try_read().await,
            _ => lock.try_write().await,
        };
    }
    let lock = client.rwlock_with(name, &options.clone().with_wait(left))?;
    match mode {
        Mode::Shared => lock.read().await,
        _ => lock.write().await,
    }
}

impl Leases {
    /// Adds a lease, and returns the name by which the agent refers to it.
    pub(super) fn add(&mut self, lease: Lease) -> String {
        self.last += 1;
        self.held.insert(self.last, lease);
        written(self.last)
    }

    /// Removes and returns the leases that are no longer valid.
    pub(super) fn take_ended(&mut self) -> Vec<(String, Lease)> {
        self.take_if(|_, lease| !lease.is_valid())
    }

    /// Removes and returns a lease, or all if none is named.
    pub(super) fn take(&mut self, named: Option<&str>) -> Vec<(String, Lease)> {
        self.take_if(|number, _| is(number, named))
    }

    fn take_if(&mut self, taken: impl Fn(u64, &Lease) -> bool) -> Vec<(String, Lease)> {
        let all = std::mem::take(&mut self.held);
        let (taken, kept) = all.into_iter().partition(|(number, lease)| taken(*number, lease));
        self.held = kept;
        let taken: BTreeMap<u64, Lease> = taken;
        taken.into_iter().map(|(number, lease)| (written(number), lease)).collect()
    }

    /// Returns the leases that are named, all if none is.
    pub(super) fn named<'a>(
        &'a self,
        named: Option<&'a str>,
    ) -> impl Iterator<Item = (String, &'a Lease)> {
        let held = self.held.iter().filter(move |(number, _)| is(**number, named));
        held.map(|(number, lease)| (written(*number), lease))
    }

    /// Returns which lock belongs to which lease.
    pub(super) fn by_lock(&self) -> BTreeMap<ShortLeaseId, String> {
        let all = self.held.iter().flat_map(|(number, lease)| {
            lease.guards.iter().map(move |guard| (guard.lease_id().short(), written(*number)))
        });
        all.collect()
    }
}

fn written(number: u64) -> String {
    format!("lease-{number}")
}

fn is(number: u64, named: Option<&str>) -> bool {
    named.is_none_or(|named| named == written(number))
}
