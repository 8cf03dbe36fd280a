//! The thread on which commands wait that could not be carried out at once.
//!
//! It is started when it is needed and ends when it was idle for a while. Commands wait in the
//! order in which they came, each until its own deadline.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Fault;
use crate::room::{Entered, Room};

/// How many commands may wait.
const MOST: usize = 4_096;
/// How long the thread stays without work.
const IDLE: Duration = Duration::from_secs(10);

/// A command that waits: told that it is inside, or why it never will be.
pub(crate) type Job = Box<dyn FnOnce(Result<Entered<'_>, Fault>) + Send>;

/// The commands that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    line: Mutex<Line>,
    bell: Condvar,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<(Instant, Job)>,
    served: bool,
}

impl Waiting {
    /// Puts a command at the end of the line.
    pub(crate) fn add(waiting: &Arc<Waiting>, room: &Arc<Room>, job: Job) {
        let refused = {
            let mut line = waiting.line.lock();
            if line.jobs.len() >= MOST {
                Some(job)
            } else {
                line.jobs.push_back((Instant::now() + room.limit(), job));
                waiting.bell.notify_one();
                line.served = line.served || serve(waiting, room);
                // Without a thread nobody would ever look: the job that was added goes back.
                if line.served { None } else { line.jobs.pop_back().map(|(_, job)| job) }
            }
        };
        if let Some(job) = refused {
            job(Err(Fault::unavailable("too many commands wait, or no thread could be started")));
        }
    }

    fn next(&self) -> Option<(Instant, Job)> {
        let mut line = self.line.lock();
        let patience = Instant::now() + IDLE;
        loop {
            if let Some(next) = line.jobs.pop_front() {
                return Some(next);
            }
            if self.bell.wait_until(&mut line, patience).timed_out() && line.jobs.is_empty() {
                line.served = false;
                return None;
            }
        }
    }
}

fn serve(waiting: &Arc<Waiting>, room: &Arc<Room>) -> bool {
    let (waiting, room) = (waiting.clone(), Arc::downgrade(room));
    let thread = std::thread::Builder::new().name("holdline-wait".into());
    let work = move || {
        while let Some((deadline, job)) = waiting.next() {
            let serve = || match room.upgrade() {
                Some(room) => job(room.enter_by(deadline)),
                None => job(Err(Fault::unavailable("the engine was closed"))),
            };
            // A command that panics takes its own answer with it, and nobody else's.
            if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                tracing::error!("a command panicked");
            }
        }
    };
    thread.spawn(work).is_ok()
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("jobs", &self.line.lock().jobs.len()).finish()
    }
}
