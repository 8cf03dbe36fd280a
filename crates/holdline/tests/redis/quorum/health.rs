//! What observers and metrics show of the nodes: who answers, who votes, how many may still fail.

use std::sync::{Arc, Mutex};

use holdline::health::QuorumHealth;
use holdline::{Client, ClientOptions, Observer};

use super::ground::{Nodes, SHORT};
use crate::recorder::Recorded;
use crate::support::until;

/// Keeps all that was reported.
#[derive(Default)]
struct Reports(Mutex<Vec<QuorumHealth>>);

impl Observer for Reports {
    fn quorum_health(&self, health: &QuorumHealth) {
        self.0.lock().expect("no panic").push(health.clone());
    }
}

/// Runs on one thread, with a recorder of its own.
#[test]
fn the_gauges_follow_a_node_that_dies_and_comes_back() {
    let seen = Recorded::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    metrics::with_local_recorder(&seen, || runtime.block_on(follow(&seen)));
}

async fn follow(seen: &Recorded) {
    let nodes = Nodes::start(3, SHORT).await;
    let addresses: Vec<String> = nodes.addresses().iter().map(ToString::to_string).collect();
    // These servers take any password of the user `default`.
    let url = format!("redlock://default:secret@{}", addresses.join(","));
    let reports = Arc::new(Reports::default());
    let options = ClientOptions::default().with_metrics().with_observer(reports.clone());
    let client = Client::connect_with(&url, options).await.expect("connected");
    let gauge = |name: &str, labels: &str| seen.values(&format!("{name} engine=redlock{labels}"));
    let node = |name: &str, at: usize| gauge(name, &format!(",node={}", addresses[at]));
    let all = |name: &str| (0..3).flat_map(|at| node(name, at)).collect::<Vec<f64>>();
    let margin = || gauge("holdline_quorum_margin", "");

    until("all nodes vote", || all("holdline_node_votes") == [1.0; 3] && margin() == [1.0]).await;
    assert_eq!(all("holdline_node_up"), [1.0; 3]);
    assert_eq!(all("holdline_node_quarantine_seconds"), [0.0; 3]);
    let drift = all("holdline_clock_drift_seconds");
    // One machine, so one clock: what is measured is half of a round trip.
    assert!(drift.len() == 3 && drift.iter().all(|drift| drift.abs() < 5.0), "{drift:?}");

    nodes.0[2].kill();
    until("one node is down", || all("holdline_node_up") == [1.0, 1.0, 0.0]).await;
    assert_eq!((margin(), node("holdline_node_votes", 2)), (vec![0.0], vec![0.0]));
    nodes.0[1].kill();
    until("two nodes are down", || all("holdline_node_up") == [1.0, 0.0, 0.0]).await;
    assert_eq!(margin(), [-1.0], "no majority is left");
    nodes.0[1].restart();
    nodes.0[2].restart();
    until("all nodes vote again", || all("holdline_node_votes") == [1.0; 3] && margin() == [1.0])
        .await;
    assert_eq!(all("holdline_node_up"), [1.0; 3]);

    let reports = std::mem::take(&mut *reports.0.lock().expect("no panic"));
    // They had no file, so they forgot, and came back by a quarantine.
    let quarantined = |health: &QuorumHealth| {
        let waits = |at: usize| {
            let node = &health.nodes[at];
            node.up && !node.votes && !node.quarantine.is_zero() && node.quarantine <= 4 * SHORT
        };
        health.margin < 1 && (waits(1) || waits(2))
    };
    assert!(reports.iter().any(quarantined), "{reports:?}");
    let is_one =
        |health: &QuorumHealth| health.nodes.iter().map(|node| &node.address).eq(&addresses);
    assert!(reports.iter().all(is_one), "{reports:?}");
    assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
    drop(client);
}
