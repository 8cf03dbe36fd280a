//! Two ways to wake the next of several sessions: a notification, and an advisory lock in whose own
//! queue all sessions wait. Both only wake: the cost of a lock comes on top of either.

use std::time::Instant;

use holdline_services::PostgresServer;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_postgres::Client;

use super::{Floor, Listener, connect};
use crate::rounds::{Failure, ROUNDS, Round, each, median, report};

const SESSIONS: [usize; 3] = [2, 16, 64];
const WAKES: usize = 200;

/// Runs both, and prints for each the time from letting go to being woken, and what it costs the
/// server's processors.
pub(super) async fn run(server: &PostgresServer, floor: &Floor) -> Result<(), Failure> {
    for sessions in SESSIONS {
        let mut reply = Vec::with_capacity(sessions);
        for number in 0..sessions {
            reply.push(Listener::open(server, number).await?);
        }
        let mut line = WaitQueue::open(server, sessions).await?;
        let (mut by_message, mut by_lock) = (Wakes::default(), Wakes::default());
        for _ in 0..ROUNDS {
            let update = floor.update().await?;
            by_message.round(server, update, notify(&mut reply)).await?;
            by_lock.round(server, update, line.pass()).await?;
        }
        by_message.show(&format!("  woken by NOTIFY, among {sessions} sessions, p50"));
        by_lock.show(&format!("  woken in an advisory lock's line of {sessions}, p50"));
    }
    Ok(())
}

/// What was measured of one way.
#[derive(Default)]
struct Wakes {
    rounds: Vec<Round>,
    /// The server's processor time for one, in nanoseconds.
    server: Vec<f64>,
}

impl Wakes {
    async fn round(
        &mut self,
        server: &PostgresServer,
        floor: f64,
        wakes: impl Future<Output = Result<Vec<f64>, Failure>>,
    ) -> Result<(), Failure> {
        let before = processor_time(server)?;
        let taken = wakes.await?;
        self.server.push((processor_time(server)? - before) / taken.len() as f64);
        self.rounds.push(Round { floor, subject: median(taken.into_iter()) });
        Ok(())
    }

    fn show(&self, title: &str) {
        report(title, &self.rounds, "no aim");
        let microseconds = median(self.server.iter().copied()) / 1_000.0;
        println!("    the server's processors: {microseconds:.0} µs for each");
    }
}

/// How long all processes of the server have run, in nanoseconds.
fn processor_time(server: &PostgresServer) -> Result<f64, Failure> {
    let first = server.pid();
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"))?;
    let mut sum = 0.0;
    for process in children.split_whitespace().chain([first.to_string().as_str()]) {
        // One that has ended meanwhile is none of ours.
        let Ok(reply) = std::fs::read_to_string(format!("/proc/{process}/schedstat")) else {
            continue;
        };
        sum += reply.split(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(sum)
}

/// Each session notifies the next one.
async fn notify(sessions: &mut [Listener]) -> Result<Vec<f64>, Failure> {
    let mut taken = Vec::with_capacity(WAKES);
    for turn in 0..WAKES {
        let (now, next) = (turn % sessions.len(), (turn + 1) % sessions.len());
        let start = Instant::now();
        sessions[now].client.batch_execute(&format!("notify channel{next}")).await?;
        let received = sessions[next].received.recv().await.ok_or("a listener is gone")?;
        taken.push(each(received.duration_since(start), 1));
    }
    Ok(taken)
}

/// Sessions that all want one advisory lock; it is passed on one order at a time.
struct WaitQueue {
    orders: Vec<UnboundedSender<()>>,
    held: tokio::sync::mpsc::UnboundedReceiver<(usize, Instant)>,
    holder: usize,
}

impl WaitQueue {
    async fn open(server: &PostgresServer, sessions: usize) -> Result<WaitQueue, Failure> {
        let (sender, mut held) = unbounded_channel();
        let mut orders = Vec::with_capacity(sessions);
        for number in 0..sessions {
            let (client, connection) = connect(server).await?;
            tokio::task::spawn_local(connection);
            let (order, mut ordered) = unbounded_channel::<()>();
            let sender = sender.clone();
            tokio::task::spawn_local(async move {
                while take(&client).await.is_ok() {
                    let _ = sender.send((number, Instant::now()));
                    let Some(()) = ordered.recv().await else { return };
                    let _ = client.batch_execute("select pg_advisory_unlock(1)").await;
                }
            });
            orders.push(order);
        }
        let (holder, _) = held.recv().await.ok_or("no session takes the lock")?;
        // All others stand in the line before anything is measured.
        let waiting = format!("{}", sessions - 1);
        let ask = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
        while server.sql(ask) != [waiting.as_str()] {
            tokio::task::yield_now().await;
        }
        Ok(WaitQueue { orders, held, holder })
    }

    async fn pass(&mut self) -> Result<Vec<f64>, Failure> {
        let mut taken = Vec::with_capacity(WAKES);
        for _ in 0..WAKES {
            let start = Instant::now();
            self.orders[self.holder].send(())?;
            let (holder, woken) = self.held.recv().await.ok_or("no session takes the lock")?;
            taken.push(each(woken.duration_since(start), 1));
            self.holder = holder;
        }
        Ok(taken)
    }
}

async fn take(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("select pg_advisory_lock(1)").await
}
