//! What the tests share: engines, and contenders that ask by hand.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
pub(crate) use holdline_conformance::contender::{LONG, contender, hint, next_hint, until};
use holdline_core::{AcquireReply, Hint, LockError};
use holdline_etcd::{EtcdEngine, EtcdOptions};
use holdline_services::EtcdServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

pub(crate) type Contender = holdline_conformance::contender::Contender<EtcdEngine>;

/// An engine over this URL.
pub(crate) async fn engine(url: &str) -> EtcdEngine {
    connect(url).await.expect("connected")
}

pub(crate) async fn connect(url: &str) -> Result<EtcdEngine, LockError> {
    let mut options = EtcdOptions::from_url(url)?;
    if !url.contains("timeout_ms") {
        // Limits that a machine that is busy does not meet.
        options = options.with_command_timeout(LONG).with_connect_timeout(LONG);
    }
    EtcdEngine::connect(&options, Arc::new(MachineClock)).await
}

/// Asks when there is a hint to, and only then; passes the contender on once it holds.
pub(crate) async fn wait_its_turn(mut waiter: Contender, granted: UnboundedSender<Contender>) {
    let mut hints = waiter.watch();
    loop {
        let hint = next_hint(&mut hints).await;
        if hint == Hint::CheckLease {
            continue;
        }
        match waiter.ask().await.expect("an answer") {
            AcquireReply::Granted { .. } => break,
            reply => assert!(matches!(reply, AcquireReply::Queued { .. }), "{reply:?}"),
        }
    }
    let _ = granted.send(waiter);
}

/// Waits for the next contender that was passed on.
pub(crate) async fn next_granted(granted: &mut UnboundedReceiver<Contender>) -> Contender {
    let next = tokio::time::timeout(LONG, granted.recv()).await;
    next.expect("a grant in time").expect("somebody waits")
}

/// What a server has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) transactions: u64,
    /// Reads outside of transactions.
    pub(crate) reads: u64,
    /// Messages on the streams of watches.
    pub(crate) watch_messages: u64,
    /// All bytes to clients.
    pub(crate) bytes: u64,
}

impl Counts {
    /// Reads the counters of a server.
    pub(crate) async fn read(server: &EtcdServer) -> Counts {
        let mut stream = TcpStream::connect(server.address()).await.expect("connected");
        let request = b"GET /metrics HTTP/1.0\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        let count = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            // Large counters are written as 1.2e+06.
            value.map_or(0, |value| value as u64)
        };
        Counts {
            transactions: count("grpc_server_started_total{grpc_method=\"Txn\""),
            reads: count("grpc_server_started_total{grpc_method=\"Range\""),
            watch_messages: count("grpc_server_msg_sent_total{grpc_method=\"Watch\""),
            bytes: count("etcd_network_client_grpc_sent_bytes_total"),
        }
    }

    /// Returns what was counted since `before`.
    pub(crate) fn since(self, before: &Counts) -> Counts {
        Counts {
            transactions: self.transactions - before.transactions,
            reads: self.reads - before.reads,
            watch_messages: self.watch_messages - before.watch_messages,
            bytes: self.bytes - before.bytes,
        }
    }
}
