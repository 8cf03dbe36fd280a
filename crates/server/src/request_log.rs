//! The log of requests: one line each, for those who ask for it (`-v`), and of each wrong proof.
//!
//! - Q1: a line has no secret. Paths may hold ids of leases and sessions, so it has the pattern of
//!   the route, and of its parameters the lock name only; it has no header and no body.
//! - Q2: a line has a largest length, and hostile characters are escaped. Lines that need no right
//!   have a largest number: a client that guesses tokens must not fill a disk.
//! - Q3: a proof that is wrong is logged without `-v` too, with the address that sent it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::MatchedPath;
use http::header::AUTHORIZATION;
use http::{Method, Request, StatusCode};
use parking_lot::Mutex;

use crate::access::{Access, Caller};
use crate::address::ClientAddress;
use crate::identity::Identity;

/// What the lines are filtered by.
const TARGET: &str = "holdline::request";
/// The longest part of a lock name that a line has, in bytes.
const LONGEST_NAME: usize = 200;
/// How many wrong proofs are logged in each window.
const MOST_WRONG: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Counts the lines about wrong proofs.
#[derive(Default)]
pub(crate) struct RequestLog(Mutex<Window>);

#[derive(Default)]
struct Window {
    began: Option<Instant>,
    count: u32,
}

/// Where the handler notes who has sent the request.
#[derive(Clone, Default)]
pub(crate) struct Sender(Arc<OnceLock<Identity>>);

impl Sender {
    pub(crate) fn note(&self, identity: &Identity) {
        // A request has one sender: the first one is right.
        let _ = self.0.set(identity.clone());
    }
}

/// What is known of a request before it is answered.
pub(crate) struct LoggedRequest {
    method: Method,
    /// The lock name as it stands in the path, in use only if lines are wanted.
    name: Option<String>,
    sender: Option<Sender>,
    pub(crate) from: Option<ClientAddress>,
    shows_proof: bool,
    began: Instant,
}

impl LoggedRequest {
    /// Looks at a request, and prepares it to carry who sends it.
    pub(crate) fn of<B>(request: &mut Request<B>, access: &Access) -> LoggedRequest {
        let shows_proof = request.headers().contains_key(AUTHORIZATION)
            || access.proxy_header().is_some_and(|header| request.headers().contains_key(header));
        let caller = request.extensions().get::<Caller>();
        let mut logged = LoggedRequest {
            method: request.method().clone(),
            name: None,
            sender: None,
            from: caller.map(|caller| access.address_of(request.headers(), caller.peer)),
            shows_proof,
            began: Instant::now(),
        };
        if tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            let pattern = request.extensions().get::<MatchedPath>();
            logged.name = pattern.and_then(|pattern| name(pattern.as_str(), request.uri().path()));
            let sender = Sender::default();
            request.extensions_mut().insert(sender.clone());
            logged.sender = Some(sender);
        }
        logged
    }

    pub(crate) fn took(&self) -> Duration {
        self.began.elapsed()
    }
}

impl RequestLog {
    /// Writes the lines about a request that is answered. `path` is the pattern of its route.
    pub(crate) fn write(&self, logged: &LoggedRequest, path: &str, status: StatusCode) {
        let Some(from) = logged.from else { return };
        // A form has its token in the body.
        let is_wrong = logged.shows_proof || logged.method == Method::POST;
        if status == StatusCode::UNAUTHORIZED && is_wrong {
            self.write_wrong(logged, path, from);
        }
        let Some(sender) = &logged.sender else { return };
        let method = &logged.method;
        let status = status.as_u16();
        let name = logged.name.as_deref().unwrap_or_default();
        let who = sender.0.get().map(Identity::name).unwrap_or_default();
        let ms = logged.took().as_millis();
        tracing::info!(target: TARGET, %method, path, name, status, ms, who, %from);
    }

    fn write_wrong(&self, logged: &LoggedRequest, path: &str, from: ClientAddress) {
        let mut window = self.0.lock();
        let now = Instant::now();
        if window.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            let unwritten = window.count.saturating_sub(MOST_WRONG);
            if unwritten > 0 {
                tracing::warn!(target: TARGET, unwritten, "more wrong proofs were sent");
            }
            *window = Window { began: Some(now), count: 0 };
        }
        window.count = window.count.saturating_add(1);
        if window.count <= MOST_WRONG {
            let method = &logged.method;
            tracing::warn!(target: TARGET, %from, %method, path, "a wrong proof was sent, or none");
        }
    }
}

/// Finds the lock name of a path, as it stands there.
fn name(pattern: &str, path: &str) -> Option<String> {
    let mut parts = pattern.split('/').zip(path.split('/'));
    let (_, name) = parts.find(|(pattern, _)| *pattern == "{name}")?;
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    Some(name[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_path_only_the_name_is_kept() {
        let lease = "/v1/locks/{name}/leases/{lease_id}";
        let long = "x".repeat(1_000);
        for (pattern, path, kept) in [
            (lease, "/v1/locks/a%2Fb/leases/s3cret", Some("a%2Fb")),
            ("/stores/eu/v1/locks/{name}", "/stores/eu/v1/locks/a", Some("a")),
            ("/v1/sessions/{session}", "/v1/sessions/s3cret", None),
            ("/v1/locks/{name}", &format!("/v1/locks/{long}"), Some(&long[..LONGEST_NAME])),
        ] {
            assert_eq!(name(pattern, path).as_deref(), kept);
        }
    }
}
