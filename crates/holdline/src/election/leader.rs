//! What observers see of a leader.

use std::time::SystemTime;

use holdline_core::{FencingToken, HolderSummary};

/// A leader, as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    term: FencingToken,
    value: String,
    since: Option<SystemTime>,
    host: String,
}

impl Leader {
    /// Makes it of a holder; `None` for a holder without a token, which has no term.
    pub(super) fn of(holder: &HolderSummary) -> Option<Leader> {
        let fields = holder.metadata.fields();
        Some(Leader {
            term: holder.token?,
            value: fields.value,
            since: holder.held_for.and_then(|held_for| SystemTime::now().checked_sub(held_for)),
            host: fields.host,
        })
    }

    pub(super) fn with_value(mut self, value: String) -> Leader {
        self.value = value;
        self
    }

    /// Returns the term: the fencing token of the leader's grant. A later leader has a larger one.
    pub fn term(&self) -> FencingToken {
        self.term
    }

    /// Returns what the leader proclaims; empty if it proclaims nothing.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns since when it leads, by the clock of this machine, if the engine reports it. It is
    /// for people: decide nothing by it.
    pub fn since(&self) -> Option<SystemTime> {
        self.since
    }

    /// Returns the name of its machine, as the leader reports it; empty if it does not.
    pub fn host(&self) -> &str {
        &self.host
    }
}
