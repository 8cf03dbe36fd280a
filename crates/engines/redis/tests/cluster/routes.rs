//! The routing of calls while slots move and nodes are down, and the keys that remain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::asking::{HOLD, ending, let_go, name, queue, request, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, Certainty, Engine, ErrorKind, Hint, ListRequest, LockError, Mode, Operation,
    OperationReply, Purpose, ReleaseReply, RenewReply, RenewRequest,
};
use holdline_redis::ClusterEngine;
use holdline_services::{
    ClusterConfig, Event, Fault, FaultProxy, Frames, RedisCluster, Reply, Traffic,
};

use crate::support::{calm, engine, options};

/// Three masters; each test uses names of its own.
fn masters() -> RedisCluster {
    RedisCluster::start(&calm().with_size(3, 0))
}

fn key(name: &str) -> String {
    format!("holdline:{{{name}}}")
}

/// Returns the slot of a name, its master, and another master.
fn place(cluster: &RedisCluster, name: &str) -> (u16, usize, usize) {
    let slot = cluster.slot_of(&key(name));
    let owner = cluster.owner(slot, 0).expect("somebody serves it");
    (slot, owner, (owner + 1) % 3)
}

/// Returns all keys of a node with their values.
fn dump(cluster: &RedisCluster, node: usize) -> BTreeMap<String, String> {
    let keys = cluster.command(node, "KEYS *");
    let keys: Vec<String> = keys.items().expect("a list").iter().filter_map(Reply::text).collect();
    let mut raw = cluster.nodes()[node].raw();
    let mut of = |key: String| {
        raw.say("ASKING").expect("an answer");
        let held = format!("{:?}", raw.send(&["DUMP", &key]).expect("an answer"));
        (key, held)
    };
    keys.into_iter().map(&mut of).collect()
}

async fn hasty(cluster: &RedisCluster) -> ClusterEngine {
    let options = options(cluster, "command_timeout_ms=300");
    ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("the cluster is there")
}

async fn renewed(engine: &dyn Engine, line: &RenewRequest) -> Result<RenewReply, LockError> {
    engine.renew(std::slice::from_ref(line)).await.pop().expect("one line")
}

fn line(request: &holdline_core::AcquireRequest, purpose: Purpose) -> RenewRequest {
    RenewRequest {
        name: request.name.clone(),
        lease_id: request.lease_id,
        client: request.client,
        purpose,
    }
}

fn is_moving<T: std::fmt::Debug>(outcome: Result<T, LockError>) {
    let error = outcome.expect_err("its slot moves");
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    assert!(error.to_string().contains("is being moved"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_slot_is_followed_with_its_locks() {
    let cluster = masters();
    let (ours, theirs) = (engine(&cluster).await, engine(&cluster).await);
    let (held, waits) = (request("moved"), request("moved"));
    let first = take(&ours, &held).await;
    queue(&theirs, &waits).await;
    let (slot, from, to) = place(&cluster, "moved");
    for (from, to) in [(from, to), (to, from), (from, to)] {
        cluster.move_slot(slot, from, to);
        let kept = renewed(&ours, &line(&held, Purpose::Keep(HOLD))).await;
        assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
        let place = renewed(&theirs, &line(&waits, Purpose::Wait)).await;
        assert!(matches!(place, Ok(RenewReply::Queued { position: Some(0), .. })), "{place:?}");
    }
    let mut watch = theirs.watch(&waits.name, waits.lease_id);
    let_go(&ours, &held).await;
    // The message travels on the cluster bus, whichever node serves the slot.
    std::future::poll_fn(|context| watch.as_mut().poll_next(context)).await.expect("a hint");
    let again = holdline_core::AcquireRequest { known: true, ..waits.clone() };
    assert!(take(&theirs, &again).await > first);
    assert!(dump(&cluster, from).is_empty(), "nothing stays behind");
}

/// The slot of a name moves, and its keys are split between two nodes: only requests that need the
/// lock key alone succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_no_request_is_applied_in_part() {
    let cluster = masters();
    let (patient, hasty) = (engine(&cluster).await, hasty(&cluster).await);
    let held = request("moves");
    let token = take(&patient, &held).await;
    let waits = request("moves");
    queue(&patient, &waits).await;
    let (slot, from, to) = place(&cluster, "moves");
    cluster.begin_move(slot, from, to);
    let keys = cluster.command(from, &format!("CLUSTER GETKEYSINSLOT {slot} 10"));
    let keys: Vec<String> = keys.items().expect("keys").iter().filter_map(Reply::text).collect();
    assert_eq!(keys.len(), 4, "lock, line, data and counter: {keys:?}");
    for moved in std::iter::once(None).chain(keys.iter().map(Some)) {
        moved.iter().for_each(|key| cluster.move_key(key, from, to));
        let kept = renewed(&patient, &line(&held, Purpose::Keep(HOLD))).await;
        assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
        let before = [dump(&cluster, from), dump(&cluster, to)];
        is_moving(hasty.try_acquire(&request("moves")).await);
        is_moving(hasty.release(&ending(&held, false)).await);
        is_moving(hasty.release(&ending(&request("moves"), true)).await);
        is_moving(hasty.inspect(&name("moves")).await);
        is_moving(renewed(&hasty, &line(&waits, Purpose::Wait)).await);
        let reason = "x".to_owned();
        let name = name("moves");
        for operation in [
            Operation::Freeze {
                name: name.clone(),
                duration: Duration::from_secs(60),
                reason: reason.clone(),
            },
            Operation::Revoke { name: name.clone(), token, reason, now: true },
        ] {
            is_moving(hasty.operate(&operation).await);
        }
        assert_eq!([dump(&cluster, from), dump(&cluster, to)], before, "{moved:?}");
    }
    cluster.end_move(slot, from, to);
    // The waiter sent no heartbeat for longer than its position lasts.
    let_go(&hasty, &held).await;
    assert!(take(&hasty, &request("moves")).await > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_a_hand_off_is_extended_and_a_lone_holder_releases() {
    let cluster = masters();
    let engine = engine(&cluster).await;
    let (first, next) = (request("lone"), request("lone"));
    take(&engine, &first).await;
    queue(&engine, &next).await;
    let mut watch = engine.watch(&next.name, next.lease_id);
    let_go(&engine, &first).await;
    let token = loop {
        let hint = std::future::poll_fn(|context| watch.as_mut().poll_next(context)).await;
        if let Some(Hint::Granted { token }) = hint {
            break token;
        }
    };
    let (slot, from, to) = place(&cluster, "lone");
    cluster.begin_move(slot, from, to);
    let kept = renewed(&engine, &line(&next, Purpose::Keep(HOLD))).await;
    assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
    cluster.move_key(&key("lone"), from, to);
    let released = engine.release(&ending(&next, false)).await.expect("an answer");
    assert!(matches!(released, ReleaseReply::Released { .. }), "{released:?}");
    let again = hasty(&cluster).await.try_acquire(&request("lone")).await;
    is_moving(again);
    cluster.move_keys(slot, from, to);
    cluster.end_move(slot, from, to);
    assert!(take(&engine, &request("lone")).await > token, "the counter has moved too");
}

/// A request for a key that has not moved yet waits, up to its own limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_while_a_slot_moves_is_answered_after_the_move() {
    let cluster = masters();
    let engine = engine(&cluster).await;
    let (slot, from, to) = place(&cluster, "soon");
    cluster.begin_move(slot, from, to);
    let asked = request("soon");
    let (granted, ()) = tokio::join!(engine.try_acquire(&asked), async {
        tokio::time::sleep(Duration::from_millis(100)).await; // event: it was sent on by then
        cluster.end_move(slot, from, to);
    });
    assert!(matches!(granted, Ok(AcquireReply::Granted { .. })), "{granted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_all_masters_are_listed_and_each_keeps_its_slot() {
    let cluster = masters();
    let engine = engine(&cluster).await;
    let mut names: Vec<String> = (0..60).map(|number| format!("n{number:02}")).collect();
    names.extend(["{n}", "n}{", "a{b}c", "{", "}", "%7B", "x{y", "ключ{}"].map(str::to_owned));
    for text in &names {
        let asked = request(text);
        take(&engine, &asked).await;
        queue(&engine, &request(text)).await;
        let shown = engine.inspect(&asked.name).await.expect("shown");
        assert_eq!((shown.holder_count, shown.queue_length), (1, 1), "{text}");
    }
    names.sort();
    let mut listed = Vec::new();
    let mut asked = ListRequest { prefix: String::new(), after: None, limit: 25 };
    loop {
        let page = engine.list(&asked).await.expect("listed");
        listed.extend(page.names.iter().map(|shown| shown.name.to_string()));
        asked.after = page.after;
        if asked.after.is_none() {
            break;
        }
    }
    assert_eq!(listed, names);
    let counts: Vec<usize> = (0..3).map(|node| dump(&cluster, node).len()).collect();
    assert!(counts.iter().all(|count| *count > 0), "each has some: {counts:?}");
    // Lock, queue, data and counter of each.
    assert_eq!(counts.iter().sum::<usize>(), 4 * names.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counter_of_a_name_expires_and_no_other_name_raises_it() {
    let cluster = masters();
    let engine = engine(&cluster).await;
    let asked = request("counted");
    take(&engine, &asked).await;
    let_go(&engine, &asked).await;
    let (_, owner, _) = place(&cluster, "counted");
    let keys: Vec<String> = dump(&cluster, owner).into_keys().collect();
    assert_eq!(keys, ["holdline:fence:{counted}"], "nothing but the counter outlives its use");
    let left = cluster.command(owner, "PTTL holdline:fence:{counted}").integer().expect("a time");
    assert!((80_000_000..=86_400_000).contains(&left), "{left}");
    let to = holdline_core::FencingToken::new(7).expect("a token");
    let error = engine.operate(&Operation::RaiseFence { to }).await.expect_err("no such thing");
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error:?}");
    // A counter ahead of the clock is incremented.
    let ahead = 8_000_000_000_000_000_u64;
    cluster.command(owner, &format!("SET holdline:fence:{{counted}} {ahead}"));
    assert_eq!(take(&engine, &request("counted")).await.get(), ahead + 1);
    let left = cluster.command(owner, "PTTL holdline:fence:{counted}").integer().expect("a time");
    assert!(left > 0, "it ends all the same");
}

/// A stopped node delays only its own requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_does_not_delay_renewals_on_other_nodes() {
    let cluster = masters();
    let options = options(&cluster, "command_timeout_ms=60000");
    let engine = ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("there");
    let asked: Vec<_> = (0..30).map(|number| request(&format!("r{number}"))).collect();
    for one in &asked {
        take(&engine, one).await;
    }
    let owner = |one: &holdline_core::AcquireRequest| place(&cluster, one.name.as_str()).1;
    let owners: Vec<usize> = asked.iter().map(owner).collect();
    let sick = owners[0];
    assert!(owners.iter().any(|owner| *owner != sick));
    let lines: Vec<_> = asked.iter().map(|one| line(one, Purpose::Keep(HOLD))).collect();
    cluster.nodes()[sick].stop();
    let limit = Duration::from_secs(50);
    let replies =
        tokio::time::timeout(limit, engine.renew(&lines)).await.expect("before its limit");
    for (owner, reply) in owners.iter().zip(replies) {
        match (*owner == sick, reply) {
            (false, Ok(RenewReply::Renewed { .. })) => {}
            (true, Err(error)) => assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}"),
            (_, reply) => panic!("{owner}, and {sick} is sick: {reply:?}"),
        }
    }
    cluster.nodes()[sick].cont();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_without_a_master_is_reported() {
    let cluster = masters();
    let (slot, owner, _) = place(&cluster, "unserved");
    let patient = engine(&cluster).await;
    take(&patient, &request("unserved")).await;
    cluster.command(owner, &format!("CLUSTER DELSLOTS {slot}"));
    let error = hasty(&cluster).await.try_acquire(&request("unserved")).await.expect_err("down");
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert!(error.to_string().contains("slot"), "{error}");
    cluster.command(owner, &format!("CLUSTER ADDSLOTS {slot}"));
    cluster.await_well();
    let busy = patient.try_acquire(&request("unserved")).await;
    assert!(matches!(busy, Ok(AcquireReply::Queued { .. })), "{busy:?}");
}

fn is_about(event: &Event) -> bool {
    event.is_frame(Traffic::Requests, "holdline:{lost}")
        && event.is_frame(Traffic::Requests, "EVAL")
}

/// A lost reply is reported as unknown, and the request is never sent again: neither on this
/// connection nor to another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_may_have_been_applied_is_never_sent_again() {
    let cluster = RedisCluster::start(&ClusterConfig::default().with_size(1, 0));
    let proxy = FaultProxy::start(cluster.nodes()[0].address());
    let port = proxy.address().port();
    cluster.command(0, &format!("CONFIG SET cluster-announce-port {port}"));
    let engine = hasty(&cluster).await;
    let asked = request("lost");
    take(&engine, &asked).await;
    let_go(&engine, &asked).await;
    let before = proxy.events().iter().filter(|event| is_about(event)).count();
    let asked = request("lost");
    proxy.inject(Frames::replies().containing("holdline:{lost}").nth(1), Fault::SwallowThenReset);
    let error = engine.try_acquire(&asked).await.expect_err("its reply is lost");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    let sent = proxy.events().iter().filter(|event| is_about(event)).count() - before;
    assert_eq!(sent, 1, "sent once");
    let undone = engine.release(&ending(&asked, true)).await.expect("an answer");
    assert!(matches!(undone, ReleaseReply::Released { .. }), "{undone:?}");
    let dead = engine.try_acquire(&asked).await.expect_err("its id is dead");
    assert!(matches!(dead.kind(), ErrorKind::Cancelled), "{dead:?}");
    take(&engine, &request("lost")).await;
}

/// Returns how often the masters ran scripts, and published.
fn calls(cluster: &RedisCluster) -> [usize; 2] {
    ["evalsha", "publish"].map(|command| {
        let begins = format!("cmdstat_{command}:calls=");
        let of = |node: usize| {
            let stats = cluster.command(node, "INFO commandstats").text().expect("text");
            let calls = stats.lines().find_map(|line| line.strip_prefix(begins.as_str()));
            calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
        };
        (0..3).map(of).sum()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_takes_two_round_trips_and_one_message() {
    let cluster = masters();
    // With custom keys and channels.
    let parameters = "command_timeout_ms=10000&prefix=fence:&key_template=app:{name}:x";
    let options = options(&cluster, parameters);
    let engine = ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("there");
    // The scripts are loaded, and the connections open.
    for _ in 0..2 {
        let (first, next) = (request("handed"), request("handed"));
        take(&engine, &first).await;
        let before = calls(&cluster);
        queue(&engine, &next).await;
        let_go(&engine, &first).await;
        let mut watch = engine.watch(&next.name, next.lease_id);
        let hint = std::future::poll_fn(|context| watch.as_mut().poll_next(context)).await;
        assert!(matches!(hint, Some(Hint::Granted { .. })), "{hint:?}");
        let [scripts, messages] = calls(&cluster);
        let spent = [scripts - before[0], messages - before[1]];
        let_go(&engine, &next).await;
        if spent == [2, 1] {
            return;
        }
    }
    panic!("more than three scripts or one message, twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_permits_move_with_their_slot() {
    let cluster = masters();
    let engine = engine(&cluster).await;
    let shared = || holdline_core::AcquireRequest { mode: Mode::Shared, ..request("readers") };
    let (one, two, writer) = (shared(), shared(), request("readers"));
    take(&engine, &one).await;
    take(&engine, &two).await;
    queue(&engine, &writer).await;
    let (slot, from, to) = place(&cluster, "readers");
    cluster.move_slot(slot, from, to);
    let kept = renewed(&engine, &line(&one, Purpose::Keep(HOLD))).await;
    assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
    let_go(&engine, &one).await;
    let frozen = Operation::Freeze {
        name: name("readers"),
        duration: Duration::from_secs(60),
        reason: "moving".into(),
    };
    assert!(matches!(engine.operate(&frozen).await, Ok(OperationReply::Done)));
    let_go(&engine, &two).await;
    let shown = engine.inspect(&name("readers")).await.expect("shown");
    assert!(shown.freeze.as_ref().is_some_and(|freeze| freeze.active), "{shown:?}");
}
