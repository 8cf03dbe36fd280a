//! Members that accept connections and say nothing, beside a majority that serves.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use holdline_core::RenewReply;
use holdline_services::{EtcdCluster, EtcdConfig, EtcdServer};

use crate::support::{LONG, contender, engine};

/// A session of 30 s that was kept is not kept again before a tenth of that.
const DUE: Duration = Duration::from_millis(3_200);

/// A member whose machine hangs: the kernel accepts connections, but there is no answer.
fn dark() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

#[tokio::test]
async fn silent_members_do_not_delay_the_first_request() {
    let server = EtcdServer::start(EtcdConfig::default().with_password("s3cret"));
    let (dark, open) = ([dark(), dark()], EtcdServer::start(EtcdConfig::default()));
    for (server, user) in [(&server, "root:s3cret@"), (&open, "")] {
        let url = format!("etcd://{user}{},{},{}", dark[0].1, dark[1].1, server.address());
        // Each limit alone is as long as the whole test may take.
        let connecting = tokio::time::timeout(LONG / 2, engine(&url));
        let engine = connecting.await.expect("it asks the third one too");
        contender(&engine, "a").take().await;
    }
}

/// A cluster, the member that a client of this URL uses, and the two members that say nothing and
/// are next in it.
fn with_two_dark(cluster: &EtcdCluster) -> (String, usize, [(TcpListener, SocketAddr); 2]) {
    let leader = cluster.leader_seen_by(0);
    let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
    let (dark, at) = ([dark(), dark()], |member: usize| cluster.address(member));
    let (used, next) = (at(others[0]), at(others[1]));
    let url = format!("etcd://{used},{},{},{next},{}", dark[0].1, dark[1].1, at(leader));
    (url, others[0], dark)
}

/// Of five members one is killed and two say nothing: the lease is kept by the next request, and
/// not only after the two have been waited for.
#[tokio::test]
async fn two_dark_members_of_five_cost_no_lease_while_a_majority_lives() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let (url, used, _dark) = with_two_dark(&cluster);
    let engine = engine(&url).await;
    let mut holder = contender(&engine, "a").for_seconds(20);
    let token = holder.take().await;
    cluster.kill(used);
    // As a keeper does: the first request after the loss may have an unknown outcome.
    let mut kept = holder.keep().await;
    if kept.is_err() {
        kept = holder.keep().await;
    }
    assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
    assert_eq!(holder.take().await, token);
}

/// The member in use hangs. A renewal changes nothing that may not be
/// changed twice, so the same renewal is answered by another member.
#[tokio::test]
async fn a_renewal_survives_a_member_that_hangs() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let (url, used, _dark) = with_two_dark(&cluster);
    let limits = "command_timeout_ms=9000&connect_timeout_ms=9000";
    let engine = engine(&format!("{url}?{limits}")).await;
    let mut holder = contender(&engine, "a");
    let token = holder.take().await;
    tokio::time::sleep(DUE).await; // event: from now on a renewal keeps the session too
    cluster.stop(used);
    let kept = holder.keep().await;
    assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
    assert_eq!(holder.take().await, token);
    cluster.cont(used);
}
