//! What many contenders of one process share: the record of what they saw, and a resource for each
//! name, which rejects late writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdline::fence::{FenceError, Fenced, FencedCell, Proof};
use holdline::{Client, ClientOptions, Guard};
use holdline_core::{Engine, LockError, LockName, Mode};

use crate::checker::Event;
use crate::failure::{Failure, ensure};
use crate::recorder::Recorder;

/// The record of contenders, and their resources.
pub(crate) struct Contenders {
    pub(crate) recorder: Arc<Recorder>,
    events: Arc<Mutex<Vec<Event>>>,
    attempts: AtomicU64,
    refused: AtomicUsize,
    resources: BTreeMap<LockName, FencedCell<u64>>,
}

impl Contenders {
    pub(crate) fn new(names: &[LockName]) -> Result<Contenders, Failure> {
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = events.clone();
        let recorder = Recorder::new(move |event| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        });
        Ok(Contenders {
            recorder: Arc::new(recorder.map_err(Failure::new)?),
            events,
            attempts: AtomicU64::new(0),
            refused: AtomicUsize::new(0),
            resources: names.iter().map(|name| (name.clone(), FencedCell::new(0))).collect(),
        })
    }

    /// Makes a client whose waits are recorded.
    pub(crate) fn client(&self, engine: Arc<dyn Engine>) -> Result<Client, LockError> {
        let options = ClientOptions::default().with_observer(self.recorder.clone());
        Client::with_options(engine, options)
    }

    /// Records that an attempt is about to begin, and returns its number.
    pub(crate) fn call(&self, name: &LockName, mode: Mode) -> u64 {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        self.recorder.called(attempt, name, mode);
        attempt
    }

    /// Writes to the name's resource, which only an exclusive holder may.
    pub(crate) fn write(&self, attempt: u64, guard: &Guard) -> Result<(), Failure> {
        if guard.mode() != Mode::Exclusive {
            return Ok(());
        }
        let token = guard.fencing_token();
        let sent = self.recorder.now();
        let resource = &self.resources[guard.name()];
        let answer = resource.check_and_write(&Proof::exclusive(token), |count| {
            *count += 1;
            Ok(())
        });
        match answer {
            Ok(()) => self.recorder.wrote(attempt, sent, token, true),
            Err(FenceError::Stale(_)) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.recorder.wrote(attempt, sent, token, false);
            }
            Err(error) => return Err(Failure::new(error)),
        }
        Ok(())
    }

    /// Holds until the lease, which is not renewed, is lost within `limit`, and writes `late` after
    /// that.
    pub(crate) async fn outstay(
        &self,
        attempt: u64,
        guard: &Guard,
        limit: Duration,
        late: Duration,
    ) -> Result<(), Failure> {
        let reply = tokio::time::timeout(limit, guard.lost()).await;
        ensure!(reply.is_ok(), "a lease expired, and its holder was not notified");
        self.recorder.lost(attempt);
        ensure!(!guard.is_valid(), "a lost guard is valid");
        tokio::time::sleep(late).await; // event: another contender takes the name meanwhile
        self.write(attempt, guard)
    }

    /// Returns how many attempts there were.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Returns how many late writes the resources refused.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes what was recorded.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
