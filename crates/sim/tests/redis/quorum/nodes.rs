//! The five servers, each with a clock of its own.

use std::sync::Arc;
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline_core::Clock;
use holdline_core::quorum::{Configuration, NodeId};
use holdline_sim::{ConnectionId, RedisHost, RedisOptions, Reply, Snapshot};

use super::run::MAX_LEASE;
use crate::world::rng::SeededRng;

pub(crate) const NODES: usize = 5;
/// The largest deviation of a server's clock rate, in parts per million. That of clients is as
/// large; together they stay below the drift that leases allow for.
pub(crate) const SKEW_PPM: u64 = 4_700;

/// One server.
pub(crate) struct SimNode {
    pub(crate) host: RedisHost,
    operator: Option<ConnectionId>,
    /// It is stopped or down.
    pub(crate) frozen: bool,
    /// An earlier copy of its data.
    pub(crate) snapshot: Option<Snapshot>,
    /// A replaced server has come back: its own state is old.
    pub(crate) stale: bool,
    /// The server that was at this address before.
    pub(crate) old: Option<RedisHost>,
}

impl SimNode {
    /// Starts a blank server. `off_ms`: the largest error of its clock.
    pub(crate) fn new(clock: &ManualClock, rng: &mut SeededRng, off_ms: u64) -> SimNode {
        let common: Arc<dyn Clock> = Arc::new(clock.clone());
        let host = RedisHost::new(common, RedisOptions::default().with_seed(rng.roll()));
        let mut server = host.server();
        let skew = rng.below(2 * SKEW_PPM + 1) as i64 - SKEW_PPM as i64;
        let off = Duration::from_millis(rng.below(off_ms.max(1)));
        match rng.percent(50) {
            true => server.clock().step_forward(off),
            false => server.clock().step_back(off),
        }
        server.clock().set_skew_ppm(skew);
        if rng.percent(30) {
            server.configure("appendonly", "yes").expect("it can be set");
            server.configure("appendfsync", "always").expect("it can be set");
        }
        drop(server);
        SimNode { host, operator: None, frozen: false, snapshot: None, stale: false, old: None }
    }

    /// Sends a command, outside of the simulated network.
    fn ask(&mut self, words: &[&[u8]]) -> Option<Reply> {
        let mut server = self.host.server();
        if self.operator.is_none_or(|id| !server.is_open(id)) {
            self.operator = server.connect().ok();
        }
        let id = self.operator?;
        server.execute(id, words).into_iter().next()
    }

    /// Returns a field of its state.
    fn field(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        match self.ask(&[b"HGET", b"holdline:node:1", name]) {
            Some(Reply::Bulk(value)) => Some(value.to_vec()),
            _ => None,
        }
    }

    /// Returns its state, by its own keys.
    fn state(&mut self) -> Option<Vec<u8>> {
        if self.frozen {
            // It cannot be observed, and may still lose its data.
            return None;
        }
        let state = self.field(b"g");
        // A server that has come back and does not vote votes again only by the rules.
        if matches!(state.as_deref(), Some(b"forgot" | b"out")) {
            self.stale = false;
        }
        state.filter(|_| !self.stale)
    }

    /// Returns whether it votes.
    pub(crate) fn votes(&mut self) -> bool {
        self.state().is_some_and(|state| state == b"open")
    }

    /// Returns whether it has lost its data and does not vote again yet.
    pub(crate) fn waits(&mut self) -> bool {
        self.state().is_some_and(|state| state == b"forgot")
    }

    /// Returns whether its quarantine has begun and is not over.
    pub(crate) fn is_quarantined(&mut self) -> bool {
        self.waits() && self.field(b"r").is_some()
    }

    /// Returns its floor.
    pub(crate) fn floor(&mut self) -> Option<u64> {
        let floor = self.field(b"f").filter(|_| !self.frozen)?;
        String::from_utf8(floor).ok()?.parse().ok()
    }

    /// Returns the stamp of its configuration.
    pub(crate) fn stamp(&mut self) -> Option<String> {
        let stamp = self.field(b"s")?;
        Some(String::from_utf8_lossy(&stamp).into_owned())
    }

    /// Returns the set of its configuration.
    pub(crate) fn set(&mut self) -> Option<String> {
        self.stamp()?.split('.').next().map(str::to_owned)
    }

    /// Returns the lease id and the client that hold a name here.
    pub(crate) fn holder(&mut self, name: &str) -> Option<(String, String)> {
        if self.frozen {
            return None;
        }
        let lock = format!("holdline:{{{name}}}");
        let Some(Reply::Bulk(record)) = self.ask(&[b"GET", lock.as_bytes()]) else { return None };
        let text = std::str::from_utf8(record.get(..51)?).ok()?;
        Some((text[..32].to_owned(), text[35..].to_owned()))
    }

    /// Replaces the server.
    pub(crate) fn put(&mut self, host: RedisHost) -> RedisHost {
        self.operator = None;
        self.snapshot = None;
        self.frozen = false;
        std::mem::replace(&mut self.host, host)
    }
}

/// Returns the data of a server of another set.
pub(crate) fn foreign_dump(clock: &ManualClock) -> Snapshot {
    let ids = [101, 102, 103, 104, 105].map(|id| NodeId::from_bytes([id; 16]));
    let set = Configuration::initial(&ids.map(|id| (id, "elsewhere:6379")), MAX_LEASE);
    let (mine, stamp) = (ids[0].to_string(), set.stamp().to_string());
    let (set, zero) = (set.to_string(), "0".repeat(16));
    let host = RedisHost::new(Arc::new(clock.clone()), RedisOptions::default());
    let mut server = host.server();
    let id = server.connect().expect("it is up");
    let words = ["HSET", "holdline:node:1", "m", "another run", "i", &mine, "g", "open"];
    let more = ["c", &set, "s", &stamp, "l", &zero, "f", &zero];
    let words: Vec<&[u8]> = words.iter().chain(&more).map(|word| word.as_bytes()).collect();
    server.execute(id, &words);
    server.snapshot()
}

/// Returns the set of a server.
pub(crate) fn set_of(host: &RedisHost) -> Option<Vec<u8>> {
    let mut server = host.server();
    let id = server.connect().ok()?;
    let words: [&[u8]; 3] = [b"HGET", b"holdline:node:1", b"s"];
    let stamp = server.execute(id, &words).into_iter().next();
    server.close(id);
    match stamp {
        Some(Reply::Bulk(stamp)) => stamp.get(..32).map(<[u8]>::to_vec),
        _ => None,
    }
}
