//! The description of the API as OpenAPI 3.1, made of the code.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use holdline_core::ContractTimes;
use holdline_core::name::MAX_NAME_BYTES;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, RefOr, Required};
use utoipa::{Modify, OpenApi};

use crate::{audit, event_stream, health, locks, operators, sessions, together};

/// Locks over HTTP for programs in any language. Names in paths are percent-encoded, a slash as
/// `%2F`. Errors are problem details (RFC 9457). Fencing tokens are numbers below 2^53.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdline",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    modifiers(&Forms),
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
        together::acquire_together,
        operators::revoke,
        operators::remove_waiter,
        operators::freeze,
        operators::unfreeze,
        operators::raise_fence,
        audit::list,
        sessions::open,
        sessions::heartbeat,
        sessions::close,
        event_stream::events,
        health::healthz,
        health::readyz,
        health::metrics,
    )
)]
struct Document;

/// Adds what the types do not say: the forms of names and ids in paths and headers, and which
/// bodies may be absent.
struct Forms;

impl Modify for Forms {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.take().unwrap_or_default();
        for item in document.paths.paths.values_mut() {
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                give_forms(operation);
                free_body(operation, &components);
            }
        }
        document.components = Some(components);
        give_security(document);
    }
}

/// Says how a client proves who it is. A server without authentication asks for nothing.
fn give_security(document: &mut utoipa::openapi::OpenApi) {
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.description = Some("A token of the server's settings".to_owned());
    let certificate = "A client certificate that the server's settings name";
    let certificate = SecurityScheme::MutualTls {
        description: Some(certificate.to_owned()),
        extensions: None,
        deprecated: None,
    };
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    components.add_security_scheme("certificate", certificate);
    let none: [&str; 0] = [];
    let any = ["bearer", "certificate"].map(|scheme| SecurityRequirement::new(scheme, none));
    document.security = Some(any.into_iter().chain([SecurityRequirement::default()]).collect());
    for path in ["/healthz", "/readyz"] {
        let item = document.paths.paths.get_mut(path);
        if let Some(operation) = item.and_then(|item| item.get.as_mut()) {
            operation.security = Some(Vec::new());
        }
    }
}

fn give_forms(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let text = ObjectBuilder::new().schema_type(Type::String);
        let text = match parameter.name.as_str() {
            "name" => text
                .min_length(Some(1))
                .max_length(Some(MAX_NAME_BYTES))
                .pattern(Some(r"^[^\x00-\x1f\x7f-\x9f]+$")),
            "cursor" => {
                text.max_length(Some(MAX_NAME_BYTES)).pattern(Some(r"^[^\x00-\x1f\x7f-\x9f]*$"))
            }
            "lease_id" | "session" | "Idempotency-Key" => text.pattern(Some("^[0-9a-f]{32}$")),
            _ => continue,
        };
        parameter.schema = Some(Schema::from(text.build()).into());
    }
}

/// An absent body stands for an empty object.
fn free_body(operation: &mut Operation, components: &Components) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    let schemas = body.content.values().filter_map(|content| match content {
        RefOr::T(content) => content.schema.as_ref(),
        RefOr::Ref(_) => None,
    });
    let mut names = schemas.filter_map(|schema| match schema {
        RefOr::Ref(to) => to.ref_location.rsplit('/').next(),
        RefOr::T(_) => None,
    });
    let has_no_required_field = names.all(|name| match components.schemas.get(name) {
        Some(RefOr::T(Schema::Object(object))) => object.required.is_empty(),
        _ => false,
    });
    if has_no_required_field {
        body.required = Some(Required::False);
    }
}

/// Returns the description of the API as JSON text.
pub fn document() -> String {
    // Strings, numbers and lists always encode.
    let text = Document::openapi().to_pretty_json().unwrap_or_default();
    with_times(&text, &ContractTimes::DEFAULT) + "\n"
}

pub(crate) async fn show() -> impl IntoResponse {
    /// Made once: a client needs no token for it.
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let text = Document::openapi().to_json().unwrap_or_default();
        with_times(&text, &ContractTimes::DEFAULT)
    });
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str())
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
        let usual = document();
        let default_lease = Duration::from_millis(17_500);
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
