//! Wall clocks of the servers that are stepped: sessions do not go by them.

use holdline::{Keep, LockName, LostReason};
use holdline_services::{ZooKeeper, ZooKeeperConfig};

use crate::support::{client, lease, let_go, patient, renewed, soon, take, taking};

const HOUR: i64 = 3_600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_of_the_server_that_is_stepped_ends_no_lease_and_lengthens_none() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let (one, other) = (client(&server.url()).await, client(&server.url()).await);
    let long = take(&one, "long", &patient()).await;
    let name = LockName::new("long").expect("a good name");
    for ahead in [HOUR, -HOUR] {
        server.step_clock(0, ahead);
        // It ends by the server's timer, no hour late; the long one is there yet, no hour early.
        let short = take(&one, "short", &lease(2).with_keep(Keep::Fixed)).await;
        let next = taking(&other, "short");
        assert_eq!(soon("the loss", short.lost()).await, LostReason::RanOut);
        let next = soon("the next one", next).await.expect("no panic");
        assert!(next.fencing_token() > short.fencing_token());
        let shown = soon("a look", one.admin().inspect(&name)).await.expect("shown");
        assert_eq!((shown.holder_count, long.is_valid()), (1, true), "{ahead}");
        renewed(&long, 1).await;
        let_go(next).await;
    }
    let_go(long).await;
}
