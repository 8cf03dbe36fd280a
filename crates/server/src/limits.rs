//! How much one client, and all of them, may use at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::address::ClientAddress;
use crate::config::LimitsConfig;
use crate::identity::Identity;
use crate::problem::Problem;

/// A lease that counts: for its client, and for the client's address if that is known. It counts
/// until it is dropped.
pub(crate) struct LeasePlace {
    pub(crate) _client: Counted,
    pub(crate) _address: Option<Counted>,
}

/// The counters behind the limits.
pub(crate) struct Limits {
    pub(crate) config: LimitsConfig,
    waiters: Counts,
    streams: Counts,
    connections: Counts,
    leases: Counts,
    leases_of_addresses: Counts,
}

/// A limit, and what its error says.
#[derive(Clone, Copy)]
struct Limit {
    most: usize,
    /// What is limited: `requests of one client that wait`.
    what: &'static str,
    fix: &'static str,
}

impl Limit {
    fn problem(self) -> Problem {
        Problem::too_many(format!("there may be {} {}", self.most, self.what)).fix(self.fix)
    }
}

/// How many of one kind are open, and how many of them are each client's.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<ByClient>>);

#[derive(Default)]
struct ByClient {
    all: usize,
    clients: HashMap<String, usize>,
}

/// One of a client's waiting requests, event streams, connections or leases; it is counted until it
/// is dropped.
pub struct Counted {
    client: String,
    counts: Counts,
}

impl Limits {
    pub(crate) fn new(config: LimitsConfig) -> Limits {
        Limits {
            config,
            waiters: Counts::default(),
            streams: Counts::default(),
            connections: Counts::default(),
            leases: Counts::default(),
            leases_of_addresses: Counts::default(),
        }
    }

    /// Counts one more connection of an address or of a local user; of a client behind a proxy, one
    /// more request.
    pub(crate) fn connection(&self, address: &str) -> Result<Counted, Problem> {
        let limit = Limit {
            most: self.config.connections_per_address,
            what: "connections of one address",
            fix: "close some, or raise `connections_per_address` in `[server.limits]` of the \
                  server, and restart it",
        };
        self.connections.add(address, limit)
    }

    /// Counts one more waiting request of a client.
    pub(crate) fn waiter(&self, client: &str) -> Result<Counted, Problem> {
        let limit = Limit {
            most: self.config.waiters_per_client,
            what: "requests of one client that wait",
            fix: "wait for fewer locks at once, or raise `waiters_per_client` in \
                  `[server.limits]` of the server, and restart it",
        };
        self.waiters.add(client, limit)
    }

    /// Counts one more event stream of a client.
    pub(crate) fn stream(&self, client: &str) -> Result<Counted, Problem> {
        let total = Limit {
            most: self.config.event_streams,
            what: "event streams",
            fix: "close some, or raise `event_streams` in `[server.limits]` of the server, and \
                  restart it",
        };
        let of_client = Limit {
            most: self.config.event_streams_per_client,
            what: "event streams of one client",
            fix: "close some, or raise `event_streams_per_client` in `[server.limits]` of the \
                  server, and restart it",
        };
        let counted = self.streams.add(client, of_client)?;
        if self.streams.0.lock().all > total.most {
            return Err(total.problem());
        }
        Ok(counted)
    }

    /// Counts one more lease of a client, and of its address.
    pub(crate) fn lease(&self, identity: &Identity) -> Result<LeasePlace, Problem> {
        self.lease_of(identity.name(), identity.address())
    }

    /// Counts a lease that is held already, whatever the limits.
    pub(crate) fn held_lease(&self, identity: &Identity) -> LeasePlace {
        let address = identity.address().and_then(ClientAddress::counted);
        LeasePlace {
            _client: self.leases.add_anyway(identity.name()),
            _address: address.map(|address| self.leases_of_addresses.add_anyway(&address)),
        }
    }

    pub(crate) fn lease_of(
        &self,
        client: &str,
        address: Option<ClientAddress>,
    ) -> Result<LeasePlace, Problem> {
        let of_client = Limit {
            most: self.config.leases_per_client,
            what: "leases that one client holds or asks for",
            fix: "release some, or raise `leases_per_client` in `[server.limits]` of the server, \
                  and restart it",
        };
        let of_address = Limit {
            most: self.config.leases_per_address,
            what: "leases that the clients of one address hold or ask for",
            fix: "release some, or raise `leases_per_address` in `[server.limits]` of the server, \
                  and restart it",
        };
        let client = self.leases.add(client, of_client)?;
        let address = address.and_then(ClientAddress::counted);
        let address = address.map(|address| self.leases_of_addresses.add(&address, of_address));
        Ok(LeasePlace { _client: client, _address: address.transpose()? })
    }

    /// How many requests wait, and how many event streams are open.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.waiters.0.lock().all, self.streams.0.lock().all)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let all = [&self.waiters, &self.streams, &self.leases, &self.leases_of_addresses];
        all.into_iter().all(|counts| counts.0.lock().clients.is_empty())
    }
}

impl Counts {
    /// Counts one more, within the limit of one client.
    fn add(&self, client: &str, limit: Limit) -> Result<Counted, Problem> {
        let mut counts = self.0.lock();
        let of_client = counts.clients.get(client).copied().unwrap_or_default();
        if of_client >= limit.most {
            return Err(limit.problem());
        }
        Ok(self.count(&mut counts, client))
    }

    fn add_anyway(&self, client: &str) -> Counted {
        self.count(&mut self.0.lock(), client)
    }

    fn count(&self, counts: &mut ByClient, client: &str) -> Counted {
        counts.all += 1;
        *counts.clients.entry(client.to_owned()).or_default() += 1;
        Counted { client: client.to_owned(), counts: self.clone() }
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
        assert!(limits.is_empty());
    }

    #[test]
    fn every_limit_is_named_with_its_setting() {
        let config = LimitsConfig {
            connections_per_address: 0,
            waiters_per_client: 0,
            event_streams: 0,
            event_streams_per_client: 1,
            leases_per_client: 0,
            leases_per_address: 1,
            ..LimitsConfig::default()
        };
        let limits = Limits::new(config);
        let of_client = Limits::new(LimitsConfig { event_streams_per_client: 0, ..config });
        let of_address =
            Limits::new(LimitsConfig { leases_per_client: 1, leases_per_address: 0, ..config });
        let address = Some(ClientAddress::Forwarded([192, 0, 2, 1].into()));
        for (problem, setting) in [
            (limits.connection("a").err(), "connections_per_address"),
            (limits.waiter("a").err(), "waiters_per_client"),
            (limits.stream("a").err(), "event_streams"),
            (of_client.stream("a").err(), "event_streams_per_client"),
            (limits.lease_of("a", None).err(), "leases_per_client"),
            (of_address.lease_of("a", address).err(), "leases_per_address"),
        ] {
            let problem = problem.unwrap_or_else(|| panic!("{setting}: no error"));
            let advice = problem.advice().unwrap_or_default();
            assert!(advice.contains(&format!("raise `{setting}` in")), "{setting}: {advice}");
            assert!(problem.detail().starts_with("there may be 0 "), "{}", problem.detail());
        }
        assert!(limits.is_empty() && of_address.is_empty(), "what is refused counts nowhere");
    }
}
