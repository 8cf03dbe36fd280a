//! Every engine keeps its promises under faults.

use std::sync::Arc;
use std::time::Duration;

use holdline::clock::{ClockKind, SystemClock};
use holdline_redis::{QuorumAdmin, QuorumOptions};
use holdline_services::{
    ClusterConfig, EtcdCluster, EtcdConfig, MariaDbConfig, MariaDbServer, PostgresConfig,
    PostgresServer, RedisCluster, RedisConfig, RedisServer, SentinelConfig, SentinelGroup,
    ZooKeeper, ZooKeeperConfig,
};
use holdline_torture::{Fault, Nemesis, Report, Verdict};

use crate::owned::{
    OwnEtcd, OwnGroup, OwnMariaDb, OwnPostgres, OwnRedis, OwnRedisCluster, OwnZooKeeper,
};
use crate::{Scratch, alone, carry_out, plan, with_network};

#[track_caller]
fn kept(report: &Report) {
    assert!(report.assumed.exclusion, "{report}");
    kept_but_for_exclusion(report);
}

#[track_caller]
fn kept_but_for_exclusion(report: &Report) {
    assert_eq!(report.verdict, Verdict::Kept, "{report}");
    assert!(report.assumed.tokens, "{report}");
    assert!(report.stale_refused > 0 && report.unfenced_lost > 0, "{report}");
}

#[test]
fn local() {
    let scratch = Scratch::new("local");
    kept(&alone(&plan(scratch.url())));
}

#[test]
fn redis() {
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let mut plan = with_network(plan(server.url()));
    let faults = vec![Fault::ClockRate, Fault::ScriptFlush, Fault::ClientKill];
    plan.faults.extend(&faults);
    kept(&carry_out(&plan, Arc::new(OwnRedis { nodes: vec![server], faults })));
}

/// What a single server forgets, and the step of its clock, cost exclusion and never a write that
/// the resource has checked.
#[test]
fn a_redis_that_forgets_costs_no_fenced_write() {
    let server = RedisServer::start(RedisConfig::default());
    let mut plan = plan(server.url());
    let faults = vec![Fault::RestartEmpty, Fault::FlushAll];
    plan.faults = vec![Fault::PauseHolder, Fault::RestartEmpty, Fault::FlushAll];
    let report = carry_out(&plan, Arc::new(OwnRedis { nodes: vec![server], faults }));
    assert_eq!(report.verdict, Verdict::Kept, "{report}");
    assert!(!report.assumed.exclusion && report.assumed.tokens, "{report}");
}

#[test]
fn a_redis_whose_clock_steps_costs_no_fenced_write() {
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let mut plan = plan(server.url());
    plan.faults = vec![Fault::PauseHolder, Fault::ClockStep];
    let faults = vec![Fault::ClockStep];
    let report = carry_out(&plan, Arc::new(OwnRedis { nodes: vec![server], faults }));
    assert_eq!(report.verdict, Verdict::Kept, "{report}");
    assert!(!report.assumed.exclusion && report.assumed.tokens, "{report}");
}

#[test]
fn redis_plain() {
    let server = RedisServer::start(RedisConfig::default());
    kept(&alone(&with_network(plan(format!("{}?dialect=plain", server.url())))));
}

/// Five servers of which a minority forgets and has clocks that run apart: that costs nothing, not
/// even exclusion.
#[test]
fn redlock() {
    let start = || RedisServer::start(RedisConfig::default().with_clock());
    let nodes: Vec<RedisServer> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..5).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|one| one.join().expect("a server")).collect()
    });
    let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let url = format!("redlock://{}", hosts.join(","));
    found(&url);
    let mut plan = with_network(plan(url));
    let faults = vec![
        Fault::RestartEmpty,
        Fault::ClockRate,
        Fault::ScriptFlush,
        Fault::ClientKill,
        Fault::FlushAll,
    ];
    plan.faults.extend(&faults);
    kept(&carry_out(&plan, Arc::new(OwnRedis { nodes, faults })));
}

/// Slots are moved and masters swap roles with their replicas, all in order: that costs nothing.
#[test]
fn redis_cluster() {
    // So long that none is taken for dead on a busy machine; and as one pair may swap roles
    // again only after twice as long, not longer.
    let config = ClusterConfig::default().with_node_timeout(Duration::from_secs(20));
    let cluster = RedisCluster::start(&config);
    let mut plan = plan(cluster.url());
    let faults = vec![Fault::Failover, Fault::Reshard, Fault::ScriptFlush, Fault::ClientKill];
    plan.faults.extend(&faults);
    kept(&carry_out(&plan, Arc::new(OwnRedisCluster { cluster, faults })));
}

/// Masters are killed, and replicas take over with what they know: that may cost exclusion, and
/// never a write that the resource has checked.
#[test]
fn a_redis_cluster_that_loses_masters_costs_no_fenced_write() {
    let cluster = RedisCluster::start(&ClusterConfig::default());
    let mut plan = plan(cluster.url());
    let faults = vec![Fault::Restart];
    plan.faults = vec![Fault::PauseHolder, Fault::Restart];
    plan.soft_exclusion = true;
    kept_but_for_exclusion(&carry_out(&plan, Arc::new(OwnRedisCluster { cluster, faults })));
}

/// The master is killed, stopped, and replaced by an operator, again and again: that costs time
/// without grants, and neither exclusion nor the order of tokens.
#[test]
fn redis_with_sentinels() {
    let servers = RedisConfig::default().with_line("min-replicas-to-write 1");
    let servers = servers.with_line("min-replicas-max-lag 2");
    let group = SentinelGroup::start(&SentinelConfig::default().with_servers(servers));
    group.settle(0);
    let url = format!("{}?max_lease_duration_ms=1000&old_master_ms=1500", group.url());
    let mut plan = plan(url);
    // Each of them takes seconds.
    plan.lasting = plan.lasting.max(Duration::from_secs(18));
    plan.faults = vec![Fault::PauseHolder, Fault::Kill, Fault::Restart, Fault::Failover];
    let report = carry_out(&plan, Arc::new(OwnGroup(group)));
    kept(&report);
    for fault in [Fault::Restart, Fault::Failover] {
        assert!(report.faults.contains_key(&fault), "{report}");
    }
}

/// Makes blank servers a set, as an operator does.
fn found(url: &str) {
    let options = QuorumOptions::from_url(url).expect("a good URL");
    let clock = SystemClock::new(ClockKind::Boottime).expect("a timer");
    let admin = QuorumAdmin::new(&options, Arc::new(clock)).expect("good options");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(admin.init()).expect("a set");
    runtime
        .block_on(async { admin.vouch(&admin.plan_vouch().await?).await })
        .expect("these servers are new");
}

#[test]
fn postgres() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let mut plan = with_network(plan(server.url()));
    let nemesis = Arc::new(OwnPostgres(server));
    plan.faults.extend(nemesis.faults());
    kept(&carry_out(&plan, nemesis));
}

#[test]
fn mysql() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    let mut plan = with_network(plan(server.url()));
    let nemesis = Arc::new(OwnMariaDb(server));
    plan.faults.extend(nemesis.faults());
    kept(&carry_out(&plan, nemesis));
}

/// Debian's version, whose leader may still acknowledge a lease that is over.
#[test]
fn etcd() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let mut plan = with_network(plan(cluster.url()));
    let nemesis = Arc::new(OwnEtcd(cluster));
    plan.faults.extend(nemesis.faults());
    plan.soft_exclusion = true;
    kept_but_for_exclusion(&carry_out(&plan, nemesis));
}

/// Exclusion depends on sessions: a holder whose session another client ends is valid until
/// notified.
#[test]
fn zookeeper() {
    let servers = ZooKeeper::start_three(&ZooKeeperConfig::default());
    let mut plan = plan(servers.url());
    let nemesis = Arc::new(OwnZooKeeper(servers));
    // Few, so that each comes in a short run: the others come in the next test.
    plan.faults = [vec![Fault::PauseHolder], nemesis.faults()].concat();
    // A session is kept by several signs of life in two fifths of its time: not in much less.
    plan.lease = Duration::from_millis(1_500);
    plan.soft_exclusion = true;
    kept_but_for_exclusion(&carry_out(&plan, nemesis));
}

/// As long as the servers do as they should, not even exclusion is lost.
#[test]
fn zookeeper_behind_a_bad_network() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let mut plan = with_network(plan(server.url()));
    plan.lease = Duration::from_millis(1_500);
    kept(&alone(&plan));
}
