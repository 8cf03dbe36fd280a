//! Five real servers that are one set.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{AcquireRequest, ClientId, Hold, LeaseId, LockKind, LockName, Metadata, Mode};
use holdline_redis::{QuorumAdmin, QuorumOptions, QuorumStatus};
use holdline_services::{RedisConfig, RedisServer};

/// The timeout of one node: test machines are slow, and a late node must not count as lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) const HOLD: Hold = Hold::Leased(Duration::from_secs(30));

pub(crate) fn name() -> LockName {
    LockName::new("a").expect("a good name")
}

/// Returns an acquire of the name under an id of these bytes.
pub(crate) fn request(id: u8) -> AcquireRequest {
    AcquireRequest {
        name: name(),
        lease_id: LeaseId::from_bytes([id; 16]),
        client: ClientId::from_u64(7),
        mode: Mode::Exclusive,
        kind: LockKind::Mutex,
        hold: HOLD,
        queue: false,
        known: false,
        hand_off_lease: MIN_HAND_OFF_LEASE,
        metadata: Metadata::default(),
    }
}

pub(crate) struct Nodes {
    pub(crate) servers: Vec<RedisServer>,
}

impl Nodes {
    /// Starts servers, side by side.
    pub(crate) fn start(count: usize, config: &RedisConfig) -> Nodes {
        let start = || RedisServer::start(config.clone());
        let servers = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
            starting.into_iter().map(|one| one.join().expect("a server")).collect()
        });
        Nodes { servers }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("redlock://{}", hosts.join(","))
    }

    pub(crate) fn options(&self, parameters: &str) -> QuorumOptions {
        let patience = PATIENCE.as_millis();
        let url = format!("{}?command_timeout_ms={patience}{parameters}", self.url());
        QuorumOptions::from_url(&url).expect("a good URL")
    }

    pub(crate) fn admin_with(&self, parameters: &str) -> QuorumAdmin {
        admin_of(&self.options(parameters))
    }

    pub(crate) fn admin(&self) -> QuorumAdmin {
        admin_of(&self.options(""))
    }

    /// Initialises them as an operator does.
    pub(crate) async fn init(&self) -> QuorumStatus {
        self.init_with("").await
    }

    /// The same with these parameters in the URL.
    pub(crate) async fn init_with(&self, parameters: &str) -> QuorumStatus {
        vouched(&self.admin_with(parameters)).await
    }
}

/// Initialises new servers as a set and vouches for them, as an operator does.
pub(crate) async fn vouched(admin: &QuorumAdmin) -> QuorumStatus {
    admin.init().await.expect("blank servers become a set");
    let servers = admin.plan_vouch().await.expect("they can be one set");
    admin.vouch(&servers).await.expect("nothing is held on them")
}

pub(crate) fn admin_of(options: &QuorumOptions) -> QuorumAdmin {
    QuorumAdmin::new(options, Arc::new(MachineClock)).expect("good options")
}
