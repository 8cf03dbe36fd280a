//! Fencing over HTTP: the header, and a layer for tower that refuses late requests before the
//! handler runs.
//!
//! ```text
//! Holdline-Fencing-Token: 34            the request of an exclusive holder: raises the mark
//! Holdline-Fencing-Token: 34;shared     the request of a shared holder: is checked only
//! ```
//!
//! | answer | when | type of the problem |
//! |---|---|---|
//! | 412 | a newer holder was here | `urn:holdline:problem:stale-fencing-token` |
//! | 428 | the header is required and absent | `urn:holdline:problem:fencing-token-required` |
//! | 400 | it is not as above, or there are several | `urn:holdline:problem:malformed-fencing-token` |
//! | 403 | a shared holder writes; the rules refuse the token | `urn:holdline:problem:fencing-token-refused` |
//! | 503 | the store of marks is unavailable | `urn:holdline:problem:fence-unavailable` |
//! | 500 | the store has foreign or damaged data | `urn:holdline:problem:fence-damaged` |
//!
//! The body of each is a problem of RFC 9457, `application/problem+json`, with `mine` and `seen` if
//! a token was refused.
//!
//! # What the layer does not do
//! The check and the handler's write are two steps. A handler that is paused between them still
//! writes late, over a newer holder's work. To fence the write itself, the handler takes the
//! [`CheckedToken`] from the request and uses check-and-write under the same mark, for example with
//! `PostgresFence` in its transaction. The layer then refuses most late requests early and cheaply,
//! seals for requests that read first, and requires the token if it is missing.
//!
//! Invariant F14: a request for a guarded resource reaches the inner service only if it was
//! checked, or if it has no token and none is required. If the store fails, no request passes.

mod header;
mod layer;
mod problem;
mod store;

pub use header::{HEADER, Holder, MalformedToken};
pub use layer::{CheckedToken, FencingLayer, FencingService, Required};
#[cfg(feature = "postgres")]
pub use store::PostgresMarks;
pub use store::{FenceStore, MemoryMarks};
