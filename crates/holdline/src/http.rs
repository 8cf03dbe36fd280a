//! Locks of a Holdline server: `https://host`, or `http://host` without TLS.
//!
//! `docs/server.md` of the repository is the page for users.

pub use holdline_http::{HttpEngine, HttpOptions};
