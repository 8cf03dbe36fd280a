//! The cases, each on a name of its own: our holders and the other library's on one key.

use std::time::{Duration, Instant};

use holdline_core::{LeaseId, ReleaseReply, RenewReply};
use holdline_services::{Raw, RedisServer, Reply};

use crate::driver::Driver;
use crate::ours::{Ours, message_of};
use crate::peers::Row;
use crate::storm::Storm;
use crate::table::{Outcome, TableRow};

/// A lease longer than any case.
const LONG: Duration = Duration::from_secs(30);
/// A lease that expires on purpose; one library counts whole seconds.
const SHORT: Duration = Duration::from_secs(1);
/// How soon a release must be seen: far before the end of a long lease.
const SOON: Duration = Duration::from_secs(15);
const CONTENDERS: usize = 20;
const ROUNDS: usize = 3;

type Case = Result<Outcome, String>;

/// A library, our side configured for it, and a raw connection to the server.
struct CaseRun<'a> {
    row: &'a Row,
    ours: Ours,
    driver: Driver,
    raw: Raw,
    client: String,
}

/// Runs all cases against one library.
pub(crate) fn run(server: &RedisServer, row: &Row) -> TableRow {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut line = TableRow { title: row.title("?"), outcomes: Vec::new() };
        match CaseRun::open(server, row).await {
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
    async fn open(server: &RedisServer, row: &'a Row) -> Result<CaseRun<'a>, String> {
        let client = row.name("client").replace('/', "-");
        let driver = Driver::start(&row.peer, &[server.url()], &client).await?;
        Ok(CaseRun { row, ours: Ours::open(server, row).await?, driver, raw: server.raw(), client })
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
            "we extend" => we_extend,
            "it extends" => it_extends,
            "20 + 20" => contention,
        ]
    }

    async fn ask(&mut self, verb: &str, name: &str, lease: Duration) -> Result<String, String> {
        self.driver.ask(&format!("{verb} {name} {}", lease.as_millis())).await
    }

    /// Sends a request, and expects this answer.
    async fn expect_answer(
        &mut self,
        verb: &str,
        name: &str,
        lease: Duration,
        expected: &str,
    ) -> Result<(), String> {
        let answer = self.ask(verb, name, lease).await?;
        ensure!(answer == expected, "`{verb}` was answered `{answer}`, not `{expected}`");
        Ok(())
    }

    /// Makes it take the lock, and returns its value.
    async fn it_takes(&mut self, name: &str, lease: Duration) -> Result<String, String> {
        let answer = self.ask("acquire", name, lease).await?;
        let value = answer.strip_prefix("held ").map(str::to_owned);
        value.ok_or_else(|| format!("it asked for a free lock and got `{answer}`"))
    }

    fn value(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match self.raw.send(&["GET", &self.row.key(name)]).map_err(message_of)? {
            Reply::Bulk(value) => Ok(Some(value)),
            Reply::Nil => Ok(None),
            other => Err(format!("the key holds {other:?}")),
        }
    }

    fn left(&mut self, name: &str) -> Result<Duration, String> {
        let reply = self.raw.send(&["PTTL", &self.row.key(name)]).map_err(message_of)?;
        let left = reply.integer().and_then(|ms| u64::try_from(ms).ok());
        left.map(Duration::from_millis).ok_or_else(|| format!("the key has no end: {reply:?}"))
    }

    async fn we_hold(&mut self, name: &str) -> Case {
        let attempt = self.ours.attempt(name, LONG);
        attempt.take().await?;
        let before = self.value(name)?;
        self.expect_answer("acquire", name, LONG, "busy").await?;
        ensure!(before.is_some() && self.value(name)? == before, "it changed our key");
        let released = attempt.release().await?;
        ensure!(matches!(released, ReleaseReply::Released { .. }), "{released:?}");
        ensure!(self.value(name)?.is_none(), "our release left the key");
        self.it_takes(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    async fn it_holds(&mut self, name: &str) -> Case {
        let value = self.it_takes(name, LONG).await?;
        let stored = self.value(name)?.unwrap_or_default();
        let hex: String = stored.iter().map(|byte| format!("{byte:02x}")).collect();
        ensure!(hex == value, "it says that its value is {value}, and the key holds {hex}");
        self.ours.are_refused(name, LONG).await?;
        let locked = self.ours.attempt(name, LONG);
        let released = locked.release().await?;
        ensure!(released == ReleaseReply::NotHeld { revoked: None }, "{released:?}");
        let lock_name = holdline_core::LockName::new(name).map_err(message_of)?;
        let snapshot = self.ours.engine.inspect(&lock_name).await.map_err(message_of)?;
        let [holder] = snapshot.holders.as_slice() else {
            return Err(format!("one holds it, and we see {snapshot:?}"));
        };
        let program = holder.summary.metadata.fields().program;
        // Without tokens our own values are lease ids, and some libraries write the same form.
        let may_be_ours = !self.row.fencing
            && std::str::from_utf8(&stored).is_ok_and(|text| text.parse::<LeaseId>().is_ok());
        let expected = if may_be_ours { "" } else { "a foreign client" };
        ensure!(program == expected, "the holder is shown as {program:?}");
        let left = holder.summary.left;
        ensure!(left.is_some_and(|left| !left.is_zero() && left <= LONG), "{left:?} left");
        ensure!(self.value(name)?.as_ref() == Some(&stored), "we changed its key");
        Ok(Outcome::Passed)
    }

    async fn our_release(&mut self, name: &str) -> Case {
        let attempt = self.ours.attempt(name, LONG);
        attempt.take().await?;
        self.expect_answer("acquire", name, LONG, "busy").await?;
        self.driver.send(&format!("wait {name} {}", LONG.as_millis()))?;
        if self.row.peer.signal.is_some() {
            self.is_blocked()?;
        }
        attempt.release().await?;
        self.driver.gets_it(SOON).await?;
        self.ours.are_refused(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    /// Waits until the server shows the library blocked on its list: then only a push wakes it.
    fn is_blocked(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + SOON;
        let name = format!(" name={} ", self.client);
        while Instant::now() < deadline {
            let clients =
                self.raw.say("CLIENT LIST").map_err(message_of)?.text().unwrap_or_default();
            let mut ours = clients.lines().filter(|line| line.contains(&name));
            if ours.any(|line| line.contains(" cmd=blpop ")) {
                return Ok(());
            }
        }
        Err(format!("it does not wait on its list within {SOON:?}"))
    }

    async fn its_release(&mut self, name: &str) -> Case {
        self.it_takes(name, LONG).await?;
        self.ours.are_refused(name, LONG).await?;
        let mutex = self.ours.mutex(name)?;
        let waiting = tokio::spawn(async move { mutex.lock().await });
        let answer = self.driver.ask(&format!("release {name}")).await?;
        ensure!(answer == "released" || answer == "done", "its release was answered `{answer}`");
        let guard = tokio::time::timeout(SOON, waiting).await;
        let guard = guard.map_err(|_| format!("we still wait after {SOON:?}"))?;
        let guard = guard.map_err(message_of)?.map_err(message_of)?;
        self.expect_answer("acquire", name, LONG, "busy").await?;
        let _ = guard.release().await;
        Ok(Outcome::Passed)
    }

    async fn our_lease_ends(&mut self, name: &str) -> Case {
        let attempt = self.ours.attempt(name, SHORT);
        attempt.take().await?;
        self.driver.send(&format!("wait {name} {}", LONG.as_millis()))?;
        // No client pushes to the list when a lease ends: that library waits for the length of its
        // own lease, unless another client releases. So we acquire and release.
        if self.row.peer.signal.is_some() {
            self.is_blocked()?;
            let mutex = self.ours.mutex(name)?;
            let _ = mutex.lock().await.map_err(message_of)?.release().await;
        }
        self.driver.gets_it(SOON).await?;
        let renewed = attempt.renew(LONG).await?;
        ensure!(renewed == RenewReply::Unknown, "our lease is over, and renewing gave {renewed:?}");
        let released = attempt.release().await?;
        ensure!(released == ReleaseReply::NotHeld { revoked: None }, "{released:?}");
        ensure!(self.value(name)?.is_some(), "our late release freed its lock");
        self.ours.are_refused(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    async fn its_lease_ends(&mut self, name: &str) -> Case {
        self.it_takes(name, SHORT).await?;
        let mutex = self.ours.mutex(name)?;
        let guard = tokio::time::timeout(SOON, mutex.lock()).await;
        let guard =
            guard.map_err(|_| format!("we still wait after {SOON:?}"))?.map_err(message_of)?;
        let before = self.value(name)?;
        let answer = self.ask("extend", name, LONG).await?;
        ensure!(answer == "lost" || answer == "unsupported", "its late extension: `{answer}`");
        let answer = self.driver.ask(&format!("release {name}")).await?;
        ensure!(answer == "lost" || answer == "done", "its late release: `{answer}`");
        ensure!(before.is_some() && self.value(name)? == before, "it changed our key");
        ensure!(guard.is_valid(), "our lease went");
        let _ = guard.release().await;
        Ok(Outcome::Passed)
    }

    async fn we_extend(&mut self, name: &str) -> Case {
        let attempt = self.ours.attempt(name, 10 * SHORT);
        attempt.take().await?;
        let renewed = attempt.renew(LONG).await?;
        ensure!(matches!(renewed, RenewReply::Renewed { .. }), "renewing gave {renewed:?}");
        let left = self.left(name)?;
        ensure!(left > 10 * SHORT && left <= LONG, "{left:?} left after we extended");
        self.expect_answer("acquire", name, LONG, "busy").await?;
        Ok(Outcome::Passed)
    }

    async fn it_extends(&mut self, name: &str) -> Case {
        self.it_takes(name, 10 * SHORT).await?;
        match self.ask("extend", name, LONG).await?.as_str() {
            "extended" => {}
            "unsupported" => return Ok(Outcome::Lacks),
            answer => return Err(format!("its extension was answered `{answer}`")),
        }
        let left = self.left(name)?;
        ensure!(left > 10 * SHORT && left <= LONG, "{left:?} left after it extended");
        self.ours.are_refused(name, LONG).await?;
        Ok(Outcome::Passed)
    }

    async fn contention(&mut self, name: &str) -> Case {
        let storm = Storm { lease: 10 * SHORT, contenders: CONTENDERS, rounds: ROUNDS };
        storm.of_both(name, &self.ours, &mut self.driver).await?;
        Ok(Outcome::Passed)
    }
}
