//! One PostgreSQL server: cycles and hand-offs beside bare one-row updates.
//!
//! The server is Debian's, started for this run with `fsync` on; its files lie where temporary
//! files do (`TMPDIR`), so a disk's flush is in the floor and in our figure alike.

use std::task::Context;
use std::time::Instant;

use futures_util::StreamExt;
use holdline_services::{PostgresConfig, PostgresServer};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::LocalSet;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Config, Connection, NoTls, Statement};

use crate::contend::{CYCLES, NAMES, beside_updates};
use crate::rounds::{Failure, ROUNDS, Round, each, median, middle, report};

/// Runs all of it.
pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = PostgresServer::try_start(PostgresConfig::default().with_fsync())?;
    server.sql(
        "create table floor (name int primary key, value bigint) with (fillfactor = 50); \
         insert into floor select n, 0 from generate_series(0, 15) n",
    );
    runtime.block_on(LocalSet::new().run_until(run(&server)))
}

async fn run(server: &PostgresServer) -> Result<(), Failure> {
    let floor = Floor::connect(server).await?;
    let url = server.url();
    // Of clients of their own: the server wakes each session that listens in the database,
    // whomever it is for.
    beside_updates("postgres", &url, "at most 1.4", async || floor.update().await).await?;
    message_of(server, &floor).await
}

async fn connect(
    server: &PostgresServer,
) -> Result<(tokio_postgres::Client, Connection<TcpStream, NoTlsStream>), Failure> {
    let stream = TcpStream::connect(server.address()).await?;
    stream.set_nodelay(true)?;
    let mut config = Config::new();
    config.user("postgres").dbname("postgres");
    Ok(config.connect_raw(stream, NoTls).await?)
}

/// A bare connection.
struct Floor {
    client: tokio_postgres::Client,
    update: Statement,
}

impl Floor {
    async fn connect(server: &PostgresServer) -> Result<Floor, Failure> {
        let (client, connection) = connect(server).await?;
        tokio::task::spawn_local(connection);
        let text = "update floor set value = value + 1 where name = $1";
        let update = client.prepare(text).await?;
        Ok(Floor { client, update })
    }

    /// The middle time of an update of one row.
    async fn update(&self) -> Result<f64, Failure> {
        middle(CYCLES, async |done| {
            let name = i32::try_from(done % NAMES)?;
            self.client.execute(&self.update, &[&name]).await?;
            Ok(())
        })
        .await
    }
}

/// How long a bare `NOTIFY` takes to one session, while 1 and while 64 listen, each to a channel of
/// its own.
async fn message_of(server: &PostgresServer, floor: &Floor) -> Result<(), Failure> {
    for listeners in [1, 64] {
        let mut listening = Vec::with_capacity(listeners);
        for number in 0..listeners {
            listening.push(Listener::open(server, number).await?);
        }
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let update = floor.update().await?;
            let mut taken = Vec::with_capacity(CYCLES);
            for cycle in 0..CYCLES / 4 {
                let number = cycle % listeners;
                let start = Instant::now();
                floor.client.batch_execute(&format!("notify channel{number}")).await?;
                let received =
                    listening[number].received.recv().await.ok_or("a listener is gone")?;
                taken.push(each(received.duration_since(start), 1));
            }
            rounds.push(Round { floor: update, subject: median(taken.into_iter()) });
        }
        let title = format!("  a bare NOTIFY to one of {listeners} that listen, p50");
        report(&title, &rounds, "no aim");
    }
    Ok(())
}

/// A bare session that listens.
struct Listener {
    /// The session ends with it.
    _client: tokio_postgres::Client,
    received: UnboundedReceiver<Instant>,
}

impl Listener {
    async fn open(server: &PostgresServer, number: usize) -> Result<Listener, Failure> {
        let (client, mut connection) = connect(server).await?;
        let (sender, received) = unbounded_channel();
        tokio::task::spawn_local(async move {
            let next = |context: &mut Context<'_>| connection.poll_message(context);
            let mut messages = futures_util::stream::poll_fn(next);
            while let Some(Ok(message)) = messages.next().await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    let _ = sender.send(Instant::now());
                }
            }
        });
        client.batch_execute(&format!("listen channel{number}")).await?;
        Ok(Listener { _client: client, received })
    }
}
