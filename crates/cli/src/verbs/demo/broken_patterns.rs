//! A release that does not compare: `DEL` after the lease is over. Then the same with our lock.
//!
//! On a Redis server, in the plain dialect, so that both are the same key and the same `SET key
//! value NX PX`. The only difference is the release.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::clock::{Clock, ClockKind, SystemClock};
use holdline::redis::RedisOptions;
use holdline::{Client, ClientOptions};
use holdline_core::contract::{Ending, MIN_HAND_OFF_LEASE};
use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Engine, Hold, LockKind, LockName, Metadata, Mode,
    ReleaseReply, ReleaseRequest,
};
use holdline_redis::PlainEngine;
use serde::Serialize;

use super::page::{Page, Side};
use crate::config::Address;
use crate::failure::Failure;

/// The lease that is over before its holder releases.
const SHORT: Duration = Duration::from_millis(500);
/// A lease that outlasts the demonstration.
const LONG: Duration = MAX_FIRST_LEASE;
/// The pause between two looks whether the lease is over.
const PAUSE: Duration = Duration::from_millis(20);
/// What the keys begin with, so that no other key is touched.
const TEMPLATE: &str = "holdline-demo:{name}";

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct BrokenPatterns {
    /// How many clients believe that they hold the lock, if it is released by a bare `DEL`.
    bare_del_holders: usize,
    /// The same with Holdline.
    holdline_holders: usize,
}

/// Shows both.
pub(super) async fn run(address: &Address, page: &Page<'_>) -> Result<BrokenPatterns, Failure> {
    let server = DemoServer::open(address).await?;
    page.text(format_args!(
        "A release by a bare DEL, on {}.\nA is paused past its lease of {} ms. Then it releases.",
        holdline::redact_url(&address.url),
        SHORT.as_millis(),
    ))?;
    page.heads("SET NX PX, and DEL", "Holdline")?;
    let ended = server.both(page).await;
    server.clean().await?;
    let shown = ended?;
    if shown.bare_del_holders != 2 || shown.holdline_holders != 1 {
        return Err(Failure::internal(format!("it shows nothing: {shown:?}")));
    }
    page.text(
        "\nWith DEL: B and C hold the lock at the same time, and nobody knows.\n\
         With Holdline: the release compares the value and deletes in one step. B keeps its lock.",
    )?;
    Ok(shown)
}

/// The server, and a name on it for each of the two.
struct DemoServer {
    options: RedisOptions,
    clock: Arc<dyn Clock>,
    engine: Arc<PlainEngine>,
    /// Draws the ids.
    client: Client,
    names: [LockName; 2],
    start: Instant,
}

impl DemoServer {
    async fn open(address: &Address) -> Result<DemoServer, Failure> {
        let url = &address.url;
        if !["redis:", "rediss:", "redis+unix:"].iter().any(|scheme| url.starts_with(scheme)) {
            let failure = Failure::config("the broken patterns are commands of a Redis server");
            return Err(failure.fix("name one: --url redis://HOST"));
        }
        let before = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{before}dialect=plain&fencing=off&key_template={TEMPLATE}");
        let options = RedisOptions::from_url(&url)?;
        let clock = SystemClock::new(ClockKind::Boottime).map_err(Failure::internal)?;
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let engine = Arc::new(PlainEngine::connect(&options, clock.clone()).await?);
        let client = Client::with_options(engine.clone(), ClientOptions::default())?;
        let id = client.leases().draw_id().to_hex();
        let name = |which: &str| LockName::new(format!("{id}:{which}")).map_err(Failure::internal);
        let names = [name("del")?, name("holdline")?];
        Ok(DemoServer { options, clock, engine, client, names, start: Instant::now() })
    }

    async fn both(&self, page: &Page<'_>) -> Result<BrokenPatterns, Failure> {
        let bare_del_holders = self.bare_del(page).await?;
        let holdline_holders = self.holdline(page).await?;
        Ok(BrokenPatterns { bare_del_holders, holdline_holders })
    }

    /// Sends the commands of a program that releases by `DEL`.
    async fn bare_del(&self, page: &Page<'_>) -> Result<usize, Failure> {
        let name = &self.names[0];
        let say = |text: &str| page.event(self.start.elapsed(), Side::Left, text);
        self.set(name, "A", SHORT).await?;
        say("A: SET lock A NX PX: A holds it")?;
        say("A is paused")?;
        self.until_free(name).await?;
        self.set(name, "B", LONG).await?;
        say("B: SET lock B NX PX: B holds it")?;
        self.send(&["DEL", &key(name)]).await?;
        say("A: DEL lock: B's lock is gone")?;
        self.set(name, "C", LONG).await?;
        say("C: SET lock C NX PX: C holds it, too")?;
        // B has done nothing since, so it believes that it holds the lock.
        Ok(2)
    }

    /// Does the same with our engine.
    async fn holdline(&self, page: &Page<'_>) -> Result<usize, Failure> {
        let name = &self.names[1];
        let say = |text: &str| page.event(self.start.elapsed(), Side::Right, text);
        let first = self.request(name, SHORT);
        self.acquire(&first).await?;
        say("A acquires: A holds it")?;
        say("A is paused")?;
        self.until_free(name).await?;
        let second = self.request(name, LONG);
        self.acquire(&second).await?;
        say("B acquires: B holds it")?;
        let ending = Ending { for_good: false, hold: first.hold };
        let release = ReleaseRequest { name: name.clone(), lease_id: first.lease_id, ending };
        let released = Engine::release(&*self.engine, &release).await?;
        if matches!(released, ReleaseReply::NotHeld { .. }) {
            say("A releases: nothing is deleted, and A knows")?;
        }
        let third = self.request(name, LONG);
        match Engine::try_acquire(&*self.engine, &third).await? {
            AcquireReply::Granted { .. } => Ok(2),
            _ => {
                say("C acquires: busy, B holds it")?;
                Ok(1)
            }
        }
    }

    fn request(&self, name: &LockName, lease: Duration) -> AcquireRequest {
        AcquireRequest {
            name: name.clone(),
            lease_id: self.client.leases().draw_id(),
            client: ClientId::from_u64(1),
            mode: Mode::Exclusive,
            kind: LockKind::Mutex,
            hold: Hold::Leased(lease),
            hand_off_lease: MIN_HAND_OFF_LEASE,
            queue: false,
            known: false,
            metadata: Metadata::default(),
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<(), Failure> {
        match Engine::try_acquire(&*self.engine, request).await? {
            AcquireReply::Granted { .. } => Ok(()),
            other => Err(Failure::internal(format!("a free name was not granted: {other:?}"))),
        }
    }

    /// Sends `SET … NX PX`, and finds out whether this client has the key.
    async fn set(&self, name: &LockName, client: &str, lease: Duration) -> Result<(), Failure> {
        let ms = lease.as_millis().to_string();
        let value = client.to_lowercase();
        self.send(&["SET", &key(name), &value, "NX", "PX", &ms]).await?;
        let shown = Engine::inspect(&*self.engine, name).await?;
        let is_held = |shown: &holdline_core::HolderView| {
            // The id that is shown begins with the value, if that is a hex digit.
            shown.summary.lease_id.to_string().starts_with(&value)
        };
        if shown.holders.first().is_some_and(is_held) {
            return Ok(());
        }
        Err(Failure::internal(format!("{client} did not get the key of a free name")))
    }

    async fn until_free(&self, name: &LockName) -> Result<(), Failure> {
        while Engine::inspect(&*self.engine, name).await?.is_held() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn send(&self, words: &[&str]) -> Result<(), Failure> {
        Ok(holdline_redis::command(&self.options, self.clock.clone(), words).await?)
    }

    async fn clean(&self) -> Result<(), Failure> {
        for name in &self.names {
            self.send(&["DEL", &key(name)]).await?;
        }
        Ok(())
    }
}

fn key(name: &LockName) -> String {
    TEMPLATE.replace("{name}", name.as_str())
}
