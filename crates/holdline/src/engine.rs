//! The contract between the library and an engine: for programs that bring their own engine.
//!
//! An [`Engine`] adapts one store. [`Client::connect`](crate::Client::connect) makes one from a
//! URL; [`Client::with_options`](crate::Client::with_options) takes one that the program has made:
//! with options that a URL cannot express, with a layer around it, or an engine of its own. What a
//! store can do is in its [`Capabilities`]. The crate `holdline-core` has the rest of the contract,
//! and `docs/adding-an-engine.md` of the repository is the guide.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use holdline::clock::{ClockKind, SystemClock};
//! use holdline::engine::Engine;
//! use holdline::memory::{MemoryEngine, MemoryOptions};
//! use holdline::{Client, ClientOptions};
//!
//! let clock = Arc::new(SystemClock::new(ClockKind::Monotonic)?);
//! let few_waiters = MemoryOptions::default().with_max_waiters(10);
//! let engine: Arc<dyn Engine> =
//!     Arc::new(MemoryEngine::new("memory:small".to_owned(), clock, &few_waiters));
//! let client = Client::with_options(engine, ClientOptions::default())?;
//! assert!(client.capabilities().fair);
//! # Ok(())
//! # }
//! ```

pub use holdline_core::{Anchor, Capabilities, ClientId, Engine, Entropy, Hold, batch};

pub use crate::engines::missing_feature;
