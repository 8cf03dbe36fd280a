//! The replies of a node: each reply of a script becomes a typed value. A reply of another shape is
//! a `Protocol` error, and foreign data in a key a `Foreign` one.

use std::fmt;
use std::time::Duration;

use holdline_core::quorum::node::Marker;
use holdline_core::quorum::{
    Configuration, MemberState, NodeId, NodeReport, Stamp, VoteRefusal, WriteBackReply,
};
use holdline_core::{Certainty, ErrorKind, FencingToken, HolderSummary, LockError};

use crate::error::{ENGINE, protocol};
use crate::link::Value;
use crate::native::replies::ScriptReply;

pub(crate) use crate::native::{inspected, operated, released};

/// The run of a node's server and its configuration, which a request for a vote must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EpochProof {
    marker: Marker,
    pub(super) text: String,
}

impl EpochProof {
    /// Makes the proof for a node with this marker and the stamp of this configuration.
    pub(crate) fn new(marker: &str, stamp: Stamp) -> EpochProof {
        EpochProof { marker: marker.to_owned(), text: format!("{marker}/{stamp}") }
    }

    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }
}

/// The answer of a node that votes for this request, or why it does not.
pub(crate) type Admitted<T> = Result<T, VoteRefusal>;

/// A node's reply to an acquire.
#[derive(Debug, PartialEq)]
pub(crate) enum VoteReply {
    /// The contender holds the name, and the counter stands at `last`.
    Granted { last: FencingToken },
    /// Another lease id holds it, at most for `left`; `None` if that has no end.
    Busy { holder: Option<Box<HolderSummary>>, left: Option<Duration> },
    /// The node does not vote for this request. Nothing was changed.
    Refused(VoteRefusal),
    /// The contender held the name before, still for `left`, and the counter stands at `last`.
    Held { last: FencingToken, left: Duration },
    /// The contender holds the name for `left` because its lease was healed here. That proves no
    /// token.
    Healed { left: Duration },
    /// The node does not know the lease id of a repeated request.
    Unknown,
    /// The lease id was undone for good, or revoked with the operator's reason.
    Cancelled { revoked: Option<String> },
}

/// A node's reply to one renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeRenewal {
    /// The lease is kept for `left`.
    Kept { left: Duration },
    /// An operator revoked it; `left` is the rest of a polite revocation.
    Revoked { reason: String, left: Duration },
    /// The node does not hold the lease. `free`: nor does any other lease id.
    Gone { free: bool },
}

/// A node's reply to a batch.
pub(super) type BatchReply = Result<Admitted<Vec<Result<NodeRenewal, LockError>>>, LockError>;

/// The record of a holder on a node: proof of the grant.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HolderRecord(Vec<u8>);

/// A node's reply to a handshake.
#[derive(Debug, PartialEq)]
pub(crate) struct HandshakeReply {
    /// `false`: an earlier marker came back, so two servers answer in turn.
    pub(crate) accepted: bool,
    pub(crate) report: NodeReport,
    /// Its clock, in microseconds.
    pub(crate) time_us: u64,
}

impl HolderRecord {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns its token.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        std::str::from_utf8(self.0.get(67..83)?).ok()?.parse().ok()
    }

    /// Returns whether other nodes may be healed with it: not if it was revoked.
    pub(crate) fn heals(&self) -> bool {
        self.0.get(32) == Some(&b'g')
    }
}

impl fmt::Debug for HolderRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Record(…)")
    }
}

/// Reads the reply to an acquire.
pub(crate) fn voted(value: &Value, proof: &EpochProof) -> Result<VoteReply, LockError> {
    let reply = ScriptReply::of(value)?;
    Ok(match reply.status {
        "busy" => VoteReply::Busy { holder: reply.blocker(0)?, left: reply.optional_millis(2)? },
        "barred" => VoteReply::Refused(refusal(&reply, proof)?),
        "held" => {
            let last = reply.text(0)?.parse().map_err(|_| reply.unexpected(0))?;
            VoteReply::Held { last, left: reply.millis(1)? }
        }
        "healed" => VoteReply::Healed { left: reply.millis(0)? },
        "unknown" => VoteReply::Unknown,
        "cancelled" => VoteReply::Cancelled { revoked: optional(&reply, 0)?.map(str::to_owned) },
        _ => VoteReply::Granted { last: counter(&reply)? },
    })
}

/// Reads the reply to a write-back.
pub(crate) fn written(
    value: &Value,
    proof: &EpochProof,
) -> Result<Admitted<WriteBackReply>, LockError> {
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "barred" => refusal(&reply, proof).map(Err),
        "nothing" => Ok(Ok(WriteBackReply::NotHeld)),
        _ => Ok(Ok(WriteBackReply::Counter(counter(&reply)?))),
    }
}

/// Reads the reply to this many renewals.
pub(crate) fn renewed(
    value: &Value,
    proof: &EpochProof,
    requests: usize,
) -> Result<Admitted<Vec<Result<NodeRenewal, LockError>>>, LockError> {
    match value.as_array() {
        Some([first, ..]) if first.as_text().is_some() => barred(value, proof),
        Some(replies) if replies.len() == requests => Ok(Ok(replies.iter().map(renewal).collect())),
        _ => Err(protocol(format!(
            "{requests} renewals were sent, and the reply has another number"
        ))),
    }
}

fn renewal(value: &Value) -> Result<NodeRenewal, LockError> {
    if let Value::Integer(left) = value {
        let left =
            u64::try_from(*left).map_err(|_| protocol("a lease has a negative time left"))?;
        return Ok(NodeRenewal::Kept { left: Duration::from_millis(left) });
    }
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "revoked" => {
            Ok(NodeRenewal::Revoked { reason: reply.text(0)?.to_owned(), left: reply.millis(1)? })
        }
        "gone" => Ok(NodeRenewal::Gone { free: reply.number(0)? == 1 }),
        _ => Err(reply.unknown_status()),
    }
}

/// Reads the record of a holder; `None` if the lease id holds nothing.
pub(crate) fn recorded(value: &Value) -> Result<Option<HolderRecord>, LockError> {
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "record" => {
            let record = reply.part(0)?.as_bytes().ok_or_else(|| reply.unexpected(0))?;
            Ok(Some(HolderRecord(record.to_vec())))
        }
        "nothing" => Ok(None),
        _ => Err(reply.unknown_status()),
    }
}

/// Reads whether the name was free, and the lease was healed.
pub(crate) fn healed(value: &Value, proof: &EpochProof) -> Result<Admitted<bool>, LockError> {
    match value {
        Value::Integer(taken) => Ok(Ok(*taken == 1)),
        _ => barred(value, proof),
    }
}

/// Reads the reply to a handshake.
pub(crate) fn handshake(value: &Value) -> Result<HandshakeReply, LockError> {
    let reply = ScriptReply::of(value)?;
    if reply.status != "greeted" {
        return Err(reply.unknown_status());
    }
    let time_us = reply.number(1)?;
    let quarantine = match optional(&reply, 7)? {
        None => None,
        Some(_) => {
            let left = Duration::from_micros(reply.number(7)?);
            Some((left, optional(&reply, 8)? == Some("1")))
        }
    };
    let report = NodeReport {
        id: node_id(&reply, 2)?.ok_or_else(|| reply.unexpected(2))?,
        previous_id: node_id(&reply, 3)?,
        state: member_state(reply.text(4)?).ok_or_else(|| reply.unexpected(4))?,
        configuration: configuration(&reply)?,
        quarantine,
        measured: Duration::ZERO,
        last_seen_id: None,
        largest: reply.number(9)?,
    };
    Ok(HandshakeReply { accepted: reply.number(0)? == 1, report, time_us })
}

/// Reads whether a command matched the node's state.
pub(crate) fn accepted(value: &Value) -> Result<bool, LockError> {
    match value {
        Value::Integer(accepted) => Ok(*accepted == 1),
        _ => Err(ScriptReply::of(value)?.unknown_status()),
    }
}

/// Reads a reply that is the value of a counter.
fn counter(reply: &ScriptReply<'_>) -> Result<FencingToken, LockError> {
    match (reply.status.len(), reply.parts) {
        (16, []) => reply.status.parse().map_err(|_| reply.unknown_status()),
        _ => Err(reply.unknown_status()),
    }
}

/// Reads a reply that can only say that the node does not vote.
fn barred<T>(value: &Value, proof: &EpochProof) -> Result<Admitted<T>, LockError> {
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "barred" => refusal(&reply, proof).map(Err),
        _ => Err(reply.unknown_status()),
    }
}

/// Derives why a node does not vote from the marker and state that it has.
fn refusal(reply: &ScriptReply<'_>, proof: &EpochProof) -> Result<VoteRefusal, LockError> {
    match (optional(reply, 0)?, optional(reply, 1)?) {
        (Some(marker), Some(status)) if marker == proof.marker() => match member_state(status) {
            Some(MemberState::Voting) => Ok(VoteRefusal::Configuration),
            Some(state) => Ok(VoteRefusal::State(state)),
            None => Err(reply.unexpected(1)),
        },
        _ => Ok(VoteRefusal::Marker),
    }
}

fn optional<'a>(reply: &ScriptReply<'a>, at: usize) -> Result<Option<&'a str>, LockError> {
    match reply.part(at)? {
        Value::Nil => Ok(None),
        value => value.as_text().map(Some).ok_or_else(|| reply.unexpected(at)),
    }
}

fn node_id(reply: &ScriptReply<'_>, at: usize) -> Result<Option<NodeId>, LockError> {
    let text = optional(reply, at)?;
    text.map(|text| text.parse().map_err(|_| reply.unexpected(at))).transpose()
}

fn member_state(status: &str) -> Option<MemberState> {
    Some(match status {
        "blank" => MemberState::Blank,
        "proposed" => MemberState::Proposed,
        "open" => MemberState::Voting,
        "forgot" => MemberState::Recovering,
        "out" => MemberState::Replaced,
        _ => return None,
    })
}

/// Reads the configuration, which must match the stamp next to it.
fn configuration(reply: &ScriptReply<'_>) -> Result<Option<Configuration>, LockError> {
    let Some(text) = optional(reply, 5)? else { return Ok(None) };
    let configuration: Option<Configuration> = text.parse().ok();
    let stamp = optional(reply, 6)?;
    let has_stamp = |one: &Configuration| stamp == Some(one.stamp().to_string().as_str());
    match configuration.filter(has_stamp) {
        Some(configuration) => Ok(Some(configuration)),
        None => {
            let found = "a configuration that this version does not know".to_owned();
            Err(LockError::new(ENGINE, ErrorKind::Foreign { found }, Certainty::NotApplied))
        }
    }
}
