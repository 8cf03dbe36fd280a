//! What a request can reach.

use std::sync::Arc;

use holdline::Client;
use holdline_core::{Engine, LeaseId};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::config::LimitsConfig;
use crate::events::Events;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::sessions::Sessions;
use crate::shield::Hosts;

/// The state of a server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) access: RwLock<Arc<Access>>,
    pub(crate) hosts: RwLock<Arc<Hosts>>,
    pub(crate) limits: Limits,
    pub(crate) sessions: Sessions,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    /// Cancelled when the server is to stop.
    pub(crate) stopping: CancellationToken,
}

impl App {
    pub(crate) fn new(client: Client, access: Access, hosts: Hosts, limits: LimitsConfig) -> App {
        let epoch = client.draw_lease_id().short().to_string();
        App(Arc::new(Inner {
            access: RwLock::new(Arc::new(access)),
            hosts: RwLock::new(Arc::new(hosts)),
            limits: Limits::new(limits),
            sessions: Sessions::new(limits.sessions),
            events: Events::new(epoch),
            metrics: Metrics::new(),
            stopping: CancellationToken::new(),
            client,
        }))
    }

    /// Returns the engine of the store.
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        self.client.engine()
    }

    /// Draws an id that nobody can guess.
    pub(crate) fn draw_id(&self) -> LeaseId {
        self.client.draw_lease_id()
    }
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}
