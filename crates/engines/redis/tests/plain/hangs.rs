//! A connection hangs, and the server does not: attempts and undos continue on another connection,
//! and the hanging request is undone behind it.

use std::time::{Duration, Instant};

use holdline_core::{Certainty, Engine, ReleaseReply};
use holdline_services::{Fault, FaultProxy, Frames, RedisConfig, RedisServer, Traffic};

use crate::support::{PATIENCE, at, behind, ending, request, take};

/// Returns the number of such requests on the first connection.
fn brought(proxy: &FaultProxy, words: &str) -> u64 {
    let about = |event: &holdline_services::Event| {
        event.connection == 1 && event.is_frame(Traffic::Requests, words)
    };
    proxy.events().into_iter().filter(about).count() as u64
}

async fn until(what: &str, seen: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !seen() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await; // event: asked again until it is seen
    }
}

/// `again`: whether an id may be requested again after a missing answer.
async fn goes_on_over_another(parameters: &str, again: bool) {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    let engine = at(&url, &format!("command_timeout_ms=4000{parameters}")).await;
    // The scripts are loaded from here on.
    let first = request("a");
    take(&engine, &first).await;
    engine.release(&ending(&first, true)).await.expect("released");
    let hung = request("a");
    let id = hung.lease_id.to_hex();
    proxy.inject(Frames::requests().containing(&id).nth(1), Fault::Hold);
    let error = engine.try_acquire(&hung).await.expect_err("it hangs");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    // An inspection uses only a healthy connection: there is one from here on.
    engine.inspect(&hung.name).await.expect("another connection");
    let granted = if again {
        hung
    } else {
        let undone = engine.release(&ending(&hung, true)).await.expect("undone");
        assert_eq!(undone, ReleaseReply::NotHeld { revoked: None });
        request("a")
    };
    take(&engine, &granted).await;
    engine.release(&ending(&granted, true)).await.expect("released over the good connection");
    until("an undo behind what hangs", || brought(&proxy, &id) == 2).await;
    let next = request("a");
    take(&engine, &next).await;
    let answered = proxy.seen_on(1, Traffic::Replies);
    proxy.thaw();
    until("both are carried out", || proxy.seen_on(1, Traffic::Replies) >= answered + 2).await;
    let value = behind(&server, "GET lock:a").text().expect("held");
    assert!(value.starts_with(&next.lease_id.to_hex()), "{value}");
    engine.release(&ending(&next, false)).await.expect("released");
    assert_eq!(behind(&server, "EXISTS lock:a").integer(), Some(0));
}

#[tokio::test]
async fn with_tokens_an_attempt_on_a_hanging_connection_continues_on_another() {
    goes_on_over_another("", true).await;
}

#[tokio::test]
async fn without_tokens_an_attempt_on_a_hanging_connection_is_repeated_on_another() {
    goes_on_over_another("&fencing=off", false).await;
}
