//! One PostgreSQL server: cycles and hand-offs beside bare one-row updates.
//!
//! The server is Debian's, started for this run with `fsync` on; its files lie where temporary
//! files do (`TMPDIR`), so a disk's flush is in the floor and in our figure alike.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdline::Client;
use holdline_services::{PostgresConfig, PostgresServer};
use tokio::task::LocalSet;
use tokio_postgres::{Config, NoTls, Statement};

use crate::rounds::{Failure, ROUNDS, Round, each, median, report};

const CYCLES: usize = 400;
const NAMES: usize = 16;
const TIME: Duration = Duration::from_millis(1_500);
const WAITERS: [usize; 3] = [2, 16, 64];

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
    let client = Client::connect(&server.url()).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (floor, subject) = (2.0 * floor.update().await?, cycle(&client).await?);
        rounds.push(Round { floor, subject });
    }
    report("postgres: lock + release, one task, p50", &rounds, "at most 1.4");
    for waiters in WAITERS {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (floor, subject) = (floor.update().await?, hand_off(server, waiters).await?);
            rounds.push(Round { floor, subject });
        }
        let title = format!("postgres: a hand-off among {waiters}, p50");
        report(&title, &rounds, "at most 3 updates, flat");
    }
    Ok(())
}

/// A bare connection.
struct Floor {
    client: tokio_postgres::Client,
    update: Statement,
}

impl Floor {
    async fn connect(server: &PostgresServer) -> Result<Floor, Failure> {
        let stream = tokio::net::TcpStream::connect(server.address()).await?;
        stream.set_nodelay(true)?;
        let mut config = Config::new();
        config.user("postgres").dbname("postgres");
        let (client, connection) = config.connect_raw(stream, NoTls).await?;
        tokio::task::spawn_local(connection);
        let text = "update floor set value = value + 1 where name = $1";
        let update = client.prepare(text).await?;
        Ok(Floor { client, update })
    }

    /// The middle time of an update of one row.
    async fn update(&self) -> Result<f64, Failure> {
        let mut taken = Vec::with_capacity(CYCLES);
        for cycle in 0..CYCLES {
            let name = i32::try_from(cycle % NAMES)?;
            let start = Instant::now();
            self.client.execute(&self.update, &[&name]).await?;
            taken.push(each(start.elapsed(), 1));
        }
        Ok(median(taken.into_iter()))
    }
}

async fn cycle(client: &Client) -> Result<f64, Failure> {
    let locks: Result<Vec<_>, _> =
        (0..NAMES).map(|name| client.mutex(format!("cycle/{name}"))).collect();
    let locks = locks?;
    let mut taken = Vec::with_capacity(CYCLES);
    for cycle in 0..CYCLES {
        let start = Instant::now();
        let guard = locks[cycle % NAMES].lock().await?;
        black_box(guard.release().await);
        taken.push(each(start.elapsed(), 1));
    }
    Ok(median(taken.into_iter()))
}

/// Everybody, each with a client of its own, wants the same name; how long the name takes from the
/// release of one to the next.
async fn hand_off(server: &PostgresServer, waiters: usize) -> Result<f64, Failure> {
    let deadline = Instant::now() + TIME;
    let last: Rc<std::cell::Cell<Option<Instant>>> = Rc::default();
    let mut running = Vec::new();
    for _ in 0..waiters {
        let client = Client::connect(&server.url()).await?;
        let last = last.clone();
        running.push(tokio::task::spawn_local(async move {
            let lock = client.mutex("hand-off")?;
            let mut taken = Vec::new();
            while Instant::now() < deadline {
                let guard = lock.lock().await?;
                taken.extend(last.take().map(|released| each(released.elapsed(), 1)));
                last.set(Some(Instant::now()));
                black_box(guard.release().await);
            }
            Ok::<_, Failure>(taken)
        }));
    }
    let mut taken = Vec::new();
    for task in running {
        taken.extend(task.await??);
    }
    Ok(median(taken.into_iter()))
}
