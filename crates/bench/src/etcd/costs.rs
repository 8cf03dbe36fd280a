//! What one etcd server is asked for: requests, messages of watches and bytes, as it counts them.
//!
//! Every number comes from the server's own counters, so a busy machine changes it only by the
//! heartbeats of a longer run.

use std::fmt::Display;
use std::time::Duration;

use holdline::{Client, LockOptions};
use holdline_services::{EtcdConfig, EtcdServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::rounds::Failure;

/// How long clients wait while their requests are counted.
const WAITED: Duration = Duration::from_secs(10);
const WAITING_CLIENTS: usize = 10;
/// How long holders keep the others waiting, who come one after another in this interval.
const HELD: Duration = Duration::from_secs(15);
const ONE_BY_ONE: Duration = Duration::from_millis(100);
/// How many clients want the name at once.
const CROWDS: [usize; 3] = [10, 20, 40];
/// How many permits the semaphores have.
const PERMITS: [u32; 2] = [4, 8];
/// How often the name is handed over, for each client.
const HAND_OFFS: usize = 10;
/// How long a holder works, so that others wait.
const WORK: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The counters of a server.
#[derive(Clone, Copy)]
struct Counters {
    /// Transactions, and reads outside of them.
    requests: f64,
    watch_messages: f64,
    bytes: f64,
}

impl Counters {
    async fn read(server: &EtcdServer) -> Result<Counters, Failure> {
        let mut stream = TcpStream::connect(server.address()).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
        };
        let transactions = value("grpc_server_started_total{grpc_method=\"Txn\"");
        let reads = value("grpc_server_started_total{grpc_method=\"Range\"");
        Ok(Counters {
            requests: transactions + reads,
            watch_messages: value("grpc_server_msg_sent_total{grpc_method=\"Watch\""),
            bytes: value("etcd_network_client_grpc_sent_bytes_total"),
        })
    }

    /// Prints what was counted since `before`, divided by `times`.
    fn print(self, what: impl Display, before: Counters, times: f64) {
        println!(
            "etcd: {what}: requests {:.1}, messages of watches {:.1}, bytes {:.0}",
            (self.requests - before.requests) / times,
            (self.watch_messages - before.watch_messages) / times,
            (self.bytes - before.bytes) / times,
        );
    }
}

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = EtcdServer::try_start(EtcdConfig::default())?;
    runtime.block_on(async {
        for permits in [None].into_iter().chain(PERMITS.map(Some)) {
            waiting(&server, permits).await?;
            for waiters in CROWDS {
                hand_offs(&server, permits, waiters).await?;
            }
        }
        Ok(())
    })
}

/// Acquires and releases once, after some work.
async fn hold(
    client: &Client,
    name: &str,
    permits: Option<u32>,
    work: Duration,
) -> Result<(), Failure> {
    let wait = LockOptions::default().with_wait(LONGEST_WAIT);
    let guard = match permits {
        Some(of) => client.semaphore_with(name, of, &wait)?.acquire().await?,
        None => client.mutex_with(name, &wait)?.lock().await?,
    };
    sleep(work).await;
    let _ = guard.release().await;
    Ok(())
}

fn kind(permits: Option<u32>) -> String {
    permits.map_or_else(|| "exclusive".to_owned(), |of| format!("{of} permits"))
}

/// Prints what a client that waits for one name costs in a second.
#[allow(clippy::cast_precision_loss)]
async fn waiting(server: &EtcdServer, permits: Option<u32>) -> Result<(), Failure> {
    let name = format!("waiting/{}", kind(permits));
    let holders = usize::try_from(permits.unwrap_or(1))?;
    let mut tasks = JoinSet::new();
    for at in 0..holders + WAITING_CLIENTS {
        let client = Client::connect(&server.url()).await?;
        let name = name.clone();
        let work = if at < holders { HELD } else { Duration::ZERO };
        tasks.spawn(async move {
            hold(&client, &name, permits, work).await.map_err(|error| error.to_string())
        });
        sleep(ONE_BY_ONE).await;
    }
    let before = Counters::read(server).await?;
    sleep(WAITED).await;
    let after = Counters::read(server).await?;
    let times = WAITING_CLIENTS as f64 * WAITED.as_secs_f64();
    after.print(format!("a waiting client, {}, in a second", kind(permits)), before, times);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Prints what a hand-off costs among clients that all want the name again.
#[allow(clippy::cast_precision_loss)]
async fn hand_offs(
    server: &EtcdServer,
    permits: Option<u32>,
    waiters: usize,
) -> Result<(), Failure> {
    let name = format!("crowd/{}/{waiters}", kind(permits));
    let mut clients = Vec::with_capacity(waiters);
    for _ in 0..waiters {
        clients.push(Client::connect(&server.url()).await?);
    }
    let before = Counters::read(server).await?;
    let mut tasks = JoinSet::new();
    for client in clients {
        let name = name.clone();
        tasks.spawn(async move {
            for _ in 0..HAND_OFFS {
                hold(&client, &name, permits, WORK).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let after = Counters::read(server).await?;
    let times = (waiters * HAND_OFFS) as f64;
    after.print(format!("a hand-off among {waiters}, {}", kind(permits)), before, times);
    Ok(())
}
