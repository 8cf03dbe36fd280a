//! `AdvisoryLock` beside bare sessions, each of which calls the server's own functions, and beside
//! sqlx's `PgAdvisoryLock`, each task of which keeps a connection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use holdline::postgres::{AdvisoryLock, PostgresOptions, advisory_pool};
use holdline_services::PostgresServer;
use tokio_postgres::{Client, Statement};

use super::connect;
use crate::redis::peers::Peers;
use crate::rounds::{Failure, Peer, ROUNDS, Round, each, median, report_beside};

const MANY: usize = 16;
const TIME: Duration = Duration::from_millis(700);
/// What our own lock waits for at most.
const WAIT: Duration = Duration::from_secs(60);

/// Whether the tasks lock keys of their own, or all the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Own,
    One,
}

impl Keys {
    fn of(self, task: usize) -> i64 {
        match self {
            Keys::Own => i64::try_from(task).unwrap_or(0) + 2,
            Keys::One => 1,
        }
    }
}

/// Runs all of it, and prints what it finds.
pub(super) async fn run(server: &PostgresServer) -> Result<(), Failure> {
    let options = PostgresOptions::from_url(&server.url())?;
    let (pool, peers) = (advisory_pool(&options)?, Peers::find());
    let sessions = Rc::new(try_join_all((0..MANY).map(|_| Session::open(server))).await?);
    for (what, tasks, keys) in [
        ("lock + release, one task, p50", 1, Keys::Own),
        ("a cycle of 16 tasks, own keys", MANY, Keys::Own),
        ("a cycle of 16 tasks, one key", MANY, Keys::One),
    ] {
        let locks: Result<Vec<AdvisoryLock>, _> =
            (0..tasks).map(|task| pool.advisory_lock(keys.of(task))).collect();
        let locks = Rc::new(locks?);
        let mut peer: Peer = ("sqlx", Vec::new());
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let sessions = sessions.clone();
            let floor = cycles(tasks, move |task| {
                let sessions = sessions.clone();
                async move { sessions[task].cycle(keys.of(task)).await }
            });
            let floor = floor.await?;
            peer.1.extend(match keys {
                Keys::Own => peers.cycle("sqlx", &server.url(), tasks, TIME)?,
                Keys::One => peers
                    .contend("sqlx", &server.url(), tasks, TIME)?
                    .map(|seen| each(TIME, seen.acquisitions)),
            });
            let locks = locks.clone();
            let subject = cycles(tasks, move |task| {
                let locks = locks.clone();
                async move { Ok(locks[task].lock(WAIT).await?.release().await?) }
            });
            rounds.push(Round { floor, subject: subject.await? });
        }
        let title = format!("postgres, AdvisoryLock: {what}");
        report_beside(&title, &rounds, &[peer], "0.9 x sqlx");
    }
    Ok(())
}

/// Runs cycles in this many tasks. Returns the middle time of one task's, or the time of all for
/// each of theirs.
async fn cycles<C, T>(tasks: usize, cycle: C) -> Result<f64, Failure>
where
    C: Fn(usize) -> T + Clone + 'static,
    T: Future<Output = Result<(), Failure>> + 'static,
{
    let start = Instant::now();
    let end = start + TIME;
    let running = (0..tasks).map(|task| {
        let cycle = cycle.clone();
        tokio::task::spawn_local(async move {
            let mut taken = Vec::new();
            while Instant::now() < end {
                let start = Instant::now();
                cycle(task).await?;
                taken.push(each(start.elapsed(), 1));
            }
            Ok::<_, Failure>(taken)
        })
    });
    let running: Vec<_> = running.collect();
    let mut taken = Vec::new();
    for task in running {
        taken.extend(task.await??);
    }
    Ok(if tasks == 1 { median(taken.into_iter()) } else { each(TIME, taken.len()) })
}

/// A bare session.
struct Session {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl Session {
    async fn open(server: &PostgresServer) -> Result<Session, Failure> {
        let (client, connection) = connect(server).await?;
        tokio::task::spawn_local(connection);
        let lock = client.prepare("select pg_advisory_lock($1)").await?;
        let unlock = client.prepare("select pg_advisory_unlock($1)").await?;
        Ok(Session { client, lock, unlock })
    }

    async fn cycle(&self, key: i64) -> Result<(), Failure> {
        self.client.query_one(&self.lock, &[&key]).await?;
        self.client.query_one(&self.unlock, &[&key]).await?;
        Ok(())
    }
}
