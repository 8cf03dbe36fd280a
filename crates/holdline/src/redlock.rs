//! What operators do with a quorum of Redis servers: set it up, look at it, take a node in again.
//!
//! Its locks are those of a [`Client`](crate::Client) by `redlock://one,two,three`; what is here holds
//! none. What the states mean is in `docs/cli.md`, the protocol in `docs/quorum.md`.
//!
//! ```no_run
//! # async fn example() -> Result<(), holdline::LockError> {
//! let admin = holdline::redlock::admin("redlock://one,two,three")?;
//! let status = admin.init().await?;
//! println!("{} of {} nodes vote", status.votes, status.nodes.len());
//! # Ok(())
//! # }
//! ```

pub use holdline_redis::{
    NodeState, NodeStatus, QuorumAdmin, QuorumEngine, QuorumOptions, QuorumStatus,
};

use crate::engines::clock;
use crate::{ClockKind, LockError};

/// Looks after the set that a URL names, with the machine's clock. Nothing is connected yet.
///
/// # Errors
/// `Invalid`: the URL is wrong.
pub fn admin(url: &str) -> Result<QuorumAdmin, LockError> {
    QuorumAdmin::new(&QuorumOptions::from_url(url)?, clock(ClockKind::Boottime, "redlock")?)
}

/// The same for settings that no URL has, such as the longest lease of a set that is to be founded.
///
/// # Errors
/// `Invalid`: an option is wrong. `Refused`: the machine gives no timer.
pub fn admin_with(options: &QuorumOptions) -> Result<QuorumAdmin, LockError> {
    QuorumAdmin::new(options, clock(ClockKind::Boottime, "redlock")?)
}
