//! How much one client, and all of them, may use at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::LimitsConfig;
use crate::problem::Problem;

/// The counters behind the limits.
pub(crate) struct Limits {
    pub(crate) config: LimitsConfig,
    waiters: Counts,
    streams: Counts,
    connections: Counts,
}

/// How many of one kind are open, and how many of them are each client's.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<ByClient>>);

#[derive(Default)]
struct ByClient {
    all: usize,
    clients: HashMap<String, usize>,
}

/// One of a client's waiting requests, event streams or connections; it is counted until it is
/// dropped.
pub struct Counted {
    client: String,
    counts: Counts,
}

impl Limits {
    pub(crate) fn new(config: LimitsConfig) -> Limits {
        let (waiters, streams) = (Counts::default(), Counts::default());
        Limits { config, waiters, streams, connections: Counts::default() }
    }

    /// Counts one more connection of an address, or of a local user.
    pub(crate) fn connection(&self, peer: &str) -> Result<Counted, Problem> {
        let most = (usize::MAX, self.config.connections_per_address);
        self.connections.add(peer, most, ("", "too many connections of this address are open"))
    }

    /// Counts one more waiting request of a client.
    pub(crate) fn waiter(&self, client: &str) -> Result<Counted, Problem> {
        let most = (usize::MAX, self.config.waiters_per_client);
        self.waiters.add(client, most, ("", "too many requests of this client wait already"))
    }

    /// Counts one more event stream of a client.
    pub(crate) fn stream(&self, client: &str) -> Result<Counted, Problem> {
        let most = (self.config.event_streams, self.config.event_streams_per_client);
        let all = "too many event streams are open already";
        self.streams.add(client, most, (all, "too many event streams of this client are open"))
    }

    /// How many requests wait, and how many event streams are open.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.waiters.0.lock().all, self.streams.0.lock().all)
    }
}

impl Counts {
    /// Counts one more, within the limits of all clients and of one.
    fn add(
        &self,
        client: &str,
        (most, most_of_client): (usize, usize),
        (all_full, client_full): (&'static str, &'static str),
    ) -> Result<Counted, Problem> {
        let mut counts = self.0.lock();
        let of_client = counts.clients.get(client).copied().unwrap_or_default();
        if of_client >= most_of_client {
            return Err(Problem::too_many(client_full));
        }
        if counts.all >= most {
            return Err(Problem::too_many(all_full));
        }
        counts.all += 1;
        counts.clients.insert(client.to_owned(), of_client + 1);
        Ok(Counted { client: client.to_owned(), counts: self.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock();
        counts.all -= 1;
        if let Some(count) = counts.clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_counts_no_longer() {
        let config = LimitsConfig {
            waiters_per_client: 1,
            event_streams: 2,
            event_streams_per_client: 1,
            ..LimitsConfig::default()
        };
        let limits = Limits::new(config);
        let first = limits.waiter("a").expect("room");
        assert!(limits.waiter("a").is_err() && limits.waiter("b").is_ok());
        drop(first);
        assert!(limits.waiter("a").is_ok());
        let stream = limits.stream("a").expect("room");
        assert!(limits.stream("a").is_err(), "one client cannot take all streams");
        let other = limits.stream("b").expect("room");
        assert!(limits.stream("c").is_err(), "all are taken");
        assert_eq!(limits.counts(), (0, 2));
        drop((stream, other));
        assert!(limits.stream("a").is_ok());
        assert_eq!(limits.counts(), (0, 0));
    }
}
