//! The thread for commands that could not run at once.
//!
//! It is started when needed and ends after an idle time. Commands wait in the order of their
//! arrival, each until its own deadline.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Fault;
use crate::transaction_lock::{TransactionGuard, TransactionLock};

/// How many commands may wait.
const MAX_JOBS: usize = 4_096;
/// How long the thread stays idle.
const IDLE: Duration = Duration::from_secs(10);

/// A waiting command. It is called with the guard, or with the reason why it cannot run.
pub(crate) type Job = Box<dyn FnOnce(Result<TransactionGuard<'_>, Fault>) + Send>;

/// The commands that wait.
#[derive(Default)]
pub(crate) struct WaitThread {
    queue: Mutex<JobQueue>,
    wakeup: Condvar,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<(Instant, Job)>,
    served: bool,
}

impl WaitThread {
    /// Appends a command to the queue.
    pub(crate) fn add(
        wait_thread: &Arc<WaitThread>,
        transaction_lock: &Arc<TransactionLock>,
        job: Job,
    ) {
        let refused = {
            let mut queue = wait_thread.queue.lock();
            if queue.jobs.len() >= MAX_JOBS {
                Some(job)
            } else {
                queue.jobs.push_back((Instant::now() + transaction_lock.limit(), job));
                wait_thread.wakeup.notify_one();
                queue.served = queue.served || serve(wait_thread, transaction_lock);
                // Without a thread nobody would run the job, so it fails at once.
                if queue.served { None } else { queue.jobs.pop_back().map(|(_, job)| job) }
            }
        };
        if let Some(job) = refused {
            job(Err(Fault::unavailable("too many commands wait, or no thread could be started")));
        }
    }

    fn next(&self) -> Option<(Instant, Job)> {
        let mut queue = self.queue.lock();
        let limit = Instant::now() + IDLE;
        loop {
            if let Some(next) = queue.jobs.pop_front() {
                return Some(next);
            }
            if self.wakeup.wait_until(&mut queue, limit).timed_out() && queue.jobs.is_empty() {
                queue.served = false;
                return None;
            }
        }
    }
}

fn serve(wait_thread: &Arc<WaitThread>, transaction_lock: &Arc<TransactionLock>) -> bool {
    let wait_thread = wait_thread.clone();
    let transaction_lock = Arc::downgrade(transaction_lock);
    let thread = std::thread::Builder::new().name("holdline-wait".into());
    let work = move || {
        while let Some((deadline, job)) = wait_thread.next() {
            let serve = || match transaction_lock.upgrade() {
                Some(transaction_lock) => job(transaction_lock.enter_by(deadline)),
                None => job(Err(Fault::unavailable("the engine was closed"))),
            };
            // A command that panics loses only its own answer.
            if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                tracing::error!("a command panicked");
            }
        }
    };
    thread.spawn(work).is_ok()
}

impl std::fmt::Debug for WaitThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitThread").field("jobs", &self.queue.lock().jobs.len()).finish()
    }
}
