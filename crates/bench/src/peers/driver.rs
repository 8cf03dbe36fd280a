//! Holdline as a driver: the same protocol as the other libraries, in a process of its own, on the
//! runtime that `#[tokio::main]` makes. The bare commands of a Redis lock are a driver too.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use holdline::{Client, Mutex};
use tokio::runtime::{Builder, Runtime};

use super::process::now;
use crate::redis::raw::{Answered, Raw};
use crate::rounds::Failure;

/// The contender, and when it asked, was granted, began to release and had released.
type Turn = (usize, [u64; 4]);

/// A line `run`.
struct Request<'a> {
    name: &'a str,
    start: u64,
    end: u64,
    /// How many contenders take part, each with a name of its own.
    count: Option<usize>,
}

impl Request<'_> {
    /// The lock of each contender.
    fn names(&self, contenders: usize) -> Vec<String> {
        let own = |count| (0..count).map(|number| format!("{}/{number}", self.name)).collect();
        self.count.map_or_else(|| vec![self.name.to_owned(); contenders], own)
    }

    async fn wait_for_start(&self) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_nanos(self.start.saturating_sub(now()?))).await;
        Ok(())
    }
}

/// What a worker process does: the number of contenders, the URL.
pub(crate) fn worker(words: &[&str]) -> Result<(), Failure> {
    let [contenders, url] = words else {
        return Err("worker peers CONTENDERS URL".into());
    };
    let contenders = contenders.parse()?;
    let runtime = Runtime::new()?;
    let client = runtime.block_on(Client::connect(url))?;
    obey(|request| {
        let names = request.names(contenders).into_iter();
        let locks = names.map(|name| client.mutex(name)).collect::<Result<Vec<_>, _>>()?;
        runtime.block_on(run(&locks, request))
    })
}

/// What a worker process does: bare commands of one Redis server, all on one connection.
pub(crate) fn bare_worker(words: &[&str]) -> Result<(), Failure> {
    let [contenders, address] = words else {
        return Err("worker bare CONTENDERS ADDRESS".into());
    };
    let contenders = contenders.parse()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let address = address.parse()?;
    obey(|request| runtime.block_on(bare(address, &request.names(contenders), request)))
}

/// Does what the lines of the input ask for.
fn obey(mut run: impl FnMut(&Request<'_>) -> Result<Vec<Turn>, Failure>) -> Result<(), Failure> {
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    let mut turns = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["report"] => report(&turns)?,
            ["run", name, start, end, ref count @ ..] => {
                let count = count.first().map(|count| count.parse()).transpose()?;
                turns = run(&Request { name, start: start.parse()?, end: end.parse()?, count })?;
                println!("ran");
            }
            ref words => return Err(format!("no such request: {words:?}").into()),
        }
    }
    Ok(())
}

/// Lets a contender take and release each of these locks.
async fn run(locks: &[Mutex], request: &Request<'_>) -> Result<Vec<Turn>, Failure> {
    request.wait_for_start().await?;
    let spawn = |(number, lock): (usize, &Mutex)| {
        let end = request.end;
        tokio::spawn(contend(number, lock.clone(), end))
    };
    let running: Vec<_> = locks.iter().enumerate().map(spawn).collect();
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

/// On a connection of its own: one that was used before has replies that nobody waits for.
async fn bare(
    address: SocketAddr,
    names: &[String],
    request: &Request<'_>,
) -> Result<Vec<Turn>, Failure> {
    let mut raw = Raw::connect(address).await?;
    request.wait_for_start().await?;
    let deadline = Instant::now() + Duration::from_nanos(request.end.saturating_sub(now()?));
    let begun = now()?;
    let mut turns = Vec::new();
    let mut times = vec![(begun, begun); names.len()];
    let mut failed = None;
    let answered = |Answered { task, taken }| match now() {
        Ok(granted) if taken => times[task].1 = granted,
        Ok(released) => {
            let (asked, granted) = times[task];
            turns.push((task, [asked, granted, granted, released]));
            times[task].0 = released;
        }
        Err(why) => failed = Some(why),
    };
    raw.each_reply(names, deadline, answered).await?;
    failed.map_or(Ok(turns), Err)
}

fn report(turns: &[Turn]) -> Result<(), Failure> {
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    for (contender, [asked, granted, releasing, released]) in turns {
        writeln!(output, "{contender} {asked} {granted} {releasing} {released}")?;
    }
    writeln!(output, "done")?;
    Ok(output.flush()?)
}
