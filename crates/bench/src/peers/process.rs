//! The processes of drivers, and how several of them run at the same time.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::judge::Grant;
use super::usage::processor_time;
use crate::rounds::Failure;

/// How long a driver has to read its line before its contenders begin.
const AHEAD: Duration = Duration::from_millis(100);
/// How long a driver may print nothing, beyond the time that it was to run.
const LIMIT: Duration = Duration::from_secs(60);

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn now() -> Result<u64, Failure> {
    let now = clock_gettime(ClockId::Monotonic);
    Ok(u64::try_from(now.tv_sec)? * 1_000_000_000 + u64::try_from(now.tv_nsec)?)
}

/// Processes that keep all cores from sleeping, until this is dropped. They are of the scheduling
/// class that runs only if nothing else does.
pub(super) struct AwakeCores(Vec<Child>);

impl AwakeCores {
    pub(super) fn keep() -> Result<AwakeCores, Failure> {
        let mut cores = AwakeCores(Vec::new());
        for _ in 0..std::thread::available_parallelism()?.get() {
            let mut command = Command::new("chrt");
            command.args(["--idle", "0"]).arg(std::env::current_exe()?).args(["worker", "spin"]);
            cores.0.push(command.stdin(Stdio::piped()).spawn()?);
        }
        Ok(cores)
    }
}

impl Drop for AwakeCores {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Keeps one core awake until the end of the input.
pub(crate) fn spin() -> Result<(), Failure> {
    let over = std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    while !over.is_finished() {
        std::hint::spin_loop();
    }
    Ok(())
}

/// A running driver; killed when dropped.
pub(super) struct Driver {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    pub(super) version: String,
}

impl Driver {
    /// Starts it, and waits until it is connected.
    pub(super) fn start(mut command: Command) -> Result<Driver, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("{command:?}: {why}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for")
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).all(|sent| sent.is_ok())
        });
        let mut driver = Driver { child, input, lines, version: String::new() };
        let ready = driver.line(LIMIT)?;
        let version = ready.strip_prefix("ready ");
        driver.version = version.ok_or_else(|| format!("{command:?} began with {ready:?}"))?.into();
        Ok(driver)
    }

    fn send(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.input, "{line}")?;
        Ok(self.input.flush()?)
    }

    fn line(&self, limit: Duration) -> Result<String, Failure> {
        let line = self.lines.recv_timeout(limit);
        line.map_err(|_| "a driver has ended, or printed nothing for too long".into())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A process that has already ended must still be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the contenders of all drivers did at the same time.
pub(super) struct Ran {
    pub(super) grants: Vec<Grant>,
    pub(super) window: Range<u64>,
    /// The processor time of the drivers, and that of the servers.
    pub(super) clients: Duration,
    pub(super) servers: Duration,
}

/// What contenders do: for so long they take and release one lock, or each a lock of its own.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) name: &'a str,
    pub(super) time: Duration,
    /// How many contenders take part, each with a name of its own. `None`: all, for one name.
    pub(super) names: Option<usize>,
}

/// Lets the contenders of these drivers do it at the same time.
pub(super) fn run(drivers: &mut [Driver], task: Task<'_>, servers: &[u32]) -> Result<Ran, Failure> {
    let Task { name, time, names } = task;
    let names = names.map(|count| format!(" {count}")).unwrap_or_default();
    let ids: Vec<u32> = drivers.iter().map(|driver| driver.child.id()).collect();
    let before = (processor_time(&ids)?, processor_time(servers)?);
    let start = now()? + u64::try_from(AHEAD.as_nanos())?;
    let window = start..start + u64::try_from(time.as_nanos())?;
    for driver in &mut *drivers {
        driver.send(&format!("run {name} {} {}{names}", window.start, window.end))?;
    }
    for driver in &*drivers {
        let line = driver.line(AHEAD + time + LIMIT)?;
        if line != "ran" {
            return Err(format!("a driver printed {line:?} instead of `ran`").into());
        }
    }
    let clients = processor_time(&ids)?.saturating_sub(before.0);
    let servers = processor_time(servers)?.saturating_sub(before.1);
    let mut grants = Vec::new();
    for (process, driver) in drivers.iter_mut().enumerate() {
        driver.send("report")?;
        loop {
            match driver.line(LIMIT)?.as_str() {
                "done" => break,
                line => grants.push(Grant::parse(process, line)?),
            }
        }
    }
    Ok(Ran { grants, window, clients, servers })
}
