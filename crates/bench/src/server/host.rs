//! The processes that serve: a Holdline server, or the bare floor.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::routing::{delete, get, post};
use axum::serve::ListenerExt;
use holdline::Client;
use holdline_server::{Server, ServerConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::rounds::Failure;

/// What the floor answers: as long as a lease of the server, and a release.
const LEASE: &str = r#"{"name":"cycle/0","lease_id":"00000000000000000000000000000000",
    "fencing_token":100,"mode":"exclusive","lease_duration_ms":30000,"valid_for_ms":29699,
    "waited_ms":0,"session":null,"more":"000"}"#;
const RELEASED: &str = r#"{"outcome":"released"}"#;

/// A process that serves until it is dropped.
pub(crate) struct Host {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Host {
    /// Starts a Holdline server of this store.
    pub(crate) fn serve(store: &str, waiters: usize, streams: usize) -> Result<Host, Failure> {
        Host::start(&["serve", store, &waiters.to_string(), &streams.to_string()])
    }

    /// Starts a server that answers at once and always the same.
    pub(crate) fn floor() -> Result<Host, Failure> {
        Host::start(&["floor"])
    }

    fn start(words: &[&str]) -> Result<Host, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", "http"])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("a worker has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().parse().map_err(|_| format!("a worker said {line:?}"))?;
        Ok(Host { child, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the process in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("no size in the status")?.parse()?)
    }

    /// Returns the processor time that the process has used, in seconds.
    pub(crate) fn processor_time(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in parentheses may hold blanks; the times are the 12th and 13th behind it.
        let rest = stat.rsplit_once(')').ok_or("no name in the status")?.1;
        let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        let ticks: f64 = ticks.collect::<Result<Vec<_>, _>>()?.iter().sum();
        Ok(ticks / 100.0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The worker ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Raises the limit of open files as far as it goes, and returns it.
pub(crate) fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What a worker process does: prints its address, and serves until its input ends.
pub(crate) fn worker(words: &[&str]) -> Result<(), Failure> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(stop);
    });
    let stopped = async {
        let _ = stopped.await;
    };
    runtime.block_on(async {
        match words {
            ["serve", store, waiters, streams] => {
                let limits = format!(
                    "[server.limits]\nwaiters_per_client = {waiters}\nevent_streams = {streams}\n\
                     event_streams_per_client = {streams}\n"
                );
                let config = ServerConfig::from_toml(&limits)?;
                let config = config.with_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
                let client = Client::connect(store).await?;
                let server = Server::bind(client.admin().engine().clone(), &config).await?;
                let server = holdline_dashboard::mount(server, &BTreeMap::new());
                println!("{}", server.address().ok_or("the server has no address")?);
                server.run(stopped).await;
                Ok(())
            }
            ["floor"] => floor(stopped).await,
            _ => Err("worker http serve STORE WAITERS STREAMS | floor".into()),
        }
    })
}

async fn floor(stopped: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
    let json = [("content-type", "application/json")];
    let router = Router::new()
        .route("/v1/locks/{name}", post(async move |_: Bytes| (json, LEASE)))
        .route("/v1/locks/{name}/leases/{id}", delete(async move |_: Bytes| (json, RELEASED)))
        .route("/text/{length}", get(async |Path(length): Path<usize>| "x".repeat(length)));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).with_graceful_shutdown(stopped).await?;
    Ok(())
}
