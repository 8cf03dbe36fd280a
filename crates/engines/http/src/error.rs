//! What failures mean: of a connection, of a response, of the server.

use holdline_core::{Certainty, ErrorKind, Escaped, LockError};
use http::StatusCode;
use serde::Deserialize;

pub(crate) const ENGINE: &str = "http";

/// How much of a server's explanation a message shows, in characters.
const LONGEST_TEXT: usize = 300;

/// What the body of a refusal says about the request.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    certainty: Option<Certainty>,
    detail: String,
    fix: String,
}

impl Problem {
    /// Says which limit of the server is reached. The text may be anybody's: it is cut and escaped.
    fn limit(&self) -> String {
        if self.detail.is_empty() {
            return "the server has too many requests of this client".to_owned();
        }
        let whole = format!("a limit of the server is reached: {}: {}", self.detail, self.fix);
        let shown: String = whole.chars().take(LONGEST_TEXT).collect();
        Escaped(&shown).to_string()
    }
}

/// The server did not answer, and this is what is certain about the request.
pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

/// The response is none that a server gives.
pub(crate) fn protocol(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Protocol { message: message.into() }, certainty)
}

/// The server, or a proxy before it, refused the request by its status. A proxy cannot know what
/// the server did; the server says so in the body.
pub(crate) fn of_status(status: StatusCode, body: &[u8]) -> LockError {
    let says: Problem = serde_json::from_slice(body).unwrap_or_default();
    let is_sure = says.certainty == Some(Certainty::NotApplied);
    let certainty = if is_sure { Certainty::NotApplied } else { Certainty::Unknown };
    let refused = |message: &str| {
        let kind = ErrorKind::Refused { message: message.to_owned() };
        LockError::new(ENGINE, kind, Certainty::NotApplied)
    };
    match status {
        StatusCode::UNAUTHORIZED => refused(
            "the server does not know this client: name the file of its token by `token_file`; \
             over a socket, add its user to `socket.users` of the server",
        ),
        StatusCode::FORBIDDEN => refused("the token lacks the right, or the name's prefix"),
        StatusCode::TOO_MANY_REQUESTS => unavailable(says.limit(), Certainty::NotApplied),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => refused(
            "this is no Holdline server, or one of another version (an etcd cluster is \
                 `etcd://`)",
        ),
        _ if status.is_server_error() => {
            unavailable(format!("the server answered {status}"), certainty)
        }
        _ => protocol(format!("the server answered {status}"), Certainty::NotApplied),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fault_on_the_way_leaves_the_outcome_open() {
        for (status, certainty) in [
            (401, Certainty::NotApplied),
            (403, Certainty::NotApplied),
            (404, Certainty::NotApplied),
            (429, Certainty::NotApplied),
            (503, Certainty::Unknown),
            (500, Certainty::Unknown),
            (502, Certainty::Unknown),
            (504, Certainty::Unknown),
            (418, Certainty::NotApplied),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(of_status(status, b"").certainty(), certainty, "{status}");
        }
        let body = br#"{"status":503,"certainty":"not_applied"}"#;
        let sure = of_status(StatusCode::SERVICE_UNAVAILABLE, body);
        assert_eq!(sure.certainty(), Certainty::NotApplied);
    }

    #[test]
    fn a_limit_is_shown_as_the_server_names_it() {
        let message =
            |body: &str| of_status(StatusCode::TOO_MANY_REQUESTS, body.as_bytes()).to_string();
        let shown = message(r#"{"detail": "2 leases\u001b[2J", "fix": "raise `x`"}"#);
        assert!(shown.contains("2 leases") && shown.contains(": raise `x`"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        let long = message(&format!(r#"{{"detail": "{}"}}"#, "x".repeat(100_000)));
        assert!(long.len() < 2 * LONGEST_TEXT, "{long}");
        for other in ["", "<html>", "[]", "{}"] {
            assert!(message(other).contains("too many requests"), "{other}");
        }
    }
}
