//! A busy store: programs that take turns, queues, a frozen name, a lease that runs out.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdline::admin::{HolderFields, Operation};
use holdline::{LockName, LockOptions};
use holdline_services::{RedisConfig, RedisServer};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::ground::{Ground, a_set};

/// Names that programs take in turns: a name, the program, its host, why, and for how long.
const TURNS: [(&str, &str, &str, &str, u64); 9] = [
    ("invoices/close-month", "billing", "web-1", "month end", 7_000),
    ("invoices/close-month", "billing", "web-2", "month end", 5_000),
    ("invoices/close-month", "auditor", "batch-1", "checks the books", 9_000),
    ("reports/daily", "reporter", "batch-1", "daily report", 4_000),
    ("reports/daily", "reporter", "batch-2", "daily report", 6_000),
    ("search/reindex", "indexer", "batch-2", "new analyser", 13_000),
    ("search/reindex", "api", "web-1", "small update", 2_500),
    ("cache/warm-up", "warmer", "web-1", "after the deploy", 3_000),
    ("mail/outbox", "mailer", "batch-3", "", 5_000),
];
/// Holders that stay: all but the first of a name wait.
const LONG: [(&str, &str, &str, &str); 5] = [
    ("db/migrate", "migrate", "ops-1", "adds an index to orders"),
    ("db/migrate", "api", "web-1", "starts after the migration"),
    ("db/migrate", "api", "web-2", "starts after the migration"),
    ("db/migrate", "worker", "batch-2", "starts after the migration"),
    ("leader/scheduler", "scheduler", "ops-1", "leads"),
];
/// Whose lease runs out.
const LOST: &str = "backup/nightly";
const FROZEN: &str = "deploy/production";

/// The server of a busy store. The programs end with it.
pub(crate) struct Scene {
    pub(crate) ground: Ground,
    _programs: JoinSet<()>,
    _servers: Vec<RedisServer>,
}

fn options(program: &str, host: &str, reason: &str) -> LockOptions {
    let holder = HolderFields {
        host: host.to_owned(),
        pid: Some(host.bytes().chain(program.bytes()).fold(700, |pid, byte| pid + u32::from(byte))),
        user: "svc".to_owned(),
        program: program.to_owned(),
        ..HolderFields::default()
    };
    LockOptions::default().with_holder(holder).with_reason(reason)
}

impl Scene {
    pub(crate) async fn start() -> Scene {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let memory = format!("memory:scene-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let servers: Vec<_> = (0..3).map(|_| RedisServer::start(RedisConfig::default())).collect();
        let set = a_set(&servers).await;
        let ground = Ground::of_urls(&[("default", &memory), ("eu", &set)], "").await;
        let mut programs = JoinSet::new();
        for (name, program, host, reason) in LONG {
            let lock = ground.client.mutex_with(name, &options(program, host, reason));
            let lock = lock.expect("good options");
            if ground.is_free(name).await {
                let guard = lock.try_lock().await.expect("free");
                programs.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(guard);
                });
            } else {
                programs.spawn(async move { drop(lock.lock().await) });
            }
        }
        for (name, program, host, reason, holds) in TURNS {
            let lock = ground.client.mutex_with(name, &options(program, host, reason));
            let (lock, holds) = (lock.expect("good options"), Duration::from_millis(holds));
            programs.spawn(async move {
                while let Ok(guard) = lock.lock().await {
                    sleep(holds).await; // event: the program works
                    let _ = guard.release().await;
                    sleep(holds / 3).await; // event: the program has other work
                }
            });
        }
        ground.limits(&mut programs).await;
        let short =
            options("backup", "ops-2", "nightly").with_lease_duration(Duration::from_secs(4));
        let lock = ground.client.mutex_with(LOST, &short).expect("good options");
        // Nobody renews a detached lease.
        let lease = lock.lock().await.expect("free").detach().await;
        drop(lease.expect("detached"));
        let freeze = Operation::Freeze {
            name: LockName::new(FROZEN).expect("a name"),
            duration: Duration::from_secs(3_600),
            reason: "no deploys during the sale".to_owned(),
        };
        ground.client.admin().operate(&freeze).await.expect("frozen");
        Scene { ground, _programs: programs, _servers: servers }
    }
}

impl Ground {
    async fn is_free(&self, name: &str) -> bool {
        let name = LockName::new(name).expect("a name");
        !self.client.admin().inspect(&name).await.expect("a store").is_held()
    }

    /// Readers of one name, and permits of another.
    async fn limits(&self, programs: &mut JoinSet<()>) {
        for host in ["web-1", "web-2", "web-3"] {
            let about = options("api", host, "serves requests");
            let readers = self.client.rwlock_with("config/flags", &about).expect("good options");
            let permits = self.client.semaphore_with("gpu", 4, &about).expect("good options");
            let guards =
                (readers.read().await.expect("free"), permits.acquire().await.expect("free"));
            programs.spawn(async move {
                std::future::pending::<()>().await;
                drop(guards);
            });
        }
    }
}
