//! Faults of other etcd clients, one test each.

use holdline_conformance::ManualTime;
use holdline_conformance::clock::ManualClock;
use holdline_core::{
    AcquireReply, Certainty, ErrorKind, Hint, Hold, LockError, Purpose, ReleaseReply, RenewReply,
};
use holdline_etcd::{EtcdEngine, EtcdOptions};
use holdline_services::{EtcdConfig, EtcdFlavour, EtcdServer, Fault, FaultProxy, Frames};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Contender, contender, engine, hint, until};

async fn server() -> (EtcdServer, holdline_etcd::EtcdEngine) {
    let server = EtcdServer::start(EtcdConfig::default());
    let engine = engine(&server.url()).await;
    (server, engine)
}

/// A server of each version that answers in a way of its own.
fn versions() -> impl Iterator<Item = EtcdServer> {
    let config = |flavour| EtcdConfig::default().with_flavour(flavour);
    EtcdFlavour::ALL.into_iter().map(move |flavour| EtcdServer::start(config(flavour)))
}

/// All keys of the server but those of marks, which end by themselves.
fn keys(server: &EtcdServer) -> Vec<String> {
    let keys = server.ctl(&["get", "", "--prefix", "--keys-only"]);
    let keys = keys.lines().filter(|key| !key.is_empty() && !key.starts_with("holdline//"));
    keys.map(str::to_owned).collect()
}

fn is_cancelled(reply: &Result<AcquireReply, LockError>) -> bool {
    reply.as_ref().is_err_and(|error| {
        *error.kind() == ErrorKind::Cancelled && error.certainty() == Certainty::NotApplied
    })
}

#[tokio::test]
async fn two_locks_of_one_client_on_one_name_do_not_share_a_key() {
    let (server, engine) = server().await;
    let mut one = contender(&engine, "a");
    let mut other = contender(&engine, "a");
    other.request.client = one.request.client;
    one.take().await;
    other.queue().await;
    assert_eq!(keys(&server).len(), 2);
    one.let_go().await;
    assert!(matches!(other.renew(Purpose::Wait).await, Ok(RenewReply::Held { .. })));
}

#[tokio::test]
async fn a_release_that_comes_again_frees_nothing_of_the_next_one() {
    let (_server, engine) = server().await;
    let mut one = contender(&engine, "a");
    let mut next = contender(&engine, "a");
    one.take().await;
    next.queue().await;
    one.let_go().await;
    for _ in 0..3 {
        assert_eq!(
            one.release(false).await.expect("a reply"),
            ReleaseReply::NotHeld { revoked: None }
        );
    }
    next.take().await;
    assert!(matches!(next.keep().await, Ok(RenewReply::Renewed { .. })));
}

/// The key of a waiter may be gone when the waiter is first in the queue.
#[tokio::test]
async fn a_waiter_whose_own_lease_ended_while_it_waited_does_not_hold() {
    let (server, engine) = server().await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a").for_seconds(1);
    holder.take().await;
    waiter.queue().await;
    let mut hints = waiter.watch();
    // Its queue heartbeat is not sent: its key expires, and the watch of the key reports that.
    hint(&mut hints, Hint::CheckLease).await;
    until("its key is gone", async || keys(&server).len() == 1).await;
    holder.let_go().await;
    assert!(matches!(waiter.ask().await, Ok(AcquireReply::Unknown)));
    assert!(matches!(waiter.renew(Purpose::Wait).await, Ok(RenewReply::Unknown)));
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_no_key_and_none_comes_late() {
    let (server, engine) = server().await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    assert_eq!(waiter.release(true).await.expect("a reply"), ReleaseReply::Withdrawn);
    holder.let_go().await;
    assert_eq!(keys(&server), Vec::<String>::new());
    waiter.request.known = false;
    assert!(is_cancelled(&waiter.ask().await));
    assert_eq!(keys(&server), Vec::<String>::new());
}

/// An undo that another process writes, which does not know the key, closes the way as well.
#[tokio::test]
async fn an_id_that_another_engine_gave_up_does_not_come_back() {
    let (server, engine) = server().await;
    let other = crate::support::engine(&server.url()).await;
    let mut one = contender(&engine, "a");
    let there = Contender { engine: other, request: one.request.clone() };
    one.take().await;
    assert!(matches!(there.release(true).await, Ok(ReleaseReply::Released { .. })));
    one.request.known = false;
    assert!(is_cancelled(&one.ask().await));
    assert_eq!(keys(&server), Vec::<String>::new());
}

#[tokio::test]
async fn a_compaction_under_a_watch_costs_no_wake_up() {
    let (server, engine) = server().await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    // The watch begins at a revision that is no longer there.
    for number in 0..5 {
        server.ctl(&["put", "other", &number.to_string()]);
    }
    let status = server.ctl(&["endpoint", "status", "-w", "fields"]);
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
    server.ctl(&["compaction", revision.expect("a revision")]);
    let mut hints = waiter.watch();
    hint(&mut hints, Hint::LookAgain).await;
    waiter.queue().await;
    holder.let_go().await;
    hint(&mut hints, Hint::LookAgain).await;
    waiter.take().await;
}

#[tokio::test]
async fn a_stream_of_watches_that_broke_is_opened_again() {
    let (server, engine) = server().await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    let mut hints = waiter.watch();
    hint_of_nothing(&mut hints).await;
    server.restart();
    until("it is released", async || {
        matches!(
            holder.release(false).await,
            Ok(ReleaseReply::Released { .. } | ReleaseReply::NotHeld { .. })
        )
    })
    .await;
    hint(&mut hints, Hint::LookAgain).await;
    until("it holds", async || matches!(waiter.ask().await, Ok(AcquireReply::Granted { .. })))
        .await;
}

/// Looks at a watch once, so that it is open.
async fn hint_of_nothing(hints: &mut holdline_core::Hints) {
    let look = std::future::poll_fn(|context| hints.as_mut().poll_next(context));
    let _ = tokio::time::timeout(Duration::from_millis(50), look).await;
}

#[tokio::test]
async fn all_leases_of_a_session_end_together_and_a_detached_one_by_itself() {
    let (_server, engine) = server().await;
    let mut kept = contender(&engine, "kept").for_seconds(8);
    let mut beside = contender(&engine, "beside").for_seconds(8);
    beside.request.client = kept.request.client;
    let mut detached = contender(&engine, "detached");
    detached.request.client = kept.request.client;
    detached.request.hold = Hold::Detached(Duration::from_secs(8));
    for one in [&mut kept, &mut beside, &mut detached] {
        one.take().await;
    }
    // Only one is renewed: it keeps its session, and so the other one's lease.
    until("the detached one is over", async || {
        assert!(matches!(kept.keep().await, Ok(RenewReply::Renewed { .. })));
        detached.counts().await == (0, 0)
    })
    .await;
    assert!(matches!(beside.keep().await, Ok(RenewReply::Renewed { .. })));
}

/// It has the form of Go's keys; newer servers return the lease only with the value.
#[tokio::test]
async fn a_key_without_a_lease_where_gos_would_stand_is_foreign_on_every_version() {
    for server in versions() {
        let engine = engine(&server.url()).await;
        server.ctl(&["put", "holdline/a/1f", "foreign"]);
        for queue in [false, true] {
            let mut one = contender(&engine, "a");
            one.request.queue = queue;
            let error = one.ask().await.expect_err("foreign");
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
            assert_eq!(keys(&server), ["holdline/a/1f"]);
        }
    }
}

/// The key is that of the grant, and the value is another program's: nothing of ours is left.
#[tokio::test]
async fn a_release_leaves_what_another_program_has_written_over_a_grant() {
    let (server, engine) = server().await;
    for for_good in [false, true] {
        let mut one = contender(&engine, "a");
        one.take().await;
        let key = keys(&server).remove(0);
        server.ctl(&["put", &key, "junk"]);
        let error = one.release(for_good).await.expect_err("foreign");
        assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error:?}");
        assert_eq!(server.ctl(&["get", &key, "--print-value-only"]).trim(), "junk");
        server.ctl(&["del", &key]);
    }
}

#[tokio::test]
async fn requests_of_other_processes_are_found_on_every_version() {
    for server in versions() {
        let (engine, other) =
            (engine(&server.url()).await, crate::support::engine(&server.url()).await);
        let mut one = contender(&engine, "a");
        one.request.hold = Hold::Detached(Duration::from_secs(20));
        let there = Contender { engine: other, request: one.request.clone() };
        one.take().await;
        assert!(matches!(there.keep().await, Ok(RenewReply::Renewed { .. })));
        there.let_go().await;
        assert_eq!(keys(&server), Vec::<String>::new());
    }
}

/// A deleted key stays in the server's index until a compaction, and each request passes it.
#[tokio::test]
async fn a_client_uses_its_keys_again() {
    let (server, engine) = server().await;
    let client = contender(&engine, "a").request.client;
    let next = || {
        let mut next = contender(&engine, "a");
        next.request.client = client;
        next
    };
    let mut used = BTreeSet::new();
    for _ in 0..5 {
        let (mut holder, mut waiter, mut leaving) = (next(), next(), next());
        holder.take().await;
        waiter.queue().await;
        leaving.queue().await;
        used.extend(keys(&server));
        assert_eq!(leaving.release(true).await.expect("a reply"), ReleaseReply::Withdrawn);
        holder.let_go().await;
        waiter.take().await;
        assert!(matches!(holder.renew(Purpose::Wait).await, Ok(RenewReply::Unknown)));
        waiter.let_go().await;
    }
    // Three contenders at once, and no more.
    let numbers: Vec<_> = used.iter().filter_map(|key| key.rsplit('.').next()).collect();
    assert_eq!(numbers, ["0", "1", "2"], "{used:?}");
}

/// The queue heartbeat compares revisions: the key of the holder before it exists again.
#[tokio::test]
async fn a_holder_that_asks_again_blocks_nobody_before_it() {
    let (_server, engine) = server().await;
    let mut holder = contender(&engine, "a");
    let mut waiter = contender(&engine, "a");
    holder.take().await;
    waiter.queue().await;
    holder.let_go().await;
    let mut again = contender(&engine, "a");
    again.request.client = holder.request.client;
    again.queue().await;
    assert!(matches!(waiter.renew(Purpose::Wait).await, Ok(RenewReply::Held { .. })));
    waiter.take().await;
    waiter.let_go().await;
    again.take().await;
}

/// A key is used again only when the store has said that it is gone.
#[tokio::test]
async fn the_key_of_a_lost_grant_is_not_used_again() {
    let (server, engine) = server().await;
    let mut lost = contender(&engine, "a");
    lost.take().await;
    let key = keys(&server).remove(0);
    server.ctl(&["del", &key]);
    let mut next = contender(&engine, "a");
    next.request.client = lost.request.client;
    next.take().await;
    assert_ne!(keys(&server), [key]);
    assert!(matches!(lost.keep().await, Ok(RenewReply::Unknown)));
    let reply = lost.release(false).await.expect("a reply");
    assert_eq!(reply, ReleaseReply::NotHeld { revoked: None });
    assert!(matches!(next.keep().await, Ok(RenewReply::Renewed { .. })));
}

/// A renewal that finds no key meanwhile does not make the repeated request use another one: then
/// the request without a reply would make a second key if it arrived late, and nobody deletes that.
#[tokio::test]
async fn a_repeated_request_uses_the_key_of_the_one_without_a_reply() {
    let server = EtcdServer::start(EtcdConfig::default());
    let proxy = FaultProxy::start(server.address());
    let engine = engine(&format!("etcd://{}?command_timeout_ms=1500", proxy.address())).await;
    let mut one = contender(&engine, "a");
    let client = one.request.client;
    let key_of_another = async || {
        let mut other = contender(&engine, "a");
        other.request.client = client;
        other.take().await;
        let key = keys(&server);
        other.let_go().await;
        key
    };
    let key = key_of_another().await;

    proxy.inject(Frames::requests(), Fault::Swallow);
    let error = one.ask().await.expect_err("no reply");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    proxy.pass();
    proxy.reset();
    assert!(matches!(one.renew(Purpose::Wait).await, Ok(RenewReply::Unknown)));
    assert_ne!(key_of_another().await, key, "the key may still come");
    one.take().await;
    assert_eq!(keys(&server), key);
    assert!(matches!(one.release(true).await, Ok(ReleaseReply::Released { .. })));
    assert_eq!(key_of_another().await, key, "a mark bars the late request");
}

/// By the client's clock the session has ended, but it lives on at the server. A late request could
/// make a key in it.
#[tokio::test]
async fn a_repeated_request_stays_in_its_session_for_as_long_as_etcd_keeps_that() {
    let server = EtcdServer::start(EtcdConfig::default());
    let proxy = FaultProxy::start(server.address());
    let clock = ManualClock::new();
    let options = EtcdOptions::from_url(&format!("etcd://{}", proxy.address())).expect("a URL");
    let engine = EtcdEngine::connect(&options, Arc::new(clock.clone())).await.expect("connected");
    let (mut one, mut other) = (contender(&engine, "a"), contender(&engine, "b"));
    one.request.client = other.request.client;
    other.take().await;
    let key = keys(&server).remove(0).replacen("/b/", "/a/", 1);

    proxy.inject(Frames::requests(), Fault::Swallow);
    let time = async {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await; // event: the limits of the client
            clock.advance(Duration::from_secs(1));
        }
    };
    let error = tokio::select! {
        reply = one.ask() => reply.expect_err("no reply"),
        () = time => unreachable!(),
    };
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    proxy.pass();
    proxy.reset();
    clock.advance(Duration::from_secs(3_600));
    one.take().await;
    assert!(keys(&server).contains(&key), "{key}: {:?}", keys(&server));
}

/// The request may come after the usual mark has ended. The session in which it would make its key
/// may still live then.
#[tokio::test]
async fn a_request_without_a_reply_is_barred_for_as_long_as_its_session_lives() {
    let server = EtcdServer::start(EtcdConfig::default());
    let proxy = FaultProxy::start(server.address());
    let engine = engine(&format!("etcd://{}?command_timeout_ms=1500", proxy.address())).await;
    let mut other = contender(&engine, "a");
    other.take().await;
    let mut one = contender(&engine, "b");
    one.request.client = other.request.client;
    let leases = || server.ctl(&["lease", "list", "--hex"]);
    let of_session = leases();
    proxy.inject(Frames::requests(), Fault::Swallow);
    let error = one.ask().await.expect_err("no reply");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    proxy.pass();
    proxy.reset();
    let reply = one.release(true).await;
    assert!(matches!(reply, Ok(ReleaseReply::NotHeld { .. })), "{reply:?}");

    let listed = leases();
    let known: Vec<&str> = of_session.lines().collect();
    let mut of_marks = listed.lines().filter(|line| line.len() >= 15 && !known.contains(line));
    let lease = of_marks.next().expect("the lease of the marks");
    server.ctl(&["lease", "revoke", lease, "--hex"]);
    // The late request is the same as a repeated one.
    let late = one.ask().await;
    assert!(is_cancelled(&late), "{late:?}");
    other.let_go().await;
}

/// The key of a request that finds the queue full is deleted again. If that deletion is late, the
/// key may be another request's by then.
#[tokio::test]
async fn a_late_deletion_after_a_full_queue_spares_what_was_made_since() {
    let (server, direct) = server().await;
    let proxy = FaultProxy::start(server.address());
    let full = engine(&format!("etcd://{}?max_waiters=1", proxy.address())).await;
    let mut one = contender(&full, "b");
    one.take().await;
    let key = keys(&server).remove(0).replacen("/b/", "/a/", 1);
    let (mut holder, mut waiter) = (contender(&direct, "a"), contender(&direct, "a"));
    holder.take().await;
    waiter.queue().await;

    let mut late = contender(&full, "a");
    late.request.client = one.request.client;
    let length = u8::try_from(key.len()).expect("short");
    // A `DeleteRangeRequest` in a `RequestOp`.
    let deletion = [&[0x1a, length + 2, 0x0a, length], key.as_bytes()].concat();
    proxy.inject(Frames::requests().containing(deletion), Fault::Hold);
    let meanwhile = async || {
        until("its key is there", async || keys(&server).contains(&key)).await;
        server.ctl(&["del", &key]);
        server.ctl(&["put", &key, "of a later request"]);
        proxy.thaw();
    };
    let (reply, ()) = tokio::join!(late.ask(), meanwhile());
    let error = reply.expect_err("the queue is full");
    assert_eq!(*error.kind(), ErrorKind::TooManyWaiters { limit: 1 }, "{error}");
    assert!(keys(&server).contains(&key));
}

/// The deletion of a key that found the queue full has no reply, so it may still arrive. It names
/// the revision that made the key. A repeated request under the same lease id must make the key
/// again, or it would hold a key that the late deletion ends.
#[tokio::test]
async fn a_repeated_request_holds_no_key_that_a_late_deletion_ends() {
    let (server, direct) = server().await;
    let proxy = FaultProxy::start(server.address());
    let url = format!("etcd://{}?max_waiters=1&command_timeout_ms=1500", proxy.address());
    let full = engine(&url).await;
    let mut other = contender(&full, "b");
    other.take().await;
    let key = keys(&server).remove(0).replacen("/b/", "/a/", 1);
    let made_at = || {
        let fields = server.ctl(&["get", &key, "--write-out=fields"]);
        let line = fields.lines().find(|line| line.contains("CreateRevision")).map(str::to_owned);
        line.expect("the key is there")
    };
    let mut holder = contender(&direct, "a");
    let mut waiter = contender(&direct, "a");
    holder.take().await;
    waiter.queue().await;

    let mut late = contender(&full, "a");
    late.request.client = other.request.client;
    let length = u8::try_from(key.len()).expect("short");
    // A `DeleteRangeRequest` in a `RequestOp`.
    let deletion = [&[0x1a, length + 2, 0x0a, length], key.as_bytes()].concat();
    proxy.inject(Frames::requests().containing(deletion), Fault::Swallow);
    let error = late.ask().await.expect_err("the queue is full");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    let first = made_at();
    holder.let_go().await;
    waiter.take().await;
    waiter.let_go().await;

    // While the deletion has no reply, the request has none either.
    proxy.reset();
    let error = late.ask().await.expect_err("the key cannot be deleted yet");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    assert!(error.is_transient(), "{error}");
    proxy.pass();
    proxy.reset();
    late.take().await;
    assert_ne!(made_at(), first);
    late.let_go().await;
    other.let_go().await;
}

/// A process that knows the lease id renews it, and the client that had it uses the key again.
#[tokio::test]
async fn a_renewal_by_another_process_finds_no_later_request_under_the_same_key() {
    let (server, first) = server().await;
    let second = engine(&server.url()).await;
    let mut holder = contender(&first, "a");
    holder.take().await;
    let mut other = contender(&second, "a");
    other.request = holder.request.clone();
    assert!(matches!(other.keep().await, Ok(RenewReply::Renewed { .. })));
    let key = keys(&server);
    holder.let_go().await;
    let mut next = contender(&first, "a");
    next.request.client = holder.request.client;
    next.request.hold = holder.request.hold;
    next.take().await;
    assert_eq!(keys(&server), key, "the same key");
    for _ in 0..2 {
        let reply = other.keep().await;
        assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
    }
    let reply = other.release(true).await.expect("a reply");
    assert_eq!(reply, ReleaseReply::NotHeld { revoked: None });
    assert!(matches!(next.keep().await, Ok(RenewReply::Renewed { .. })));
}

/// A grant may be moved to another etcd lease by a request whose reply is lost, or elsewhere.
#[tokio::test]
async fn a_grant_that_another_process_made_longer_is_renewed_on_its_new_lease() {
    let (server, first) = server().await;
    let second = engine(&server.url()).await;
    let mut holder = contender(&first, "a").for_seconds(2);
    holder.take().await;
    let mut other = contender(&second, "a").for_seconds(20);
    let hold = other.request.hold;
    other.request = holder.request.clone();
    let moved = other.renew(Purpose::Keep(hold)).await;
    assert!(matches!(moved, Ok(RenewReply::Renewed { .. })), "{moved:?}");
    let renewed = holder.keep().await;
    let Ok(RenewReply::Renewed { left: Some(left) }) = renewed else { panic!("{renewed:?}") };
    assert!(left > Duration::from_secs(10), "{left:?}");
    assert!(matches!(holder.keep().await, Ok(RenewReply::Renewed { .. })));
    holder.let_go().await;
    assert_eq!(keys(&server), Vec::<String>::new());
}
