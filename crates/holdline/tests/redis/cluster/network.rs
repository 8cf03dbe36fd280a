//! A master on one side, the other nodes on the other, and clients that reach both: machines of a
//! network of the test's own. No error is reported when packets are lost.

use std::time::Duration;

use holdline::Keep;
use holdline_services::{ClusterConfig, Cut, PrivateNetwork, RedisCluster};

use super::ground::{Cluster, patient};
use crate::support::{behind, client, lease, let_go, soon, take, the_resource_refuses, until};

/// For how long a master that is cut off goes on.
const GOES_ON: Duration = Duration::from_secs(8);

/// An isolated master keeps serving its clients until it finds itself in a minority. Its replica
/// misses the grants of that time: exclusion is not promised then, the order of tokens is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_master_grants_locks_that_are_lost_and_tokens_order_the_holders() {
    let name = "cluster::network::an_isolated_master_grants_locks_that_are_lost_and_tokens_order_\
                the_holders";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let config = ClusterConfig::default().with_node_timeout(GOES_ON);
    let cluster = Cluster(RedisCluster::start_apart(&config, &network));
    let (slot, master) = cluster.place("a");
    // They know of the others by what that one says.
    let parameters = "command_timeout_ms=4000&connect_timeout_ms=10000";
    let url = format!("redis-cluster://{}?{parameters}", cluster.node(master).address());
    let (holder, other) = (client(&url).await, client(&url).await);
    // Connected by now: what follows takes no longer than its answers.
    let_go(take(&holder, "a", &patient()).await).await;
    let_go(take(&other, "a", &patient()).await).await;
    cluster.0.cut(master, Cut::Peers);
    let held = take(&holder, "a", &lease(30_000).with_keep(Keep::Fixed)).await;
    let granted = behind(cluster.node(master), "EXISTS holdline:{a}").integer();
    assert_eq!(granted, Some(1), "by the one that is cut off");

    cluster.await_takeover(slot, master);
    let next = take(&other, "a", &patient()).await;
    assert!(held.is_valid() && next.is_valid(), "two believe: what is not promised");
    assert!(next.fencing_token() > held.fencing_token());
    the_resource_refuses(&held, &next);
    until("the one that is cut off takes nothing", || {
        let reply = format!("{:?}", behind(cluster.node(master), "SET {a} x"));
        reply.contains("CLUSTERDOWN")
    })
    .await;

    cluster.0.heal(master);
    until("it follows", || !cluster.node(master).is_master()).await;
    let outcome = soon("the release", held.release()).await;
    assert!(!outcome.is_released(), "{outcome:?}");
    let_go(next).await;
}
