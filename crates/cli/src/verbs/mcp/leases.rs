//! The leases of this server's agent.
//!
//! Invariant L1: a lease holds all locks of its targets or none. Invariant L2: the keeper renews
//! the locks only while this process lives, and the lease ends unless its agent renews it. So
//! neither an agent that has ended nor one that has stopped to work holds anything for long.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use holdline::lease::ShortLeaseId;
use holdline::{Client, Guard, LockOptions, ReleaseOutcome, by_mode};
use holdline_core::{LockError, LockName, Mode};
use tokio::time::Instant;

use super::targets::Targets;

/// A lease of an agent.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) targets: Targets,
    guards: Vec<Guard>,
    duration: Duration,
    /// When it ends unless the agent renews it.
    ends: Instant,
}

/// The leases by their numbers.
#[derive(Debug, Default)]
pub(super) struct Leases {
    last: u64,
    held: BTreeMap<u64, Lease>,
}

impl Lease {
    /// Acquires all locks or none, for `duration`. `wait` is the limit for all together; without
    /// it, each must be free at once.
    ///
    /// # Errors
    /// The first lock that could not be acquired. Nothing is held.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue. What is acquired is released in the background.
    pub(super) async fn acquire(
        client: &Client,
        targets: Targets,
        options: &LockOptions,
        duration: Duration,
        wait: Duration,
    ) -> Result<Lease, LockError> {
        let end = Instant::now() + wait;
        let guards = Vec::with_capacity(targets.needs.len());
        let mut lease = Lease { targets, guards, duration, ends: end };
        for (name, mode) in &lease.targets.needs {
            match one(client, name, *mode, options, end).await {
                Ok(guard) => lease.guards.push(guard),
                Err(error) => {
                    let _ = lease.release().await;
                    return Err(error);
                }
            }
        }
        // The first lock may have been lost during the wait for the last.
        match lease.renew().await {
            Ok(()) => Ok(lease),
            Err(error) => {
                let _ = lease.release().await;
                Err(error)
            }
        }
    }

    /// Asks the store to confirm all locks, and lets the lease last for its whole duration again.
    ///
    /// # Errors
    /// The first lock that is not confirmed.
    pub(super) async fn renew(&mut self) -> Result<(), LockError> {
        for renewed in join_all(self.guards.iter().map(Guard::renew)).await {
            renewed?;
        }
        self.ends = Instant::now() + self.duration;
        Ok(())
    }

    /// Returns for how long the lease lasts unless it is renewed.
    pub(super) fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Releases all locks, and returns whether each was held until now.
    pub(super) async fn release(self) -> bool {
        let outcomes = join_all(self.guards.into_iter().map(Guard::release)).await;
        !outcomes.iter().any(|outcome| matches!(outcome, ReleaseOutcome::Lost { .. }))
    }

    /// Returns whether other locks cannot be acquired while this lease holds its own.
    fn is_in_the_way_of(&self, wanted: &BTreeMap<LockName, Mode>) -> bool {
        wanted.iter().any(|(name, mode)| {
            let held = self.targets.needs.get(name);
            held.is_some_and(|held| *held == Mode::Exclusive || *mode == Mode::Exclusive)
        })
    }

    fn is_valid(&self) -> bool {
        !self.left().is_zero() && self.guards.iter().all(Guard::is_valid)
    }
}

async fn one(
    client: &Client,
    name: &LockName,
    mode: Mode,
    options: &LockOptions,
    end: Instant,
) -> Result<Guard, LockError> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return by_mode::try_lock(client, name, mode, options).await;
    }
    by_mode::lock(client, name, mode, &options.clone().with_wait(left)).await
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

    /// Returns the end of a lease, if it has not ended.
    pub(super) fn ends(&self, name: &str) -> Option<Instant> {
        let mut held = self.held.iter();
        held.find(|(number, _)| is(**number, Some(name))).map(|(_, lease)| lease.ends)
    }

    /// Returns the leases that are named, all if none is.
    pub(super) fn named<'a>(
        &'a mut self,
        named: Option<&'a str>,
    ) -> impl Iterator<Item = (String, &'a mut Lease)> {
        let held = self.held.iter_mut().filter(move |(number, _)| is(**number, named));
        held.map(|(number, lease)| (written(*number), lease))
    }

    /// Returns the leases that are in the way of locks.
    pub(super) fn in_the_way_of(&self, wanted: &BTreeMap<LockName, Mode>) -> Vec<String> {
        let leases = self.held.iter().filter(|(_, lease)| lease.is_in_the_way_of(wanted));
        leases.map(|(number, _)| written(*number)).collect()
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
