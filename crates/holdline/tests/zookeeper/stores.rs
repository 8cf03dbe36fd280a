//! An old copy of the store that is put back: what it knows no more, and what it gives twice.

use holdline::admin::Operation;
use holdline::fence::{FenceError, Fenced, FencedCell, Proof};
use holdline::{ErrorKind, FencingToken, LostReason};
use holdline_core::{Finding, Health};
use holdline_services::{ZooKeeper, ZooKeeperConfig};

use crate::contenders::lost_guards_free_the_name;
use crate::support::{LONG, client, lease, let_go, patient, queued, soon, take};

/// Tokens repeat then, until the servers have counted on: the resource is what refuses them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restored_old_copy_holders_lose_and_the_resource_refuses_old_tokens() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let (one, other) = (client(&server.url()).await, client(&server.url()).await);
    let copy = server.save();
    for _ in 0..20 {
        let_go(take(&one, "a", &patient()).await).await;
    }
    // Short ones: no server takes a session back that has seen more than itself, so all ends by
    // time.
    let short = lease(4).with_wait(LONG);
    let held = take(&one, "a", &short).await;
    let (waiting, options) = (other.clone(), short.clone());
    let waiter = tokio::spawn(async move { take(&waiting, "a", &options).await });
    queued(&one, "a", 1).await;
    let resource = FencedCell::new(());
    let write =
        |token: FencingToken| resource.check_and_write(&Proof::exclusive(token), |()| Ok(()));
    write(held.fencing_token()).expect("the newest");

    let before = ill(&server.url()).await;
    server.restore(&copy);
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Expired);
    let mut next = soon("the next one", waiter).await.expect("no panic");
    assert!(next.fencing_token() <= held.fencing_token(), "the danger is there");
    assert!(matches!(write(next.fencing_token()), Err(FenceError::Stale(_))));
    assert_eq!(ill(&server.url()).await, before, "doctor cannot see that it is old");
    // The remedy of other engines is unsupported here, and the error says why.
    let raise = Operation::RaiseFence { to: held.fencing_token() };
    let refused = soon("an answer", one.admin().operate(&raise)).await.expect_err("not here");
    assert!(matches!(refused.kind(), ErrorKind::Unsupported { .. }), "{refused:?}");
    assert!(refused.to_string().contains("anew after a restore"), "{refused}");
    // By whatever is written the servers count on, beyond what they gave once.
    while next.fencing_token() <= held.fencing_token() {
        let_go(next).await;
        next = take(&other, "a", &short).await;
    }
    write(next.fencing_token()).expect("larger than all before");
    let_go(next).await;
}

/// What doctor finds ill.
async fn ill(url: &str) -> Vec<&'static str> {
    let found = holdline::health::checkup(url).await.expect("looked at");
    let ill = found.findings().iter().filter(|finding| finding.health() != Health::Ok);
    ill.map(Finding::check).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_guard_that_still_exists_frees_the_name() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let (one, other) = (client(&server.url()).await, client(&server.url()).await);
    lost_guards_free_the_name(&one, &other).await;
}
