//! The memory of one server process: data, connections, settings, faults.

use std::collections::BTreeMap;

use holdline_core::Moment;

use crate::clock::WallClock;
use crate::config::Config;
use crate::data::{KeyEntry, Keyspace};
use crate::number::SeededRng;
use crate::options::RedisOptions;
use crate::pubsub::Channels;
use crate::session::{Connection, ConnectionId};

/// The number of databases.
pub(crate) const DATABASES: usize = 16;

/// The commands that a pause of clients stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    Writes,
    All,
}

/// Conditions that a test can put a server into; each rejects commands with the server's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ServerCondition {
    /// Loading its data set: nearly all commands get `LOADING`.
    Loading,
    /// A script runs for too long: nearly all commands get `BUSY`.
    Busy,
    /// Snapshots fail: writes get `MISCONF`.
    CannotPersist,
    /// A read-only replica: writes get `READONLY`.
    Replica,
    /// A replica without its master: nearly all commands get `MASTERDOWN`.
    MasterDown,
    /// Too few replicas: writes get `NOREPLICAS`.
    TooFewReplicas,
}

/// Everything but the scripts.
pub(crate) struct ServerData {
    pub(crate) clock: WallClock,
    /// The time of the running command.
    pub(crate) now_us: i64,
    pub(crate) databases: Vec<Keyspace>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) next_connection: u64,
    /// A reader may wait for output; if not, no connection is searched for one.
    pub(crate) may_read: bool,
    pub(crate) channels: Channels,
    pub(crate) config: Config,
    pub(crate) options: RedisOptions,
    pub(crate) rng: SeededRng,
    pub(crate) run_id: String,
    pub(crate) replication_id: String,
    pub(crate) started: Moment,
    pub(crate) conditions: Vec<ServerCondition>,
    /// Commands that the only user may not run.
    pub(crate) pause: Option<(Pause, Moment)>,
    /// The process is stopped: by a signal (no end known) or by DEBUG SLEEP.
    pub(crate) asleep: Option<Moment>,
    pub(crate) frozen: bool,
    pub(crate) commands_run: u64,
    /// Those that clients sent, without those of scripts.
    pub(crate) requests: u64,
    /// Memory was full when the running command began.
    pub(crate) out_of_memory: bool,
    pub(crate) changes: u64,
    pub(crate) evicted: u64,
    pub(crate) expired_keys: u64,
    pub(crate) published: u64,
    /// The log of scripts.
    pub(crate) log: Vec<(i64, Vec<u8>)>,
}

impl ServerData {
    pub(crate) fn new(clock: WallClock, options: RedisOptions) -> ServerData {
        let mut rng = SeededRng::new(options.seed);
        let now_us = clock.now_us();
        let started = clock.common().now();
        let databases = (0..DATABASES).map(|_| Keyspace::new(rng.next_u64())).collect();
        ServerData {
            clock,
            now_us,
            databases,
            connections: BTreeMap::new(),
            next_connection: 1,
            may_read: false,
            channels: Channels::default(),
            config: Config::new(&options),
            run_id: rng.hex(40),
            replication_id: rng.hex(40),
            rng,
            options,
            started,
            conditions: Vec::new(),
            pause: None,
            asleep: None,
            frozen: false,
            commands_run: 0,
            requests: 0,
            out_of_memory: false,
            changes: 0,
            evicted: 0,
            expired_keys: 0,
            published: 0,
            log: Vec::new(),
        }
    }

    pub(crate) fn is_in(&self, condition: ServerCondition) -> bool {
        self.conditions.contains(&condition)
    }

    /// Removes an expired key. A replica waits for its master to do that.
    pub(crate) fn expired(&mut self, db: usize, key: &[u8]) {
        if self.is_in(ServerCondition::Replica) {
            return;
        }
        self.databases[db].remove(key);
        self.expired_keys += 1;
    }

    /// Removes all expired keys.
    pub(crate) fn expire_all(&mut self) {
        let now = self.now_us.div_euclid(1000);
        for db in 0..self.databases.len() {
            self.expired_keys += self.databases[db].expire(now).len() as u64;
        }
    }

    /// Empties all databases.
    pub(crate) fn flush(&mut self) {
        self.changes += 1;
        self.databases.iter_mut().for_each(Keyspace::clear);
    }

    /// Removes a connection with its subscriptions.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.channels.forget(id);
        if let Some(waker) = self.connections.remove(&id).and_then(|c| c.waker) {
            waker.wake();
        }
    }

    /// Closes a connection: at once, or after the current reply.
    pub(crate) fn kill(&mut self, id: ConnectionId, after_reply: bool) {
        if !after_reply {
            self.forget(id);
        } else if let Some(connection) = self.connections.get_mut(&id) {
            connection.closing = true;
        }
    }

    /// Returns the approximate used memory in bytes.
    pub(crate) fn used_memory(&self) -> usize {
        const EMPTY: usize = 900_000;
        EMPTY + self.databases.iter().map(Keyspace::bytes).sum::<usize>()
    }

    /// Evicts keys if the policy allows it; returns whether there is enough memory.
    pub(crate) fn has_room(&mut self) -> bool {
        let limit = self.config.max_memory();
        if limit == 0 {
            return true;
        }
        while self.used_memory() > limit {
            let Some((db, key)) = self.eviction_candidate() else { return false };
            self.databases[db].remove(&key);
            self.evicted += 1;
        }
        true
    }

    /// Returns the next key to evict under the policy.
    fn eviction_candidate(&mut self) -> Option<(usize, Vec<u8>)> {
        let policy = self.config.text("maxmemory-policy").to_owned();
        let volatile = policy.starts_with("volatile-");
        if !volatile && !policy.starts_with("allkeys-") {
            return None;
        }
        let random = policy.ends_with("-random");
        let all = self.databases.iter().enumerate();
        let all = all.flat_map(|(db, space)| space.iter().map(move |(key, e)| (db, key, e)));
        let candidates: Vec<(usize, &Vec<u8>, &KeyEntry)> =
            all.filter(|(_, _, entry)| !volatile || entry.expires_at.is_some()).collect();
        let chosen = if random {
            let at = self.rng.below(candidates.len() as u64);
            candidates.get(usize::try_from(at).unwrap_or(0))
        } else if policy.ends_with("-ttl") {
            candidates.iter().min_by_key(|(_, _, entry)| entry.expires_at)
        } else {
            candidates.iter().min_by_key(|(_, _, entry)| entry.used)
        };
        chosen.map(|(db, key, _)| (*db, (*key).clone()))
    }
}
