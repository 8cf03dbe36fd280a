//! Wall clocks of the members that are stepped: leases do not go by them.

use holdline::{Keep, LockName, LostReason};
use holdline_services::{EtcdCluster, EtcdConfig};

use crate::support::{client, lease, let_go, patient, renewed, soon, take, taking};

const HOUR: i64 = 3_600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_clocks_of_the_members_that_are_stepped_end_no_lease_and_lengthen_none() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let long = take(&one, "long", &patient()).await;
    let name = LockName::new("long").expect("a good name");
    for steps in [[HOUR; 3], [-HOUR; 3], [0, HOUR, -HOUR]] {
        for (member, ahead) in steps.into_iter().enumerate() {
            cluster.step_clock(member, ahead);
        }
        // It ends by the leader's timer, no hour late; the long one is there yet, no hour early.
        let short = take(&one, "short", &lease(2).with_keep(Keep::Fixed)).await;
        let next = taking(&other, "short");
        assert_eq!(soon("the loss", short.lost()).await, LostReason::RanOut);
        let next = soon("the next one", next).await.expect("no panic");
        assert!(next.fencing_token() > short.fencing_token());
        let shown = soon("a look", one.admin().inspect(&name)).await.expect("shown");
        assert_eq!((shown.holder_count, long.is_valid()), (1, true), "{steps:?}");
        renewed(&long, 1).await;
        let_go(next).await;
    }
    // The next leader has another clock than the one that led.
    cluster.kill(cluster.leader_seen_by(0));
    renewed(&long, 2).await;
    let_go(long).await;
}
