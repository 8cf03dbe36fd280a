//! What a case has: the servers, a Java process, and our clients.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline::{Client, Guard, LockOptions};
use holdline_conformance::clock::MachineClock;
use holdline_redis::RedisOptions;

use super::java::{Java, Thread};
use super::servers::Servers;
use crate::ours::{Ours, message_of};

/// A lease longer than any case.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A lease that expires on purpose.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
/// How soon an event must be seen: far before the end of a long lease.
pub(crate) const SOON: Duration = Duration::from_secs(15);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct World<'a> {
    pub(crate) servers: &'a Servers,
    pub(crate) java: Arc<Java>,
    /// With tokens: a mutex is an `RFencedLock`.
    pub(crate) fenced: Ours,
    /// Without: a mutex is an `RLock`.
    pub(crate) bare: Ours,
    /// How long each wake-up took, by what woke.
    pub(crate) woken: Mutex<Vec<(&'static str, Duration)>>,
    /// How many holds of a storm were ours, and how many Java's.
    pub(crate) shares: Mutex<Vec<(&'static str, usize, usize)>>,
}

/// Opens our side.
pub(crate) async fn open(servers: &Servers, parameters: &str) -> Result<Ours, String> {
    let options = RedisOptions::from_url(&servers.url(parameters)).map_err(message_of)?;
    let engine = holdline_redis::connect(&options, Arc::new(MachineClock)).await;
    Ours::of(engine.map_err(message_of)?)
}

/// Looks until there is something, and fails after [`SOON`].
pub(crate) async fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(PAUSE).await; // event: another process gets there
    }
}

/// Waits for a future, and fails after [`SOON`].
pub(crate) async fn soon<T>(what: &str, wanted: impl Future<Output = T>) -> Result<T, String> {
    let done = tokio::time::timeout(SOON, wanted).await;
    done.map_err(|_| format!("not within {SOON:?}: {what}"))
}

impl<'a> World<'a> {
    pub(crate) async fn open(servers: &'a Servers, major: &str) -> Result<World<'a>, String> {
        let java = Java::start(major, &servers.arguments())?;
        let (fenced, bare) = (open(servers, "").await?, open(servers, "&fencing=off").await?);
        Ok(World { servers, java, fenced, bare, woken: Mutex::default(), shares: Mutex::default() })
    }

    /// The name of this world in the table.
    pub(crate) fn title(&self) -> String {
        format!("Redisson {}, {}", self.java.version, self.servers.title())
    }

    /// A name that only this world and this case use.
    pub(crate) fn name(&self, case: &str) -> String {
        format!("{}-{}", self.java.version, case.replace("::", "-"))
    }

    pub(crate) fn thread(&self, name: &str, who: &str) -> Thread {
        self.java.thread(format!("{name}/{who}"))
    }

    /// Waits until this many clients are subscribed to the messages about a name.
    pub(crate) async fn await_subscribers(
        &self,
        name: &str,
        channel: &str,
        count: i64,
    ) -> Result<(), String> {
        let channel = channel.replace("{}", &format!("{{{name}}}"));
        until(&format!("{count} subscribers of {channel}"), || {
            Ok((self.servers.subscribers(name, &channel)? >= count).then_some(()))
        })
        .await
    }

    /// Notes how long a wake-up took.
    pub(crate) fn note(&self, what: &'static str, since: Instant) {
        self.woken.lock().expect("no panic holds it").push((what, since.elapsed()));
    }

    /// The fields and values of a hash.
    pub(crate) fn hash(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        let reply = self.servers.send(key, &["HGETALL", key])?;
        let texts: Vec<String> = reply
            .items()
            .unwrap_or_default()
            .iter()
            .map(|item| item.text().unwrap_or_default())
            .collect();
        Ok(texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
    }

    /// A number, such as the answer to `PTTL`.
    pub(crate) fn number(&self, key: &str, words: &[&str]) -> Result<i64, String> {
        let reply = self.servers.send(key, words)?;
        let number = reply.integer().or_else(|| reply.text()?.parse().ok());
        number.ok_or_else(|| format!("{words:?}: {reply:?}"))
    }

    pub(crate) fn exists(&self, key: &str) -> Result<bool, String> {
        Ok(self.number(key, &["EXISTS", key])? == 1)
    }
}

/// Waits for a task that acquires.
pub(crate) async fn acquired(
    task: tokio::task::JoinHandle<Result<Guard, holdline::LockError>>,
) -> Result<Guard, String> {
    let guard = soon("our waiter gets it", task).await?;
    guard.map_err(message_of)?.map_err(message_of)
}

/// Releases, and the store must confirm it.
pub(crate) async fn release(guard: Guard) -> Result<(), String> {
    let outcome = guard.release().await;
    ensure!(outcome.is_released(), "our release: {outcome:?}");
    Ok(())
}

/// The options of a lease that no case outlives.
pub(crate) fn long() -> LockOptions {
    LockOptions::default().with_lease_duration(LONG)
}

/// Starts to wait for a mutex.
pub(crate) fn waiting(
    client: &Client,
    name: &str,
) -> Result<tokio::task::JoinHandle<Result<Guard, holdline::LockError>>, String> {
    let mutex = client.mutex_with(name, &long()).map_err(message_of)?;
    Ok(tokio::spawn(async move { mutex.lock().await }))
}

impl World<'_> {
    /// What the cases measured, for the reader: nothing is judged by it.
    pub(crate) fn figures(&self) -> String {
        let mut text = String::new();
        for (what, time) in self.woken.lock().expect("no panic holds it").iter() {
            text += &format!("{}: {what} in {} ms\n", self.title(), time.as_millis());
        }
        for (what, ours, theirs) in self.shares.lock().expect("no panic holds it").iter() {
            text +=
                &format!("{}: {what}: {ours} holds of ours, {theirs} of Java's\n", self.title());
        }
        text
    }
}
