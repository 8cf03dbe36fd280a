//! What a client knows of a set: its configuration, and which nodes vote.

use std::sync::Arc;

use holdline_core::Moment;
use holdline_core::quorum::{Configuration, majority};

use super::not_voting::NotVoting;
use super::outcome::NodeOutcome;
use super::replies::EpochProof;

/// The membership as this client last saw it.
#[derive(Debug)]
pub(super) struct MembershipView {
    pub(super) configuration: Configuration,
    pub(super) nodes: Vec<Eligibility>,
    /// The nodes' clock, in microseconds, at a moment of ours.
    pub(super) clock: (Moment, u64),
}

/// Whether a node votes: the proof that a request for its vote must have, or why it does not.
pub(super) type Eligibility = Result<Arc<EpochProof>, NotVoting>;

impl MembershipView {
    /// Returns whether a majority votes.
    pub(super) fn has_majority(&self) -> bool {
        let votes = self.nodes.iter().filter(|node| node.is_ok()).count();
        votes >= majority(self.nodes.len())
    }

    /// Returns whether a node votes that did not before.
    pub(super) fn has_new_voter(&self, before: &MembershipView) -> bool {
        let mut nodes = before.nodes.iter().zip(&self.nodes);
        nodes.any(|(before, now)| before.is_err() && now.is_ok())
    }

    /// Returns the outcomes of a request before its first answer: why some nodes are not asked.
    pub(super) fn outcomes(&self, now: Moment) -> Vec<NodeOutcome> {
        let outcome = |node: &Eligibility| match node {
            Ok(_) => NodeOutcome::Open,
            Err(why) => NodeOutcome::NotAsked(why.describe(now)),
        };
        self.nodes.iter().map(outcome).collect()
    }

    /// Returns the nodes' clock now, in microseconds.
    pub(super) fn time_us(&self, now: Moment) -> u64 {
        let (at, time_us) = self.clock;
        let since = u64::try_from(at.until(now).as_micros()).unwrap_or(u64::MAX);
        time_us.saturating_add(since)
    }
}
