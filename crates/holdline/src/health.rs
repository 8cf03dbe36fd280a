//! Whether a store is fit for locks: a check on demand, and the state of a quorum's nodes.
//!
//! [`checkup`] examines the store of a URL, as `holdline doctor` does. It takes no lock. A client
//! of a quorum also learns the state of the nodes from the answers that it gets anyway: its
//! [`Observer`](crate::Observer) receives each [`QuorumHealth`]. A program that makes the engine
//! itself passes the engine's [`HealthFeed`] to
//! [`ClientOptions::with_quorum_health`](crate::ClientOptions::with_quorum_health).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdline::LockError> {
//! use holdline::health::{Health, checkup};
//!
//! let checkup = checkup("memory:").await?;
//! assert_eq!(checkup.health(), Health::Ok);
//! # Ok(())
//! # }
//! ```

pub use holdline_core::{Checkup, Finding, Health, HealthFeed, NodeHealth, QuorumHealth};

pub use crate::engines::checkup;
