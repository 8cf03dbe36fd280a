//! What one ZooKeeper server is asked for: transactions and packets, as it counts them itself.
//!
//! Every number comes from the server's own counters, so a busy machine does not change it.

use std::time::Duration;

use holdline::{Client, ClientOptions, LockOptions};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::url_of_process;
use crate::rounds::Failure;

/// How long processes wait while their transactions are counted.
const WAITED: Duration = Duration::from_secs(30);
const WAITING_CLIENTS: usize = 10;
const LEASES: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(30)];
/// How many processes want the name at once.
const CROWDS: [usize; 3] = [10, 20, 40];
/// How many permits the semaphore has.
const PERMITS: u32 = 2;
/// How often the name is handed over, for each client.
const HAND_OFFS: usize = 10;
/// The pause before the counters are read again.
const AGAIN: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The counters of a server.
#[derive(Clone, Copy)]
struct Counters {
    /// The number of its last transaction.
    transactions: u64,
    /// The packets that it has received and sent.
    packets: u64,
    connections: u64,
}

impl Counters {
    fn read(server: &ZooKeeper) -> Result<Counters, Failure> {
        let report = server.word(0, "srvr");
        let value = |name: &str| {
            let text = report.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            text.ok_or_else(|| format!("no {name} in the server's report"))
        };
        let transaction = value("Zxid")?.trim_start_matches("0x");
        let received: u64 = value("Received")?.parse()?;
        let sent: u64 = value("Sent")?.parse()?;
        Ok(Counters {
            transactions: u64::from_str_radix(transaction, 16)?,
            packets: received + sent,
            connections: value("Connections")?.parse()?,
        })
    }
}

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = ZooKeeperConfig::default().with_tick(2_000).with_sessions(4_000, 40_000);
    let server = ZooKeeper::try_start(&config)?;
    runtime.block_on(async {
        one_lock(&server).await?;
        for lease in LEASES {
            waiting(&server, lease).await?;
        }
        for waiters in CROWDS {
            hand_offs(&server, None, waiters).await?;
        }
        for waiters in CROWDS {
            hand_offs(&server, Some(PERMITS), waiters).await?;
        }
        Ok(())
    })
}

/// Prints the transactions of a process that takes one lock: from its start to its end.
async fn one_lock(server: &ZooKeeper) -> Result<(), Failure> {
    let mut counted = Vec::new();
    // The first one makes the nodes that stay.
    for _ in 0..2 {
        let before = settled(server).await?;
        let client = Client::connect(&server.url()).await?;
        let guard = client.mutex("one")?.lock().await?;
        let _ = guard.release().await;
        drop(client);
        let after = settled(server).await?;
        counted.push(after.transactions - before.transactions);
    }
    println!("zookeeper: transactions of one process with one lock {counted:?}");
    Ok(())
}

/// Returns the counters once all clients have gone.
async fn settled(server: &ZooKeeper) -> Result<Counters, Failure> {
    loop {
        let counters = Counters::read(server)?;
        // The question itself is a connection.
        if counters.connections <= 1 {
            return Ok(counters);
        }
        sleep(AGAIN).await;
    }
}

/// Prints the transactions of a process that waits, and of one that holds.
#[allow(clippy::cast_precision_loss)]
async fn waiting(server: &ZooKeeper, lease: Duration) -> Result<(), Failure> {
    let name = format!("waiting/{}", lease.as_secs());
    let options = || ClientOptions::default().with_lease_duration(lease);
    let holder = Client::connect_with(&server.url(), options()).await?;
    let guard = holder.mutex(&name)?.lock().await?;
    let alone = rate(server).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..WAITING_CLIENTS {
        let client = Client::connect_with(&server.url(), options()).await?;
        let wait = LockOptions::default().with_wait(LONGEST_WAIT);
        let mutex = client.mutex_with(&name, &wait)?;
        tasks.spawn(async move {
            let _ = mutex.lock().await?.release().await;
            Ok::<_, holdline::LockError>(())
        });
    }
    // Until all of them wait.
    sleep(Duration::from_secs(2)).await;
    let together = rate(server).await?;
    let each = (together - alone) / WAITING_CLIENTS as f64;
    println!(
        "zookeeper: transactions a second, lease {lease:?}: a waiting process {each:.2}, a holder \
         {alone:.2}"
    );
    let _ = guard.release().await;
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Returns how many transactions the server executes in a second.
#[allow(clippy::cast_precision_loss)]
async fn rate(server: &ZooKeeper) -> Result<f64, Failure> {
    let before = Counters::read(server)?;
    sleep(WAITED).await;
    let after = Counters::read(server)?;
    Ok((after.transactions - before.transactions) as f64 / WAITED.as_secs_f64())
}

/// Prints the packets and transactions of one hand-off among processes that all want the name
/// again. `permits`: of a semaphore.
#[allow(clippy::cast_precision_loss)]
async fn hand_offs(
    server: &ZooKeeper,
    permits: Option<u32>,
    waiters: usize,
) -> Result<(), Failure> {
    let name = format!("crowd/{}/{waiters}", permits.unwrap_or(1));
    let mut clients = Vec::with_capacity(waiters);
    for at in 0..waiters {
        let client = Client::connect(&url_of_process(server, at)).await?;
        // It opens its session.
        let _ = client.mutex(format!("{name}/{at}"))?.lock().await?.release().await;
        clients.push(client);
    }
    let before = Counters::read(server)?;
    let mut tasks = JoinSet::new();
    for client in &clients {
        let wait = LockOptions::default().with_wait(LONGEST_WAIT);
        let client = client.clone();
        let name = name.clone();
        tasks.spawn(async move {
            for _ in 0..HAND_OFFS {
                let guard = match permits {
                    Some(of) => client.semaphore_with(&name, of, &wait)?.acquire().await?,
                    None => client.mutex_with(&name, &wait)?.lock().await?,
                };
                let _ = guard.release().await;
            }
            Ok::<_, holdline::LockError>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let after = Counters::read(server)?;
    let times = (waiters * HAND_OFFS) as f64;
    let what = permits.map_or_else(|| "exclusive".to_owned(), |of| format!("{of} permits"));
    println!(
        "zookeeper: a hand-off among {waiters}, {what}: packets {:.1}, transactions {:.1}",
        (after.packets - before.packets) as f64 / times,
        (after.transactions - before.transactions) as f64 / times,
    );
    Ok(())
}
