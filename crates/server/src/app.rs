//! What a request can reach.
//!
//! A server has one `App` for each store. They share access, limits, metrics and the end; each has
//! sessions and events of its own.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdline::Client;
use holdline::audit::AuditFile;
use holdline_core::{Engine, LeaseId, LockName};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::config::{DEFAULT_STORE, LongHoldsConfig, ServerConfig};
use crate::events::{Event, Events, What};
use crate::held::HeldLeases;
use crate::hosts::Hosts;
use crate::identity::Identity;
use crate::life::{Life, MostSessions};
use crate::limits::{LeasePlace, Limits};
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::request_log::RequestLog;
use crate::store_health::StoreHealth;

/// The state of a server for one of its stores. Clones are the same one.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

/// How many bytes of the id of a session name the run of the server; twelve remain to be guessed.
const RUN_BYTES: usize = 4;
/// How many leases that ended are remembered.
const ENDED: usize = 4_096;

/// The leases that were released through this server, or that it has reported as lost: a renewal
/// that comes later loses nothing.
#[derive(Default)]
pub(crate) struct EndedLeases(Mutex<(HashSet<LeaseId>, VecDeque<LeaseId>)>);

impl EndedLeases {
    /// Remembers the end of a lease; returns whether it was unknown.
    fn note(&self, id: LeaseId) -> bool {
        let (ids, order) = &mut *self.0.lock();
        let is_new = ids.insert(id);
        if is_new {
            order.push_back(id);
            if order.len() > ENDED {
                order.pop_front().map(|oldest| ids.remove(&oldest));
            }
        }
        is_new
    }
}

pub(crate) struct AppState {
    /// The name of the store in paths and rights.
    pub(crate) store: String,
    pub(crate) client: Client,
    pub(crate) access: Arc<RwLock<Arc<Access>>>,
    /// Notified when `access` has changed.
    pub(crate) access_changed: Arc<watch::Sender<()>>,
    pub(crate) hosts: Arc<RwLock<Arc<Hosts>>>,
    pub(crate) limits: Arc<Limits>,
    /// Sessions, attempts and answered grants.
    pub(crate) life: Mutex<Life<Arc<Peer>>>,
    pub(crate) ended: EndedLeases,
    pub(crate) held: HeldLeases,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: StoreHealth,
    pub(crate) request_log: Arc<RequestLog>,
    /// Where records go that the store does not keep.
    pub(crate) audit_file: Arc<RwLock<Option<Arc<AuditFile>>>>,
    pub(crate) long_holds: Arc<RwLock<Arc<[LongHoldsConfig]>>>,
    /// Cancelled when the server has received the signal to stop, and goes on for a while.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the server is to stop.
    pub(crate) stopping: CancellationToken,
    /// The first bytes of the ids of sessions: they distinguish this run from others, and from
    /// other servers.
    run: [u8; RUN_BYTES],
    /// The other stores of the server; empty for all but the default one.
    pub(crate) others: Vec<App>,
}

impl App {
    /// Makes the state of a server: `others` are the stores beside the default one, by name.
    pub(crate) fn new(
        client: Client,
        others: Vec<(String, Client)>,
        access: Access,
        hosts: Hosts,
        config: &ServerConfig,
        audit_file: Option<Arc<AuditFile>>,
    ) -> App {
        let access = Arc::new(RwLock::new(Arc::new(access)));
        let access_changed = Arc::new(watch::Sender::new(()));
        let hosts = Arc::new(RwLock::new(Arc::new(hosts)));
        let limits = config.limits;
        let sessions =
            MostSessions { total: limits.sessions, per_owner: limits.sessions_per_client };
        let limits = Arc::new(Limits::new(limits));
        let audit_file = Arc::new(RwLock::new(audit_file));
        let long_holds = Arc::new(RwLock::new(Arc::from(config.long_holds.clone())));
        let metrics = Arc::new(Metrics::new());
        let stopping = CancellationToken::new();
        let draining = CancellationToken::new();
        let request_log = Arc::new(RequestLog::default());
        let app = |store: String, client: Client, others| {
            metrics.store(&store);
            let drawn = client.leases().draw_id();
            let epoch = drawn.short().to_string();
            let mut run = [0; RUN_BYTES];
            run.copy_from_slice(&drawn.as_bytes()[..RUN_BYTES]);
            App(Arc::new(AppState {
                store,
                access: access.clone(),
                access_changed: access_changed.clone(),
                hosts: hosts.clone(),
                limits: limits.clone(),
                life: Mutex::new(Life::new(sessions)),
                ended: EndedLeases::default(),
                held: HeldLeases::default(),
                events: Events::new(epoch),
                metrics: metrics.clone(),
                health: StoreHealth::default(),
                request_log: request_log.clone(),
                audit_file: audit_file.clone(),
                long_holds: long_holds.clone(),
                draining: draining.clone(),
                stopping: stopping.clone(),
                client,
                run,
                others,
            }))
        };
        let others =
            others.into_iter().map(|(name, client)| app(name, client, Vec::new())).collect();
        app(DEFAULT_STORE.to_owned(), client, others)
    }

    /// Returns the states of all stores, the default one first.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &App> {
        std::iter::once(self).chain(&self.others)
    }

    /// Returns the engine of the store.
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        self.client.admin().engine()
    }

    /// Reports that a lease is lost, unless its end is known.
    pub(crate) fn lost(&self, name: &LockName, id: LeaseId, identity: &Identity) {
        self.held.end(id);
        if self.ended.note(id) {
            self.metrics.lost(&self.store);
            self.events.publish(Event::of(What::Lost, name).lease(id).by(identity));
        }
    }

    /// Reports that a lease was released.
    pub(crate) fn released(&self, name: &LockName, id: LeaseId, identity: &Identity) {
        self.held.end(id);
        self.ended.note(id);
        self.events.publish(Event::of(What::Released, name).lease(id).by(identity));
    }

    /// Takes places for the leases of an attempt. `key` is the lease id of a client that may repeat
    /// its request: a lease that it has counts already.
    pub(crate) fn lease_places(
        &self,
        identity: &Identity,
        count: usize,
        key: Option<LeaseId>,
    ) -> Result<Vec<LeasePlace>, Problem> {
        self.held.sweep(self.client.clock().now());
        if key.is_some_and(|id| self.held.has(id)) {
            return Ok(vec![self.limits.held_lease(identity)]);
        }
        (0..count).map(|_| self.limits.lease(identity)).collect()
    }

    /// A lease was granted that lasts for so long.
    pub(crate) fn hold(&self, id: LeaseId, left: Duration, place: LeasePlace) {
        self.held.keep(id, self.client.clock().now().after(left), || place);
    }

    /// The server itself has extended a lease. If it is not known here, it is over.
    pub(crate) fn extend(&self, id: LeaseId, left: Duration) {
        self.held.extend(id, self.client.clock().now().after(left));
    }

    /// A client has renewed a lease, which lasts for so long.
    pub(crate) fn keep(&self, id: LeaseId, left: Duration, identity: &Identity) {
        let place = || self.limits.held_lease(identity);
        self.held.keep(id, self.client.clock().now().after(left), place);
    }

    /// Draws an id that nobody can guess.
    pub(crate) fn draw_id(&self) -> LeaseId {
        self.client.leases().draw_id()
    }

    /// Draws the id of a session, which nobody can guess and which names this run of the server.
    pub(crate) fn draw_session(&self) -> LeaseId {
        let mut bytes = *self.draw_id().as_bytes();
        bytes[..RUN_BYTES].copy_from_slice(&self.run);
        LeaseId::from_bytes(bytes)
    }

    /// Returns whether this run of the server has drawn the id of a session.
    pub(crate) fn drew_session(&self, id: LeaseId) -> bool {
        id.as_bytes().starts_with(&self.run)
    }
}

impl std::ops::Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_lease_is_news_once_and_the_oldest_are_forgotten() {
        let ended = EndedLeases::default();
        let id = |number: u128| LeaseId::from_bytes(number.to_le_bytes());
        assert!(ended.note(id(0)));
        assert!(!ended.note(id(0)));
        let many = ENDED as u128;
        assert!((1..=many).all(|number| ended.note(id(number))));
        assert!(ended.note(id(0)), "the oldest one");
        assert!(!ended.note(id(many)));
        assert_eq!(ended.0.lock().0.len(), ENDED);
    }
}
