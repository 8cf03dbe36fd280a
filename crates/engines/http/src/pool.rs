//! Connections to the server, kept for later requests.
//!
//! - P1: a connection serves one request at a time, and the task of the request drives it. It has
//!   no task of its own, so a request wakes no other task.
//! - P2: a request that was not sent goes on over another connection; one that may have been sent
//!   never does.
//! - P3: an idle connection is closed before the server closes it, so that no request is sent on a
//!   connection that is about to end.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_net::socket::{self, ByteStream};
use holdline_net::tls::{TlsContext, TlsFiles};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::{ENGINE, unavailable};
use crate::in_place::in_place;
use crate::options::Place;

/// The largest response that is read: a page of a thousand names, each with many waiters.
const LARGEST: usize = 64 * 1024 * 1024;
/// How long an idle connection is kept: for less than a server keeps it, 15 s unless configured.
pub(crate) const IDLE: Duration = Duration::from_secs(10);
/// How many idle connections are kept: one for each task that asks at once, so that tasks in their
/// hundreds do not connect anew for each request.
const MOST_IDLE: usize = 256;
const TLS: TlsContext = TlsContext { engine: ENGINE, without: "http://" };

/// Where the connections lead.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) place: Place,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) limit: Duration,
}

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    target: Target,
    idle_limit: Duration,
    idle: Arc<Mutex<Idle>>,
}

/// The idle connections, the one that has been idle for longest first.
#[derive(Debug, Default)]
struct Idle {
    connections: Vec<(Instant, Connection)>,
    /// Closes those that are idle for too long.
    sweeper: Option<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new(target: Target, idle_limit: Duration) -> Pool {
        Pool { target, idle_limit, idle: Arc::default() }
    }

    /// Sends a request and returns the whole response.
    pub(crate) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, LockError> {
        let (mut connection, response) = self.send(request).await?;
        let (head, body) = response.into_parts();
        let body = connection.driver.run(Limited::new(body, LARGEST).collect()).await;
        let body = body.map_err(|error| {
            unavailable(format!("the response broke off: {error}"), Certainty::Unknown)
        })?;
        if connection.driver.run(connection.sender.ready()).await.is_ok() {
            self.keep(connection);
        }
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    /// Sends a request and returns the response when it begins, with the connection to read its
    /// body from.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Connection, Response<Incoming>), LockError> {
        loop {
            let (mut connection, is_new) = match self.take() {
                Some(connection) => (connection, false),
                // Boxed: it is rare, and its state would make the future of each request larger.
                None => (Box::pin(Connection::open(&self.target)).await?, true),
            };
            let sent = connection.sender.try_send_request(request);
            let mut error = match connection.driver.run(sent).await {
                Ok(response) => return Ok((connection, response)),
                Err(error) => error,
            };
            match error.take_message() {
                // The server has closed an idle connection. Each turn takes another one.
                Some(unsent) if !is_new => request = unsent,
                unsent => return Err(broken(&error, unsent.is_some())),
            }
        }
    }

    /// Returns the connection that was used last, and closes those that are idle for too long.
    fn take(&self) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        idle.sweep(self.idle_limit);
        idle.connections.pop().map(|(_, connection)| connection)
    }

    fn keep(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        if idle.connections.len() >= MOST_IDLE {
            return;
        }
        idle.connections.push((Instant::now(), connection));
        // A runtime that has ended has ended its sweeper.
        if idle.sweeper.as_ref().is_none_or(JoinHandle::is_finished) {
            let sweep = sweep(Arc::downgrade(&self.idle), self.idle_limit);
            idle.sweeper = Some(tokio::spawn(sweep));
        }
    }
}

impl Idle {
    /// Closes the connections that are idle for too long; returns when the next one will be.
    fn sweep(&mut self, limit: Duration) -> Option<Instant> {
        let now = Instant::now();
        let fresh = self.connections.partition_point(|(since, _)| *since + limit <= now);
        self.connections.drain(..fresh);
        self.connections.first().map(|(since, _)| *since + limit)
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes idle connections in time, until there is none.
async fn sweep(idle: Weak<Mutex<Idle>>, limit: Duration) {
    let next = || {
        let idle = idle.upgrade()?;
        let mut idle = lock(&idle);
        let next = idle.sweep(limit);
        if next.is_none() {
            // The next connection starts another sweeper.
            idle.sweeper = None;
        }
        next
    };
    while let Some(next) = next() {
        sleep_until(next).await;
    }
}

/// A request that never left was not sent. What else went wrong leaves it open.
fn broken(error: &TrySendError<Request<Full<Bytes>>>, unsent: bool) -> LockError {
    let certainty = if unsent { Certainty::NotApplied } else { Certainty::Unknown };
    unavailable(format!("the connection broke off: {}", error.error()), certainty)
}

/// A connection, and the half of it that sends.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

impl Connection {
    async fn open(target: &Target) -> Result<Connection, LockError> {
        let stream = TokioIo::new(target.connect().await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(|error| {
            unavailable(format!("no connection: {error}"), Certainty::NotApplied)
        })?;
        Ok(Connection { sender, driver: Driver(Some(connection)) })
    }

    /// Returns the next piece of a body; `None` at its end, also if it broke off.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn frame(&mut self, body: &mut Incoming) -> Option<Frame<Bytes>> {
        self.driver.run(body.frame()).await?.ok()
    }
}

type HyperStream = TokioIo<Box<dyn ByteStream>>;

/// What moves bytes over a connection; `None` once the connection has ended.
struct Driver(Option<http1::Connection<HyperStream, Full<Bytes>>>);

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("is_open", &self.0.is_some()).finish()
    }
}

impl Driver {
    /// Drives the connection until some work on it is done.
    async fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        in_place(poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            if let Some(connection) = &mut self.0
                && Pin::new(connection).poll(context).is_ready()
            {
                self.0 = None;
                // Nothing is on its way any more: the work ends, with what is wrong.
                return work.as_mut().poll(context);
            }
            Poll::Pending
        }))
        .await
    }
}

impl Target {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, LockError> {
        timeout(self.limit, self.open()).await.unwrap_or_else(|_| {
            let message = format!("{}: no connection within {:?}", self.place, self.limit);
            Err(unavailable(message, Certainty::NotApplied))
        })
    }

    async fn open(&self) -> Result<Box<dyn ByteStream>, LockError> {
        let failed = |error| self.failure(&error);
        let server = match &self.place {
            Place::Network(server) => server,
            Place::Socket(path) => {
                let stream = socket::connect_unix(path).await.map_err(failed)?;
                return Ok(Box::new(stream));
            }
        };
        let stream = socket::connect(&server.host, server.port).await.map_err(failed)?;
        match &self.tls {
            Some(files) => {
                let stream = TLS.wrap(stream, &server.host, files).await?;
                Ok(Box::new(stream))
            }
            None => Ok(Box::new(stream)),
        }
    }

    /// Explains why there is no connection. The mode of a socket says who may use it.
    fn failure(&self, error: &io::Error) -> LockError {
        let place = &self.place;
        if let (Place::Socket(_), io::ErrorKind::PermissionDenied) = (place, error.kind()) {
            let message = format!(
                "{place}: {error}: the mode of the socket (`mode` in `[server.socket]`), or of a \
                 directory above it, keeps this user out"
            );
            let kind = ErrorKind::Refused { message };
            return LockError::new(ENGINE, kind, Certainty::NotApplied);
        }
        unavailable(format!("{place}: {error}"), Certainty::NotApplied)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use holdline_net::url::Server;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    async fn listen() -> (TcpListener, Target) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let place = Place::Network(Server { host: "127.0.0.1".to_owned(), port });
        (listener, Target { place, tls: None, limit: MINUTE })
    }

    fn request() -> Request<Full<Bytes>> {
        Request::post("/").body(Full::from("body")).expect("a good request")
    }

    /// Reads one request; `false` if the client has closed the connection.
    async fn read(stream: &mut TcpStream) -> bool {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\nbody") {
            if stream.read_buf(&mut seen).await.expect("no reset") == 0 {
                assert!(seen.is_empty(), "half a request");
                return false;
            }
        }
        true
    }

    #[tokio::test]
    async fn requests_share_a_connection_until_the_server_closes_it() {
        let (listener, target) = listen().await;
        let close = Arc::new(Notify::new());
        let closing = close.clone();
        let server = tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.expect("a client");
            for _ in 0..2 {
                assert!(read(&mut first).await);
                first.write_all(ANSWER).await.expect("sent");
            }
            closing.notified().await;
            drop(first);
            let (mut second, _) = listener.accept().await.expect("the client again");
            assert!(read(&mut second).await);
            second.write_all(ANSWER).await.expect("sent");
            second
        });
        let pool = Pool::new(target, MINUTE);
        for _ in 0..2 {
            assert_eq!(pool.exchange(request()).await.expect("answered").body(), "ok");
        }
        // The end of the first connection is here before the next request.
        close.notify_one();
        let (_, connection) = lock(&pool.idle).connections.pop().expect("kept");
        let Connection { sender, mut driver } = connection;
        driver
            .run(poll_fn(|_| if sender.is_closed() { Poll::Ready(()) } else { Poll::Pending }))
            .await;
        lock(&pool.idle).connections.push((Instant::now(), Connection { sender, driver }));
        assert_eq!(pool.exchange(request()).await.expect("answered").body(), "ok");
        drop(server.await.expect("served"));
    }

    #[tokio::test]
    async fn a_request_that_was_sent_is_not_repeated() {
        let (listener, target) = listen().await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            assert!(read(&mut stream).await);
            stream.write_all(ANSWER).await.expect("sent");
            assert!(read(&mut stream).await);
            drop(stream);
            listener
        });
        let pool = Pool::new(target, MINUTE);
        pool.exchange(request()).await.expect("answered");
        let error = pool.exchange(request()).await.expect_err("no answer");
        assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
        let listener = server.await.expect("served");
        assert!(listener.accept().now_or_never().is_none(), "no second connection");
        drop(listener);
        let error = pool.exchange(request()).await.expect_err("no server");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    }

    #[test]
    fn a_connection_of_a_runtime_that_has_ended_is_replaced() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        let servers = runtime().expect("made");
        let first = runtime().expect("made");
        let second = runtime().expect("made");
        let (listener, target) = servers.block_on(listen());
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let server = std::thread::spawn(move || {
            servers.block_on(async {
                for _ in 0..2 {
                    let (mut stream, _) = listener.accept().await.expect("a client");
                    assert!(read(&mut stream).await);
                    stream.write_all(ANSWER).await.expect("sent");
                    // The server keeps it: only the runtime of the client has ended.
                    tokio::spawn(async move { read(&mut stream).await });
                }
                stopped.notified().await;
            });
        });
        let pool = Pool::new(target, MINUTE);
        first.block_on(pool.exchange(request())).expect("answered");
        assert_eq!(lock(&pool.idle).connections.len(), 1);
        drop(first);
        second.block_on(pool.exchange(request())).expect("answered");
        assert_eq!(lock(&pool.idle).connections.len(), 1);
        stop.notify_one();
        server.join().expect("served");
    }

    #[tokio::test]
    async fn an_idle_connection_is_closed_before_the_server_closes_it() {
        let (listener, target) = listen().await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            assert!(read(&mut stream).await);
            stream.write_all(ANSWER).await.expect("sent");
            assert!(!read(&mut stream).await, "another request");
        });
        let pool = Pool::new(target, Duration::from_millis(50));
        pool.exchange(request()).await.expect("answered");
        // Nobody asks any more: the client closes the connection by itself.
        timeout(MINUTE, server).await.expect("in time").expect("served");
        assert!(lock(&pool.idle).connections.is_empty());
    }
}
