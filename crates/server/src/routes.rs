//! The paths. Those of a store that has a name begin with `/stores/NAME`.

use axum::Router;
use axum::routing::{delete, get, post, put};
use http::Uri;

use crate::app::App;
use crate::problem::Problem;
use crate::shield::Shield;
use crate::{audit, contract, event_stream, health, locks, openapi, operators, sessions, together};

/// Makes the router; `pages` are those that are served beside the API.
pub(crate) fn router(app: &App, pages: Router) -> Router {
    let stores = app.stores().fold(api(app), |router, store| {
        router.nest(&format!("/stores/{}", store.store), api(store))
    });
    stores
        .merge(health(app))
        .merge(pages)
        .fallback(async |uri: Uri| no_route(uri.path()))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(Shield(app.clone()))
}

/// A path that leads nowhere. A plain slash within a lock name divides the path.
fn no_route(path: &str) -> Problem {
    let no_path = || Problem::not_found("no such path or store: see /api/openapi.json");
    let Some((_, name)) = path.split_once("/v1/locks/") else { return no_path() };
    if name.is_empty() {
        return Problem::not_found("the path ends before the lock name");
    }
    if name.contains('/') { no_path().with_slash_hint() } else { no_path() }
}

/// The paths of probes, which need no token.
pub(crate) fn health(app: &App) -> Router {
    let server = Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .with_state(app.clone());
    app.stores().fold(server, |router, store| {
        let of_store = Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::store_readyz));
        router.nest(&format!("/stores/{}", store.store), of_store.with_state(store.clone()))
    })
}

/// The paths of one store.
fn api(app: &App) -> Router {
    Router::new()
        .route("/v1/locks", get(locks::list).post(together::acquire_together))
        .route("/v1/locks/{name}", post(locks::acquire).get(locks::inspect))
        .route("/v1/locks/{name}/leases/{lease_id}", put(locks::renew).delete(locks::release))
        .route("/v1/locks/{name}/revoke", post(operators::revoke))
        .route("/v1/locks/{name}/remove-waiter", post(operators::remove_waiter))
        .route("/v1/locks/{name}/freeze", put(operators::freeze).delete(operators::unfreeze))
        .route("/v1/fence", post(operators::raise_fence))
        .route("/v1/audit", get(audit::list))
        .route("/v1/sessions", post(sessions::open))
        .route("/v1/sessions/{session}", delete(sessions::close))
        .route("/v1/sessions/{session}/heartbeat", post(sessions::heartbeat))
        .route("/v1/events", get(event_stream::events))
        .route("/v1/engine", get(contract::describe))
        .route("/v1/engine/acquire", post(contract::acquire))
        .route("/v1/engine/renew", post(contract::renew))
        .route("/v1/engine/release", post(contract::release))
        .route("/v1/engine/inspect", post(contract::inspect))
        .route("/v1/engine/list", post(contract::list))
        .route("/v1/engine/operate", post(contract::operate))
        .route("/v1/engine/watch", post(contract::watch))
        .route("/api/openapi.json", get(openapi::show))
        .route("/metrics", get(health::metrics))
        .with_state(app.clone())
}
