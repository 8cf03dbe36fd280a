//! The old master and a client of it on one side, the others on the other: machines of a network of
//! the test's own. No error is reported when packets are lost.

use holdline::{Client, ErrorKind, Guard, LockError, LostReason};
use holdline_services::{Cut, PrivateNetwork, RedisConfig, SentinelConfig, SentinelGroup};

use super::ground::{Group, lost, patient};
use crate::support::{
    behind, client, let_go, reached, renewed, soon, take, the_resource_refuses, try_take, until,
};

/// In ms; short, for all of them are waited for.
const LONGEST: u64 = 6_000;

/// A group apart, and two clients: one knows the first sentinel alone, the other the others.
struct Apart {
    group: Group,
    lonely: Client,
    other: Client,
}

impl Apart {
    async fn start(network: &PrivateNetwork, servers: RedisConfig) -> Apart {
        let config = SentinelConfig::default().with_servers(servers);
        let group = Group(SentinelGroup::start_apart(&config, network));
        group.0.settle(0);
        // What a master that is cut off may still take: its `min-replicas-max-lag` and 2 s.
        let url = |sentinels: &[usize]| {
            let url = group.0.url_of(sentinels);
            format!(
                "{url}?command_timeout_ms=4000&max_lease_duration_ms={LONGEST}&old_master_ms=4000"
            )
        };
        let (lonely, other) = (client(&url(&[0])).await, client(&url(&[1, 2])).await);
        Apart { group, lonely, other }
    }

    /// Has one hold, cuts its side off, and lets the other side go on until it holds too.
    async fn part(&self) -> (Guard, Guard) {
        let held = take(&self.lonely, "a", &options()).await;
        self.group.0.await_replicated();
        self.group.0.cut(0, Cut::Peers);
        self.group.0.await_promotion_seen_by(&[1, 2], 0);
        self.others_move().await;
        let next = take(&self.other, "a", &options()).await;
        assert!(next.fencing_token() > held.fencing_token());
        (held, next)
    }

    /// Waits until the new master refuses the other client's requests. The sentinels may notify us
    /// first. Until they notify the client, it uses the old master, which is still reachable.
    async fn others_move(&self) {
        let moved = async {
            loop {
                match try_take(&self.other, "b", &options()).await {
                    Ok(early) => {
                        let there = behind(self.group.server(0), "EXISTS holdline:{b}").integer();
                        assert_eq!(there, Some(1), "granted by the new one: {early:?}");
                        // Whose release may come to the new one, which knows nothing of it.
                        let _released_or_lost = soon("the release", early.release()).await;
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::Quarantined { .. }) => return,
                    Err(error) => assert!(is_outage(&error), "{error:?}"),
                }
            }
        };
        soon("the other client moves", moved).await;
    }
}

/// Of a master that takes no writes, or of one that is just left.
fn is_outage(error: &LockError) -> bool {
    matches!(error.kind(), ErrorKind::NoQuorum { .. } | ErrorKind::Unavailable { .. })
        || error.to_string().contains("min-replicas-to-write")
}

fn options() -> holdline::LockOptions {
    patient().with_lease_duration(std::time::Duration::from_millis(LONGEST))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_isolated_with_a_holder_stops_and_the_holder_loses_before_the_next_grant() {
    let name = "sentinel::network::a_master_isolated_with_a_holder_stops_and_the_holder_loses_\
                before_the_next_grant";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let servers = RedisConfig::default().with_line("min-replicas-to-write 1");
    let apart = Apart::start(&network, servers.with_line("min-replicas-max-lag 2")).await;
    let (held, next) = apart.part().await;
    // Its renewals were refused, and it ended by its own clock.
    assert!(!held.is_valid(), "two believe: {held:?} and {next:?}");
    assert_eq!(lost(&held).await, LostReason::Expired);
    the_resource_refuses(&held, &next);
    let refused = try_take(&apart.lonely, "c", &options()).await.expect_err("it takes no writes");
    assert!(refused.to_string().contains("min-replicas-to-write"), "{refused:?}");
    assert_eq!(behind(apart.group.server(0), "EXISTS holdline:{c}").integer(), Some(0));
    renewed(&next).await;
    apart.group.0.heal(0);
    until("the old one follows", || !apart.group.server(0).is_master()).await;
    reached(&apart.lonely).await;
    let last = take(&apart.lonely, "c", &options()).await;
    assert!(last.fencing_token() > next.fencing_token());
    renewed(&next).await;
    let_go(next).await;
    let_go(last).await;
}

/// The control: it is `min-replicas-to-write` that keeps two from believing. The token
/// shows who came later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_master_without_min_replicas_serves_the_clients_on_its_side() {
    let name =
        "sentinel::network::an_isolated_master_without_min_replicas_serves_the_clients_on_its_side";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let apart = Apart::start(&network, RedisConfig::default()).await;
    let (held, next) = apart.part().await;
    assert!(held.is_valid() && next.is_valid());
    the_resource_refuses(&held, &next);
    apart.group.0.heal(0);
    // It learns of the loss as soon as its side does.
    assert_eq!(lost(&held).await, LostReason::Missing);
    renewed(&next).await;
    let_go(next).await;
}
