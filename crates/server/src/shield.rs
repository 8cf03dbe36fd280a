//! What every request passes: is it for this server, and not from a page of another origin?
//!
//! - H1: a `Host` that is not this server's is refused, so that a name which an attacker resolves
//!   to this address (DNS rebinding) is of no use.
//! - H2: an `Origin` that is not this server's is refused, so that a page of another origin cannot
//!   use the rights of a browser or of this machine.
//! - H3: every answer forbids to be framed, sniffed or cached, and to load anything. A page that is
//!   served beside the API may say which of its own files it loads, and which answer may be cached.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use crate::access::{Caller, Identity};
use crate::address::ClientAddress;
use crate::app::App;
use crate::limits::Counted;
use crate::metrics::Waited;
use crate::problem::Problem;
use crate::request_log::{Entry, Sender};

/// How many headers a request may have.
const MOST_HEADERS: usize = 64;

/// The headers of every answer, with room for those of its own. A clone copies no text.
static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
    let mut headers = HeaderMap::with_capacity(12);
    for (name, value) in [
        ("cache-control", "no-store"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
});

/// The names by which clients reach this server.
pub(crate) struct Hosts {
    names: Vec<String>,
    listens_everywhere: bool,
    local: IpAddr,
}

impl Hosts {
    /// `listen` is the address of the server; a server with a socket only has none.
    pub(crate) fn new(listen: Option<SocketAddr>, names: &[String]) -> Hosts {
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let local = listen.map_or(IpAddr::from([127, 0, 0, 1]), |listen| listen.ip());
        Hosts { names, listens_everywhere: local.is_unspecified(), local }
    }

    /// Returns whether an authority (`host` or `host:port`) names this server. An address cannot be
    /// rebound: a client that sends one means the machine that it reached.
    fn is_ours(&self, authority: &str) -> bool {
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.listens_everywhere || address == self.local || address.is_loopback();
        }
        host.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        if headers.len() > MOST_HEADERS {
            return Err(Problem::too_many_headers(MOST_HEADERS));
        }
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        let host = uri.authority().map(http::uri::Authority::as_str).or(host);
        if hosts.next().is_some() || !host.is_some_and(|host| self.is_ours(host)) {
            return Err(Problem::wrong_host());
        }
        for origin in headers.get_all(ORIGIN) {
            let origin: Option<Uri> = origin.to_str().ok().and_then(|text| text.parse().ok());
            let authority = origin.as_ref().and_then(Uri::authority);
            // The same host and port: a page of another port of this machine is another origin.
            if authority.is_none_or(|authority| Some(authority.as_str()) != host) {
                return Err(Problem::wrong_origin());
            }
        }
        Ok(())
    }
}

/// Puts [`Shielded`] around each route, where the path is known.
#[derive(Clone)]
pub(crate) struct Shield(pub(crate) App);

impl<S> Layer<S> for Shield {
    type Service = Shielded<S>;

    fn layer(&self, route: S) -> Shielded<S> {
        Shielded { app: self.0.clone(), route }
    }
}

/// Checks a request, adds headers to the answer, and counts both. It is a service of its own, since
/// axum's `from_fn` clones the route and allocates three times for each request.
#[derive(Clone)]
pub(crate) struct Shielded<S> {
    app: App,
    route: S,
}

impl<S> Service<Request> for Shielded<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.route.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let app = self.app.clone();
        let entry = Entry::of(&mut request, &app.access.read());
        let path = request.extensions().get::<MatchedPath>().cloned();
        let checked = app.hosts.read().check(request.headers(), request.uri());
        let counted = checked.and_then(|()| count_forwarded(&app, &entry));
        let answered = counted.map(|counted| (counted, self.route.call(request)));
        Box::pin(async move {
            let mut response = match answered {
                Ok((None, answered)) => answered.await?,
                Ok((Some(counted), answered)) => {
                    let counting = |body| Body::new(CountedBody { body, _counted: counted });
                    answered.await?.map(counting)
                }
                Err(problem) => problem.into_response(),
            };
            let path = path.as_ref().map_or("other", MatchedPath::as_str);
            let has_waited = response.extensions().get::<Waited>().is_some();
            let took = (!has_waited).then(|| entry.took());
            app.metrics.request(path, response.status().as_u16(), took);
            app.request_log.write(&entry, path, response.status());
            let of_route = std::mem::replace(response.headers_mut(), HEADERS.clone());
            response.headers_mut().extend(of_route);
            Ok(response)
        })
    }
}

/// A request of a client behind a proxy counts as a connection of its address, since it takes one
/// of the proxy's.
fn count_forwarded(app: &App, entry: &Entry) -> Result<Option<Counted>, Problem> {
    match entry.from {
        Some(ClientAddress::Forwarded(client)) => {
            app.limits.connection(&client.to_string()).map(Some)
        }
        _ => Ok(None),
    }
}

/// The body of an answer to a request that counts until its end.
struct CountedBody {
    body: Body,
    _counted: Counted,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl FromRequestParts<App> for Identity {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Identity, Problem> {
        let caller = parts.extensions.get::<Caller>().ok_or_else(Problem::unauthenticated)?;
        let access = app.access.read().clone();
        let identity = access.identify(&parts.headers, caller, None)?;
        if let Some(sender) = parts.extensions.get::<Sender>() {
            sender.note(&identity);
        }
        identity.may_use(&app.store)?;
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &'static str)| {
            (name.clone(), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn only_requests_for_this_server_from_its_own_pages_pass() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 7654));
        let hosts = Hosts::new(Some(listen), &["Locks.Example".to_owned()]);
        let check = |pairs: &[(HeaderName, &'static str)]| {
            hosts.check(&headers(pairs), &Uri::from_static("/v1/locks")).map_err(|p| p.kind())
        };
        for host in ["localhost", "LOCALHOST:7654", "127.0.0.1:1", "[::1]:7654", "locks.example"] {
            assert_eq!(check(&[(HOST, host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1", ""] {
            assert_eq!(check(&[(HOST, host)]), Err("wrong_host"), "{host}");
        }
        assert_eq!(check(&[]), Err("wrong_host"));
        let here = (HOST, "localhost:7654");
        assert_eq!(check(&[here.clone(), (ORIGIN, "http://localhost:7654")]), Ok(()));
        for origin in ["http://evil.example", "http://localhost:8080", "null", "", "x y"] {
            assert_eq!(check(&[here.clone(), (ORIGIN, origin)]), Err("wrong_origin"), "{origin}");
        }
    }
}
