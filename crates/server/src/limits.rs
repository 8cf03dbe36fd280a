//! How much one client, and all of them, may use at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::config::LimitsConfig;
use crate::problem::Problem;

/// The counters behind the limits.
pub(crate) struct Limits {
    pub(crate) config: LimitsConfig,
    waiters: Arc<Mutex<HashMap<String, usize>>>,
    streams: Arc<AtomicUsize>,
}

/// One of a client's waiting requests; it is counted until it is dropped.
pub(crate) struct Waiter {
    client: String,
    waiters: Arc<Mutex<HashMap<String, usize>>>,
}

/// One open stream; it is counted until it is dropped.
pub struct OpenStream(Arc<AtomicUsize>);

impl Limits {
    pub(crate) fn new(config: LimitsConfig) -> Limits {
        Limits { config, waiters: Arc::default(), streams: Arc::default() }
    }

    /// Counts one more waiting request of a client.
    pub(crate) fn waiter(&self, client: &str) -> Result<Waiter, Problem> {
        let mut waiters = self.waiters.lock();
        let count = waiters.entry(client.to_owned()).or_default();
        if *count >= self.config.waiters_per_client {
            return Err(Problem::too_many("too many requests of this client wait already"));
        }
        *count += 1;
        Ok(Waiter { client: client.to_owned(), waiters: self.waiters.clone() })
    }

    /// Counts one more event stream.
    pub(crate) fn stream(&self) -> Result<OpenStream, Problem> {
        let most = self.config.event_streams;
        let open = OpenStream(self.streams.clone());
        if self.streams.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(open);
        }
        Err(Problem::too_many("too many event streams are open already"))
    }

    /// How many requests wait, and how many event streams are open.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.waiters.lock().values().sum(), self.streams.load(Ordering::Relaxed))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        if let Some(count) = waiters.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                waiters.remove(&self.client);
            }
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_counts_no_longer() {
        let config =
            LimitsConfig { waiters_per_client: 1, event_streams: 1, ..LimitsConfig::default() };
        let limits = Limits::new(config);
        let first = limits.waiter("a").expect("room");
        assert!(limits.waiter("a").is_err() && limits.waiter("b").is_ok());
        drop(first);
        assert!(limits.waiter("a").is_ok());
        let stream = limits.stream().expect("room");
        assert!(limits.stream().is_err());
        assert_eq!(limits.counts(), (0, 1));
        drop(stream);
        assert!(limits.stream().is_ok());
        assert_eq!(limits.counts(), (0, 0));
    }
}
