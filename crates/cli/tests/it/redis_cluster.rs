//! The verbs on a Redis Cluster: that they are wired to the engine, and what is said of what is
//! wrong. What they print when all is well is in `transcript`.

use std::time::Duration;

use holdline_services::{ClusterConfig, RedisCluster, RedisConfig, RedisServer};

use crate::world::{CommandOutput, World, output};

fn run(world: &World, url: &str, arguments: &[&str]) -> CommandOutput {
    output(world.command(arguments).env("HOLDLINE_URL", format!("{url}?command_timeout_ms=10000")))
}

#[test]
fn errors_have_their_exit_codes_and_fixes() {
    let calm = ClusterConfig::default().with_node_timeout(Duration::from_secs(90));
    let cluster = RedisCluster::start(&calm.with_size(3, 0));
    let server = RedisServer::start(RedisConfig::default());
    let (world, url) = (World::new(), cluster.url());
    let job = ["run", "demo", "--", "true"];
    assert_eq!(run(&world, &url, &job).code, 0);
    let alone = format!("redis-cluster://{}", server.address());
    for (url, code, says) in [
        (alone.as_str(), 77, "`redis://`"),
        (cluster.nodes()[0].url().as_str(), 77, "`redis-cluster://`"),
        ("redis-cluster://127.0.0.1:1", 69, "nobody listens there"),
        ("redis-cluster://127.0.0.1/1", 78, "a cluster has none"),
        ("redis-cluster://127.0.0.1:x", 78, "port"),
        ("redis-clustre://127.0.0.1", 78, "redis-cluster:"),
    ] {
        let output = run(&world, url, &job);
        assert_eq!(output.code, code, "{url}: {output:?}");
        assert!(output.stderr.contains(says), "{url}: {output:?}");
    }
    let owner = cluster.owner(cluster.slot_of("holdline:{foreign}"), 0).expect("a master");
    cluster.command(owner, "SET holdline:{foreign} mine");
    assert_eq!(run(&world, &url, &["run", "foreign", "--", "true"]).code, 65);
    let bump = run(&world, &url, &["fence", "bump", "--to", "12"]);
    assert_eq!(bump.code, 78, "{bump:?}");
    assert!(bump.stderr.contains("each has a counter of its own"), "{bump:?}");
    let explained = run(&world, &url, &["explain"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    let doctor = run(&world, &url, &["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains("node-timeout"), "{doctor:?}");
    for node in cluster.nodes() {
        node.kill();
    }
    let output = run(&world, &url, &["doctor"]);
    assert_eq!(output.code, 2, "{output:?}");
}
