//! Several real servers that are one set, and what stands on them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdline::admin::Operation;
use holdline::clock::{ClockKind, SystemClock};
use holdline::{Certainty, Client, ErrorKind, Guard, LockError, LockOptions, LostReason};
use holdline_redis::{NodeState, QuorumAdmin, QuorumOptions, QuorumStatus};
use holdline_services::{FaultProxy, RedisConfig, RedisServer, Reply};

use crate::support::{LONG, is_not_lost, let_go, soon, take, until};

/// The longest lease of a set whose nodes nobody waits for.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// The longest lease of a set whose nodes forget: what is left of one is waited for.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

/// The longest lease that a set of [`SHORT`] takes, renewed often.
pub(crate) fn short() -> LockOptions {
    let often = Duration::from_millis(300);
    LockOptions::default().with_lease_duration(SHORT).with_renew_interval(often).with_wait(LONG)
}

/// Servers that may be one set.
pub(crate) struct Nodes(pub(crate) Vec<RedisServer>);

impl Nodes {
    /// Starts servers, side by side, that belong to nothing.
    pub(crate) fn blank(count: usize, config: &RedisConfig) -> Nodes {
        let start = || RedisServer::start(config.clone());
        Nodes(std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
            starting.into_iter().map(|one| one.join().expect("a server")).collect()
        }))
    }

    /// Starts servers that an operator has made a set.
    pub(crate) async fn start(count: usize, max_lease: Duration) -> Nodes {
        Nodes::start_with(count, max_lease, &RedisConfig::default()).await
    }

    pub(crate) async fn start_with(
        count: usize,
        max_lease: Duration,
        config: &RedisConfig,
    ) -> Nodes {
        let nodes = Nodes::blank(count, config);
        found(&nodes.addresses(), max_lease).await.expect("blank servers become a set");
        nodes
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(RedisServer::address).collect()
    }

    pub(crate) fn url(&self) -> String {
        url(&self.addresses())
    }

    pub(crate) async fn client(&self) -> Client {
        client_of(&self.addresses()).await
    }

    /// Makes a client that knows all of them by now.
    pub(crate) async fn client_at_home(&self) -> Client {
        self.at_home(&self.addresses()).await
    }

    /// A proxy before each of them.
    pub(crate) fn proxies(&self) -> Vec<FaultProxy> {
        self.addresses().into_iter().map(FaultProxy::start).collect()
    }

    /// Takes a name on all of them, for a lease that is not given back where it lacks: a node that
    /// is late on a busy machine was not asked.
    pub(crate) async fn take_on_all(
        &self,
        client: &Client,
        name: &str,
        options: &LockOptions,
    ) -> Guard {
        soon("a grant of all nodes", async {
            loop {
                let guard = take(client, name, options).await;
                if self.with(&guard) == self.0.len() {
                    return guard;
                }
                let _ = soon("a release", guard.release()).await;
            }
        })
        .await
    }

    pub(crate) async fn status(&self) -> QuorumStatus {
        admin(&self.addresses(), MINUTE).status().await
    }

    /// Who has a name on which node, by the first characters of the lease id.
    pub(crate) fn holders(&self, name: &str) -> Vec<Option<String>> {
        let key = format!("holdline:{{{name}}}");
        let holder = |server: &RedisServer| {
            let record = server.raw().send(&["GET", &key]).expect("an answer").text()?;
            record.get(..8).map(str::to_owned)
        };
        self.0.iter().map(holder).collect()
    }

    /// On how many nodes a name is held by this guard.
    pub(crate) fn with(&self, guard: &Guard) -> usize {
        let id = guard.lease_id().to_hex();
        let mine = |holder: &Option<String>| holder.as_deref() == id.get(..8);
        self.holders(guard.name().as_str()).iter().filter(|holder| mine(holder)).count()
    }

    /// Waits until a guard has its name on this many nodes.
    pub(crate) async fn held_on(&self, guard: &Guard, count: usize) {
        until(&format!("held on {count} nodes"), || {
            is_not_lost(guard);
            self.with(guard) == count
        })
        .await;
    }

    /// Makes a client that knows all of them by now, at these addresses.
    pub(crate) async fn at_home(&self, addresses: &[SocketAddr]) -> Client {
        let client = client_of(addresses).await;
        let guard = take(&client, "at-home", &short()).await;
        self.held_on(&guard, self.0.len()).await;
        let_go(guard).await;
        client
    }

    /// The same through proxies.
    pub(crate) async fn at_home_behind(&self, proxies: &[FaultProxy]) -> Client {
        self.at_home(&proxies.iter().map(FaultProxy::address).collect::<Vec<_>>()).await
    }

    /// Waits until this many nodes vote.
    pub(crate) async fn vote(&self, count: usize) {
        soon("the nodes vote", async {
            while self.status().await.votes != count {
                tokio::time::sleep(Duration::from_millis(50)).await; // event: until they vote
            }
        })
        .await;
    }

    /// Waits until nothing is left of any lock once these clients have given up all that they had.
    pub(crate) async fn clean(&self, clients: &[&Client]) {
        for client in clients {
            let report = soon("a shutdown", client.shutdown(LONG)).await;
            assert!(report.is_clean(), "{report:?}");
        }
        self.nothing_is_left().await;
    }

    pub(crate) async fn nothing_is_left(&self) {
        for server in &self.0 {
            let what = format!("nothing is left of {:?}", leftovers(server));
            until(&what, || leftovers(server).is_empty()).await;
        }
    }
}

/// All keys but what the node keeps of its set, counters, and marks of dead ids.
fn leftovers(server: &RedisServer) -> Vec<String> {
    let keys = server.raw().say("KEYS *").expect("an answer");
    let keys = keys.items().expect("a list").iter().filter_map(Reply::text);
    let stays =
        |key: &String| key == "holdline:node:1" || key.ends_with(":1l") || key.contains(":1t:");
    keys.filter(|key| !stays(key)).collect()
}

/// How many lease ids of a name are marked as dead.
pub(crate) fn marks(server: &RedisServer, name: &str) -> usize {
    let marks = server.raw().say(&format!("KEYS holdline:{{{name}}}:1t:*")).expect("an answer");
    marks.items().expect("a list").len()
}

/// A URL with deadlines that are long beside what a busy machine needs for an answer.
pub(crate) fn url(addresses: &[SocketAddr]) -> String {
    url_of_hosts(&addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>())
}

pub(crate) fn url_of_hosts(hosts: &[String]) -> String {
    format!("redlock://{}?command_timeout_ms=4000&connect_timeout_ms=10000", hosts.join(","))
}

pub(crate) async fn client_of(addresses: &[SocketAddr]) -> Client {
    crate::support::client(&url(addresses)).await
}

pub(crate) async fn client_through(proxies: &[FaultProxy]) -> Client {
    client_of(&proxies.iter().map(FaultProxy::address).collect::<Vec<_>>()).await
}

pub(crate) fn admin(addresses: &[SocketAddr], max_lease: Duration) -> QuorumAdmin {
    let options = QuorumOptions::from_url(&url(addresses)).expect("a good URL");
    let clock = SystemClock::new(ClockKind::Boottime).expect("the machine gives a timer");
    QuorumAdmin::new(&options.with_max_lease(max_lease), Arc::new(clock)).expect("good options")
}

/// Makes servers a set, as an operator does.
pub(crate) async fn found(
    addresses: &[SocketAddr],
    max_lease: Duration,
) -> Result<QuorumStatus, LockError> {
    let admin = admin(addresses, max_lease);
    soon("a set", admin.init()).await?;
    soon("votes", async { admin.vouch(&admin.plan_vouch().await?).await }).await
}

/// Waits until a node is seen to stand so.
pub(crate) async fn seen(addresses: &[SocketAddr], node: usize, state: NodeState) -> QuorumStatus {
    seen_as(addresses, |status| status.nodes[node].state == state).await
}

/// Waits until the servers are seen to stand so.
pub(crate) async fn seen_as(
    addresses: &[SocketAddr],
    so: impl Fn(&QuorumStatus) -> bool,
) -> QuorumStatus {
    soon("they are seen so", async {
        loop {
            let status = admin(addresses, SHORT).status().await;
            if so(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // event: until it is seen
        }
    })
    .await
}

/// What keeps the servers from being a set, node by node.
pub(crate) fn problem(status: &QuorumStatus, node: usize) -> (NodeState, &str) {
    let node = &status.nodes[node];
    (node.state, node.problem.as_deref().unwrap_or_default())
}

/// The lines of an error that says that too few nodes voted.
pub(crate) fn lines(error: &LockError) -> &[String] {
    match error.kind() {
        ErrorKind::NoQuorum { nodes } => nodes,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn lost(guard: &Guard) -> LostReason {
    let reason = soon("the loss", guard.lost()).await;
    assert!(!guard.is_valid());
    reason
}

/// Takes a name as soon as it is free and enough nodes vote. Earlier requests fail because
/// too few nodes vote, and certainly did nothing.
pub(crate) async fn take_at_last(client: &Client, name: &str, options: &LockOptions) -> Guard {
    let mutex = client.mutex_with(name, options).expect("a good lock");
    soon("the lock", async {
        loop {
            match mutex.lock().await {
                Ok(guard) => return guard,
                Err(error) => few_vote(&error),
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // event: asked until granted
        }
    })
    .await
}

/// What is said of a set that has no majority at the moment.
pub(crate) fn few_vote(error: &LockError) {
    let few = matches!(error.kind(), ErrorKind::NoQuorum { .. } | ErrorKind::Quarantined { .. });
    assert!(few, "{error:?}");
    assert_ne!(error.certainty(), Certainty::Applied, "{error:?}");
}

/// Takes a name in a task.
pub(crate) fn taking(
    client: &Client,
    name: &'static str,
    options: &LockOptions,
) -> tokio::task::JoinHandle<Guard> {
    let (client, options) = (client.clone(), options.clone());
    tokio::spawn(async move { take_at_last(&client, name, &options).await })
}

/// An operator frees a name at once.
pub(crate) async fn revoke_now(client: &Client, guard: &Guard) {
    let revoke = Operation::Revoke {
        name: guard.name().clone(),
        token: guard.fencing_token(),
        reason: "maintenance".to_owned(),
        now: true,
    };
    soon("an answer", client.admin().operate(&revoke)).await.expect("revoked");
}
