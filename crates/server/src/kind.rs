//! The words by which programs distinguish problems. They are a part of the API.

use serde::Serialize;
use utoipa::ToSchema;

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request cannot be read.
    BadRequest,
    /// A field has a wrong value.
    Invalid,
    /// Nobody whom the server knows.
    Unauthenticated,
    /// A right is missing.
    Forbidden,
    /// The request is for another server.
    WrongHost,
    /// Another server has opened the session.
    OtherServer,
    /// The client has closed its side of the connection while it waited.
    ClientGone,
    /// The request is from a page of another origin.
    WrongOrigin,
    /// There is no such path, session or freeze.
    NotFound,
    /// The path has other methods.
    MethodNotAllowed,
    /// The body or the headers are too large.
    TooLarge,
    /// The body did not arrive in time.
    TooSlow,
    /// The body is not JSON.
    NotJson,
    /// A limit is reached.
    TooMany,
    /// The server stops.
    Stopping,
    /// The store cannot do that.
    Unsupported,
    /// The fencing token is not that of a holder.
    Stale,
    /// The store did not answer.
    Unavailable,
    /// The lease is over.
    Lost,
    /// Another client holds the lock, or waits for it.
    Busy,
    /// The wait ran out.
    TimedOut,
    /// The lease id was given up.
    Cancelled,
    /// The store lost its memory, and grants nothing for a while.
    Quarantined,
    /// Too few nodes answer.
    NoQuorum,
    /// The store is not set up for locks.
    NotInitialised,
    /// Something else stands under the name.
    Foreign,
    /// The store refused.
    Refused,
    /// The store gave no valid answer.
    Protocol,
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LostWord {
    /// Its time was over.
    Expired,
    /// The store does not know it.
    Missing,
    /// An operator revoked it.
    Revoked,
    /// It was released.
    Released,
    /// Something else.
    Other,
}

impl Kind {
    /// Returns the word, as it is sent.
    pub fn word(self) -> &'static str {
        match self {
            Kind::BadRequest => "bad_request",
            Kind::Invalid => "invalid",
            Kind::Unauthenticated => "unauthenticated",
            Kind::Forbidden => "forbidden",
            Kind::WrongHost => "wrong_host",
            Kind::OtherServer => "other_server",
            Kind::ClientGone => "client_gone",
            Kind::WrongOrigin => "wrong_origin",
            Kind::NotFound => "not_found",
            Kind::MethodNotAllowed => "method_not_allowed",
            Kind::TooLarge => "too_large",
            Kind::TooSlow => "too_slow",
            Kind::NotJson => "not_json",
            Kind::TooMany => "too_many",
            Kind::Stopping => "stopping",
            Kind::Unsupported => "unsupported",
            Kind::Stale => "stale",
            Kind::Unavailable => "unavailable",
            Kind::Lost => "lost",
            Kind::Busy => "busy",
            Kind::TimedOut => "timed_out",
            Kind::Cancelled => "cancelled",
            Kind::Quarantined => "quarantined",
            Kind::NoQuorum => "no_quorum",
            Kind::NotInitialised => "not_initialised",
            Kind::Foreign => "foreign",
            Kind::Refused => "refused",
            Kind::Protocol => "protocol",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_sent_as_its_word() {
        for kind in [Kind::BadRequest, Kind::Busy, Kind::NotInitialised, Kind::TimedOut] {
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.word());
        }
    }
}
