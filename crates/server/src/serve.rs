//! Connections: accepting, TLS, limits, and the end.
//!
//! - V1: a connection that sends its headers too slowly is closed; one more than the limit waits
//!   until another one has ended.
//! - V3: after the signal to stop, the server first goes on for `drain_ms`, and `/readyz` says that
//!   it stops: a load balancer has the time to learn it.
//! - V2: after that, waits end at once with 503, and all other requests have a while.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use holdline::{Client, ClientOptions};
use holdline_core::{Capabilities, Engine, LockError};
use holdline_http::in_place::in_place;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::access::{Access, Caller};
use crate::address::PeerAddress;
use crate::app::App;
use crate::audit;
use crate::certificate::Certificate;
use crate::config::{ConfigError, DEFAULT_STORE, ServerConfig};
use crate::config_check::store_name;
use crate::grant;
use crate::handle::ServerHandle;
use crate::health;
use crate::hosts::Hosts;
use crate::limits::Counted;
use crate::local_socket::LocalSocket;
use crate::peer::{Peer, Socket, Stream};
use crate::probes::Probes;
use crate::raw_refusal::WithBodies;
use crate::routes;
use crate::tls::{Tls, certificate_of};

/// How often sessions that are over are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// The pause after an accept that failed: usually for want of descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(50);
/// How long the store may take for what the server's own attempts have left.
const LAST_WORD: Duration = Duration::from_secs(3);

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// A setting is wrong.
    Config(ConfigError),
    /// The store cannot be used.
    Store(LockError),
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The socket cannot be made.
    Socket(PathBuf, io::Error),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Config(error) => error.fmt(f),
            ServerError::Store(error) => error.fmt(f),
            ServerError::Listen(address, error) => write!(f, "{address}: {error}"),
            ServerError::Socket(path, error) => {
                write!(f, "socket {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ServerError {}

impl From<ConfigError> for ServerError {
    fn from(error: ConfigError) -> ServerError {
        ServerError::Config(error)
    }
}

impl From<LockError> for ServerError {
    fn from(error: LockError) -> ServerError {
        ServerError::Store(error)
    }
}

/// A server that listens.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use holdline::Client;
/// use holdline_server::{Server, ServerConfig};
///
/// let client = Client::connect("memory:served").await?;
/// let config = ServerConfig::default().with_listen("127.0.0.1:0".parse()?);
/// let server = Server::bind(client.admin().engine().clone(), &config).await?;
/// println!("serves http://{}", server.address().expect("no socket is set"));
/// server.run(async { /* until it is to stop */ }).await;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    app: App,
    listener: Option<TcpListener>,
    address: Option<SocketAddr>,
    socket: Option<LocalSocket>,
    probes: Option<Probes>,
    tls: Tls,
    pages: Router,
    background: Vec<Background>,
}

/// Work that goes on as long as the server.
type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Gives a running server new settings.
#[derive(Clone)]
pub struct Reloader {
    app: App,
    address: Option<SocketAddr>,
    tls: Tls,
}

impl Reloader {
    /// Takes over tokens, hosts, certificates, the audit file and which holds are too long.
    /// Sessions go on; waits and streams end whose client may no longer have them. The address, the
    /// socket's file, the stores and the limits stay as they are.
    ///
    /// # Errors
    /// What is wrong: then nothing is changed.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), ConfigError> {
        let mut config = config.clone();
        config.listen = self.address;
        config.validate()?;
        let stores: Vec<&str> = self.app.stores().map(|app| app.store.as_str()).collect();
        config.check_stores(&stores)?;
        let tls = Tls::read(config.tls.as_ref())?;
        if tls.current().is_some() != self.tls.current().is_some() {
            return Err(ConfigError::new("TLS cannot be switched on or off while it runs"));
        }
        let access = Access::of(&config)?;
        let hosts = Hosts::new(self.address, &config.hosts);
        // A file that was cut off, or is empty since the disk is full, must not let everybody in.
        if access.admits_anybody() && !self.app.access.read().admits_anybody() {
            return Err(ConfigError::new(
                "nobody would be authenticated any more: start the server anew for that",
            ));
        }
        // Opened anew, so that a file that was moved away is followed by another.
        let audit_file = audit::open_file(&config)?;
        *self.app.access.write() = Arc::new(access);
        *self.app.hosts.write() = Arc::new(hosts);
        *self.app.audit_file.write() = audit_file;
        *self.app.long_holds.write() = config.long_holds.into();
        self.tls.replace(&tls);
        self.app.access_changed.send_replace(());
        Ok(())
    }
}

impl Server {
    /// Checks the settings and listens.
    ///
    /// # Errors
    /// A setting is wrong, the store has no detached leases, which outlive a server, or the address
    /// is in use.
    pub async fn bind(
        engine: Arc<dyn Engine>,
        config: &ServerConfig,
    ) -> Result<Server, ServerError> {
        Server::bind_stores(engine, Vec::new(), config).await
    }

    /// As [`Server::bind`], with more stores: the paths of each begin with `/stores/NAME`.
    ///
    /// # Errors
    /// As [`Server::bind`], or a name cannot be a part of a path.
    pub async fn bind_stores(
        engine: Arc<dyn Engine>,
        others: Vec<(String, Arc<dyn Engine>)>,
        config: &ServerConfig,
    ) -> Result<Server, ServerError> {
        config.validate()?;
        let client = client_of(engine)?;
        let others = others.into_iter().map(|(name, engine)| {
            store_name(&name)?;
            Ok::<_, ServerError>((name, client_of(engine)?))
        });
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let names = others.iter().map(|(name, _)| name.as_str());
        config.check_stores(&[DEFAULT_STORE].into_iter().chain(names).collect::<Vec<_>>())?;
        let tls = Tls::read(config.tls.as_ref())?;
        let (listener, address) = match config.listen() {
            None => (None, None),
            Some(listen) => {
                let failed = |error| ServerError::Listen(listen, error);
                let listener = TcpListener::bind(listen).await.map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                (Some(listener), Some(address))
            }
        };
        let socket = config.socket.as_ref().map(|socket| {
            LocalSocket::bind(socket)
                .map_err(|error| ServerError::Socket(socket.path.clone(), error))
        });
        let socket = socket.transpose()?;
        let probes = match config.health_listen {
            Some(listen) => {
                let failed = |error| ServerError::Listen(listen, error);
                Some(Probes::bind(listen).await.map_err(failed)?)
            }
            None => None,
        };
        let hosts = Hosts::new(address, &config.hosts);
        let audit_file = audit::open_file(config)?;
        let access = Access::of(config)?;
        let app = App::new(client, others, access, hosts, config, audit_file);
        let pages = Router::new();
        let background = Vec::new();
        Ok(Server { app, listener, address, socket, probes, tls, pages, background })
    }

    /// Returns the address of the server; `None` if it has a socket only.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the address on which only `/healthz` and `/readyz` are answered.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.probes.as_ref().map(Probes::address)
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(LocalSocket::path)
    }

    /// Returns what gives the server new settings while it runs.
    pub fn reloader(&self) -> Reloader {
        Reloader { app: self.app.clone(), address: self.address, tls: self.tls.clone() }
    }

    /// Returns what pages need that are served beside the API.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(self.app.clone(), self.address, self.tls.current().is_some())
    }

    /// Serves more pages beside the API. Every request for them passes the checks of `Host` and
    /// `Origin`; who sends it is theirs to ask ([`ServerHandle::identify`]).
    ///
    /// # Panics
    /// A path of them is one of the API, or was added before.
    #[must_use]
    pub fn with_pages(mut self, pages: Router) -> Server {
        self.pages = self.pages.merge(pages);
        self
    }

    /// Runs this as long as the server takes requests.
    #[must_use]
    pub fn with_background(mut self, work: impl Future<Output = ()> + Send + 'static) -> Server {
        self.background.push(Box::pin(work));
        self
    }

    /// Serves until `stop` is ready, then ends gracefully.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener; connections go on until their requests end.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { app, listener, socket, probes, tls, pages, background, .. } = self;
        let connections = Connections {
            router: routes::router(&app, pages),
            tls,
            room: Arc::new(Semaphore::new(app.limits.config.connections)),
            graceful: GracefulShutdown::new(),
            tasks: TaskTracker::new(),
            app,
        };
        let app = connections.app.clone();
        // Until the end: a server that stops is alive, and not ready.
        let probing = probes.map(|probes| tokio::spawn(probes.serve(app.clone())));
        for work in background {
            let stopping = app.stopping.clone();
            connections.tasks.spawn(async move { stopping.run_until_cancelled(work).await });
        }
        let stop = async {
            stop.await;
            app.draining.cancel();
            tokio::time::sleep(app.limits.config.drain()).await;
        };
        tokio::select! {
            biased;
            () = stop => {}
            _ = join_all(app.stores().map(|app| app.events.wake_readers())) => {}
            () = sweep(&app) => {}
            () = health::watch_stores(&app) => {}
            _ = join_all(app.stores().map(grant::extend_what_was_read)) => {}
            () = connections.tls.follow() => {}
            () = connections.accept(listener.as_ref()) => {}
            () = connections.accept_local(socket.as_ref()) => {}
        }
        drop(listener);
        drop(socket);
        app.stopping.cancel();
        let Connections { graceful, tasks, .. } = connections;
        tasks.close();
        let all = async {
            graceful.shutdown().await;
            tasks.wait().await;
        };
        if timeout(app.limits.config.stop_timeout(), all).await.is_err() {
            tracing::warn!("requests that did not end in time are cut off");
        }
        join_all(app.stores().map(|app| async {
            grant::extend_at_stop(app, LAST_WORD).await;
            app.client.shutdown(LAST_WORD).await
        }))
        .await;
        if let Some(probing) = probing {
            probing.abort();
        }
    }
}

fn client_of(engine: Arc<dyn Engine>) -> Result<Client, ServerError> {
    check(engine.capabilities())?;
    Ok(Client::with_options(engine, ClientOptions::default())?)
}

/// The leases of clients must outlive a server, and no engine without detached leases promises
/// that.
fn check(capabilities: &Capabilities) -> Result<(), ConfigError> {
    if capabilities.detach {
        return Ok(());
    }
    Err(ConfigError::new(format_args!(
        "the engine `{}` has no leases that outlive the process that asked for them: if the server \
         ended, its clients would lose their locks. Serve one of local:, redis://, \
         redis+sentinel://, redis-cluster://, redlock://, postgres://, mysql:// and etcd://, or have the \
         clients use the store without a server",
        capabilities.engine
    )))
}

async fn sweep(app: &App) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let over = |app: &App| app.life.lock().sweep(app.client.clock().now());
        app.stores().for_each(|app| app.held.sweep(app.client.clock().now()));
        let over: usize = app.stores().map(over).sum();
        if over > 0 {
            tracing::info!(over, "sessions ended in silence");
        }
    }
}

struct Connections {
    app: App,
    router: Router,
    tls: Tls,
    room: Arc<Semaphore>,
    graceful: GracefulShutdown,
    tasks: TaskTracker,
}

impl Connections {
    async fn accept(&self, listener: Option<&TcpListener>) {
        let Some(listener) = listener else { return std::future::pending().await };
        loop {
            let Ok(room) = self.room.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => self.start(stream, peer, room),
                Err(error) => after_failure(&error).await,
            }
        }
    }

    async fn accept_local(&self, socket: Option<&LocalSocket>) {
        let Some(socket) = socket else { return std::future::pending().await };
        loop {
            let Ok(room) = self.room.clone().acquire_owned().await else { return };
            match socket.listener.accept().await {
                Ok((stream, _)) => self.start_local(stream, room),
                Err(error) => after_failure(&error).await,
            }
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, room: Room) {
        // Small answers leave at once. A peer that is silent for long is cut off.
        let _ = stream.set_nodelay(true);
        let _ = limit_silence(&stream);
        let ip = peer.ip().to_canonical();
        // Both ends of a connection within a machine may have any address of the machine.
        let has_our_address = stream.local_addr().is_ok_and(|our| our.ip().to_canonical() == ip);
        let is_this_machine = ip.is_loopback() || has_our_address;
        let address = PeerAddress::Network { ip, is_this_machine };
        let Some(place) = self.place(room, address) else { return };
        let socket = Socket::new(Stream::Tcp(stream));
        let connection = self.connection(address, &socket);
        let tls = self.tls.current();
        let handshake = self.app.limits.config.request_timeout();
        self.run(place, async move {
            let Some(config) = tls else { return connection.serve(socket).await };
            let accept = TlsAcceptor::from(config).accept(socket);
            match timeout(handshake, accept).await {
                Ok(Ok(stream)) => {
                    let certificate = certificate_of(stream.get_ref().1);
                    connection.with_certificate(certificate).serve(stream).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, %peer, "no TLS handshake"),
                Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
            }
        });
    }

    fn start_local(&self, stream: UnixStream, room: Room) {
        match stream.peer_cred() {
            Ok(process) => {
                let address = PeerAddress::Process { uid: process.uid() };
                let Some(place) = self.place(room, address) else { return };
                let socket = Socket::new(Stream::Local(stream));
                self.run(place, self.connection(address, &socket).serve(socket));
            }
            Err(error) => tracing::warn!(%error, "a connection of nobody was closed"),
        }
    }

    /// Takes a place for a connection; `None` if its address has too many, and it is closed.
    fn place(&self, room: Room, address: PeerAddress) -> Option<Place> {
        if !self.app.access.read().counts_connections_of(address) {
            return Some(Place { _room: room, _of_address: None });
        }
        match self.app.limits.connection(&address.to_string()) {
            Ok(counted) => Some(Place { _room: room, _of_address: Some(counted) }),
            Err(_) => {
                self.app.metrics.connection_refused();
                tracing::debug!(%address, "too many connections of this address are open");
                None
            }
        }
    }

    fn connection(&self, address: PeerAddress, socket: &Socket) -> Connection {
        let limits = &self.app.limits.config;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(limits.request_timeout())
            .max_buf_size(limits.header_bytes);
        let router = self.router.clone();
        let caller = Caller::new(address);
        let service = RouterService { router, caller, peer: socket.peer() };
        let watcher = self.graceful.watcher();
        Connection { http, service, watcher, header_bytes: limits.header_bytes }
    }

    fn run(&self, place: Place, work: impl Future<Output = ()> + Send + 'static) {
        let app = self.app.clone();
        self.tasks.spawn(async move {
            app.metrics.connection(true);
            work.await;
            app.metrics.connection(false);
            drop(place);
        });
    }
}

type Room = OwnedSemaphorePermit;

/// What a connection takes of the limits, until it is dropped.
struct Place {
    _room: Room,
    _of_address: Option<Counted>,
}

async fn after_failure(error: &io::Error) {
    tracing::warn!(%error, "a connection was not accepted");
    tokio::time::sleep(AFTER_FAILURE).await;
}

/// A connection before its first request.
struct Connection {
    http: http1::Builder,
    service: RouterService,
    watcher: Watcher,
    header_bytes: usize,
}

impl Connection {
    fn with_certificate(mut self, certificate: Option<Certificate>) -> Connection {
        self.service.caller = self.service.caller.with_certificate(certificate);
        self
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let service = TowerToHyperService::new(self.service);
        let stream = WithBodies::new(stream, self.header_bytes);
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = in_place(self.watcher.watch(connection)).await {
            tracing::debug!(%error, "a connection broke off");
        }
    }
}

/// Cuts a peer off that takes nothing for half a minute, or that has vanished without a word: a
/// waiting request of a machine that is off must not keep its place in the queue.
fn limit_silence(stream: &TcpStream) -> io::Result<()> {
    const HALF_A_MINUTE: u32 = 30_000;
    sockopt::set_tcp_user_timeout(stream, HALF_A_MINUTE)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// The router, for one connection.
#[derive(Clone)]
struct RouterService {
    router: Router,
    caller: Caller,
    peer: Arc<Peer>,
}

impl tower_service::Service<http::Request<Incoming>> for RouterService {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = axum::routing::future::RouteFuture<std::convert::Infallible>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.caller.clone());
        request.extensions_mut().insert(self.peer.clone());
        tower_service::Service::call(&mut self.router, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_whose_leases_end_with_the_server_is_refused_with_the_reason() {
        let mut capabilities = Capabilities::reference("zk", "here");
        assert!(check(&capabilities).is_ok());
        capabilities.detach = false;
        let error = check(&capabilities).expect_err("no detached leases").to_string();
        for says in ["the engine `zk`", "would lose their locks", "etcd://", "without a server"] {
            assert!(error.contains(says), "{error}");
        }
    }
}
