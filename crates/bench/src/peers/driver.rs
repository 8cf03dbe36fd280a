//! Holdline as a driver: the same protocol as the other libraries, in a process of its own, on the
//! runtime that `#[tokio::main]` makes.

use std::io::Write;
use std::time::Duration;

use holdline::postgres::{AdvisoryLock, AdvisoryPool, PostgresOptions, advisory_pool};
use holdline::{Client, Mutex};
use tokio::runtime::Runtime;

use super::process::now;
use crate::rounds::Failure;

/// What our own advisory lock waits for at most.
const WAIT: Duration = Duration::from_secs(60);

/// The contender, and when it asked, was granted, began to release and had released.
type Turn = (usize, [u64; 4]);

/// How contenders get their locks.
enum Source {
    Client(Client),
    Advisory(AdvisoryPool),
}

/// The lock of one contender.
enum Lock {
    Mutex(Mutex),
    Advisory(AdvisoryLock),
}

/// What a worker process does: `client | advisory`, the number of contenders, the URL.
pub(crate) fn worker(words: &[&str]) -> Result<(), Failure> {
    let [kind, contenders, url] = words else {
        return Err("worker peers KIND CONTENDERS URL".into());
    };
    let contenders = contenders.parse()?;
    let runtime = Runtime::new()?;
    let source = match *kind {
        "advisory" => Source::Advisory(advisory_pool(&PostgresOptions::from_url(url)?)?),
        _ => Source::Client(runtime.block_on(Client::connect(url))?),
    };
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    let mut turns = Vec::new();
    for line in std::io::stdin().lines() {
        match line?.split(' ').collect::<Vec<_>>()[..] {
            ["report"] => report(&turns)?,
            ["run", name, start, end] => {
                let locks = source.locks(name, contenders)?;
                turns = runtime.block_on(run(locks, start.parse()?, end.parse()?))?;
                println!("ran");
            }
            ref words => return Err(format!("no such request: {words:?}").into()),
        }
    }
    Ok(())
}

impl Source {
    fn locks(&self, name: &str, contenders: usize) -> Result<Vec<Lock>, Failure> {
        match self {
            Source::Client(client) => {
                let mutex = client.mutex(name)?;
                Ok((0..contenders).map(|_| Lock::Mutex(mutex.clone())).collect())
            }
            Source::Advisory(pool) => {
                let key = name.bytes().fold(7, |key: i64, byte| key * 31 + i64::from(byte));
                let lock = |_| Ok(Lock::Advisory(pool.advisory_lock(key)?));
                (0..contenders).map(lock).collect()
            }
        }
    }
}

async fn run(locks: Vec<Lock>, start: u64, end: u64) -> Result<Vec<Turn>, Failure> {
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(now()?))).await;
    let contend = |(number, lock)| tokio::spawn(contend(number, lock, end));
    let running: Vec<_> = locks.into_iter().enumerate().map(contend).collect();
    let mut turns = Vec::new();
    for contender in running {
        turns.extend(contender.await??);
    }
    Ok(turns)
}

async fn contend(number: usize, lock: Lock, end: u64) -> Result<Vec<Turn>, Failure> {
    let mut turns = Vec::new();
    loop {
        let asked = now()?;
        if asked >= end {
            return Ok(turns);
        }
        let (granted, releasing);
        match &lock {
            Lock::Mutex(lock) => {
                let guard = lock.lock().await?;
                granted = now()?;
                releasing = now()?;
                let _ = guard.release().await;
            }
            Lock::Advisory(lock) => {
                let guard = lock.lock(WAIT).await?;
                granted = now()?;
                releasing = now()?;
                guard.release().await?;
            }
        }
        turns.push((number, [asked, granted, releasing, now()?]));
    }
}

fn report(turns: &[Turn]) -> Result<(), Failure> {
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    for (contender, [asked, granted, releasing, released]) in turns {
        writeln!(output, "{contender} {asked} {granted} {releasing} {released}")?;
    }
    writeln!(output, "done")?;
    Ok(output.flush()?)
}
