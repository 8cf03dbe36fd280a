//! The description of the API as OpenAPI 3.1, made of the code.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use holdline_core::ContractTimes;
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
    servers(
        (url = "/", description = "The default store"),
        (
            url = "/stores/{store}",
            description = "A store that has a name",
            variables(("store" = (default = "default", description = "The name of the store")))
        )
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
    // Strings, numbers and lists always encode.
    let text = Document::openapi().to_pretty_json().unwrap_or_default();
    with_times(&text, &ContractTimes::DEFAULT) + "\n"
}

pub(crate) async fn show() -> impl IntoResponse {
    let text = Document::openapi().to_json().unwrap_or_default();
    ([(CONTENT_TYPE, "application/json")], with_times(&text, &ContractTimes::DEFAULT))
}

/// Writes the times of the contract where `@default_lease@` and the like stand.
fn with_times(text: &str, times: &ContractTimes) -> String {
    times.fill(text, |time| format!("{} s", time.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_description_has_the_times_of_the_contract() {
        let (usual, default_lease) = (document(), Duration::from_millis(17_500));
        let text = Document::openapi().to_pretty_json().expect("JSON");
        let text = with_times(&text, &ContractTimes { default_lease, ..ContractTimes::DEFAULT });
        let old = format!("{} s unless set", ContractTimes::DEFAULT.default_lease.as_secs_f64());
        let places = usual.matches(&old).count();
        assert!(places >= 3, "{places}");
        let count = (text.matches(&old).count(), text.matches("17.5 s unless set").count());
        assert_eq!(count, (0, places));
        assert!(!usual.contains("_lease@"), "{usual}");
    }
}
