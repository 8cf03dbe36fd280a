//! The libraries that lock over several servers, with our quorum on the same five.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::{ReleaseReply, RenewReply};
use holdline_redis::{QuorumAdmin, QuorumEngine, QuorumOptions};
use holdline_services::{RedisConfig, RedisServer, Reply};

use crate::driver::Driver;
use crate::ours::{Ours, message_of};
use crate::peers::{Row, over_several};
use crate::storm::Storm;
use crate::table::{self, Outcome, TableRow};

const SERVERS: usize = 5;
const LONG: Duration = Duration::from_secs(30);
/// A lease that expires on purpose.
const SHORT: Duration = Duration::from_secs(3);
/// The time limit of an expected event: far before the end of a long lease.
const SOON: Duration = Duration::from_secs(20);
const CONTENDERS: usize = 5;
const ROUNDS: usize = 3;

type Case = Result<Outcome, String>;

/// A library, our side configured for it, and their servers.
struct CaseRun<'a> {
    row: &'a Row,
    servers: Vec<RedisServer>,
    ours: Ours,
    driver: Driver,
}

/// Runs all cases against one library.
fn run(row: &Row) -> TableRow {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut line = TableRow { title: row.title("?"), outcomes: Vec::new() };
        match CaseRun::open(row).await {
            Ok(mut world) => {
                line.title = row.title(&world.driver.version);
                line.outcomes = world.all().await;
            }
            Err(why) => line.outcomes.push(("start", Outcome::Failed(why))),
        }
        line
    })
}

impl<'a> CaseRun<'a> {
    async fn open(row: &'a Row) -> Result<CaseRun<'a>, String> {
        let servers: Vec<RedisServer> =
            (0..SERVERS).map(|_| RedisServer::start(RedisConfig::default())).collect();
        let hosts: Vec<String> =
            servers.iter().map(|server| server.address().to_string()).collect();
        // These machines are slow: a late node must not count as lost.
        let (hosts, parameters) = (hosts.join(","), row.parameters());
        let url = format!("redlock://{hosts}?command_timeout_ms=5000&{parameters}");
        let options = QuorumOptions::from_url(&url).map_err(message_of)?;
        if row.fencing {
            let admin = QuorumAdmin::new(&options, Arc::new(MachineClock)).map_err(message_of)?;
            admin.init().await.map_err(message_of)?;
            let servers = admin.plan_vouch().await.map_err(message_of)?;
            admin.vouch(&servers).await.map_err(message_of)?;
        }
        let engine =
            QuorumEngine::connect(&options, Arc::new(MachineClock)).await.map_err(message_of)?;
        let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
        let client = row.name("quorum").replace('/', "-");
        let driver = Driver::start(&row.peer, &urls, &client).await?;
        Ok(CaseRun { row, servers, ours: Ours::of(Arc::new(engine))?, driver })
    }

    async fn all(&mut self) -> Vec<(&'static str, Outcome)> {
        outcomes![
            self:
            "we hold" => we_hold,
            "it holds" => it_holds,
            "our release" => our_release,
            "its release" => its_release,
            "our lease ends" => our_lease_ends,
            "its lease ends" => its_lease_ends,
            "5 + 5" => contention,
            "one is down" => one_is_down,
        ]
    }

    /// Sends a request, and expects this answer.
    async fn expect_answer(
        &mut self,
        verb: &str,
        name: &str,
        expected: &str,
    ) -> Result<(), String> {
        let answer = self.driver.ask(&format!("{verb} {name} {}", LONG.as_millis())).await?;
        ensure!(answer == expected, "`{verb}` was answered `{answer}`, not `{expected}`");
        Ok(())
    }

    async fn it_takes(&mut self, name: &str, lease: Duration) -> Result<(), String> {
        let answer = self.driver.ask(&format!("acquire {name} {}", lease.as_millis())).await?;
        ensure!(answer.starts_with("held "), "it asked for a free lock and got `{answer}`");
        Ok(())
    }

    /// Makes it release, which not every library confirms.
    async fn it_releases(&mut self, name: &str, other: &str) -> Result<(), String> {
        let answer = self.driver.ask(&format!("release {name}")).await?;
        ensure!(answer == other || answer == "done", "its release was answered `{answer}`");
        Ok(())
    }

    /// Returns the value of a name's key on each running server.
    fn values(&self, name: &str) -> Result<Vec<Reply>, String> {
        let key = self.row.key(name);
        let ask = |server: &RedisServer| server.raw().send(&["GET", &key]).map_err(message_of);
        self.servers.iter().map(ask).collect()
    }

    async fn we_hold(&mut self, name: &str) -> Case {
        let attempt = self.ours.attempt(name, LONG);
        attempt.take().await?;
        self.expect_answer("acquire", name, "busy").await?;
        let renewed = attempt.renew(LONG).await?;
        ensure!(matches!(renewed, RenewReply::Renewed { .. }), "it took from us: {renewed:?}");
        let released = attempt.release().await?;
        ensure!(matches!(released, ReleaseReply::Released { .. }), "{released:?}");
        self.it_takes(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    async fn it_holds(&mut self, name: &str) -> Case {
        self.it_takes(name, LONG).await?;
        let before = self.values(name)?;
        let taken: Vec<&Reply> = before.iter().filter(|one| **one != Reply::Nil).collect();
        self.ours.are_refused(name, LONG).await?;
        let attempt = self.ours.attempt(name, LONG);
        let renewed = attempt.renew(LONG).await?;
        ensure!(renewed == RenewReply::Unknown, "we renewed its lock: {renewed:?}");
        let released = attempt.release().await?;
        ensure!(released == ReleaseReply::NotHeld { revoked: None }, "{released:?}");
        let lock_name = holdline_core::LockName::new(name).map_err(message_of)?;
        let snapshot = self.ours.engine.inspect(&lock_name).await.map_err(message_of)?;
        ensure!(snapshot.holders.len() == 1, "one holds it, and we see {snapshot:?}");
        let after = self.values(name)?;
        // It continues at a majority: the slower servers get its key later.
        let late = |before: &Reply, after: &Reply| *before == Reply::Nil && taken.contains(&after);
        let kept = before.iter().zip(&after).all(|(one, now)| one == now || late(one, now));
        ensure!(kept, "we changed its keys: {before:?} became {after:?}");
        Ok(Outcome::Passed)
    }

    async fn our_release(&mut self, name: &str) -> Case {
        let attempt = self.ours.attempt(name, LONG);
        attempt.take().await?;
        self.driver.send(&format!("wait {name} {}", LONG.as_millis()))?;
        attempt.release().await?;
        self.driver.gets_it(SOON).await?;
        self.ours.are_refused(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    async fn its_release(&mut self, name: &str) -> Case {
        self.it_takes(name, LONG).await?;
        self.ours.are_refused(name, LONG).await?;
        let mutex = self.ours.mutex(name)?;
        let waiting = tokio::spawn(async move { mutex.lock().await });
        self.it_releases(name, "released").await?;
        let guard = tokio::time::timeout(SOON, waiting).await;
        let guard = guard.map_err(|_| format!("we still wait after {SOON:?}"))?;
        let guard = guard.map_err(message_of)?.map_err(message_of)?;
        self.expect_answer("acquire", name, "busy").await?;
        let _ = guard.release().await;
        Ok(Outcome::Passed)
    }

    async fn our_lease_ends(&mut self, name: &str) -> Case {
        let attempt = self.ours.attempt(name, SHORT);
        attempt.take().await?;
        self.driver.send(&format!("wait {name} {}", LONG.as_millis()))?;
        self.driver.gets_it(SOON).await?;
        let renewed = attempt.renew(LONG).await?;
        ensure!(renewed == RenewReply::Unknown, "our lease is over, and renewing gave {renewed:?}");
        let released = attempt.release().await?;
        ensure!(released == ReleaseReply::NotHeld { revoked: None }, "{released:?}");
        self.ours.are_refused(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    async fn its_lease_ends(&mut self, name: &str) -> Case {
        self.it_takes(name, SHORT).await?;
        let mutex = self.ours.mutex(name)?;
        let guard = tokio::time::timeout(SOON, mutex.lock()).await;
        let guard =
            guard.map_err(|_| format!("we still wait after {SOON:?}"))?.map_err(message_of)?;
        self.it_releases(name, "lost").await?;
        self.expect_answer("acquire", name, "busy").await?;
        ensure!(guard.is_valid(), "our lease went");
        let _ = guard.release().await;
        Ok(Outcome::Passed)
    }

    async fn contention(&mut self, name: &str) -> Case {
        let lease = Duration::from_secs(10);
        let storm = Storm { lease, contenders: CONTENDERS, rounds: ROUNDS };
        storm.of_both(name, &self.ours, &mut self.driver).await?;
        Ok(Outcome::Passed)
    }

    /// The last case: one server is down. Both continue at a majority. With another late server, no
    /// majority agrees on a holder.
    async fn one_is_down(&mut self, name: &str) -> Case {
        self.servers.pop().ok_or("there are servers")?.kill();
        let attempt = self.ours.attempt(name, LONG);
        attempt.take().await?;
        self.expect_answer("acquire", name, "busy").await?;
        attempt.release().await?;
        self.all_have(name, false).await?;
        self.it_takes(name, LONG).await?;
        self.all_have(name, true).await?;
        self.ours.are_refused(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    /// Waits until each running server has a key, or none has.
    async fn all_have(&self, name: &str, key: bool) -> Result<(), String> {
        let end = Instant::now() + SOON;
        loop {
            let values = self.values(name)?;
            if values.iter().all(|value| (*value != Reply::Nil) == key) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "after {SOON:?} the servers have {values:?}");
            tokio::time::sleep(Duration::from_millis(10)).await; // event: a server's own time
        }
    }
}

#[test]
fn a_quorum_beside_every_library_that_locks_over_several() {
    let mut lines = Vec::new();
    for (_, row) in over_several() {
        lines.push(run(&row));
    }
    table::conclude("interop over five servers", &lines);
}
