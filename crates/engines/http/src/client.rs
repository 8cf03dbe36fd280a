//! Requests to the server, over a pool of connections.
//!
//! - C1: a request that may have been sent is never repeated.
//! - C2: every request has a deadline, and a response has a largest size.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{Certainty, LockError};
use holdline_net::socket;
use holdline_net::tls::{TlsContext, TlsFiles};
use holdline_net::url::Server;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client as Pool, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::error::{ENGINE, of_status, protocol, unavailable};
use crate::options::HttpOptions;

/// The largest response that is read: a page of a thousand names, each with many waiters.
const LARGEST: usize = 64 * 1024 * 1024;
/// How long an idle connection is kept: for less than a server keeps it, 15 s unless configured.
const IDLE: Duration = Duration::from_secs(10);
/// How many idle connections are kept: one for each task that asks at once, so that tasks in their
/// hundreds do not connect anew for each request.
const MOST_IDLE: usize = 256;
const TLS: TlsContext = TlsContext { engine: ENGINE, without: "http://" };

/// Sends requests to one server.
#[derive(Debug)]
pub(crate) struct Client {
    pool: Pool<Connector, Full<Bytes>>,
    origin: String,
    authorization: Option<HeaderValue>,
    limit: Duration,
}

impl Client {
    pub(crate) fn new(options: &HttpOptions) -> Result<Client, LockError> {
        options.validate()?;
        let authorization = options.token.expose().map(|token| {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            value.map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let authorization = authorization.transpose().map_err(|_| {
            LockError::invalid(ENGINE, "token", "has characters that no HTTP header can carry")
        })?;
        let connector = Connector(Arc::new(Target {
            server: options.server.clone(),
            tls: options.tls.clone(),
            limit: options.connect_timeout,
        }));
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(connector);
        let origin = format!("{}://{}{}", options.scheme(), options.server, options.base);
        Ok(Client { pool, origin, authorization, limit: options.command_timeout })
    }

    /// Asks without a body.
    pub(crate) async fn get<R: DeserializeOwned>(&self, path: &str) -> Result<R, LockError> {
        let request = self.request(Method::GET, path, Bytes::new())?;
        self.answered(request).await
    }

    /// Asks with a body of JSON.
    pub(crate) async fn post<R: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<R, LockError> {
        self.answered(self.request(Method::POST, path, encoded(body)?)?).await
    }

    /// Asks for a response that does not end; it must begin within the deadline.
    pub(crate) async fn open(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Incoming, LockError> {
        let request = self.request(Method::POST, path, encoded(body)?)?;
        let response = timeout(self.limit, self.sent(request)).await;
        let response = response.unwrap_or_else(|_| Err(self.nothing()))?;
        match response.status().is_success() {
            true => Ok(response.into_body()),
            false => Err(of_status(response.status(), b"")),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, LockError> {
        let mut builder = Request::builder().method(method).uri(format!("{}{path}", self.origin));
        if let Some(authorization) = &self.authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        if !body.is_empty() {
            builder = builder.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        builder
            .body(Full::new(body))
            .map_err(|error| LockError::invalid(ENGINE, "url", format_args!("no URL: {error}")))
    }

    async fn answered<R: DeserializeOwned>(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<R, LockError> {
        let whole = async {
            let response = self.sent(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LARGEST).collect().await;
            let body = body.map_err(|error| {
                unavailable(format!("the response broke off: {error}"), Certainty::Unknown)
            })?;
            let body = body.to_bytes();
            if !status.is_success() {
                return Err(of_status(status, &body));
            }
            serde_json::from_slice(&body).map_err(|error| {
                protocol(format!("the response is no answer: {error}"), Certainty::Unknown)
            })
        };
        timeout(self.limit, whole).await.unwrap_or_else(|_| Err(self.nothing()))
    }

    async fn sent(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, LockError> {
        self.pool.request(request).await.map_err(|error| failure(&error))
    }

    fn nothing(&self) -> LockError {
        unavailable(format!("nothing within {:?}", self.limit), Certainty::Unknown)
    }
}

fn encoded(body: &impl Serialize) -> Result<Bytes, LockError> {
    let text = serde_json::to_vec(body);
    let text = text.map_err(|error| protocol(error.to_string(), Certainty::NotApplied))?;
    Ok(Bytes::from(text))
}

/// A request that never had a connection was not sent. What else went wrong leaves it open.
fn failure(error: &PoolError) -> LockError {
    if error.is_connect() {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        // The chain is hyper's and short; the bound keeps a circular one from us.
        for _ in 0..8 {
            let Some(inner) = cause else { break };
            if let Some(refused) = inner.downcast_ref::<ConnectError>() {
                return refused.0.clone();
            }
            cause = inner.source();
        }
        return unavailable(format!("no connection: {error}"), Certainty::NotApplied);
    }
    unavailable(format!("the connection broke off: {error}"), Certainty::Unknown)
}

/// Why no connection was made, as the user is to read it.
#[derive(Debug)]
struct ConnectError(LockError);

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConnectError {}

/// Makes connections to the one server, whatever address a request names.
#[derive(Clone, Debug)]
struct Connector(Arc<Target>);

#[derive(Debug)]
struct Target {
    server: Server,
    tls: Option<TlsFiles>,
    limit: Duration,
}

impl Target {
    async fn connect(&self) -> Result<Stream, LockError> {
        let Server { host, port } = &self.server;
        let connecting = async {
            let stream = socket::connect(host, *port).await.map_err(|error| {
                unavailable(format!("{}: {error}", self.server), Certainty::NotApplied)
            })?;
            match &self.tls {
                Some(files) => {
                    let stream = TLS.wrap(stream, host, files).await?;
                    Ok(Stream::Tls(Box::new(stream)))
                }
                None => Ok(Stream::Plain(stream)),
            }
        };
        timeout(self.limit, connecting).await.unwrap_or_else(|_| {
            let message = format!("{}: no connection within {:?}", self.server, self.limit);
            Err(unavailable(message, Certainty::NotApplied))
        })
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, ConnectError>> + Send>>;

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Connecting {
        let target = self.0.clone();
        Box::pin(async move { target.connect().await.map(TokioIo::new).map_err(ConnectError) })
    }
}

/// A connection, with or without TLS.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
