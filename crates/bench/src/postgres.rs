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
use crate::peers::processor_time;
use crate::rounds::{Failure, ROUNDS, Round, each, median, middle, report, time};

/// How many readers share a name.
const READERS: [i32; 4] = [10, 100, 1_000, 3_000];
/// How many commands one figure is of: the system counts processor time in steps of 10 ms.
const COMMANDS: usize = 2_000;

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

/// Prints the processor time of the server's process for a renewal, an acquire and a release of one
/// reader among many. It waits for no disk.
pub(crate) fn readers() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = PostgresServer::try_start(PostgresConfig::default())?;
    runtime.block_on(LocalSet::new().run_until(async {
        // It makes the schema.
        let made = holdline::Client::connect(&server.url()).await?.mutex("made")?.lock().await?;
        let _ = made.release().await;
        for readers in READERS {
            among(&server, readers).await?;
        }
        Ok(())
    }))
}

/// The same, among this many.
async fn among(server: &PostgresServer, readers: i32) -> Result<(), Failure> {
    let (client, connection) = connect(server).await?;
    tokio::task::spawn_local(connection);
    let plans = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off";
    client.batch_execute(plans).await?;
    let process: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
    let process = u32::try_from(process)?;
    let name = format!("'{readers}'::bytea");
    let id = |number: &str| format!("decode(lpad(to_hex({number}), 32, '0'), 'hex')");
    let acquire = |number: &str| {
        let id = id(number);
        let metadata = "convert_to(repeat('m', 100), 'UTF8')";
        format!(
            "select (holdline.acquire_1({name}, {id}, 1, 0, 's', 0, 0, 'l', 3600000000, 10000000, \
             {metadata}, true, false, 100)).outcome"
        )
    };
    let all = format!("{} from generate_series(1, {readers}) n", acquire("n"));
    client.query(&all, &[]).await?;
    let renew = format!(
        "select outcome from holdline.renew_1(array[{name}], array[{}], array[1::bigint], 0, \
         array['l'], array[3600000000])",
        id("1 + ($1::int % $2::int)")
    );
    let acquire = acquire("$1::int + $2::int + 1");
    let release = format!(
        "select outcome from holdline.release_1({name}, {}, 0)",
        id("$1::int + $2::int + 1")
    );
    let [renew, acquire, release] = [
        client.prepare(&renew).await?,
        client.prepare(&acquire).await?,
        client.prepare(&release).await?,
    ];
    let mut taken = Vec::new();
    for statements in [&[renew][..], &[acquire, release][..]] {
        // The first calls compile the functions.
        let mut before = std::time::Duration::ZERO;
        for number in 0..COMMANDS + 100 {
            if number == 100 {
                before = processor_time(&[process])?;
            }
            let number = i32::try_from(number)?;
            for statement in statements {
                let row = client.query_one(statement, &[&number, &readers]).await?;
                let outcome: &str = row.get(0);
                if !["renewed", "granted", "released"].contains(&outcome) {
                    return Err(format!("a reader was {outcome}").into());
                }
            }
        }
        taken.push(time(each(processor_time(&[process])? - before, COMMANDS)));
    }
    println!(
        "postgres: processor time of the server among {readers} readers: a renewal {}, an acquire \
         and a release {}",
        taken[0], taken[1]
    );
    Ok(())
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
