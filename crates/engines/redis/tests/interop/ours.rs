//! Our side: an engine for single steps, a client for waits.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, LockOptions, Mutex};
use holdline_conformance::clock::MachineClock;
use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Ending, Engine, Entropy, Hold, LeaseId, LockKind,
    LockName, Metadata, Mode, Purpose, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
};
use holdline_redis::{PlainEngine, RedisOptions};
use holdline_services::RedisServer;
use rand::Rng;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::peers::Row;

struct Random;

impl Entropy for Random {
    fn fill(&mut self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}

pub(crate) struct Ours {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) client: Client,
}

/// One attempt of ours.
pub(crate) struct Attempt {
    request: AcquireRequest,
    engine: Arc<dyn Engine>,
}

pub(crate) fn message_of(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Ours {
    pub(crate) async fn open(server: &RedisServer, row: &Row) -> Result<Ours, String> {
        let url = format!("{}?{}", server.url(), row.parameters());
        let options = RedisOptions::from_url(&url).map_err(message_of)?;
        let engine =
            PlainEngine::connect(&options, Arc::new(MachineClock)).await.map_err(message_of)?;
        Ours::of(Arc::new(engine))
    }

    /// Our side with an existing engine.
    pub(crate) fn of(engine: Arc<dyn Engine>) -> Result<Ours, String> {
        let client = Client::with_options(engine.clone(), holdline::ClientOptions::default())
            .map_err(message_of)?;
        Ok(Ours { engine, client })
    }

    /// We acquire, and expect a foreign holder with its time left.
    pub(crate) async fn are_refused(&self, name: &str, most: Duration) -> Result<(), String> {
        let reply = self.attempt(name, most).ask().await?;
        let AcquireReply::Busy { holder: Some(holder), at_most: Some(at_most), .. } = &reply else {
            return Err(format!("it holds, and we got {reply:?}"));
        };
        ensure!(holder.token.is_none(), "a foreign holder has a token: {reply:?}");
        ensure!(!at_most.is_zero() && *at_most <= most, "{at_most:?} left of at most {most:?}");
        Ok(())
    }

    pub(crate) fn attempt(&self, name: &str, lease: Duration) -> Attempt {
        let request = AcquireRequest {
            name: LockName::new(name).expect("a good name"),
            lease_id: LeaseId::random(&mut Random),
            client: ClientId::random(&mut Random),
            mode: Mode::Exclusive,
            kind: LockKind::Mutex,
            hold: Hold::Leased(lease),
            queue: false,
            known: false,
            hand_off_lease: MIN_HAND_OFF_LEASE,
            metadata: Metadata::default(),
        };
        Attempt { request, engine: self.engine.clone() }
    }

    /// An attempt to read.
    pub(crate) fn attempt_to_read(&self, name: &str, lease: Duration) -> Attempt {
        self.attempt_as(name, lease, Mode::Shared)
    }

    /// An attempt at the only permit.
    pub(crate) fn attempt_at_permit(&self, name: &str, lease: Duration) -> Attempt {
        self.attempt_as(name, lease, Mode::Permits { count: 1, of: 1 })
    }

    fn attempt_as(&self, name: &str, lease: Duration, mode: Mode) -> Attempt {
        let Attempt { request, engine } = self.attempt(name, lease);
        Attempt { request: AcquireRequest { mode, ..request }, engine }
    }

    pub(crate) fn mutex(&self, name: &str) -> Result<Mutex, String> {
        let options = LockOptions::default().with_lease_duration(Duration::from_secs(10));
        self.client.mutex_with(name, &options).map_err(message_of)
    }
}

/// Contends as users do: waits, enters, leaves and releases, this many times.
pub(crate) async fn contend(mutex: Mutex, rounds: usize, port: u16) -> Result<(), String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(message_of)?;
    let mut stream = BufReader::new(stream);
    for _ in 0..rounds {
        let guard = mutex.lock().await.map_err(message_of)?;
        for word in ["enter\n", "leave\n"] {
            stream.write_all(word.as_bytes()).await.map_err(message_of)?;
            let mut answer = String::new();
            stream.read_line(&mut answer).await.map_err(message_of)?;
            if answer != "ok\n" {
                return Err(format!("the observer answered {answer:?}"));
            }
        }
        let _ = guard.release().await;
    }
    Ok(())
}

impl Attempt {
    pub(crate) async fn ask(&self) -> Result<AcquireReply, String> {
        self.engine.try_acquire(&self.request).await.map_err(message_of)
    }

    pub(crate) async fn take(&self) -> Result<(), String> {
        match self.ask().await? {
            AcquireReply::Granted { .. } => Ok(()),
            other => Err(format!("we asked for a free lock and got {other:?}")),
        }
    }

    pub(crate) async fn release(&self) -> Result<ReleaseReply, String> {
        let AcquireRequest { name, lease_id, hold, .. } = &self.request;
        let ending = Ending { for_good: false, hold: *hold };
        let request = ReleaseRequest { name: name.clone(), lease_id: *lease_id, ending };
        self.engine.release(&request).await.map_err(message_of)
    }

    pub(crate) async fn renew(&self, lease: Duration) -> Result<RenewReply, String> {
        let AcquireRequest { name, lease_id, client, .. } = &self.request;
        let purpose = Purpose::Keep(Hold::Leased(lease));
        let line =
            RenewRequest { name: name.clone(), lease_id: *lease_id, client: *client, purpose };
        let reply = self.engine.renew(&[line]).await.pop();
        reply.ok_or("no answer to a line of one")?.map_err(message_of)
    }
}
