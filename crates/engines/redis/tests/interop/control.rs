//! The control: contenders that do not share a key must be detected.

use crate::driver::Driver;
use crate::observer::{Observations, Observer};
use crate::ours::{Ours, contend};
use crate::peers::{Peer, Row, rows};
use holdline_services::{RedisConfig, RedisServer};

#[tokio::test]
async fn contenders_that_do_not_share_a_key_are_detected() {
    let server = RedisServer::start(RedisConfig::default());
    let (_, first) = rows().into_iter().next().expect("there are libraries");
    let astray = Row { peer: Peer { template: "elsewhere:{name}", ..first.peer }, ..first };
    let ours = Ours::open(&server, &astray).await.expect("open");
    let mut driver = Driver::start(&first.peer, &[server.url()], "control").await.expect("started");
    let observer = Observer::holding(2);
    driver.send(&format!("contend name 10000 1 1 {}", observer.port)).expect("sent");
    let mutex = ours.mutex("name").expect("a mutex");
    contend(mutex, 1, observer.port).await.expect("done");
    assert_eq!(driver.answer().await, Ok("done 1".to_owned()));
    assert_eq!(observer.seen(), Observations { inside: 0, entered: 2, overlaps: 1 });
}
