//! What every request passes: is it for this server, and not from a page of another origin?
//!
//! - H1: a `Host` that is not this server's is refused, so that a name which an attacker resolves
//!   to this address (DNS rebinding) is of no use.
//! - H2: an `Origin` that is not this server's is refused, so that a page of another origin cannot
//!   use the rights of a browser or of this machine.
//! - H3: every answer forbids to be framed, sniffed or cached, and to load anything. A page that is
//!   served beside the API may say which of its own files it loads, and which answer may be cached.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use crate::access::Caller;
use crate::address::ClientAddress;
use crate::app::App;
use crate::identity::Identity;
use crate::limits::Counted;
use crate::metrics::Waited;
use crate::problem::Problem;
use crate::request_log::{LoggedRequest, Sender};

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
        let logged = LoggedRequest::of(&mut request, &app.access.read());
        let path = request.extensions().get::<MatchedPath>().cloned();
        let checked = app.hosts.read().check(request.headers(), request.uri());
        let counted = checked.and_then(|()| count_forwarded(&app, &logged));
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
            let took = (!has_waited).then(|| logged.took());
            app.metrics.request(path, response.status().as_u16(), took);
            app.request_log.write(&logged, path, response.status());
            let of_route = std::mem::replace(response.headers_mut(), HEADERS.clone());
            response.headers_mut().extend(of_route);
            Ok(response)
        })
    }
}

/// A request of a client behind a proxy counts as a connection of its address, since it takes one
/// of the proxy's.
fn count_forwarded(app: &App, logged: &LoggedRequest) -> Result<Option<Counted>, Problem> {
    match logged.from {
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
