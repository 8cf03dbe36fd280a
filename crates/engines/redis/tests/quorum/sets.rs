//! How servers become a set, and what is refused.

use holdline_redis::NodeState;
use holdline_services::{RedisConfig, Reply};

use crate::support::Nodes;

#[tokio::test]
async fn an_operator_makes_a_set_that_is_used_at_once() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let before = nodes.admin().status().await;
    assert!(before.nodes.iter().all(|node| node.state == NodeState::Blank), "{before:?}");
    let keys = nodes.servers[0].raw().send(&["DBSIZE"]).expect("an answer");
    assert_eq!(keys, Reply::Integer(0), "looking changes nothing");
    let status = nodes.init().await;
    assert_eq!((status.epoch, status.votes, status.majority), (Some(1), 3, 2), "{status:?}");
    assert_eq!((status.may_lose, status.problem), (1, None));
    assert!(status.nodes.iter().all(|node| node.state == NodeState::Votes), "{:?}", status.nodes);
    let again = nodes.admin().init().await.expect_err("it is a set already");
    assert!(again.to_string().contains("epoch 1"), "{again}");
}
