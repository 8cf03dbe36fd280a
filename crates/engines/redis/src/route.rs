//! Where calls are sent: to one server, to the master that sentinels name, or to the master of the
//! name's slot.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Clock, LockError};

use crate::cluster::{ClusterRouter, SlotRequest};
use crate::environment::Task;
use crate::keys::Layout;
use crate::link::{Call, Link, ServerFacts, Subscription, Value};
use crate::options::{Publish, RedisOptions};
use crate::sentinel::{self, ReplicaAcks};
use crate::sentinel::{granting_run, replica_acks_of};

/// How the server publishes: the verbs that a script calls.
pub(crate) type PublishVerbs = &'static str;

/// The verbs that publish.
const PLAIN: PublishVerbs = "PUBLISH";
const SHARDED: PublishVerbs = "SPUBLISH";
const BOTH: PublishVerbs = "PUBLISH SPUBLISH";

/// The way to the server of a name.
pub(crate) enum Route {
    /// One server, or the master of a group.
    Server { link: Link, replica_acks: Option<ReplicaAcks>, clock: Arc<dyn Clock> },
    /// A cluster.
    Cluster { router: ClusterRouter, publish: Publish },
}

/// The reply to a call, and the run of the server that gave it where that matters.
pub(crate) struct Sent {
    pub(crate) value: Value,
    facts: Option<Arc<ServerFacts>>,
}

/// What a call does: what may grant waits while the server may have lost grants, and for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It may grant.
    Grant,
    /// It keeps grants.
    Keep,
    Other,
}

impl Route {
    /// Makes a route, which starts to dial at once.
    pub(crate) fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Route, LockError> {
        if options.is_of_cluster() {
            let router = ClusterRouter::new(options, clock)?;
            return Ok(Route::Cluster { router, publish: options.publish() });
        }
        let link = sentinel::link(options, clock.clone())?;
        let replica_acks = replica_acks_of(options, &link, &Layout::of(options))?;
        Ok(Route::Server { link, replica_acks, clock })
    }

    /// Waits until there is a connection.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        match self {
            Route::Server { link, .. } => link.ready().await?.check_is_alone(),
            Route::Cluster { router, .. } => router.ready().await.map(drop),
        }
    }

    /// Returns the verbs that publish, as Redisson chooses them.
    pub(crate) async fn publish_verbs(&self) -> PublishVerbs {
        let Route::Cluster { router, publish } = self else { return PLAIN };
        match publish {
            Publish::Auto => {
                let facts = match router.control().last_facts() {
                    Some(facts) => Some(facts),
                    None => router.control().ready().await.ok(),
                };
                if facts.is_some_and(|facts| facts.spublish) { SHARDED } else { PLAIN }
            }
            Publish::Plain => PLAIN,
            Publish::Sharded => SHARDED,
            Publish::Both => BOTH,
        }
    }

    /// Subscribes to a channel, in each form in which messages are published on it.
    pub(crate) async fn subscribe(
        &self,
        channel: &str,
        slot: u16,
    ) -> Result<Vec<Subscription>, LockError> {
        let channel = channel.as_bytes();
        let router = match self {
            Route::Server { link, .. } => return Ok(vec![link.subscribe(channel.to_vec())]),
            Route::Cluster { router, .. } => router,
        };
        let verbs = self.publish_verbs().await;
        let mut subscriptions = Vec::new();
        if verbs != SHARDED {
            subscriptions.push(router.control().subscribe(channel.to_vec()));
        }
        if verbs != PLAIN {
            let node = router.owner(slot).await?;
            subscriptions.push(node.subscribe_sharded(channel.to_vec()));
        }
        Ok(subscriptions)
    }

    /// Runs a task where those of the connection run.
    pub(crate) fn spawn(&self, task: Task<()>) {
        match self {
            Route::Server { link, .. } => link.spawn(task),
            Route::Cluster { router, .. } => router.control().spawn(task),
        }
    }

    /// Sends a call about keys of this slot, and, if it is about others too, on no cluster. While
    /// the slot migrates, `lock_key_only` makes the call that needs no other key.
    pub(crate) async fn send(
        &self,
        slot: impl Fn() -> Result<u16, LockError> + Send + Sync,
        purpose: Purpose,
        deadline: Duration,
        call: impl Fn() -> Call + Send + Sync,
        lock_key_only: impl Fn() -> Option<Call> + Send + Sync,
    ) -> Result<Sent, LockError> {
        match self {
            Route::Server { link, replica_acks, clock } => {
                let facts = match purpose {
                    Purpose::Grant => {
                        granting_run(link, replica_acks.as_ref(), &**clock, deadline).await?
                    }
                    Purpose::Keep if replica_acks.is_some() => {
                        Some(link.ready_within(deadline).await?)
                    }
                    _ => None,
                };
                let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
                let value = match purpose {
                    Purpose::Grant => link.call_granting(run, call).await?,
                    _ => link.call_of(run, call).await?,
                };
                Ok(Sent { value, facts })
            }
            Route::Cluster { router, .. } => {
                let slot = slot()?;
                let request =
                    SlotRequest { slot, deadline, full: &call, lock_key_only: &lock_key_only };
                Ok(Sent { value: router.send(request).await?, facts: None })
            }
        }
    }

    /// Waits until enough replicas have what was granted, where the options require that.
    pub(crate) async fn confirm(&self, sent: &Sent) -> Result<(), LockError> {
        match self {
            Route::Server { replica_acks: Some(replica_acks), .. } => {
                let run = sent.facts.as_ref().and_then(|facts| facts.run_id.as_deref());
                replica_acks.confirm(run).await
            }
            _ => Ok(()),
        }
    }

    /// Returns the connection to the one server; `None` on a cluster.
    pub(crate) fn server(&self) -> Option<&Link> {
        match self {
            Route::Server { link, .. } => Some(link),
            Route::Cluster { .. } => None,
        }
    }

    /// Returns the connections to all servers that have locks.
    pub(crate) async fn masters(&self) -> Result<Vec<Link>, LockError> {
        match self {
            Route::Server { link, .. } => Ok(vec![link.clone()]),
            Route::Cluster { router, .. } => router.masters().await,
        }
    }

    /// Returns how long to wait for the nodes of a cluster.
    pub(crate) fn slowest_trip(&self) -> Option<Duration> {
        match self {
            Route::Server { .. } => None,
            Route::Cluster { router, .. } => Some(router.slowest_trip()),
        }
    }

    pub(crate) fn is_of_cluster(&self) -> bool {
        matches!(self, Route::Cluster { .. })
    }
}
