//! Holdline as a driver: the same protocol as the other libraries, in a process of its own, on the
//! runtime that `#[tokio::main]` makes.

use std::io::Write;
use std::time::Duration;

use holdline::{Client, Mutex};
use tokio::runtime::Runtime;

use super::process::now;
use crate::rounds::Failure;

/// The contender, and when it asked, was granted, began to release and had released.
type Turn = (usize, [u64; 4]);

/// What a worker process does: the number of contenders, the URL.
pub(crate) fn worker(words: &[&str]) -> Result<(), Failure> {
    let [contenders, url] = words else {
        return Err("worker peers CONTENDERS URL".into());
    };
    let contenders = contenders.parse()?;
    let runtime = Runtime::new()?;
    let client = runtime.block_on(Client::connect(url))?;
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    let mut turns = Vec::new();
    for line in std::io::stdin().lines() {
        match line?.split(' ').collect::<Vec<_>>()[..] {
            ["report"] => report(&turns)?,
            ["run", name, start, end] => {
                let lock = client.mutex(name)?;
                turns = runtime.block_on(run(&lock, contenders, start.parse()?, end.parse()?))?;
                println!("ran");
            }
            ref words => return Err(format!("no such request: {words:?}").into()),
        }
    }
    Ok(())
}

async fn run(lock: &Mutex, contenders: usize, start: u64, end: u64) -> Result<Vec<Turn>, Failure> {
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(now()?))).await;
    let contend = |number| tokio::spawn(contend(number, lock.clone(), end));
    let running: Vec<_> = (0..contenders).map(contend).collect();
    let mut turns = Vec::new();
    for contender in running {
        turns.extend(contender.await??);
    }
    Ok(turns)
}

async fn contend(number: usize, lock: Mutex, end: u64) -> Result<Vec<Turn>, Failure> {
    let mut turns = Vec::new();
    loop {
        let asked = now()?;
        if asked >= end {
            return Ok(turns);
        }
        let guard = lock.lock().await?;
        let granted = now()?;
        let releasing = now()?;
        let _ = guard.release().await;
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
