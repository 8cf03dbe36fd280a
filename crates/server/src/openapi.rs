//! The description of the API as OpenAPI 3.1, made of the code.

use axum::Json;
use utoipa::OpenApi;

use crate::{events, health, locks, operators, sessions};

/// Locks over HTTP for programs in any language. Names in paths are percent-encoded, a slash as
/// `%2F`. Errors are problem details (RFC 9457). Fencing tokens are strings.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdline",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    paths(
        locks::acquire,
        locks::renew,
        locks::release,
        locks::inspect,
        locks::list,
        operators::revoke,
        operators::freeze,
        operators::unfreeze,
        operators::raise_fence,
        sessions::open,
        sessions::heartbeat,
        sessions::close,
        events::events,
        health::healthz,
        health::readyz,
        health::metrics,
    )
)]
struct Document;

/// Returns the description of the API as JSON text.
pub fn document() -> String {
    let document = Document::openapi();
    // Strings, numbers and lists always encode.
    document.to_pretty_json().unwrap_or_default() + "\n"
}

pub(crate) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
