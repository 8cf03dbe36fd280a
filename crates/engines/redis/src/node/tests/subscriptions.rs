//! Messages, and that none is missed in silence.

use super::*;
use holdline_services::FaultProxy;

fn message(text: &str) -> Option<SubscriptionEvent> {
    Some(SubscriptionEvent::Message(text.as_bytes().to_vec()))
}

fn publish(server: &RedisServer, channel: &str, text: &str) -> Option<i64> {
    behind(server, &format!("PUBLISH {channel} {text}")).integer()
}

async fn is_heard(url_parameters: &str) {
    let server = server();
    let node = node(&format!("{}?{url_parameters}", server.url()));
    let mut inbox = node.subscribe(b"c".to_vec());
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    assert_eq!(publish(&server, "c", "one"), Some(1));
    assert_eq!(heard(&mut inbox).await, message("one"));
    let mut other = node.subscribe(b"d".to_vec());
    assert_eq!(heard(&mut other).await, Some(SubscriptionEvent::Resubscribed));
    assert_eq!(publish(&server, "d", "two"), Some(1));
    assert_eq!(heard(&mut other).await, message("two"));
    drop(other);
    until("nobody listens", || publish(&server, "d", "three") == Some(0)).await;
    assert_eq!(publish(&server, "c", "four"), Some(1));
    assert_eq!(heard(&mut inbox).await, message("four"));
    behind(&server, "CLIENT KILL TYPE pubsub SKIPME yes");
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Lost));
    assert_eq!(
        heard(&mut inbox).await,
        Some(SubscriptionEvent::Resubscribed),
        "messages may be lost"
    );
    assert_eq!(publish(&server, "c", "five"), Some(1));
    assert_eq!(heard(&mut inbox).await, message("five"));
}

#[tokio::test]
async fn messages_are_heard_on_the_one_connection() {
    is_heard("").await;
}

#[tokio::test]
async fn messages_are_heard_by_a_second_connection_with_the_older_protocol() {
    is_heard("protocol=resp2").await;
}

#[tokio::test]
async fn an_inbox_opened_while_nobody_listens_hears_when_the_server_is_back() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    proxy.refuse();
    let node = node_at(proxy.address());
    let mut inbox = node.subscribe(b"c".to_vec());
    say(&node, "PING").await.expect_err("nobody listens");
    proxy.accept();
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    publish(&server, "c", "one");
    assert_eq!(heard(&mut inbox).await, message("one"));
}

/// The server cuts off a subscriber for whom more is to be written than it may keep: the inbox
/// hears that it missed something.
#[tokio::test]
async fn an_overrun_of_the_servers_buffer_is_told() {
    let limit = "client-output-buffer-limit pubsub 1mb 1mb 0";
    let server = RedisServer::start(RedisConfig::default().with_line(limit));
    let node = node_at(server.address());
    let mut inbox = node.subscribe(b"c".to_vec());
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    publish(&server, "c", &"x".repeat(2 << 20));
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Lost));
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    assert!(server.log().contains("output buffer limits"), "{}", server.log());
    assert_eq!(publish(&server, "c", "after"), Some(1));
    assert_eq!(heard(&mut inbox).await, message("after"));
}

#[tokio::test]
async fn an_inbox_ends_with_its_node() {
    let server = server();
    let node = node_at(server.address());
    let mut inbox = node.subscribe(b"c".to_vec());
    assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
    drop(node);
    assert_eq!(heard(&mut inbox).await, None);
}
