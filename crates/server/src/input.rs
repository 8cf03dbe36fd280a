//! Reading requests: what cannot be read is a problem with the field and the fix.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use holdline_core::{LeaseId, LockName};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::app::App;
use crate::json::Object;
use crate::problem::Problem;

/// A body of JSON. An empty body stands for an empty object.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Body<T>, Problem> {
        let is_json = is_json(&request);
        let limits = &app.limits.config;
        let body = Limited::new(request.into_body(), limits.body_bytes).collect();
        let body =
            timeout(limits.request_timeout(), body).await.map_err(|_| Problem::too_slow())?;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Problem::too_large(limits.body_bytes),
            None => Problem::bad_request("the body broke off"),
        })?;
        let bytes = body.to_bytes();
        if bytes.is_empty() {
            return read(b"{}").map(Body);
        }
        if !is_json {
            return Err(Problem::not_json());
        }
        read(&bytes).map(Body)
    }
}

fn is_json(request: &Request) -> bool {
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.map(|text| text.split(';').next().unwrap_or_default().trim());
    media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case("application/json"))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if let Ok(Object(value)) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    // Once more, now with the path of the field that is wrong.
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let read: Result<Object<T>, _> = serde_path_to_error::deserialize(&mut from);
    let Object(value) = read.map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        match error.classify() {
            serde_json::error::Category::Data => {
                let text = error.to_string();
                Problem::invalid(field_of(&path, &text), text)
            }
            _ => not_json(&error),
        }
    })?;
    from.end().map_err(|error| not_json(&error))?;
    Ok(value)
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("the body is not JSON: {error}"))
}

/// Names the field that is wrong. The path of a missing field is that of what lacks it, and only
/// the text of the error names the field itself.
fn field_of(path: &str, text: &str) -> String {
    let missing = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match (path, missing) {
        (".", missing) => missing.unwrap_or("body").to_owned(),
        (path, Some(missing)) => format!("{path}.{missing}"),
        (path, None) => path.to_owned(),
    }
}

/// A lock name of the path. A slash in it is written as `%2F`.
pub(crate) struct Name(pub(crate) LockName);

impl FromRequestParts<App> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Name, Problem> {
        let path: Result<Path<NameOnly>, PathRejection> =
            Path::from_request_parts(parts, app).await;
        let Path(NameOnly { name }) = path.map_err(|_| not_text())?;
        lock_name(&name).map(Name)
    }
}

#[derive(serde::Deserialize)]
struct NameOnly {
    name: String,
}

/// A lease of the path.
pub(crate) struct LeaseOf(pub(crate) LockName, pub(crate) LeaseId);

#[derive(serde::Deserialize)]
struct NameAndLease {
    name: String,
    lease_id: String,
}

impl FromRequestParts<App> for LeaseOf {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<LeaseOf, Problem> {
        let path: Result<Path<NameAndLease>, PathRejection> =
            Path::from_request_parts(parts, app).await;
        let Path(path) = path.map_err(|_| not_text())?;
        Ok(LeaseOf(lock_name(&path.name)?, lease_id("lease_id", &path.lease_id)?))
    }
}

/// The parameters behind the `?`.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Parameters<T>, Problem> {
        let query: Result<Query<T>, _> = Query::from_request_parts(parts, app).await;
        let Query(query) = query.map_err(|error| Problem::bad_request(error.body_text()))?;
        Ok(Parameters(query))
    }
}

fn not_text() -> Problem {
    Problem::bad_request("the path has percent-encoded bytes that are not UTF-8")
}

/// Reads a lock name.
pub(crate) fn lock_name(text: &str) -> Result<LockName, Problem> {
    LockName::new(text).map_err(|error| Problem::invalid("name", error.to_string()))
}

/// Reads a lease id.
pub(crate) fn lease_id(field: &str, text: &str) -> Result<LeaseId, Problem> {
    text.parse()
        .map_err(|error: holdline_core::LeaseIdError| Problem::invalid(field, error.to_string()))
}
