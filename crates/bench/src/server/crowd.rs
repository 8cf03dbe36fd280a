//! Many waiting requests and many event streams at once, on one server with memory behind it.
//!
//! Each name has a hundred waiters. They are granted one by one at a fixed rate, while all
//! streams follow: so a thousand changes a second are sent to every stream.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use super::host::{Host, raise_file_limit};
use super::raw::Http;
use crate::rounds::{Failure, each};

/// How many requests wait for one name.
const FOR_ONE_NAME: usize = 100;
/// A hand-off is two changes: a release and a grant.
const HAND_OFFS_A_SECOND: u64 = 500;
/// How many connections are being made at once: fewer than the listener's backlog.
const CONNECTING: usize = 64;
/// How many descriptors a process needs besides the connections.
const OTHER_FILES: usize = 256;
const DEADLINE: Duration = Duration::from_secs(300);
/// Delays of this and more are counted together.
const LONGEST_MS: usize = 10_000;

/// `counts` is `WAITERSxSTREAMS`.
pub(crate) fn section(counts: &str) -> Result<(), Failure> {
    let counted = counts.split_once('x').and_then(|(waiters, streams)| {
        Some((waiters.parse::<usize>().ok()?, streams.parse::<usize>().ok()?))
    });
    let (waiters, streams) = counted.ok_or("counts must be WAITERSxSTREAMS: 10000x1000")?;
    let needed = waiters + streams + OTHER_FILES;
    let limit = raise_file_limit();
    if limit < needed as u64 {
        let message = format!(
            "{needed} open files are needed, and the limit is {limit}: raise it by `ulimit -n`"
        );
        return Err(message.into());
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(waiters / FOR_ONE_NAME * FOR_ONE_NAME, streams))
}

async fn run(waiters: usize, streams: usize) -> Result<(), Failure> {
    let host = Host::serve("memory:crowd", waiters, streams)?;
    let address = host.address;
    gauge(address, "connections", 1).await?;
    let empty = host.resident_kib()?;

    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let leases = hold(address, waiters / FOR_ONE_NAME).await?;
    let connecting = Arc::new(Semaphore::new(CONNECTING));
    for waiter in 0..waiters {
        let granted = granted.clone();
        let connecting = connecting.clone();
        tasks.spawn(wait(address, waiter / FOR_ONE_NAME, connecting, granted));
    }
    drop(granted);
    gauge(address, "waiting", waiters).await?;
    let waiting = host.resident_kib()?;

    let seen = Arc::new(Seen::default());
    let mut readers = JoinSet::new();
    for _ in 0..streams {
        readers.spawn(follow(address, connecting.clone(), seen.clone()));
    }
    gauge(address, "event_streams", streams).await?;
    let all = host.resident_kib()?;
    println!("server, {waiters} waiting requests and {streams} event streams");
    println!(
        "    memory without them {} MiB; with the waits {} MiB, {:.1} KiB each; with the streams \
         {} MiB, {:.1} KiB each",
        empty >> 10,
        waiting >> 10,
        of_each(waiting.saturating_sub(empty), waiters),
        all >> 10,
        of_each(all.saturating_sub(waiting), streams)
    );

    let began = Instant::now();
    let busy = host.processor_time()?;
    let names = leases.len();
    let_go(address, leases).await?;
    hand_on(&mut grants, waiters).await?;
    let took = began.elapsed();
    let busy = host.processor_time()? - busy;
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    println!(
        "    every waiter was granted once, in the order of the tokens: {:.0} changes a second, \
         {:.0} % of a core for the server",
        1e9 / each(took, 2 * waiters),
        100.0 * busy / took.as_secs_f64()
    );
    // A grant and a release for each waiter, and the first releases.
    seen.report((2 * waiters + names) * streams).await?;

    readers.shutdown().await;
    gauge(address, "event_streams", 0).await?;
    gauge(address, "waiting", 0).await?;
    gauge(address, "connections", 1).await?;
    println!("    nothing is left: memory {} MiB", host.resident_kib()? >> 10);
    Ok(())
}

/// Takes the names, so that everybody else waits.
async fn hold(address: SocketAddr, names: usize) -> Result<Vec<String>, Failure> {
    let mut http = Http::connect(address).await?;
    let mut leases = Vec::with_capacity(names);
    for name in 0..names {
        let lease = http.ask("POST", &path_of(name), "").await?.done()?;
        leases.push(lease.field("lease_id")?.to_owned());
    }
    Ok(leases)
}

async fn let_go(address: SocketAddr, leases: Vec<String>) -> Result<(), Failure> {
    let mut http = Http::connect(address).await?;
    for (name, lease) in leases.into_iter().enumerate() {
        let path = format!("{}/leases/{lease}", path_of(name));
        http.ask("DELETE", &path, "").await?.done()?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn of_each(kib: u64, count: usize) -> f64 {
    kib as f64 / count.max(1) as f64
}

fn path_of(name: usize) -> String {
    format!("/v1/locks/crowd-{name}")
}

/// A grant, and the connection that waited for it.
struct Grant {
    name: usize,
    lease: String,
    token: u64,
    http: Http,
}

async fn wait(
    address: SocketAddr,
    name: usize,
    connecting: Arc<Semaphore>,
    granted: mpsc::UnboundedSender<Grant>,
) -> Result<(), Failure> {
    let mut http = {
        let _turn = connecting.acquire().await?;
        let mut http = Http::connect(address).await?;
        http.send("POST", &path_of(name), r#"{"wait_ms":3600000}"#).await?;
        http
    };
    let lease = http.response().await?.done()?;
    let token = lease.number("fencing_token")?;
    let lease = lease.field("lease_id")?.to_owned();
    granted.send(Grant { name, lease, token, http }).map_err(|_| "nobody takes a grant")?;
    Ok(())
}

/// Releases what is granted, at the fixed rate, until all waiters were granted.
async fn hand_on(
    grants: &mut mpsc::UnboundedReceiver<Grant>,
    waiters: usize,
) -> Result<(), Failure> {
    let mut tokens: HashMap<usize, u64> = HashMap::new();
    let mut pace = interval(Duration::from_secs(1) / u32::try_from(HAND_OFFS_A_SECOND)?);
    let mut releases = JoinSet::new();
    for count in 0..waiters {
        pace.tick().await;
        let next = timeout(DEADLINE, grants.recv()).await;
        let grant = next.map_err(|_| format!("only {count} waiters were granted"))?;
        let mut grant = grant.ok_or_else(|| format!("only {count} waiters were granted"))?;
        if tokens.insert(grant.name, grant.token).is_some_and(|last| last >= grant.token) {
            return Err("a token did not grow".into());
        }
        releases.spawn(async move {
            let path = format!("{}/leases/{}", path_of(grant.name), grant.lease);
            grant.http.ask("DELETE", &path, "").await?.done()
        });
    }
    while let Some(released) = releases.join_next().await {
        released??;
    }
    Ok(())
}

/// What all streams have received.
#[derive(Default)]
struct Seen {
    events: AtomicUsize,
    ended: AtomicUsize,
    /// How many reads began with an event of this age in milliseconds.
    ages: Mutex<Vec<u32>>,
}

impl Seen {
    /// Waits until all events are here, and prints how late they came.
    async fn report(&self, expected: usize) -> Result<(), Failure> {
        let whole = async {
            while self.events.load(Ordering::Relaxed) < expected {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let whole = timeout(Duration::from_secs(30), whole).await.is_ok();
        let events = self.events.load(Ordering::Relaxed);
        let ended = self.ended.load(Ordering::Relaxed);
        let ages = self.ages.lock().clone();
        println!(
            "    events received {events} of {expected}, {ended} streams lost; the oldest \
            event of a read: p50 {} ms, p99 {} ms, most {} ms  (to reach: within 200 ms)",
            percentile(&ages, 0.5),
            percentile(&ages, 0.99),
            percentile(&ages, 1.0)
        );
        if whole && ended == 0 { Ok(()) } else { Err("events are missing".into()) }
    }
}

fn percentile(counts: &[u32], part: f64) -> usize {
    let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
    let mut so_far = 0.0;
    let reached = counts.iter().position(|count| {
        so_far += f64::from(*count);
        so_far >= total * part
    });
    reached.unwrap_or(0)
}

/// Reads one stream until it ends.
async fn follow(
    address: SocketAddr,
    connecting: Arc<Semaphore>,
    seen: Arc<Seen>,
) -> Result<(), Failure> {
    let mut http = {
        let _turn = connecting.acquire().await?;
        let mut http = Http::connect(address).await?;
        http.send("GET", "/v1/events", "").await?;
        http.head().await?;
        http
    };
    let mut buffer = vec![0; 64 * 1024];
    let mut tail = Vec::new();
    loop {
        let count = http.stream.read(&mut buffer).await?;
        if count == 0 {
            seen.ended.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let read = &buffer[..count];
        seen.events.fetch_add(ends(&mut tail, read), Ordering::Relaxed);
        if let Some(age) = age(read) {
            let mut ages = seen.ages.lock();
            ages.resize(LONGEST_MS + 1, 0);
            ages[age.min(LONGEST_MS)] += 1;
        }
    }
}

/// Counts the lines with data, of which each event has one; the last bytes of the read before may
/// be the beginning of one.
fn ends(tail: &mut Vec<u8>, read: &[u8]) -> usize {
    const LINE: &[u8] = b"\ndata: ";
    let seam = tail.len();
    tail.extend_from_slice(&read[..read.len().min(LINE.len() - 1)]);
    let across = tail.windows(LINE.len()).filter(|window| *window == LINE).count();
    // What lies wholly in the read is counted there.
    let inside = tail[seam..].windows(LINE.len()).filter(|window| *window == LINE).count();
    tail.clear();
    tail.extend_from_slice(&read[read.len().saturating_sub(LINE.len() - 1)..]);
    let breaks = read.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    across - inside + breaks.filter(|(at, _)| read[*at..].starts_with(LINE)).count()
}

/// The age in milliseconds of the first event whose time is whole in a read.
fn age(read: &[u8]) -> Option<usize> {
    const FIELD: &[u8] = b"\"at_ms\":";
    let place = read.windows(FIELD.len()).position(|window| window == FIELD)?;
    let digits: Vec<u8> =
        read[place + FIELD.len()..].iter().copied().take_while(u8::is_ascii_digit).collect();
    // The time of now has thirteen digits; a read may end within them.
    let at: u128 =
        String::from_utf8(digits).ok().filter(|digits| digits.len() == 13)?.parse().ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis();
    usize::try_from(now.saturating_sub(at)).ok()
}

/// Waits until a gauge of the server has this value.
async fn gauge(address: SocketAddr, name: &str, value: usize) -> Result<(), Failure> {
    let line = format!("holdline_{name} {value}");
    let reached = async {
        loop {
            // The server closes a connection that is idle for long.
            let mut control = Http::connect(address).await?;
            let metrics = control.ask("GET", "/metrics", "").await?.done()?;
            if metrics.body.lines().any(|metric| metric == line) {
                return Ok::<(), Failure>(());
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, reached).await.map_err(|_| format!("never {line}"))?
}
