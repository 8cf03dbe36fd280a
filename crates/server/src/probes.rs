//! A port of its own for the probes of orchestrators.
//!
//! - B1: it has room of its own. When all connections of the server are taken, the server is still
//!   alive: an orchestrator must not restart it, and so break every wait.
//! - B2: it answers `/healthz` and `/readyz`, without TLS and whatever the `Host` is, and nothing
//!   else. One connection has one request, which must arrive within seconds.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower_service::Service as _;

use crate::app::App;
use crate::routes;

/// How many probes are answered at once.
const ROOM: usize = 64;
/// How long a probe may take: the orchestrator has given up by then.
const LONGEST: Duration = Duration::from_secs(10);
/// How long the headers may take to arrive.
const HEADERS: Duration = Duration::from_secs(5);
/// The pause after an accept that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// The port of the probes.
pub(crate) struct Probes {
    listener: TcpListener,
    address: SocketAddr,
}

impl Probes {
    pub(crate) async fn bind(listen: SocketAddr) -> io::Result<Probes> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok(Probes { listener, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers for as long as the server runs.
    pub(crate) async fn serve(self, app: App) {
        let router = routes::health(&app);
        let room = Arc::new(Semaphore::new(ROOM));
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a probe was not accepted");
                    tokio::time::sleep(AFTER_FAILURE).await;
                    continue;
                }
            };
            let router = router.clone();
            tokio::spawn(async move {
                // A probe that breaks off is repeated.
                let _ = timeout(LONGEST, answer(stream, router)).await;
                drop(permit);
            });
        }
    }
}

async fn answer(stream: TcpStream, router: axum::Router) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        async move { router.call(request).await }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS).keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a probe broke off");
    }
}
