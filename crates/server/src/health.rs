//! Whether the server and its stores are well.
//!
//! - Y1: the server looks by itself, so `holdline_store_up` falls in an outage that nobody asks
//!   about.
//! - Y2: a shared store that is away takes no server out of service: all of them would go at once,
//!   and clients would get no answer in place of 503 with its certainty.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use holdline_core::{Certainty, LockName};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::app::App;
use crate::count;
use crate::identity::Identity;
use crate::json::Json;
use crate::metrics::OpenCounts;
use crate::problem::{Problem, ProblemBody};
use crate::rights::Right;

/// How long the store may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How often the server looks by itself.
const LOOK: Duration = Duration::from_secs(5);
/// For how long an answer is not asked for again.
const FRESH: Duration = Duration::from_secs(1);
/// A name to look at; nobody need hold it.
const ANY_NAME: &str = "holdline/ready";

/// All is well.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WellBody {
    /// `ok`.
    status: &'static str,
}

/// The server takes requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReadyBody {
    /// `ok`, or `degraded` while a store is away.
    status: ReadyStatus,
    /// How each store stood when the server looked last.
    stores: BTreeMap<String, StoreState>,
}

/// Whether all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ReadyStatus {
    /// All stores answer.
    Ok,
    /// A store is away.
    Degraded,
}

/// How a store stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StoreState {
    /// It answers.
    Up,
    /// It does not answer.
    Down,
}

impl ReadyBody {
    fn of<'a>(apps: impl IntoIterator<Item = &'a App>) -> ReadyBody {
        let mut stores = BTreeMap::new();
        let mut status = ReadyStatus::Ok;
        for app in apps {
            let is_up = app.health.is_up.load(Relaxed);
            if !is_up {
                status = ReadyStatus::Degraded;
            }
            let state = if is_up { StoreState::Up } else { StoreState::Down };
            stores.insert(app.store.clone(), state);
        }
        ReadyBody { status, stores }
    }
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

/// Reports whether the server takes requests: it is not stopping, and each store has answered since
/// it started.
///
/// A store that is away later changes the body only: another server of the same store would be no
/// better. Below `/stores/NAME` it reports whether that store answers.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, body = ReadyBody, description = "Ready"),
        (status = 503, body = ProblemBody, description = "The server is stopping, or a store has \
         not answered since it started; below `/stores/NAME`, the store does not answer",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Json<ReadyBody>, Problem> {
    if app.draining.is_cancelled() {
        return Err(Problem::stopping(Certainty::NotApplied));
    }
    let have_answered = join_all(app.stores().map(has_answered)).await;
    if !have_answered.into_iter().all(|answered| answered) {
        return Err(Problem::not_ready());
    }
    Ok(Json(ReadyBody::of(app.stores())))
}

/// The same for one store: it must answer now.
pub(crate) async fn store_readyz(State(app): State<App>) -> Result<Json<ReadyBody>, Problem> {
    if app.draining.is_cancelled() {
        return Err(Problem::stopping(Certainty::NotApplied));
    }
    if !look(&app).await {
        return Err(Problem::not_ready());
    }
    Ok(Json(ReadyBody::of([&app])))
}

/// Looks at each store every few seconds, so that an outage is noticed when nobody asks. Runs as
/// long as the server. What they hold is counted rarely.
pub(crate) async fn watch_stores(app: &App) {
    let looks = async {
        loop {
            join_all(app.stores().map(look)).await;
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::join!(looks, join_all(app.stores().map(count::watch)));
}

async fn has_answered(app: &App) -> bool {
    app.health.has_answered.load(Relaxed) || look(app).await
}

/// Asks the store, unless somebody has done so just now. Requests cost it one question a second.
async fn look(app: &App) -> bool {
    let mut last = app.health.last_look.lock().await;
    if last.is_some_and(|last| last.elapsed() < FRESH) {
        return app.health.is_up.load(Relaxed);
    }
    let is_up = match LockName::new(ANY_NAME) {
        Ok(name) => answers(app, &name).await,
        Err(_) => false,
    };
    *last = Some(Instant::now());
    app.health.is_up.store(is_up, Relaxed);
    app.health.has_answered.fetch_or(is_up, Relaxed);
    app.metrics.store_up(&app.store, is_up);
    is_up
}

async fn answers(app: &App, name: &LockName) -> bool {
    let was_up = app.health.is_up.load(Relaxed);
    let store = &app.store;
    match timeout(ANSWER, app.client.admin().inspect(name)).await {
        Ok(Ok(_)) => {
            if !was_up {
                tracing::info!(%store, "the store answers");
            }
            return true;
        }
        Ok(Err(error)) if was_up => tracing::warn!(%store, %error, "the store failed"),
        Err(_) if was_up => tracing::warn!(%store, "the store does not answer"),
        _ => {}
    }
    false
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
    let leases = app.stores().map(|app| app.held.count()).sum();
    let text = app.metrics.text(&OpenCounts { waiting, streams, sessions, leases });
    let text = text.ok_or_else(|| Problem::bad_request("the metrics cannot be written"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response())
}
