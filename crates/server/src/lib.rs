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
//! `contract` for the engine protocol, `access`, `certificate`, `proxy` and `address` for who
//! sends a request, `identity` and `rights` for what they may do, `shield` and `hosts` for what
//! every request passes, `limits` and `held` for how much of it, `events` and `event_stream` for
//! what happens, `audit` for who did what, `request_log` for who asked what, `serve`,
//! `local_socket` and `probes` for connections, `config` and `config_check` for the settings,
//! `handle` for pages that are served beside the API.

mod access;
mod address;
mod app;
mod attempt;
mod audit;
mod certificate;
mod config;
mod config_check;
mod contract;
mod count;
mod event_stream;
mod events;
mod grant;
mod handle;
mod health;
mod held;
mod hosts;
mod identity;
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
mod rights;
mod routes;
mod serve;
mod sessions;
mod shield;
mod store_health;
mod tls;
mod together;
mod views;
mod watched;

pub use access::TokenDigest;
pub use config::{ConfigError, DEFAULT_STORE, ServerConfig};
pub use handle::{Login, ServerHandle, StoreHandle};
pub use identity::Identity;
pub use kind::Kind;
pub use limits::Counted;
pub use openapi::document;
pub use problem::Problem;
pub use rights::Right;
pub use serve::{Reloader, Server, ServerError};
