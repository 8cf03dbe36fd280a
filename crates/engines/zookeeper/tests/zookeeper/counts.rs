//! What is left in the servers, and what comes when their counters end.

use holdline_core::{AcquireReply, Certainty, ErrorKind, ReleaseReply, RenewReply};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use zookeeper_client::{Acls, CreateMode};

use crate::support::{contender, engine, nodes, raw, until};

/// How many waits run out.
const WAITS: usize = 40;
/// Where the servers' counter of a queue's nodes ends.
const LAST: i32 = i32::MAX;

/// Each wait that ran out used to leave a node for ever.
#[tokio::test]
async fn waits_that_ran_out_leave_no_node_behind() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    holder.take().await;
    for _ in 0..WAITS {
        let mut waiter = contender(&engine, "a");
        waiter.request.client = holder.request.client;
        waiter.queue().await;
        assert_eq!(waiter.release(true).await.expect("a reply"), ReleaseReply::Withdrawn);
        // Nothing comes late under its id.
        waiter.request.known = false;
        let error = waiter.ask().await.expect_err("given up");
        assert_eq!(
            (error.kind(), error.certainty()),
            (&ErrorKind::Cancelled, Certainty::NotApplied)
        );
    }
    let client = raw(&server).await;
    let marks = client.list_children("/holdline/.marks").await.unwrap_or_default();
    assert_eq!(marks, Vec::<String>::new());
    assert_eq!(nodes(&server, "/holdline/a").await.len(), 1);
}

#[tokio::test]
async fn a_queue_whose_numbers_come_to_an_end_is_emptied_and_begun_anew() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    let first = holder.take().await;
    server.set_creations("/holdline/a", LAST - 1_000);
    until("the holder is kept", async || {
        matches!(holder.keep().await, Ok(RenewReply::Renewed { .. }))
    })
    .await;
    let mut next = contender(&engine, "a");
    for _ in 0..3 {
        let reply = next.ask().await;
        assert!(matches!(reply, Ok(AcquireReply::Busy { holder: Some(_), .. })), "{reply:?}");
    }
    assert_eq!(nodes(&server, "/holdline/a").await.len(), 1);
    holder.let_go().await;
    assert!(next.take().await > first);
    let found = nodes(&server, "/holdline/a").await;
    assert!(found.len() == 1 && found[0].ends_with("-lock-0000000000"), "{found:?}");
}

/// What a real server does beyond the end: numbers come again. Others may go on all the same, and
/// their order is no longer defined.
#[tokio::test]
async fn a_queue_that_others_have_driven_beyond_its_numbers_is_refused_until_it_is_empty() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let client = raw(&server).await;
    let mode = |mode: CreateMode| mode.with_acls(Acls::anyone_all());
    client.mkdir("/holdline/a", &mode(CreateMode::Persistent)).await.expect("made");
    server.set_creations("/holdline/a", LAST);
    let client = raw(&server).await;
    let mut theirs = Vec::new();
    for digit in ['1', '2'] {
        let guid = "0f8fad5b-d9cb-469f-a165-70867728950".to_owned() + &digit.to_string();
        let path = format!("/holdline/a/_c_{guid}-lock-");
        let sequential = mode(CreateMode::EphemeralSequential);
        let (_, number) = client.create(&path, b"", &sequential).await.expect("made");
        theirs.push((path, number.into_i64()));
    }
    let last = i64::from(LAST);
    assert_eq!(theirs.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [last, last]);
    let engine = engine(&server.url()).await;
    let mut ours = contender(&engine, "a");
    let error = ours.ask().await.expect_err("the order is unknown");
    assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("overflowed"), "{error}");
    assert_eq!(nodes(&server, "/holdline/a").await.len(), 2);
    for (path, number) in theirs {
        client.delete(&format!("{path}{number:010}"), None).await.expect("deleted");
    }
    ours.take().await;
    let found = nodes(&server, "/holdline/a").await;
    assert!(found.len() == 1 && found[0].ends_with("-lock-0000000000"), "{found:?}");
}
