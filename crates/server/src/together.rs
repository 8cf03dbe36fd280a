//! Acquire several names with one request: all of them, or some.
//!
//! - A1: all or none. The answer has a lease for each name that it counts, or it is a problem and
//!   nothing is held.
//! - A2: requests that overlap never wait for each other: each takes its names in byte order.
//! - A3: each grant has a life of its own after the answer: a lease id, a fencing token, a renewal.

use axum::extract::State;
use axum::response::Response;
use holdline_core::LockName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::attempt::{Key, Requester, Terms, Wanted, carry_out};
use crate::input::{Body, lock_name};
use crate::problem::{Problem, ProblemBody};
use crate::views::{AboutBody, LeaseBody};

/// How many names one request has at most.
const MOST_NAMES: usize = 64;

/// Which locks to acquire together, exclusively.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TogetherBody {
    /// The lock names, each once.
    #[schema(min_items = 1, max_items = 64)]
    names: Vec<String>,
    /// How many of the names to acquire; all unless set. With 1, the first that is free.
    #[schema(minimum = 1, maximum = 64)]
    #[serde(default, deserialize_with = "crate::json::maybe")]
    count: Option<usize>,
    /// How long to wait for all of them; 0 does not wait.
    #[schema(minimum = 0, maximum = 86_400_000)]
    #[serde(default, deserialize_with = "crate::json::whole")]
    wait_ms: u64,
    /// How long the store keeps each lease without a renewal; @default_lease@ unless set.
    #[schema(minimum = 50, maximum = 86_400_000)] // MAX_LEASE
    #[serde(default, deserialize_with = "crate::json::maybe")]
    lease_duration_ms: Option<u64>,
    /// The session whose heartbeats renew the leases; then their duration is the session's.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    #[serde(default)]
    session: Option<String>,
    /// What the holder reports about itself.
    #[serde(default, deserialize_with = "crate::json::object")]
    about: AboutBody,
}

/// The leases of several names.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasesBody {
    /// The leases, in the byte order of their names.
    leases: Vec<LeaseBody>,
}

/// Acquires several locks together, or waits for them: all that are asked for, or none.
///
/// It holds the first names while it waits for the next ones. Closing the connection releases them.
#[utoipa::path(
    post, path = "/v1/locks", tag = "locks", operation_id = "acquire_together",
    request_body = TogetherBody,
    responses(
        (status = 200, body = LeasesBody, description = "The locks are held"),
        (status = 423, body = ProblemBody, description = "A lock is held by somebody else \
         (`busy`), or was so until the wait ran out (`timed_out`). None is held",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn acquire_together(
    State(app): State<App>,
    from: Requester,
    key: Key,
    Body(body): Body<TogetherBody>,
) -> Result<Response, Problem> {
    let names = names_of(&body.names)?;
    let count = body.count.unwrap_or(names.len());
    if !(1..=names.len()).contains(&count) {
        let detail = format!("must be from 1 to {}, the number of names", names.len());
        return Err(Problem::invalid("count", detail));
    }
    let TogetherBody { wait_ms, lease_duration_ms, session, about, .. } = body;
    let terms = Terms { wait_ms, lease_duration_ms, session, about };
    let wanted = Wanted::together(&app, names, count, key, terms)?;
    carry_out(&app, from, wanted, |mut leases| {
        leases.sort_by(|one, other| one.name.cmp(&other.name));
        Some(LeasesBody { leases })
    })
    .await
}

/// Reads the names.
fn names_of(texts: &[String]) -> Result<Vec<LockName>, Problem> {
    if !(1..=MOST_NAMES).contains(&texts.len()) {
        let detail = format!("must have from 1 to {MOST_NAMES} names");
        return Err(Problem::invalid("names", detail));
    }
    let mut names = Vec::with_capacity(texts.len());
    for (number, text) in texts.iter().enumerate() {
        let name = lock_name(text)
            .map_err(|problem| Problem::invalid(format!("names[{number}]"), problem.detail()))?;
        if names.contains(&name) {
            let detail = "is listed before: list each name once";
            return Err(Problem::invalid(format!("names[{number}]"), detail));
        }
        names.push(name);
    }
    Ok(names)
}
