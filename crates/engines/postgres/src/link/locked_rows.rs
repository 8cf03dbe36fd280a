//! Commands that find the row of their name locked by another session.
//!
//! All commands of an engine share one connection, and the server carries them out one after the
//! other: while one waits for a row, all later ones wait too. So the server refuses a command after
//! [`ROW_WAIT`], and the command is sent again after a pause in which others have the connection.
//!
//! - Invariant R1: a command is sent again only if the server has refused it for a lock. A refused
//!   command was rolled back, so it is carried out at most once.
//! - Invariant R2: at most [`MAX_IN_FLIGHT`] commands on one name are sent before it is known that
//!   its row is locked. Once that is known, the engine repeats one command at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline_core::{Backoff, Certainty, Clock, LockError, LockName, Moment};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::unavailable;

/// How long a command waits for a row in the server.
pub(super) const ROW_WAIT: Duration = Duration::from_millis(50);
/// How many commands on one name are in flight at once, unless the server is slow: then others
/// follow after [`IN_FLIGHT_WAIT`].
const MAX_IN_FLIGHT: usize = 4;
const IN_FLIGHT_WAIT: Duration = Duration::from_millis(100);
/// Pauses before a command is sent again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What the commands of one engine know of locked rows.
pub(super) struct LockedRows {
    names: Mutex<HashMap<LockName, Arc<NameLimit>>>,
    /// One command at a time is sent again.
    repeats: Semaphore,
}

/// The commands on one name.
struct NameLimit {
    in_flight: Arc<Semaphore>,
    /// How many commands found the row locked and are sent again.
    repeating: AtomicUsize,
}

impl Default for LockedRows {
    fn default() -> LockedRows {
        LockedRows { names: Mutex::default(), repeats: Semaphore::new(1) }
    }
}

impl LockedRows {
    /// Returns when a command may be sent the first time: at once, unless the row of its name is
    /// known to be locked. Waits until `end`.
    pub(super) async fn enter<'a>(
        &'a self,
        name: Option<&LockName>,
        clock: &'a dyn Clock,
        end: Moment,
    ) -> Result<Turn<'a>, LockError> {
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut turn =
            Turn { rows: self, clock, end, limit: None, permit: None, is_repeating: false, pauses };
        let Some(name) = name else { return Ok(turn) };
        let limit = self.names.lock().entry(name.clone()).or_insert_with(NameLimit::new).clone();
        turn.limit = Some((name.clone(), limit.clone()));
        let mut permit = std::pin::pin!(limit.in_flight.clone().acquire_owned());
        loop {
            tokio::select! {
                biased;
                permit = &mut permit => {
                    turn.permit = permit.ok();
                    return Ok(turn);
                }
                () = clock.sleep_until(clock.now().after(IN_FLIGHT_WAIT)) => {}
            }
            if limit.repeating.load(Ordering::SeqCst) == 0 {
                return Ok(turn);
            }
            if clock.now() >= end {
                let message = "the command waited too long for others: another session has locked \
                    the row of the name";
                return Err(unavailable(message, Certainty::NotApplied));
            }
        }
    }
}

impl NameLimit {
    fn new() -> Arc<NameLimit> {
        let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        Arc::new(NameLimit { in_flight, repeating: AtomicUsize::new(0) })
    }
}

/// A command, from before it is sent until its last answer.
pub(super) struct Turn<'a> {
    rows: &'a LockedRows,
    clock: &'a dyn Clock,
    end: Moment,
    limit: Option<(LockName, Arc<NameLimit>)>,
    permit: Option<OwnedSemaphorePermit>,
    is_repeating: bool,
    pauses: Backoff,
}

impl<'a> Turn<'a> {
    /// Waits until a refused command may be sent again. `None`: its time is over. The permit is
    /// kept until the answer has come.
    pub(super) async fn again(&mut self) -> Option<SemaphorePermit<'a>> {
        if let (false, Some((_, limit))) = (self.is_repeating, &self.limit) {
            limit.repeating.fetch_add(1, Ordering::SeqCst);
            self.is_repeating = true;
        }
        let next = self.clock.now().after(self.pauses.next_pause(rand::random()));
        if next >= self.end {
            return None;
        }
        self.clock.sleep_until(next).await;
        tokio::select! {
            biased;
            permit = self.rows.repeats.acquire() => permit.ok(),
            () = self.clock.sleep_until(self.end) => None,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let Some((name, limit)) = self.limit.take() else { return };
        if self.is_repeating {
            limit.repeating.fetch_sub(1, Ordering::SeqCst);
        }
        let mut names = self.rows.names.lock();
        drop(limit);
        // Others get the limit under this lock only.
        if names.get(&name).is_some_and(|limit| Arc::strong_count(limit) == 1) {
            names.remove(&name);
        }
    }
}
