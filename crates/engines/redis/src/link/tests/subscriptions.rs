//! Messages, and that none is lost silently.

use super::*;
use holdline_services::FaultProxy;

fn message(text: &str) -> Option<SubscriptionEvent> {
    Some(SubscriptionEvent::Message(text.as_bytes().to_vec()))
}

fn publish(server: &RedisServer, channel: &str, text: &str) -> Option<i64> {
    ask_server(server, &format!("PUBLISH {channel} {text}")).integer()
}

async fn is_received(url_parameters: &str) {
    let server = server();
    let link = link(&format!("{}?{url_parameters}", server.url()));
    let mut inbox = link.subscribe(b"c".to_vec());
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    assert_eq!(publish(&server, "c", "one"), Some(1));
    assert_eq!(next_event(&mut inbox).await, message("one"));
    let mut other = link.subscribe(b"d".to_vec());
    assert_eq!(next_event(&mut other).await, Some(SubscriptionEvent::Resubscribed));
    assert_eq!(publish(&server, "d", "two"), Some(1));
    assert_eq!(next_event(&mut other).await, message("two"));
    drop(other);
    until("nobody listens", || publish(&server, "d", "three") == Some(0)).await;
    assert_eq!(publish(&server, "c", "four"), Some(1));
    assert_eq!(next_event(&mut inbox).await, message("four"));
    ask_server(&server, "CLIENT KILL TYPE pubsub SKIPME yes");
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Lost));
    assert_eq!(
        next_event(&mut inbox).await,
        Some(SubscriptionEvent::Resubscribed),
        "messages may be lost"
    );
    assert_eq!(publish(&server, "c", "five"), Some(1));
    assert_eq!(next_event(&mut inbox).await, message("five"));
}

#[tokio::test]
async fn messages_are_received_on_the_main_connection() {
    is_received("").await;
}

#[tokio::test]
async fn messages_are_received_on_a_second_connection_with_resp2() {
    is_received("protocol=resp2").await;
}

#[tokio::test]
async fn a_subscription_made_while_the_server_is_down_is_confirmed_when_it_returns() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    proxy.refuse();
    let link = link_at(proxy.address());
    let mut inbox = link.subscribe(b"c".to_vec());
    say(&link, "PING").await.expect_err("nobody listens");
    proxy.accept();
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    publish(&server, "c", "one");
    assert_eq!(next_event(&mut inbox).await, message("one"));
}

/// The server cuts off a subscriber for whom more is to be written than it may keep: the inbox
/// receives that it missed something.
#[tokio::test]
async fn an_overrun_of_the_servers_buffer_is_reported() {
    let limit = "client-output-buffer-limit pubsub 1mb 1mb 0";
    let server = RedisServer::start(RedisConfig::default().with_line(limit));
    let link = link_at(server.address());
    let mut inbox = link.subscribe(b"c".to_vec());
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    publish(&server, "c", &"x".repeat(2 << 20));
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Lost));
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    assert!(server.log().contains("output buffer limits"), "{}", server.log());
    assert_eq!(publish(&server, "c", "after"), Some(1));
    assert_eq!(next_event(&mut inbox).await, message("after"));
}

#[tokio::test]
async fn a_subscription_ends_with_its_node() {
    let server = server();
    let link = link_at(server.address());
    let mut inbox = link.subscribe(b"c".to_vec());
    assert_eq!(next_event(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    drop(link);
    assert_eq!(next_event(&mut inbox).await, None);
}
