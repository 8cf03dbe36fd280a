//! The HTTP engine, through two servers of the same store: each client uses the next server, as
//! behind a load balancer. The stores are memory, a local directory, and a real Redis server. The
//! servers of the local directory listen on sockets of this machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{Engine, LockError, LockName};
use holdline_http::{HttpEngine, HttpOptions};
use holdline_local::{LocalEngine, LocalOptions};
use holdline_memory::{MemoryEngine, MemoryOptions};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_server::{Server, ServerConfig};
use holdline_services::{Foreign, RedisConfig, RedisServer};
use rusqlite::{Connection, OptionalExtension, params};

const FOREIGN: &str = "somebody else's lock";
/// A queue short enough that the suite can fill it.
const WAITERS: usize = 100;
/// The store's own suite has the many histories.
const HISTORIES: usize = 50;
/// The whole suite watches from one address.
const CONFIG: &str = "[server.limits]\nwaiters_per_client = 20000\n";

/// What is behind the servers.
enum Store {
    Memory,
    Local(PathBuf),
    Redis(Box<RedisServer>),
}

struct Served {
    store: Store,
    /// The URLs of the servers.
    servers: [String; 2],
    opened: AtomicUsize,
}

impl Served {
    async fn start(store: Store, [one, other]: [Arc<dyn Engine>; 2]) -> Served {
        let servers = [serve(&store, one, "one").await, serve(&store, other, "other").await];
        Served { store, servers, opened: AtomicUsize::new(0) }
    }

    fn plant(&self, name: &LockName) -> Result<(), String> {
        match &self.store {
            Store::Memory => Err("unreachable".to_owned()),
            Store::Local(directory) => {
                let sql = "INSERT INTO slot (key, value) VALUES (?1, ?2)";
                let row = params![name.as_str().as_bytes(), FOREIGN.as_bytes()];
                let database = Connection::open(directory.join("locks.db"));
                let done = database.and_then(|database| database.execute(sql, row));
                done.map(drop).map_err(|error| error.to_string())
            }
            Store::Redis(server) => Foreign::Text.plant(server, &key(name)),
        }
    }

    fn check(&self, name: &LockName) -> Result<(), String> {
        match &self.store {
            Store::Memory => Err("unreachable".to_owned()),
            Store::Local(directory) => {
                let sql = "SELECT value FROM slot WHERE key = ?1";
                let key = [name.as_str().as_bytes()];
                let read = |database: Connection| {
                    database.query_row(sql, key, |row| row.get::<_, Vec<u8>>(0)).optional()
                };
                match Connection::open(directory.join("locks.db")).and_then(read) {
                    Ok(Some(value)) if value == FOREIGN.as_bytes() => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            }
            Store::Redis(server) => Foreign::Text.check(server, &key(name)),
        }
    }
}

/// Starts a server, and returns its URL.
async fn serve(store: &Store, engine: Arc<dyn Engine>, name: &str) -> String {
    let config = ServerConfig::from_toml(CONFIG).expect("good");
    let config = match store {
        Store::Local(directory) => config.with_socket(directory.join(name)),
        _ => config.with_listen(SocketAddr::from(([127, 0, 0, 1], 0))),
    };
    let server = Server::bind(engine, &config).await.expect("listens");
    let url = match (server.address(), server.socket()) {
        (Some(address), _) => format!("http://{address}"),
        (None, socket) => {
            let path = socket.expect("a socket").display().to_string();
            format!("http+unix://{}", path.replace('/', "%2F"))
        }
    };
    tokio::spawn(server.run(std::future::pending()));
    url
}

fn key(name: &LockName) -> String {
    format!("holdline:{{{}}}", name.as_str())
}

impl RealStore for Served {
    type Client = HttpEngine;

    fn name(&self) -> String {
        "http".to_owned()
    }

    async fn open(&self) -> Result<HttpEngine, LockError> {
        let next = self.opened.fetch_add(1, Ordering::Relaxed) % self.servers.len();
        HttpEngine::connect(&HttpOptions::from_url(&self.servers[next])?).await
    }

    fn scale(&self) -> Scale {
        Scale { histories: HISTORIES, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match (disturbance, &self.store) {
            (_, Store::Memory) => Disturbed::Impossible("nobody can reach its memory"),
            (Disturbance::PlantForeign(name), _) => self.plant(name).into(),
            (Disturbance::CheckForeign(name), _) => self.check(name).into(),
            (Disturbance::Restart, Store::Redis(server)) => {
                server.restart_settled();
                clients.reconnect().await
            }
            (Disturbance::Restart, Store::Local(_)) => {
                Disturbed::Impossible("the store is a file, and the machine stays up")
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Store::Local(directory) = &self.store {
            // What cannot be removed is the system's to clean.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_memory() {
    let options = MemoryOptions::default().with_max_waiters(WAITERS);
    let engine = Arc::new(MemoryEngine::new("served", Arc::new(MachineClock), &options));
    judge!(on_memory, Served::start(Store::Memory, [engine.clone(), engine]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_local() {
    let name = format!("holdline-http-conformance-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let options = LocalOptions::default().with_dir(&directory).with_max_waiters(WAITERS);
    let open = || Arc::new(LocalEngine::open(&options).expect("opens"));
    let (one, other) = (open(), open());
    judge!(on_local, Served::start(Store::Local(directory), [one, other]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
    let options = RedisOptions::from_url(&server.url()).expect("good");
    let options = options.with_max_waiters(WAITERS).with_command_timeout(Duration::from_secs(10));
    let open = || async {
        Arc::new(RedisEngine::connect(&options, Arc::new(MachineClock)).await.expect("connects"))
    };
    let (one, other) = (open().await, open().await);
    judge!(on_redis, Served::start(Store::Redis(Box::new(server)), [one, other]).await);
}
