//! An operator's commands for a quorum of Redis servers: initialise it, inspect it, replace a node.
//!
//! To acquire locks, use a [`Client`](crate::Client) with `redlock://one,two,three`; nothing here
//! holds a lock. `docs/cli.md` explains the states, and `docs/contributing/redlock-protocol.md` the
//! protocol.
//!
//! ```no_run
//! # async fn example() -> Result<(), holdline::LockError> {
//! let admin = holdline::redlock::admin("redlock://one,two,three")?;
//! admin.init().await?;
//! // These servers are new: no lock is held on them, so they need no quarantine.
//! let status = admin.vouch(&admin.plan_vouch().await?).await?;
//! println!("{} of {} nodes vote", status.votes, status.nodes.len());
//! # Ok(())
//! # }
//! ```

pub use holdline_redis::{
    NodeState, NodeStatus, QuorumAdmin, QuorumEngine, QuorumOptions, QuorumStatus, Replacement,
    VouchedServer,
};

use crate::LockError;
use crate::clock::ClockKind;
use crate::engines::clock;

/// Returns an operator's interface to the set at a URL, with the machine's clock. It connects
/// later.
///
/// # Errors
/// `Invalid`: the URL is wrong.
pub fn admin(url: &str) -> Result<QuorumAdmin, LockError> {
    QuorumAdmin::new(&QuorumOptions::from_url(url)?, clock(ClockKind::Boottime, "redlock")?)
}

/// Connects read-only, for programs that only display the state of names: nothing of the set is
/// changed.
///
/// # Errors
/// As for [`QuorumEngine::connect`].
pub async fn read_only(url: &str) -> Result<QuorumEngine, LockError> {
    let options = QuorumOptions::from_url(url)?.with_read_only();
    QuorumEngine::connect(&options, clock(ClockKind::Boottime, "redlock")?).await
}

/// Like [`admin`], with settings in code.
///
/// # Errors
/// `Invalid`: an option is wrong. `Refused`: the machine gives no timer.
pub fn admin_with(options: &QuorumOptions) -> Result<QuorumAdmin, LockError> {
    QuorumAdmin::new(options, clock(ClockKind::Boottime, "redlock")?)
}
