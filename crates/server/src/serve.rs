//! Connections: accepting, TLS, limits, and the end.
//!
//! - V1: a connection that sends its headers too slowly is closed; one more than the limit waits
//!   until another one has ended.
//! - V2: after the word to stop, waits end at once with 503, and all other requests have a while.

use std::fmt;
use std::io;
use std::net::SocketAddr;
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
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig as Tls;
use tokio_util::task::TaskTracker;

use crate::access::Caller;
use crate::app::App;
use crate::audit;
use crate::config::{ConfigError, ServerConfig, store_name};
use crate::grant;
use crate::handle::ServerHandle;
use crate::peer::{Peer, Socket};
use crate::routes;
use crate::shield::Hosts;
use crate::tls;

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
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Config(error) => error.fmt(f),
            ServerError::Store(error) => error.fmt(f),
            ServerError::Listen(address, error) => write!(f, "{address}: {error}"),
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
/// println!("serves http://{}", server.address());
/// server.run(async { /* until it is to stop */ }).await;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<RwLock<Option<Arc<Tls>>>>,
    pages: Router,
    background: Vec<Background>,
}

/// Work that goes on as long as the server.
type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Gives a running server new settings.
#[derive(Clone)]
pub struct Reloader {
    app: App,
    address: SocketAddr,
    tls: Arc<RwLock<Option<Arc<Tls>>>>,
}

impl Reloader {
    /// Takes over tokens, hosts, certificates and the audit file. Sessions go on; waits and streams
    /// end whose client may no longer have them. The address, the stores and the limits stay as
    /// they are.
    ///
    /// # Errors
    /// What is wrong: then nothing is changed.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), ConfigError> {
        let config = config.clone().with_listen(self.address);
        config.validate()?;
        let tls = config.tls.as_ref().map(tls::server).transpose()?;
        if tls.is_some() != self.tls.read().is_some() {
            return Err(ConfigError::new("TLS cannot be switched on or off while it runs"));
        }
        let (access, hosts) = (config.access()?, Hosts::new(self.address, &config.hosts));
        // Opened anew, so that a file that was moved away is followed by another.
        let audit_file = audit::open_file(&config)?;
        *self.app.access.write() = Arc::new(access);
        *self.app.hosts.write() = Arc::new(hosts);
        *self.app.audit_file.write() = audit_file;
        *self.tls.write() = tls;
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
        let tls = config.tls.as_ref().map(tls::server).transpose()?;
        let listen = config.listen;
        let listener = TcpListener::bind(listen).await;
        let listener = listener.map_err(|error| ServerError::Listen(listen, error))?;
        let address = listener.local_addr();
        let address = address.map_err(|error| ServerError::Listen(listen, error))?;
        let hosts = Hosts::new(address, &config.hosts);
        let audit_file = audit::open_file(config)?;
        let access = (config.access()?, hosts);
        let app = App::new(client, others, access, config.limits, audit_file);
        let tls = Arc::new(RwLock::new(tls));
        Ok(Server { app, listener, address, tls, pages: Router::new(), background: Vec::new() })
    }

    /// Returns where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what gives the server new settings while it runs.
    pub fn reloader(&self) -> Reloader {
        Reloader { app: self.app.clone(), address: self.address, tls: self.tls.clone() }
    }

    /// Returns what pages need that are served beside the API.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(self.app.clone(), self.address, self.tls.read().is_some())
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
        let Server { app, listener, tls, pages, background, .. } = self;
        let connections = Connections {
            router: routes::router(&app, pages),
            tls,
            room: Arc::new(Semaphore::new(app.limits.config.connections)),
            graceful: GracefulShutdown::new(),
            tasks: TaskTracker::new(),
            app,
        };
        let app = connections.app.clone();
        for work in background {
            let stopping = app.stopping.clone();
            connections.tasks.spawn(async move { stopping.run_until_cancelled(work).await });
        }
        tokio::select! {
            biased;
            () = stop => {}
            _ = join_all(app.stores().map(|app| app.events.wake_readers())) => {}
            () = sweep(&app) => {}
            _ = join_all(app.stores().map(grant::extend_what_was_read)) => {}
            () = connections.accept(&listener) => {}
        }
        drop(listener);
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
        let over: usize = app.stores().map(over).sum();
        if over > 0 {
            tracing::info!(over, "sessions ended in silence");
        }
    }
}

struct Connections {
    app: App,
    router: Router,
    tls: Arc<RwLock<Option<Arc<Tls>>>>,
    room: Arc<Semaphore>,
    graceful: GracefulShutdown,
    tasks: TaskTracker,
}

impl Connections {
    async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(room) = self.room.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => self.start(stream, peer, room),
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, room: OwnedSemaphorePermit) {
        // Small answers leave at once. A peer that is silent for long is cut off.
        let _ = stream.set_nodelay(true);
        let _ = limit_silence(&stream);
        let limits = &self.app.limits.config;
        let caller = Caller::new(peer.ip().to_canonical());
        let socket = Socket::new(stream);
        let service = RouterService { router: self.router.clone(), caller, peer: socket.peer() };
        let service = TowerToHyperService::new(service);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(limits.request_timeout())
            .max_buf_size(limits.header_bytes);
        let (tls, watcher) = (self.tls.read().clone(), self.graceful.watcher());
        let (app, handshake) = (self.app.clone(), limits.request_timeout());
        self.tasks.spawn(async move {
            app.metrics.connection(true);
            match tls {
                None => serve(&http, socket, service, watcher).await,
                Some(config) => {
                    let accept = TlsAcceptor::from(config).accept(socket);
                    match timeout(handshake, accept).await {
                        Ok(Ok(stream)) => serve(&http, stream, service, watcher).await,
                        Ok(Err(error)) => tracing::debug!(%error, %peer, "no TLS handshake"),
                        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
                    }
                }
            }
            app.metrics.connection(false);
            drop(room);
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    http: &http1::Builder,
    stream: S,
    service: TowerToHyperService<RouterService>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let connection = watcher.watch(http.serve_connection(TokioIo::new(stream), service));
    if let Err(error) = in_place(connection).await {
        tracing::debug!(%error, "a connection broke off");
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
