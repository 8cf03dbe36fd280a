//! What operators do with a quorum of Redis servers: set it up, look at it, replace a node.
//!
//! Its locks are those of a [`Client`](crate::Client) by `redlock://one,two,three`; what is here holds
//! none. What the states mean is in `docs/cli.md`, the protocol in `docs/quorum.md`.
//!
//! ```no_run
//! # async fn example() -> Result<(), holdline::LockError> {
//! let admin = holdline::redlock::admin("redlock://one,two,three")?;
//! admin.init().await?;
//! // These servers are new: nothing is held on them, so nobody has to wait.
//! let status = admin.vouch().await?;
//! println!("{} of {} nodes vote", status.votes, status.nodes.len());
//! # Ok(())
//! # }
//! ```

pub use holdline_redis::{
    NodeState, NodeStatus, QuorumAdmin, QuorumEngine, QuorumOptions, QuorumStatus, Replacement,
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

/// Connects for programs that only show how names stand: nothing of the set is changed, whatever is
/// seen.
///
/// # Errors
/// As for [`QuorumEngine::connect`].
pub async fn only_looking(url: &str) -> Result<QuorumEngine, LockError> {
    let options = QuorumOptions::from_url(url)?.with_only_looking();
    QuorumEngine::connect(&options, clock(ClockKind::Boottime, "redlock")?).await
}

/// The same as [`admin`] with settings of code.
///
/// # Errors
/// `Invalid`: an option is wrong. `Refused`: the machine gives no timer.
pub fn admin_with(options: &QuorumOptions) -> Result<QuorumAdmin, LockError> {
    QuorumAdmin::new(options, clock(ClockKind::Boottime, "redlock")?)
}
