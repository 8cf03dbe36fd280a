//! Fencing over HTTP: the header, and a layer for tower that refuses late requests at the door.
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
//! | 503 | the store of marks cannot be asked now | `urn:holdline:problem:fence-unavailable` |
//! | 500 | the store holds what is not ours | `urn:holdline:problem:fence-damaged` |
//!
//! The body of each is a problem of RFC 9457, `application/problem+json`, with `mine` and `seen`
//! where a token was refused.
//!
//! # What the layer does not do
//! It checks, and then the handler writes: two steps. A handler that is paused between them writes
//! late all the same, over a newer holder's work. To fence the write itself, the handler takes the
//! [`CheckedToken`] from the request and writes by check-and-write under the same mark, such as by
//! `PostgresFence` in its transaction. The layer then refuses most of the late ones early and
//! cheaply, seals for those that read first, and asks for the token where it was forgotten.
//!
//! Invariant F14: what reaches the inner service under a guarded resource was checked, or came
//! without a token where none is required. If the store fails, nothing passes.

mod header;
mod layer;
mod problem;
mod store;

pub use header::{HEADER, Holder, MalformedToken};
pub use layer::{CheckedToken, FencingLayer, FencingService, Required};
#[cfg(feature = "fence-postgres")]
pub use store::PostgresMarks;
pub use store::{FenceStore, MemoryMarks};
