//! Keys that another client has left without an expiry: they are listed, shown and ended safely.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{
    Engine, ErrorKind, Finding, Health, ListPage, ListRequest, Operation, OperationReply, Snapshot,
};
use holdline_redis::{PlainEngine, RedisOptions, checkup};
use holdline_services::{RedisConfig, RedisServer};

use crate::support::{at, behind, calls, ending, engine, name, request, take};

fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

async fn page(engine: &impl Engine, prefix: &str, limit: usize) -> ListPage {
    let request = ListRequest { prefix: prefix.into(), after: None, limit };
    engine.list(&request).await.expect("listed")
}

/// The names of a page, each with whether it has no expiry.
fn expiries(page: &ListPage) -> BTreeMap<&str, bool> {
    let of = |shown: &'_ Snapshot| shown.holders[0].summary.no_expiry;
    page.names.iter().map(|shown| (shown.name.as_str(), of(shown))).collect()
}

fn revoke(text: &str, holder: &str) -> Operation {
    let holder = holder.to_owned();
    Operation::RevokeHolder { name: name(text), holder, reason: "why".into() }
}

async fn ends(engine: &impl Engine, operation: &Operation) {
    let reply = engine.operate(operation).await.expect("answered");
    assert_eq!(reply, OperationReply::Done);
}

#[tokio::test]
async fn a_key_without_an_expiry_is_listed_and_shown_as_one() {
    let server = server();
    behind(&server, "SETNX lock:order 1");
    behind(&server, "SET lock:other theirs PX 60000");
    behind(&server, "RPUSH lock:list 1");
    behind(&server, "SET cache:x 1");
    for parameters in ["", "fencing=off"] {
        let engine = engine(&server, parameters).await;
        let ours = request("ours");
        take(&engine, &ours).await;
        let all = page(&engine, "", 100).await;
        let expected = BTreeMap::from([("order", true), ("other", false), ("ours", false)]);
        assert_eq!(expiries(&all), expected, "{parameters}");
        assert_eq!(expiries(&page(&engine, "or", 100).await).len(), 1);
        let shown = engine.inspect(&name("order")).await.expect("shown");
        let holder = &shown.holders[0].summary;
        assert!(holder.no_expiry && holder.left.is_none(), "{holder:?}");
        assert!(holder.to_string().contains("a foreign client, without an expiry"), "{holder}");
        engine.release(&ending(&ours, false)).await.expect("released");
    }
    assert_eq!(calls(&server, "keys"), 0);
}

#[tokio::test]
async fn our_own_other_keys_are_no_locks() {
    let server = server();
    for template in ["holdline:{name}", "{name}"] {
        let url = format!("{}?dialect=plain&key_template={template}", server.url());
        let options = RedisOptions::from_url(&url).expect("a good URL");
        let clock = Arc::new(MachineClock);
        let engine = PlainEngine::connect(&options, clock).await.expect("connected");
        let (held, undone) = (request("a"), request("b"));
        take(&engine, &held).await;
        // A mark, and the counter.
        engine.release(&ending(&undone, true)).await.expect("undone");
        let listed = page(&engine, "", 100).await;
        let names: Vec<_> = listed.names.iter().map(|shown| shown.name.as_str()).collect();
        assert_eq!(names, ["a"], "{template}");
        engine.release(&ending(&held, false)).await.expect("released");
    }
}

#[tokio::test]
async fn a_listing_has_pages_and_the_template_may_end_behind_the_name() {
    let server = server();
    for number in 0..250 {
        behind(&server, &format!("SET lock:n{number:03} 1"));
    }
    let engine = engine(&server, "").await;
    let mut request = ListRequest { limit: 100, ..ListRequest::default() };
    let mut seen = Vec::new();
    loop {
        let page = engine.list(&request).await.expect("listed");
        seen.extend(page.names.iter().map(|shown| shown.name.to_string()));
        request.after = page.after;
        if request.after.is_none() {
            break;
        }
    }
    let all: Vec<_> = (0..250).map(|number| format!("n{number:03}")).collect();
    assert_eq!(seen, all);
    behind(&server, "SET a*:lock 1");
    behind(&server, "SET ab:lock 1");
    let url = format!("{}?dialect=plain&key_template={{name}}:lock", server.url());
    let options = RedisOptions::from_url(&url).expect("a good URL");
    let clock = Arc::new(MachineClock);
    let behind_name = PlainEngine::connect(&options, clock).await.expect("connected");
    let listed = page(&behind_name, "a*", 10).await;
    assert_eq!(expiries(&listed), BTreeMap::from([("a*", true)]));
}

#[tokio::test]
async fn only_the_holder_that_was_seen_is_ended() {
    let server = server();
    for parameters in ["", "fencing=off"] {
        let engine = engine(&server, parameters).await;
        behind(&server, "SETNX lock:a 4711-first");
        let shown = engine.inspect(&name("a")).await.expect("shown");
        let id = shown.holders[0].summary.lease_id.to_string();
        // Somebody has ended it, and another client has the name.
        behind(&server, "SET lock:a 0815-next");
        for old in [id.as_str(), "4711-first", "", "0815-nex"] {
            let reply = engine.operate(&revoke("a", old)).await.expect("answered");
            assert_eq!(reply, OperationReply::NothingThere, "{old}");
        }
        assert_eq!(behind(&server, "GET lock:a").text().as_deref(), Some("0815-next"));
        let reply = engine.operate(&revoke("a", "0815-next")).await.expect("answered");
        assert_eq!(reply, OperationReply::Done);
        assert_eq!(behind(&server, "EXISTS lock:a").integer(), Some(0));
        behind(&server, "SETNX lock:a 4711-first");
        ends(&engine, &revoke("a", &id)).await;
        assert_eq!(behind(&server, "EXISTS lock:a").integer(), Some(0));
    }
}

#[tokio::test]
async fn data_that_is_no_lock_is_never_ended() {
    let server = server();
    let engine = engine(&server, "").await;
    behind(&server, "RPUSH lock:list 1");
    let long = "x".repeat(5_000);
    server.raw().send(&["SET", "lock:long", &long]).expect("the server answers");
    for text in ["list", "long"] {
        let id = "x".repeat(2_049);
        for id in [id.as_str(), "78787878"] {
            let error = engine.operate(&revoke(text, id)).await.expect_err("foreign data");
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{text} {id}: {error}");
        }
        assert_eq!(behind(&server, &format!("EXISTS lock:{text}")).integer(), Some(1));
    }
}

/// A lease id of ours that is ended by its holder's id must not return.
#[tokio::test]
async fn a_grant_of_ours_that_is_ended_by_its_id_leaves_a_mark() {
    let server = server();
    let engine = at(&server.url(), "signal_template=lock-signal:{name}").await;
    let ours = request("a");
    take(&engine, &ours).await;
    behind(&server, "PERSIST lock:a");
    let id = ours.lease_id.short().to_string();
    ends(&engine, &revoke("a", &id)).await;
    let mark = format!("EXISTS holdline:1m:{}:lock:a", ours.lease_id.to_hex());
    assert_eq!(behind(&server, &mark).integer(), Some(1));
    let error = engine.try_acquire(&ours).await.expect_err("it must not return");
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    // Who waits by BLPOP is woken, also for a holder that is not ours.
    behind(&server, "DEL lock-signal:a");
    behind(&server, "SETNX lock:a theirs");
    ends(&engine, &revoke("a", "theirs")).await;
    assert_eq!(behind(&server, "LLEN lock-signal:a").integer(), Some(1));
}

async fn keys_of(server: &RedisServer, parameters: &str) -> Finding {
    let url = format!("{}?dialect=plain&{parameters}", server.url());
    let options = RedisOptions::from_url(&url).expect("a good URL");
    let found = checkup(&options, Arc::new(MachineClock)).await.expect("good options");
    found.findings().iter().find(|one| one.check() == "keys").expect("it looks").clone()
}

#[tokio::test]
async fn doctor_counts_the_keys_of_the_template_and_names_those_without_an_expiry() {
    const LOCKS: &str = "key_template=lock:{name}";
    let server = server();
    for number in 0..100 {
        behind(&server, &format!("SET lock:n{number} 1 PX 600000"));
    }
    behind(&server, "RPUSH lock:list 1");
    behind(&server, "SET cache:x 1");
    let found = keys_of(&server, LOCKS).await;
    assert_eq!((found.health(), found.fix()), (Health::Ok, None), "{found:?}");
    assert_eq!(found.found(), "100 keys match lock:{name}: 0 without an expiry");
    behind(&server, "SETNX lock:order 1");
    let found = keys_of(&server, LOCKS).await;
    assert_eq!(found.health(), Health::Warning, "{found:?}");
    let expected = "101 keys match lock:{name}: 1 without an expiry: order (not used for ";
    assert!(found.found().starts_with(expected), "{found:?}");
    assert!(found.fix().is_some_and(|fix| fix.contains("holdline revoke order --if-holder")));
    // With a template that every key matches, it may be none of ours.
    let found = keys_of(&server, "key_template={name}").await;
    assert!(found.health() == Health::Ok && found.found().contains("may be no locks"), "{found:?}");
    // Looking is no use of a key.
    assert_eq!((calls(&server, "get"), calls(&server, "getrange")), (0, 0));
    assert_eq!(calls(&server, "keys"), 0);
}
