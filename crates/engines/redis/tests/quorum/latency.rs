//! Servers whose round trip is longer than the time that a node has to answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::{AcquireReply, Engine, ErrorKind};
use holdline_redis::{QuorumEngine, QuorumOptions};
use holdline_services::{Fault, FaultProxy, Frames, RedisConfig};

use crate::support::{Nodes, request};

/// A client far away learns which limit its servers miss, and by how much. With a longer one it
/// gets the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_names_the_limit_that_a_slow_network_misses() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let proxies: Vec<FaultProxy> =
        nodes.servers.iter().map(|server| FaultProxy::start(server.address())).collect();
    for proxy in &proxies {
        proxy.inject(Frames::replies(), Fault::Delay(Duration::from_millis(300)));
    }
    let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let connect = async |limit_ms: u64| {
        let url = format!("redlock://{}?command_timeout_ms={limit_ms}", hosts.join(","));
        let options = QuorumOptions::from_url(&url).expect("a good URL");
        QuorumEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected")
    };
    let near = connect(100).await;
    let limit = "no reply within 100ms (the last round trip took ";
    let advice = " ms): raise command_timeout_ms in the URL";
    let explains = |reason: &String| reason.contains(limit) && reason.ends_with(advice);
    let began = Instant::now();
    loop {
        let error = near.try_acquire(&request(1)).await.expect_err("no server answers in time");
        let ErrorKind::NoQuorum { nodes: reasons } = error.kind() else { panic!("{error:?}") };
        // Until its first connection, a server has another reason.
        if reasons.iter().all(explains) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{error}");
    }
    let far = connect(20_000).await;
    let granted = far.try_acquire(&request(2)).await.expect("free");
    assert!(matches!(granted, AcquireReply::Granted { .. }), "{granted:?}");
    far.flush().await;
}
