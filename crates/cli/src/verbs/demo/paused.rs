//! A client is paused past its lease, and writes late.
//!
//! The clients are two processes with locks on the store of the URL. The first one is stopped by
//! SIGSTOP between its last check and its write, as a garbage collection may stop it, and goes on
//! when the second one is done. Both write to two files: one compares fencing tokens, one does not.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::Args;
use holdline::fence::{FenceError, Fenced, FencedFile, Proof};
use holdline::{Keep, LockOptions};
use holdline_core::{LockName, Mode};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::Serialize;

use super::page::{Page, Side};
use crate::config::Address;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{OpenStore, StoreOptions};

/// Short enough to watch, and the shortest that every store has if its own limit is not longer.
const LEASE: Duration = Duration::from_secs(1);
/// How long a client may be silent: many leases, and reached only by a store that fails.
const SILENCE: Duration = Duration::from_secs(120);
/// What the files hold at first.
const APPLES: u32 = 10;

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Paused {
    first_token: u64,
    second_token: u64,
    /// The file without tokens accepted the late write, so one sale is lost.
    plain_lost: bool,
    /// The file with tokens rejected it.
    fenced_rejected: bool,
}

/// Runs both clients.
pub(super) async fn run(address: &Address, page: &mut Page<'_>) -> Result<Paused, Failure> {
    // A store that does not answer is reported as by every other verb.
    let store = OpenStore::open(address.clone(), StoreOptions::default()).await?;
    let lease = LEASE.max(store.capabilities().lease.min);
    store.close().await;

    let directory = Directory::create()?;
    std::fs::write(directory.0.join("plain"), APPLES.to_string()).map_err(Failure::internal)?;
    page.text(format_args!(
        "A client is paused past its lease of {} ms, on {}.\n\
         Two clients sell one apple each, of {APPLES} that two files hold. \
         One file compares fencing tokens.",
        lease.as_millis(),
        holdline::redact_url(&address.url),
    ))?;
    page.heads("client A", "client B")?;

    let start = Instant::now();
    let left = EventPrinter { page, side: Side::Left, start };
    let right = EventPrinter { page, side: Side::Right, start };
    let (mut a, token_a) = Client::start(address, &directory.0, lease, left)?;
    a.signal(Signal::STOP)?;
    a.prints("is stopped, as by a garbage collection")?;
    let (mut b, token_b) = Client::start(address, &directory.0, lease, right)?;
    b.write()?;
    b.end()?;
    a.signal(Signal::CONT)?;
    a.prints("goes on, and does not know")?;
    let rejected = a.write()?;
    a.end()?;
    let plain = std::fs::read_to_string(directory.0.join("plain")).map_err(Failure::internal)?;
    let plain_lost = plain == (APPLES - 1).to_string();
    if !plain_lost || !rejected || token_b <= token_a {
        let message = format!("it shows nothing: tokens {token_a} and {token_b}, {plain} apples");
        return Err(Failure::internal(message));
    }
    page.text(format_args!(
        "\nWithout tokens: {plain} apples are left of {APPLES} after two sales. \
         B's sale is lost, and nobody knows.\n\
         With tokens: A's late write is rejected, and A knows. \
         It acquires the lock again, and sells."
    ))?;
    Ok(Paused {
        first_token: token_a,
        second_token: token_b,
        plain_lost,
        fenced_rejected: rejected,
    })
}

/// Prints the events of one client on its side of the page, with the time since the start.
#[derive(Clone, Copy)]
struct EventPrinter<'a> {
    page: &'a Page<'a>,
    side: Side,
    start: Instant,
}

/// A process of `holdline demo client`, and what prints its events. It ends with this.
struct Client<'a> {
    child: Child,
    lines: Receiver<String>,
    events: EventPrinter<'a>,
}

impl<'a> Client<'a> {
    /// Starts a client, and returns when it has read the files and has checked its lease.
    fn start(
        address: &Address,
        directory: &Path,
        lease: Duration,
        events: EventPrinter<'a>,
    ) -> Result<(Client<'a>, u64), Failure> {
        let program = std::env::current_exe().map_err(Failure::internal)?;
        let mut command = Command::new(program);
        command.args(["demo", "client", "--lease-ms", &lease.as_millis().to_string()]);
        command.arg(directory).env("HOLDLINE_URL", &address.url).env_remove("HOLDLINE_CONFIG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::internal)?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.for_each(|line| drop(sender.send(line)));
            });
        }
        let mut client = Client { child, lines, events };
        client.prints("asks for the lock")?;
        let token = client.expect("granted")?.parse().map_err(Failure::internal)?;
        client.prints(format_args!("holds it, with token {token}"))?;
        let apples = client.expect("read")?;
        client.prints(format_args!("reads {apples} apples in both files"))?;
        let valid = client.expect("valid")?;
        client.prints(format_args!("is its lease valid? {valid}"))?;
        Ok((client, token))
    }

    fn prints(&self, text: impl std::fmt::Display) -> Result<(), Failure> {
        let EventPrinter { page, side, start } = self.events;
        page.event(start.elapsed(), side, text)
    }

    /// Returns the rest of its next line, which begins with this word.
    fn expect(&mut self, word: &str) -> Result<String, Failure> {
        let line = self.lines.recv_timeout(SILENCE).unwrap_or_default();
        let rest = line.strip_prefix(word).map(|rest| rest.trim().to_owned());
        rest.ok_or_else(|| Failure::internal(format!("a client did not print `{word}`: `{line}`")))
    }

    /// Lets it write to both files; true if the file with tokens has rejected it.
    fn write(&mut self) -> Result<bool, Failure> {
        let input = self.child.stdin.as_mut();
        input.map_or(Ok(()), |input| input.write_all(b"\n")).map_err(Failure::internal)?;
        let apples = self.expect("plain")?;
        self.prints(format_args!("writes {apples} without its token: accepted"))?;
        let newer = self.expect("fenced")?;
        let is_rejected = !newer.is_empty();
        let fenced =
            if is_rejected { format!("rejected, {newer} is newer") } else { "accepted".into() };
        self.prints(format_args!("writes {apples} with its token: {fenced}"))?;
        Ok(is_rejected)
    }

    fn end(&mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        match self.child.wait().map_err(Failure::internal)? {
            status if status.success() => Ok(()),
            status => Err(Failure::internal(format!("a client ended with {status}"))),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::internal("a client without a process id"))?;
        kill_process(pid, signal).map_err(Failure::internal)
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        // It has ended, unless something failed. A process that is stopped is killed as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory of its own, which goes when this does.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Result<Directory, Failure> {
        let path = std::env::temp_dir().join(format!("holdline-demo-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|why| Failure::internal(format!("{}: {why}", path.display())))?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What `demo client` takes.
#[derive(Debug, Args)]
pub(super) struct ClientArgs {
    #[arg(long)]
    lease_ms: u64,
    directory: PathBuf,
}

impl ClientArgs {
    /// Acquires, reads, checks its lease, waits for a line, and writes: each with a line of output.
    pub(super) async fn run(&self, address: Address) -> Outcome {
        // A client that is stopped would outlive an interrupted demonstration.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::internal)?;
        let store = OpenStore::open(address, StoreOptions::default()).await?;
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        let name = LockName::new(format!("demo/{name}")).map_err(Failure::usage)?;
        // It is not renewed: a client that is paused renews nothing.
        let options = LockOptions::default()
            .with_lease_duration(Duration::from_millis(self.lease_ms))
            .with_keep(Keep::Fixed)
            .with_reason("holdline demo");
        let guard = store.acquire(&name, Mode::Exclusive, &options, false).await?;
        println!("granted {}", guard.fencing_token());

        let proof = Proof::exclusive_of(&guard).map_err(Failure::config)?;
        let plain = self.directory.join("plain");
        let fenced = FencedFile::at(self.directory.join("fenced")).map_err(Failure::internal)?;
        fenced.seal(&proof).map_err(Failure::internal)?;
        let text = std::fs::read_to_string(&plain).map_err(Failure::internal)?;
        let apples: u32 = text.parse().map_err(Failure::internal)?;
        println!("read {apples}");
        println!("valid {}", if guard.is_valid() { "yes" } else { "no" });
        std::io::stdin().lock().read_line(&mut String::new()).map_err(Failure::internal)?;

        let left = apples.saturating_sub(1).to_string();
        std::fs::write(&plain, &left).map_err(Failure::internal)?;
        println!("plain {left}");
        let written = fenced.check_and_write(&proof, |content| {
            *content = left.into_bytes();
            Ok(())
        });
        match written {
            Ok(()) => println!("fenced"),
            // The token that has rejected ours.
            Err(FenceError::Stale(stale)) => println!("fenced {}", stale.seen),
            Err(error) => return Err(Failure::internal(error)),
        }
        let _ = guard.release().await;
        store.close().await;
        Ok(Exit::Success)
    }
}
