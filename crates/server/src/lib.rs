//! The Holdline server: locks over HTTP for programs in any language.
//!
//! It forwards every request to the library or to the engine of one store, and decides nothing
//! about locks. Leases live in the store, so several servers serve the same locks.
//!
//! - S1: what the API grants is a grant of the library, under the lease id that the answer names.
//! - S2: a lease id that the client chose (`Idempotency-Key`) is given up by the client only. The
//!   server gives up the ids that it drew itself.
//! - S3: a session renews leases when its client sends a heartbeat, and never by itself. So a
//!   client that dies, is stopped or is cut off loses its leases within the session's duration.
//! - S4: no answer contains a path, a secret, or the words of a store.
//!
//! # Reading order
//! `app` for what a request can reach, `routes` for the paths, `locks` and `sessions` for the API,
//! `life` for what becomes of sessions, attempts and grants, `grant` for what is done about it,
//! `contract` for the engine protocol, `access`, `certificate`, `proxy`, `address` and `shield`
//! for who may do what, `limits` and `held` for how much of it, `events` for the stream, `audit`
//! for who did what, `request_log` for who asked what, `serve`, `local_socket` and `probes` for
//! connections, `config` for the settings, `handle` for pages that are served beside the API.

mod access;
mod address;
mod app;
mod attempt;
mod audit;
mod certificate;
mod config;
mod contract;
mod events;
mod grant;
mod handle;
mod health;
mod held;
mod input;
mod json;
mod kind;
mod life;
mod limits;
mod local_socket;
mod locks;
mod metrics;
mod open_access;
mod openapi;
mod operators;
mod peer;
mod probes;
mod problem;
mod proxy;
mod raw_refusal;
mod request_log;
mod routes;
mod serve;
mod sessions;
mod shield;

mod tls;
mod together;
mod views;
mod watched;

pub use access::{Identity, Right, TokenDigest};
pub use app::DEFAULT_STORE;
pub use config::{ConfigError, ServerConfig};
pub use handle::{Login, ServerHandle, StoreHandle};
pub use limits::Counted;
pub use openapi::document;
pub use problem::Problem;
pub use serve::{Reloader, Server, ServerError};
