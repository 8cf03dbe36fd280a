//! What a node answers: each reply of a script becomes a typed value, and what has another shape is
//! a `Protocol` error. What stands in a key and is not ours is a `Foreign` one.

use std::fmt;
use std::time::Duration;

use holdline_core::quorum::{Barred, Configuration, Gate, NodeId, Stamp, View, Written};
use holdline_core::{Certainty, ErrorKind, FencingToken, HolderSummary, LockError};

use super::requests::Pass;
use crate::error::{ENGINE, protocol};
use crate::native::replies::Reply;
use crate::node::Value;

pub(crate) use crate::native::{inspected, operated, released};

/// What only a node that votes for who asks answers; else why it does not.
pub(crate) type Admitted<T> = Result<T, Barred>;

/// How a node answers who asks for a name.
#[derive(Debug, PartialEq)]
pub(crate) enum Voted {
    /// The name is the contender's, and its counter stands there.
    Granted { last: FencingToken },
    /// Another lease id has it, for so long at most; `None` where nothing ends that.
    Busy { holder: Option<Box<HolderSummary>>, left: Option<Duration> },
    /// The node does not vote for who asks. Nothing was changed.
    Barred(Barred),
    /// The name is the contender's since before, for so long, and its counter stands there.
    Held { last: FencingToken, left: Duration },
    /// The name is the contender's because its lease was healed here, for so long. That proves no
    /// token.
    Healed { left: Duration },
    /// The lease id was to be known, and is not.
    Unknown,
    /// The lease id was given up for good, or, with the operator's words, revoked.
    Cancelled { revoked: Option<String> },
}

/// How a node answers who renews a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    /// It is kept for so long.
    Kept { left: Duration },
    /// An operator took it away, politely with what is left of it.
    Revoked { reason: String, left: Duration },
    /// The node has nothing of it. `free`: nobody else has the name there.
    Gone { free: bool },
}

/// All that a node keeps of a holder: proof of the grant.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Record(Vec<u8>);

/// What a node says of itself.
#[derive(Debug, PartialEq)]
pub(crate) struct Greeted {
    /// `false`: the marker before the last came back, so two servers answer in turn.
    pub(crate) accepted: bool,
    pub(crate) view: View,
    /// What its clock says, in µs.
    pub(crate) time_us: u64,
}

impl Record {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its token.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        std::str::from_utf8(self.0.get(67..83)?).ok()?.parse().ok()
    }

    /// Tells whether other nodes may take the name by it: not when it was revoked.
    pub(crate) fn heals(&self) -> bool {
        self.0.get(32) == Some(&b'g')
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Record(…)")
    }
}

/// Reads the reply to an acquire.
pub(crate) fn voted(value: &Value, pass: &Pass) -> Result<Voted, LockError> {
    let reply = Reply::of(value)?;
    match reply.word {
        "busy" => Ok(Voted::Busy { holder: reply.blocker(0)?, left: reply.perhaps_millis(2)? }),
        "barred" => barred(&reply, pass).map(Voted::Barred),
        "held" => {
            let last = reply.text(0)?.parse().map_err(|_| reply.odd(0))?;
            Ok(Voted::Held { last, left: reply.millis(1)? })
        }
        "healed" => Ok(Voted::Healed { left: reply.millis(0)? }),
        "unknown" => Ok(Voted::Unknown),
        "cancelled" => Ok(Voted::Cancelled { revoked: optional(&reply, 0)?.map(str::to_owned) }),
        _ => Ok(Voted::Granted { last: stands(&reply)? }),
    }
}

/// Reads the reply to a write-back.
pub(crate) fn written(value: &Value, pass: &Pass) -> Result<Admitted<Written>, LockError> {
    let reply = Reply::of(value)?;
    match reply.word {
        "barred" => barred(&reply, pass).map(Err),
        "nothing" => Ok(Ok(Written::NotYours)),
        _ => Ok(Ok(Written::Stands(stands(&reply)?))),
    }
}

/// Reads the reply to a renewal of so many lines.
pub(crate) fn renewed(
    value: &Value,
    pass: &Pass,
    lines: usize,
) -> Result<Admitted<Vec<Result<Renewed, LockError>>>, LockError> {
    match value.as_array() {
        Some([first, ..]) if first.as_text().is_some() => {
            let reply = Reply::of(value)?;
            match reply.word {
                "barred" => barred(&reply, pass).map(Err),
                _ => Err(reply.unknown()),
            }
        }
        Some(replies) if replies.len() == lines => Ok(Ok(replies.iter().map(line).collect())),
        _ => {
            Err(protocol(format!("{lines} lines were sent, and the answer is no list of so many")))
        }
    }
}

fn line(value: &Value) -> Result<Renewed, LockError> {
    if let Value::Integer(left) = value {
        let left = u64::try_from(*left).map_err(|_| protocol("a lease has less than no time"))?;
        return Ok(Renewed::Kept { left: Duration::from_millis(left) });
    }
    let reply = Reply::of(value)?;
    match reply.word {
        "revoked" => {
            Ok(Renewed::Revoked { reason: reply.text(0)?.to_owned(), left: reply.millis(1)? })
        }
        "gone" => Ok(Renewed::Gone { free: reply.number(0)? == 1 }),
        _ => Err(reply.unknown()),
    }
}

/// Reads what is kept of a holder; `None` where the lease id has nothing.
pub(crate) fn recorded(value: &Value) -> Result<Option<Record>, LockError> {
    let reply = Reply::of(value)?;
    match reply.word {
        "record" => {
            let record = reply.part(0)?.as_bytes().ok_or_else(|| reply.odd(0))?;
            Ok(Some(Record(record.to_vec())))
        }
        "nothing" => Ok(None),
        _ => Err(reply.unknown()),
    }
}

/// Reads whether the name was free, and is the holder's again.
pub(crate) fn healed(value: &Value, pass: &Pass) -> Result<Admitted<bool>, LockError> {
    if let Value::Integer(taken) = value {
        return Ok(Ok(*taken == 1));
    }
    let reply = Reply::of(value)?;
    match reply.word {
        "barred" => barred(&reply, pass).map(Err),
        _ => Err(reply.unknown()),
    }
}

/// Reads what a node says of itself.
pub(crate) fn greeted(value: &Value) -> Result<Greeted, LockError> {
    let reply = Reply::of(value)?;
    if reply.word != "greeted" {
        return Err(reply.unknown());
    }
    let time_us = reply.number(1)?;
    let quarantine = match optional(&reply, 7)? {
        None => None,
        Some(_) => {
            let left = Duration::from_micros(reply.number(7)?);
            Some((left, optional(&reply, 8)? == Some("1")))
        }
    };
    let view = View {
        id: node_id(&reply, 2)?.ok_or_else(|| reply.odd(2))?,
        was: node_id(&reply, 3)?,
        gate: gate(reply.text(4)?).ok_or_else(|| reply.odd(4))?,
        configuration: configuration(&reply)?,
        quarantine,
        measured: Duration::ZERO,
        before: None,
        largest: reply.number(9)?,
    };
    Ok(Greeted { accepted: reply.number(0)? == 1, view, time_us })
}

/// Reads whether what a node was told fitted how it stands.
pub(crate) fn told(value: &Value) -> Result<bool, LockError> {
    match value {
        Value::Integer(fitted) => Ok(*fitted == 1),
        _ => Err(Reply::of(value)?.unknown()),
    }
}

/// Reads a reply that is the number at which a counter stands.
fn stands(reply: &Reply<'_>) -> Result<FencingToken, LockError> {
    match (reply.word.len(), reply.parts) {
        (16, []) => reply.word.parse().map_err(|_| reply.unknown()),
        _ => Err(reply.unknown()),
    }
}

/// Tells why a node does not vote: the marker, gate and stamp are what it keeps.
fn barred(reply: &Reply<'_>, pass: &Pass) -> Result<Barred, LockError> {
    match (optional(reply, 0)?, optional(reply, 1)?) {
        (Some(marker), Some(word)) if marker == pass.marker() => match gate(word) {
            Some(Gate::Open) => Ok(Barred::Configuration),
            Some(gate) => Ok(Barred::Gate(gate)),
            None => Err(reply.odd(1)),
        },
        _ => Ok(Barred::Marker),
    }
}

fn optional<'a>(reply: &Reply<'a>, at: usize) -> Result<Option<&'a str>, LockError> {
    match reply.part(at)? {
        Value::Nil => Ok(None),
        value => value.as_text().map(Some).ok_or_else(|| reply.odd(at)),
    }
}

fn node_id(reply: &Reply<'_>, at: usize) -> Result<Option<NodeId>, LockError> {
    let text = optional(reply, at)?;
    text.map(|text| text.parse().map_err(|_| reply.odd(at))).transpose()
}

fn gate(word: &str) -> Option<Gate> {
    Some(match word {
        "blank" => Gate::Blank,
        "proposed" => Gate::Proposed,
        "open" => Gate::Open,
        "forgot" => Gate::Forgot,
        "out" => Gate::Out,
        _ => return None,
    })
}

/// Reads the configuration, which must have the stamp that stands beside it.
fn configuration(reply: &Reply<'_>) -> Result<Option<Configuration>, LockError> {
    let Some(text) = optional(reply, 5)? else { return Ok(None) };
    let configuration: Option<Configuration> = text.parse().ok();
    let stamp = optional(reply, 6)?;
    let known = |configuration: &Configuration| {
        let mine: Stamp = configuration.stamp();
        stamp == Some(mine.to_string().as_str())
    };
    match configuration.filter(known) {
        Some(configuration) => Ok(Some(configuration)),
        None => {
            let found = "a configuration that this version does not know".to_owned();
            Err(LockError::new(ENGINE, ErrorKind::Foreign { found }, Certainty::NotApplied))
        }
    }
}
