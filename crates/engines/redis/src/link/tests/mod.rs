//! The connection to real servers, and everything that can go wrong on the way.

mod access;
mod commands;
mod edges;
mod frozen;
mod hanging;
mod inbox;
mod logs;
mod loss;
mod reconnects;
mod refusals;
mod runtimes;
mod silence;
mod subscriptions;
mod tls;
mod world;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use holdline::clock::SystemClock;
use holdline_core::{Certainty, Clock, ClockKind, ErrorKind, LockError};
use holdline_services::{Flavour, RedisConfig, RedisServer, Reply};

use super::{Affinity, Link, RoutingPolicy, Subscription, SubscriptionEvent, Value};
use crate::args::Args;
use crate::options::RedisOptions;

/// Long enough for anything that must happen.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// A deadline that must pass. Requests that must be answered have [`LONG`].
pub(super) const SHORT: Duration = Duration::from_millis(300);

pub(super) fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new(ClockKind::Boottime).expect("the machine gives a timer"))
}

pub(super) fn options(url: &str) -> RedisOptions {
    RedisOptions::from_url(url).expect(url).with_connect_timeout(Duration::from_secs(10))
}

pub(super) fn link(url: &str) -> Link {
    Link::new(&options(url), clock()).expect("a link")
}

pub(super) fn link_at(address: SocketAddr) -> Link {
    link(&format!("redis://{address}"))
}

/// Waits for a connection, also on a busy machine, where an attempt can exceed its time.
pub(super) async fn ready(link: &Link) {
    let ready = async { while link.ready().await.is_err() {} };
    in_time(ready).await;
}

/// Sends a command, whose arguments are separated by spaces.
pub(super) async fn say(link: &Link, line: &str) -> Result<Value, LockError> {
    say_within(link, line, None, LONG).await
}

pub(super) async fn say_within(
    link: &Link,
    line: &str,
    affinity: Option<Affinity>,
    deadline: Duration,
) -> Result<Value, LockError> {
    let words: Args = line.split(' ').collect();
    link.command(words, affinity, deadline).await
}

/// Sends a command until it is accepted: attempts to connect can fail while a server returns.
pub(super) async fn say_until_taken(link: &Link, line: &str) -> Value {
    let taken = async {
        loop {
            match say(link, line).await {
                Ok(value) => return value,
                Err(error) => assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}"),
            }
        }
    };
    in_time(taken).await
}

pub(super) fn ok() -> Value {
    Value::Status("OK".to_owned())
}

pub(super) fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

pub(super) async fn next_event(inbox: &mut Subscription) -> Option<SubscriptionEvent> {
    let next = std::future::poll_fn(|context| Pin::new(&mut *inbox).poll_next(context));
    in_time(next).await
}

/// Fails the test when what must happen does not.
pub(super) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.expect("it happens in time")
}

/// Polls until the condition is true.
pub(super) async fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + LONG;
    while !seen() {
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await; // event: asked again until it is seen
    }
}

/// Sends a command to a server over a connection of its own.
pub(super) fn ask_server(server: &RedisServer, line: &str) -> Reply {
    server.raw().say(line).expect("a reply")
}

/// The numbers of the connections that have our name.
pub(super) fn connections(server: &RedisServer) -> Vec<String> {
    let list = ask_server(server, "CLIENT LIST").text().unwrap_or_default();
    let ours = list.lines().filter(|line| line.contains(" name=holdline-"));
    let id =
        |line: &str| line.split(' ').find_map(|part| part.strip_prefix("id=").map(str::to_owned));
    ours.filter_map(id).collect()
}

pub(super) fn refused(error: &LockError) -> &str {
    match error.kind() {
        ErrorKind::Refused { message } => message,
        other => panic!("{other:?}"),
    }
}

/// The message of an `Unavailable` of this certainty.
pub(super) fn unavailable(error: &LockError, certainty: Certainty) -> &str {
    assert_eq!(error.certainty(), certainty, "{error:?}");
    match error.kind() {
        ErrorKind::Unavailable { message } => message,
        other => panic!("{other:?}"),
    }
}
