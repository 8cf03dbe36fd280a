//! Why a node does not vote, what people read about it, and what they can do.
//!
//! No text here advises to delete data. A server that belongs to a set may be the last one that
//! has its data.

use std::fmt;
use std::time::Duration;

use holdline_core::Moment;
use holdline_core::quorum::{MemberState, SetId, VoteRefusal};
use holdline_core::snapshot::coarse;
use serde::Serialize;

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It votes.
    Votes,
    /// It lost its data, or belongs to a set that was just initialised, and is in quarantine.
    Quarantined,
    /// It lost its data, and the others have not agreed to it yet.
    Forgot,
    /// Its slot was given to another server.
    Replaced,
    /// It belongs to no set.
    Blank,
    /// It has another configuration than the others.
    Behind,
    /// The listed servers, or most of them, are not the set that it belongs to.
    Mislisted,
    /// It does not answer, or cannot be used.
    Down,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeState::Votes => "votes",
            NodeState::Quarantined => "quarantined",
            NodeState::Forgot => "forgot",
            NodeState::Replaced => "replaced",
            NodeState::Blank => "blank",
            NodeState::Behind => "behind",
            NodeState::Mislisted => "mislisted",
            NodeState::Down => "down",
        })
    }
}

/// Why a node does not vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotVoting {
    /// It does not answer, or refuses us: the text of the error.
    NoAnswer(String),
    /// Its server was restarted since the last handshake.
    Restarted,
    /// It belongs to another set than the others.
    OtherSet { own: SetId, other: SetId },
    /// The list of servers is wrong: what the node belongs to, and how to correct the list.
    WrongList { belongs: String, fix: &'static str },
    /// It has no slot in the set, and its address is that of no member: the addresses of both.
    NoSlot { lists: String },
    /// It has no slot in the set. It answers at the address of a member, which this client has not
    /// seen there.
    Unconfirmed { is_blank: bool },
    /// It belongs to no set.
    Blank { is_set: bool },
    /// Not all nodes have accepted the initial configuration.
    Proposed,
    /// It has lost its data, and the others have not agreed to it yet.
    NotAgreed,
    /// It is in quarantine, and why.
    Quarantined { until: Option<Moment>, why: QuarantineReason },
    /// It has another configuration than the others.
    OtherConfiguration,
    /// Its slot was given to another node.
    Replaced,
}

/// Why a node is in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuarantineReason {
    /// It has lost its data, and a majority has kept its data.
    DataLoss,
    /// It has lost its data, and no majority has kept its data.
    MajorityLoss,
    /// The set is new, so its servers may have been in use before.
    NewSet,
}

impl NotVoting {
    /// Returns the state that operators see.
    pub(super) fn state(&self) -> NodeState {
        match self {
            NotVoting::NoAnswer(_) | NotVoting::Restarted => NodeState::Down,
            NotVoting::OtherSet { .. } | NotVoting::WrongList { .. } | NotVoting::NoSlot { .. } => {
                NodeState::Mislisted
            }
            NotVoting::Blank { .. } | NotVoting::Unconfirmed { is_blank: true } => NodeState::Blank,
            NotVoting::NotAgreed | NotVoting::Unconfirmed { is_blank: false } => NodeState::Forgot,
            NotVoting::Quarantined { .. } => NodeState::Quarantined,
            NotVoting::Proposed | NotVoting::OtherConfiguration => NodeState::Behind,
            NotVoting::Replaced => NodeState::Replaced,
        }
    }

    /// Describes it, without times.
    pub(super) fn problem(&self) -> String {
        let problem = match self {
            NotVoting::NoAnswer(why) => why,
            NotVoting::Restarted => "was restarted",
            NotVoting::OtherSet { own, other } => {
                return format!("belongs to the set {}, not to {}", other.short(), own.short());
            }
            NotVoting::WrongList { belongs, .. } => belongs,
            NotVoting::NoSlot { lists } => return format!("has no slot in the set: {lists}"),
            NotVoting::Unconfirmed { .. } => {
                "has no data of the set, and this client has not seen the member of this address \
                 before: either it has lost its data, or the address leads to another server"
            }
            NotVoting::Blank { is_set: true } => "knows nothing of the set",
            NotVoting::Blank { is_set: false } => "was never initialised",
            NotVoting::Proposed => "was initialised in part",
            NotVoting::NotAgreed => "has lost its data; the others have not agreed to it yet",
            NotVoting::Quarantined { why, .. } => match why {
                QuarantineReason::DataLoss => "has lost its data, and is in quarantine",
                QuarantineReason::MajorityLoss => {
                    "has lost its data, as a majority has, and is in quarantine"
                }
                QuarantineReason::NewSet => "belongs to a new set, and is in its first quarantine",
            },
            NotVoting::OtherConfiguration => "has another configuration than the others",
            NotVoting::Replaced => "was replaced by another server",
        };
        problem.to_owned()
    }

    /// Describes it, with the rest of a quarantine.
    pub(super) fn describe(&self, now: Moment) -> String {
        match self {
            NotVoting::Quarantined { until: Some(until), .. } => {
                let left = coarse(now.until(*until).max(Duration::from_millis(1)));
                format!("{} for {left} more", self.problem())
            }
            NotVoting::Replaced | NotVoting::Unconfirmed { .. } => {
                format!("{}: `holdline quorum rejoin`", self.problem())
            }
            _ => self.problem(),
        }
    }

    /// Returns how to resolve it.
    pub(super) fn fix(&self) -> Option<&'static str> {
        match self {
            NotVoting::NoAnswer(_) | NotVoting::Restarted | NotVoting::Blank { is_set: false } => {
                None
            }
            NotVoting::OtherSet { .. } => Some(NAME_ITS_SERVERS),
            NotVoting::WrongList { fix, .. } => Some(fix),
            NotVoting::NoSlot { .. } => Some(RELIST),
            NotVoting::Unconfirmed { .. } => Some(CONFIRM),
            NotVoting::Proposed => Some("`holdline quorum init` continues the initialisation"),
            NotVoting::Quarantined { why: QuarantineReason::DataLoss, .. } => Some(WAIT),
            NotVoting::Quarantined { .. } => Some(VOUCH),
            NotVoting::Blank { is_set: true }
            | NotVoting::NotAgreed
            | NotVoting::OtherConfiguration => Some(BY_ITSELF),
            NotVoting::Replaced => Some(REJOIN),
        }
    }
}

impl From<VoteRefusal> for NotVoting {
    fn from(why: VoteRefusal) -> NotVoting {
        match why {
            VoteRefusal::Marker => NotVoting::Restarted,
            VoteRefusal::State(MemberState::Recovering) => {
                NotVoting::Quarantined { until: None, why: QuarantineReason::DataLoss }
            }
            VoteRefusal::State(MemberState::Replaced) => NotVoting::Replaced,
            VoteRefusal::State(MemberState::Proposed) => NotVoting::Proposed,
            VoteRefusal::State(MemberState::Blank | MemberState::Voting) => {
                NotVoting::Blank { is_set: true }
            }
            VoteRefusal::Configuration => NotVoting::OtherConfiguration,
        }
    }
}

/// What an operator can do about a server that has no slot in the set.
pub(super) const RELIST: &str = "Correct the list; or, if a server of the set is gone for good, \
                                 `holdline quorum replace OLD NEW` gives its slot away";
/// What an operator can do about a server of another set.
const NAME_ITS_SERVERS: &str = "name the right server, which belongs to this set or to none";
/// What an operator can do about a server that may be the wrong one.
const CONFIRM: &str = "check that the address leads to the right server from here; then \
                       `holdline quorum rejoin` gives it the slot of that member";
/// A problem that needs no operator.
const BY_ITSELF: &str = "any client resolves it as soon as enough other servers answer; so does \
                         `holdline quorum rejoin`";
/// A quarantine that ends by itself, while a client is at work.
const WAIT: &str = "wait while a client holds or waits for any lock, since clients measure the \
                    quarantine and end it: `holdline run NAME --wait 20m -- sleep 90` is one";
/// A quarantine that an operator may end.
const VOUCH: &str = "wait; or, if you know that no lock is held on these servers, \
                     `holdline quorum vouch` ends the quarantine";
/// How to resolve a server that was replaced.
const REJOIN: &str = "leave it out of the list; or `holdline quorum rejoin` gives it back the slot \
                      of its address, if the set has one, and `holdline quorum replace OLD NEW` \
                      another one";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_advice_destroys_data() {
        let set = holdline_core::quorum::Configuration::initial(&[], Duration::ZERO).set();
        let why = QuarantineReason::NewSet;
        let all = [
            NotVoting::NoAnswer("no answer".to_owned()),
            NotVoting::Restarted,
            NotVoting::OtherSet { own: set, other: set },
            NotVoting::NoSlot { lists: "a, b".to_owned() },
            NotVoting::Unconfirmed { is_blank: true },
            NotVoting::Blank { is_set: true },
            NotVoting::Proposed,
            NotVoting::NotAgreed,
            NotVoting::Quarantined { until: None, why },
            NotVoting::OtherConfiguration,
            NotVoting::Replaced,
        ];
        for one in all {
            let text =
                format!("{} {}", one.describe(Moment::ORIGIN), one.fix().unwrap_or_default());
            let destroys =
                ["delete", "DEL", "FLUSH", "empty"].iter().any(|word| text.contains(word));
            assert!(!destroys, "{text}");
        }
    }
}
