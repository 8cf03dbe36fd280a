//! Behind Sentinels: a failover in the plain dialect.

use holdline_conformance::asking;
use holdline_core::{Engine, ErrorKind, Purpose, RenewReply};
use holdline_services::{SentinelConfig, SentinelGroup};

use crate::support::{at, ending, request, take};

/// A failover that is asked for loses nothing. Clients cannot know that: the holder goes on, and
/// nobody is granted a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_server_keeps_what_is_held_and_grants_nothing() {
    for parameters in ["", "fencing=off"] {
        let group = SentinelGroup::start(&SentinelConfig::default());
        group.settle(0);
        let held = request("a");
        take(&at(&group.url(), parameters).await, &held).await;
        group.await_replicated();
        group.fail_over();
        let engine = at(&group.url(), parameters).await;
        let kept = asking::renew(&engine, &held, Purpose::Keep(held.hold)).await;
        assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{parameters}: {kept:?}");
        let refused = engine.try_acquire(&request("b")).await.expect_err("it waits");
        assert!(matches!(refused.kind(), ErrorKind::Quarantined { .. }), "{parameters}: {refused}");
        engine.release(&ending(&held, false)).await.expect("released");
    }
}
