//! Local: hand-offs between two processes, with few and with many waiters, against a bare
//! datagram ping with three transactions at each hop.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdline::Client;

use crate::floor::Floor;
use crate::rounds::{Failure, Round, each, median, report};
use crate::run::Scratch;

const ROUNDS: usize = 5;
const LENGTH: Duration = Duration::from_millis(1_500);
/// All contenders of both processes together. With two of each process there is always a waiter, so
/// that every release hands over; with one of each, a release often meets an empty queue.
const CONTENDERS: [usize; 3] = [4, 20, 200];

pub(crate) fn section() -> Result<(), Failure> {
    let directory = Scratch::new("handoff")?;
    let path = directory.path();
    // Made here, so that the workers do not meet while it changes to a write-ahead log.
    drop(Floor::open(&path.join("floor.db"))?);
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); CONTENDERS.len()];
    for _ in 0..ROUNDS {
        let floor = pair(path, "floor", 1)?;
        for (at, contenders) in CONTENDERS.into_iter().enumerate() {
            let subject = pair(path, "lock", contenders / 2)?;
            rounds[at].push(Round { floor, subject });
        }
    }
    for (contenders, rounds) in CONTENDERS.iter().zip(&rounds) {
        let title = format!("local: hand-off between processes, {contenders}");
        report(&title, rounds, "at most 1.5");
    }
    let first = rounds.first().map_or(&[][..], Vec::as_slice);
    let last = rounds.last().map_or(&[][..], Vec::as_slice);
    let growth = first.iter().zip(last).map(|(few, many)| many.subject / few.subject);
    println!(
        "{:<44} {:.2}  (to reach: 0.75 to 1.25)",
        "  200 contenders against 4",
        median(growth)
    );
    Ok(())
}

/// Runs two workers for a while and returns the time of one hand-off.
fn pair(directory: &Path, kind: &str, tasks: usize) -> Result<f64, Failure> {
    let mut workers = Vec::new();
    for side in ["a", "b"] {
        workers.push(start(directory, kind, side, tasks)?);
    }
    for worker in &mut workers {
        expect(worker, "ready")?;
    }
    for worker in &mut workers {
        writeln!(worker.0.stdin.as_mut().ok_or("a worker has no input")?, "go")?;
    }
    let mut handoffs = 0;
    for worker in &mut workers {
        handoffs += line(worker)?.trim().parse::<usize>()?;
        worker.0.wait()?;
    }
    Ok(each(LENGTH, handoffs.max(1)))
}

/// A worker process and what it prints.
struct Worker(Child, BufReader<std::process::ChildStdout>);

fn start(directory: &Path, kind: &str, side: &str, tasks: usize) -> Result<Worker, Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["worker", kind, side, &tasks.to_string()])
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("a worker has no output")?;
    Ok(Worker(child, BufReader::new(output)))
}

fn line(worker: &mut Worker) -> Result<String, Failure> {
    let mut text = String::new();
    worker.1.read_line(&mut text)?;
    Ok(text)
}

fn expect(worker: &mut Worker, word: &str) -> Result<(), Failure> {
    match line(worker)?.trim() {
        output if output == word => Ok(()),
        output => Err(format!("a worker said {output:?} instead of {word:?}").into()),
    }
}

/// What a worker process does: prints `ready`, waits for `go`, works, prints its hand-offs.
pub(crate) fn worker(words: &[&str]) -> Result<(), Failure> {
    let [kind, side, tasks, directory] = words else {
        return Err("worker KIND SIDE TASKS DIRECTORY".into());
    };
    let directory = Path::new(directory);
    match *kind {
        "floor" => floor_worker(directory, side),
        _ => lock_worker(directory, tasks.parse()?),
    }
}

fn ready() -> Result<(), Failure> {
    println!("ready");
    let mut text = String::new();
    std::io::stdin().read_line(&mut text)?;
    Ok(())
}

fn floor_worker(directory: &Path, side: &str) -> Result<(), Failure> {
    let other = if side == "a" { "b" } else { "a" };
    let path = |side: &str| directory.join(format!("{side}.sock"));
    // The socket of the round before is gone with its process; its name may still be there.
    let _ = std::fs::remove_file(path(side));
    let socket = UnixDatagram::bind(path(side))?;
    let floor = Floor::open(&directory.join("floor.db"))?;
    ready()?;
    let deadline = Instant::now() + LENGTH;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut hops = 0_u64;
    let mut byte = [0; 1];
    if side == "a" {
        socket.send_to(&byte, path(other))?;
    }
    while Instant::now() < deadline {
        // A read that times out only means that the other side has stopped already.
        if socket.recv(&mut byte).is_ok() {
            for part in 0..3 {
                floor.transaction(3 * hops + part)?;
            }
            hops += 1;
            let _ = socket.send_to(&byte, path(other));
        }
    }
    println!("{hops}");
    Ok(())
}

fn lock_worker(directory: &Path, tasks: usize) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = format!("local://{}/ours", directory.display());
    let held = runtime.block_on(async {
        let client = Client::connect(&url).await?;
        let lock = client.mutex("bench")?;
        ready()?;
        let deadline = Instant::now() + LENGTH;
        let mut contenders = tokio::task::JoinSet::new();
        for _ in 0..tasks {
            let lock = lock.clone();
            contenders.spawn(async move {
                let mut held = 0_usize;
                while Instant::now() < deadline {
                    let guard = lock.lock().await?;
                    held += 1;
                    let _ = guard.release().await;
                }
                Ok::<_, holdline::LockError>(held)
            });
        }
        let mut held = 0;
        while let Some(done) = contenders.join_next().await {
            held += done??;
        }
        Ok::<_, Failure>(held)
    })?;
    println!("{held}");
    Ok(())
}
