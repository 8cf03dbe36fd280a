//! Wrong ports, passwords and rights: the error says what to do, and nothing is written.

use std::net::TcpListener;

use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use tokio::io::AsyncWriteExt;

use crate::support::{LONG, connect, contender, engine, nodes};

fn is_not_applied(error: &LockError, says: &str) {
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn a_server_that_is_no_zookeeper_is_reported_as_such() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let error = connect(&format!("zk://{nobody}")).await.expect_err("connection refused");
    is_not_applied(&error, "refused");
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = other.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = other.accept().await {
            let _ = stream.write_all(b"-ERR unknown command\r\n").await;
        }
    });
    let error = connect(&format!("zk://{address}")).await.expect_err("another protocol");
    is_not_applied(&error, "is not from a ZooKeeper server: check the port");
}

/// They used to be asked one after the other, each up to its whole limit.
#[tokio::test]
async fn silent_members_do_not_delay_the_first_look() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    // The kernel accepts connections, but there is no answer.
    let dark = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [one, two] = [&dark[0], &dark[1]].map(|dark| dark.local_addr().expect("bound"));
    let url = format!("zk://{one},{two},{}", server.address(0));
    let connecting = tokio::time::timeout(LONG / 2, engine(&url));
    let engine = connecting.await.expect("it asks the third one too");
    contender(&engine, "a").take().await;
}

#[tokio::test]
async fn nodes_of_another_user_are_refused_and_left() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let address = server.address(0);
    let ann = engine(&format!("zk://ann:hers@{address}/locks")).await;
    let mut held = contender(&ann, "a");
    held.take().await;
    for (user, why) in [("ann:other@", "a wrong password"), ("bob:his@", "another"), ("", "nobody")]
    {
        let error = connect(&format!("zk://{user}{address}/locks")).await.expect_err(why);
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{why}: {error}");
        is_not_applied(&error, "setAcl");
    }
    // Below a chroot of its own, and below one that is open, anybody may.
    let bob = engine(&format!("zk://bob:his@{address}/others/of/bob")).await;
    contender(&bob, "a").take().await;
    let open = engine(&format!("zk://ann:hers@{address}/open?acl=open")).await;
    let mut shared = contender(&open, "a");
    shared.take().await;
    let anybody = engine(&format!("zk://{address}/open")).await;
    let mut waiter = contender(&anybody, "a");
    waiter.queue().await;
    assert_eq!(nodes(&server, "/open/a").await.len(), 2);
}

#[tokio::test]
async fn leases_that_no_session_can_keep_are_refused_before_anything_is_asked() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_sessions(4_000, 10_000));
    let engine = engine(&server.url()).await;
    for seconds in [3, 11] {
        let error = contender(&engine, "a").for_seconds(seconds).ask().await.expect_err("refused");
        is_not_applied(&error, "must be from 4s to 10s here");
    }
    contender(&engine, "a").for_seconds(10).take().await;
}
