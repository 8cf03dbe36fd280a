//! The layer: checks the header against the store, and passes the request on or answers with a
//! problem.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::request::Parts;
use ::http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::problem::Problem;
use super::{FenceStore, Holder};
use crate::Proof;

/// For which requests of a guarded resource the header is required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Required {
    /// For all methods except `GET`, `HEAD`, `OPTIONS` and `TRACE`.
    #[default]
    ForWrites,
    /// For all.
    Always,
    /// For none: a request without a token is not fenced.
    Never,
}

/// A token that the layer has checked: an extension of the request, with which the handler writes.
///
/// It was the newest at the check. It may be stale by now: see [the
/// module](super#what-the-layer-does-not-do).
#[derive(Clone, Debug)]
pub struct CheckedToken {
    resource: Arc<str>,
    holder: Holder,
}

impl CheckedToken {
    /// Returns the key under which it was checked.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the sender of the request.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the proof to write with; `None` for a shared holder.
    pub fn proof(&self) -> Option<&Proof> {
        self.holder.exclusive()
    }
}

/// Refuses requests of stale holders.
///
/// `resource_of` derives the key of the mark from a request, such as the path without its last
/// part; `None` passes the request on unchecked. Everything that one lock guards has one key.
///
/// A request of an exclusive holder raises the mark, even if it only reads: that is its seal. The
/// extension [`CheckedToken`] identifies the holder for the handler. Bodies are passed on
/// unchanged; the body of a refused request is not read.
///
/// The body of a response must be made `From<String>`, as that of axum is and `Full<Bytes>`; the
/// inner service must be `Clone`, as routers are.
///
/// # Examples
/// ```
/// use holdline_fence::http::{CheckedToken, FencingLayer, HEADER, MemoryMarks};
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let layer = FencingLayer::new(MemoryMarks::new(1_000), |parts: &http::request::Parts| {
///     Some(parts.uri.path().to_owned())
/// });
/// let service = layer.layer(service_fn(async |request: Request<String>| {
///     let checked: &CheckedToken = request.extensions().get().expect("set by the layer");
///     Ok::<_, std::convert::Infallible>(Response::new(checked.resource().to_owned()))
/// }));
///
/// for (token, status) in [
///     (34, StatusCode::OK),
///     (33, StatusCode::PRECONDITION_FAILED),
///     (34, StatusCode::OK),
/// ] {
///     let request = Request::put("/stock/17").header(HEADER, token).body(String::new())?;
///     assert_eq!(service.clone().oneshot(request).await?.status(), status);
/// }
/// # Ok(())
/// # }
/// ```
pub struct FencingLayer<S, K> {
    store: Arc<S>,
    resource_of: K,
    required: Required,
}

impl<S: FenceStore, K: Fn(&Parts) -> Option<String>> FencingLayer<S, K> {
    /// Makes a layer. Handlers that need the store too pass an `Arc` of it.
    pub fn new(store: S, resource_of: K) -> FencingLayer<S, K> {
        FencingLayer { store: Arc::new(store), resource_of, required: Required::default() }
    }

    /// Sets for which requests the header is required.
    #[must_use]
    pub fn with_required(mut self, required: Required) -> FencingLayer<S, K> {
        self.required = required;
        self
    }
}

impl<S, K: Clone> Clone for FencingLayer<S, K> {
    fn clone(&self) -> FencingLayer<S, K> {
        let FencingLayer { store, resource_of, required } = self;
        FencingLayer { store: store.clone(), resource_of: resource_of.clone(), required: *required }
    }
}

impl<S, K> fmt::Debug for FencingLayer<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencingLayer").field("required", &self.required).finish_non_exhaustive()
    }
}

impl<S, K: Clone, T> Layer<T> for FencingLayer<S, K> {
    type Service = FencingService<S, K, T>;

    fn layer(&self, inner: T) -> FencingService<S, K, T> {
        FencingService { layer: self.clone(), inner }
    }
}

/// A service behind a [`FencingLayer`].
pub struct FencingService<S, K, T> {
    layer: FencingLayer<S, K>,
    inner: T,
}

impl<S, K: Clone, T: Clone> Clone for FencingService<S, K, T> {
    fn clone(&self) -> FencingService<S, K, T> {
        FencingService { layer: self.layer.clone(), inner: self.inner.clone() }
    }
}

impl<S, K, T: fmt::Debug> fmt::Debug for FencingService<S, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FencingService { layer, inner } = self;
        f.debug_struct("FencingService").field("layer", layer).field("inner", inner).finish()
    }
}

impl<S, K, T, ReqBody, ResBody> Service<Request<ReqBody>> for FencingService<S, K, T>
where
    S: FenceStore,
    K: Fn(&Parts) -> Option<String>,
    T: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    T::Future: Send,
    ReqBody: Send + 'static,
    ResBody: From<String>,
{
    type Response = Response<ResBody>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResBody>, T::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        // Only this layer may mark a token as checked.
        parts.extensions.remove::<CheckedToken>();
        let resource = (self.layer.resource_of)(&parts);
        // The clone is for later calls; the ready service is called.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let Some(resource) = resource else {
            return Box::pin(inner.call(Request::from_parts(parts, body)));
        };
        let store = self.layer.store.clone();
        let required = self.layer.required;
        Box::pin(async move {
            match admit(&*store, required, &parts, resource).await {
                Ok(checked) => {
                    if let Some(checked) = checked {
                        parts.extensions.insert(checked);
                    }
                    inner.call(Request::from_parts(parts, body)).await
                }
                Err(problem) => Ok(problem.into_response()),
            }
        })
    }
}

/// Decides about a request for a guarded resource.
async fn admit<S: FenceStore>(
    store: &S,
    required: Required,
    parts: &Parts,
    resource: String,
) -> Result<Option<CheckedToken>, Problem> {
    let holder = Holder::of(&parts.headers).map_err(|error| Problem::malformed(&error))?;
    let reads = parts.method.is_safe();
    let Some(holder) = holder else {
        let missing = match required {
            Required::ForWrites => !reads,
            Required::Always => true,
            Required::Never => false,
        };
        return if missing { Err(Problem::required()) } else { Ok(None) };
    };
    let answer = match &holder {
        Holder::Exclusive(proof) => store.seal(&resource, proof).await,
        Holder::Shared(proof) if reads => store.check(&resource, proof).await,
        Holder::Shared(proof) => return Err(Problem::shared_writer(proof.token())),
    };
    match answer {
        Ok(()) => Ok(Some(CheckedToken { resource: resource.into(), holder })),
        Err(error) => {
            if !error.is_refusal() {
                tracing::error!(%error, "a fence failed, and its request was not carried out");
            }
            Err(Problem::of(&error, holder.token()))
        }
    }
}
