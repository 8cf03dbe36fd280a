//! Whether the server and its store are well.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use holdline_core::{Certainty, LockName};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::access::{Identity, Right};
use crate::app::App;
use crate::json::Json;
use crate::problem::{Problem, ProblemBody};

/// How long the store may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// A name to look at; nobody need hold it.
const ANY_NAME: &str = "holdline/ready";

/// All is well.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WellBody {
    /// `ok`.
    status: &'static str,
}

const WELL: Json<WellBody> = Json(WellBody { status: "ok" });

/// Reports that the process runs.
#[utoipa::path(
    get, path = "/healthz", tag = "health",
    responses(
        (status = 200, body = WellBody, description = "The process runs"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn healthz() -> Json<WellBody> {
    WELL
}

/// Reports whether the server takes requests: its stores answer, and it is not stopping.
///
/// Below `/stores/NAME` it reports about that store only.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, body = WellBody, description = "Ready"),
        (status = 503, body = ProblemBody, description = "The store does not answer, or the server \
         is stopping", content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Json<WellBody>, Problem> {
    if app.stopping.is_cancelled() {
        return Err(Problem::stopping(Certainty::NotApplied));
    }
    let name = LockName::new(ANY_NAME).map_err(|error| Problem::bad_request(error.to_string()))?;
    let stores = app.stores().map(|app| is_ready(app, &name));
    let all = join_all(stores).await.into_iter().all(|ready| ready);
    if all { Ok(WELL) } else { Err(Problem::not_ready()) }
}

async fn is_ready(app: &App, name: &LockName) -> bool {
    let answer = timeout(ANSWER, app.client.admin().inspect(name)).await;
    app.metrics.store_up(&app.store, matches!(answer, Ok(Ok(_))));
    match answer {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            tracing::warn!(store = %app.store, %error, "the store is not ready");
            false
        }
        Err(_) => {
            tracing::warn!(store = %app.store, "the store does not answer");
            false
        }
    }
}

/// Shows the metrics as Prometheus reads them.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses(
        (status = 200, body = String, description = "The metrics",
         content_type = "application/openmetrics-text"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn metrics(
    State(app): State<App>,
    identity: Identity,
) -> Result<Response, Problem> {
    identity.may(Right::View)?;
    let (waiting, streams) = app.limits.counts();
    let sessions = app.stores().map(|app| app.life.lock().session_count()).sum();
    let text = app.metrics.text(waiting, streams, sessions);
    let text = text.ok_or_else(|| Problem::bad_request("the metrics cannot be written"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response())
}
