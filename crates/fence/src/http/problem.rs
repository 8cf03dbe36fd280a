//! Error responses: problems of RFC 9457.

use ::http::{HeaderValue, Response, StatusCode, header};
use holdline_core::FencingToken;
use serde_json::{Value, json};

use super::MalformedToken;
use crate::{FenceError, StaleToken};

/// An error response.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    mine: Option<FencingToken>,
    seen: Option<FencingToken>,
}

impl Problem {
    pub(super) fn required() -> Problem {
        Problem {
            status: StatusCode::PRECONDITION_REQUIRED,
            kind: "fencing-token-required",
            title: "A fencing token is required",
            detail: "send the token of your lock in the header Holdline-Fencing-Token".to_owned(),
            mine: None,
            seen: None,
        }
    }

    pub(super) fn malformed(error: &MalformedToken) -> Problem {
        Problem {
            status: StatusCode::BAD_REQUEST,
            kind: "malformed-fencing-token",
            title: "The fencing token is malformed",
            detail: error.to_string(),
            mine: None,
            seen: None,
        }
    }

    pub(super) fn shared_writer(mine: FencingToken) -> Problem {
        let detail = "the token is that of a shared holder, who may read only: take the name \
            exclusively to write";
        Problem { mine: Some(mine), ..Problem::refused(detail.to_owned()) }
    }

    fn refused(detail: String) -> Problem {
        Problem {
            status: StatusCode::FORBIDDEN,
            kind: "fencing-token-refused",
            title: "The fencing token is refused",
            detail,
            mine: None,
            seen: None,
        }
    }

    /// Makes the response for an error of the store. Internal details are for the log, not for
    /// callers.
    pub(super) fn of(error: &FenceError, mine: FencingToken) -> Problem {
        let (status, kind, title, detail) = match error {
            FenceError::Stale(StaleToken { seen, .. }) => {
                return Problem {
                    status: StatusCode::PRECONDITION_FAILED,
                    kind: "stale-fencing-token",
                    title: "The fencing token is stale",
                    detail: format!("{error}; take the lock anew and read again"),
                    mine: Some(mine),
                    seen: Some(*seen),
                };
            }
            FenceError::TooFar { seen, .. } => {
                let refused = Problem::refused(error.to_string());
                return Problem { mine: Some(mine), seen: Some(*seen), ..refused };
            }
            FenceError::OtherName { .. } => {
                return Problem { mine: Some(mine), ..Problem::refused(error.to_string()) };
            }
            FenceError::Foreign { .. } => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "fence-damaged",
                "The fence is damaged",
                "what stands in the place of the mark is not a mark; nothing was changed",
            ),
            FenceError::Busy { .. } | FenceError::Write { .. } | FenceError::Failed { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "fence-unavailable",
                "The fence cannot be asked",
                "the store of the marks does not answer now; the request was not carried out",
            ),
        };
        Problem { status, kind, title, detail: detail.to_owned(), mine: Some(mine), seen: None }
    }

    fn body(&self) -> String {
        let mut body = json!({
            "type": format!("urn:holdline:problem:{}", self.kind),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        for (name, token) in [("mine", self.mine), ("seen", self.seen)] {
            if let Some(token) = token {
                body[name] = Value::from(token.get());
            }
        }
        body.to_string()
    }

    pub(super) fn into_response<B: From<String>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.body()));
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
