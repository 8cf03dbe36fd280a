//! In every runtime and without one; a dropped link leaves nothing behind.

use super::*;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::Builder;

/// A runtime that is none: it polls, and parks the thread.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut work = std::pin::pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park_timeout(LONG);
    }
}

/// As [`say_until_taken`], without a timer of a runtime.
async fn say_for_long(link: &Link, line: &str) -> Value {
    let end = std::time::Instant::now() + LONG;
    loop {
        match say(link, line).await {
            Ok(value) => return value,
            Err(error) => assert!(std::time::Instant::now() < end, "{error}"),
        }
    }
}

#[test]
fn outside_of_any_runtime() {
    let server = server();
    let link = link_at(server.address());
    assert_eq!(block_on(say(&link, "SET k v")).expect("an answer"), ok());
    server.stop();
    let error = block_on(say_within(&link, "GET k", None, SHORT)).expect_err("no answer");
    unavailable(&error, Certainty::Unknown);
    let error = block_on(say_within(&link, "GET k", None, SHORT)).expect_err("no connection");
    unavailable(&error, Certainty::NotApplied);
    server.cont();
    assert_eq!(block_on(say_for_long(&link, "GET k")), bytes("v"));
    let mut inbox = link.subscribe(b"c".to_vec());
    let next = std::future::poll_fn(|context| Pin::new(&mut inbox).poll_next(context));
    assert_eq!(block_on(next), Some(SubscriptionEvent::Resubscribed));
    drop(link);
    let end = std::time::Instant::now() + LONG;
    while !connections(&server).is_empty() {
        assert!(std::time::Instant::now() < end, "the connection is closed with the link");
        std::thread::yield_now();
    }
}

#[test]
fn a_node_outlives_its_runtime() {
    let server = server();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let link = runtime.block_on(async {
        let link = link_at(server.address());
        assert_eq!(say(&link, "SET k v").await.expect("an answer"), ok());
        link
    });
    drop(runtime);
    assert_eq!(block_on(say(&link, "GET k")).expect("an answer"), bytes("v"));
}

#[test]
fn a_runtime_without_io_is_left() {
    let server = server();
    let runtime = Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let answer = runtime.block_on(async {
        let link = link_at(server.address());
        say(&link, "SET k v").await
    });
    assert_eq!(answer.expect("an answer"), ok());
}

/// Checks that a dropped link leaves no task and no connection.
async fn leaves_nothing() {
    let server = server();
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for parameters in ["", "?protocol=resp2"] {
        let link = link(&format!("{}{parameters}", server.url()));
        let mut inbox = link.subscribe(b"c".to_vec());
        assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
        say(&link, "PING").await.expect("an answer");
        assert!(metrics.num_alive_tasks() > before);
        drop(link);
        until("all tasks have ended", || metrics.num_alive_tasks() == before).await;
        until("all connections are closed", || connections(&server).is_empty()).await;
    }
    // A link that never had a connection, too.
    drop(link("redis://127.0.0.1:1"));
    until("all tasks have ended", || metrics.num_alive_tasks() == before).await;
}

#[tokio::test]
async fn a_dropped_node_leaves_nothing_on_one_thread() {
    leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_node_leaves_nothing_on_many_threads() {
    leaves_nothing().await;
}
