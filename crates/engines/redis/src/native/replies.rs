//! Replies of the scripts become typed values; a reply of any other shape is a `Protocol` error.

use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, FreezeView, HolderSummary, HolderView,
    LatchReply, LockError, LockName, LostReason, OperationReply, ReleaseReply, RenewReply,
    Snapshot,
};

use super::record::Record;
use crate::error::{ENGINE, ServerError, protocol, refusal};
use crate::link::Value;
use crate::plain_record;

/// A reply: its status word, and the parts that follow.
pub(crate) struct ScriptReply<'a> {
    pub(crate) status: &'a str,
    pub(crate) parts: &'a [Value],
}

impl<'a> ScriptReply<'a> {
    pub(crate) fn of(value: &'a Value) -> Result<ScriptReply<'a>, LockError> {
        let (first, parts) = match value.as_array() {
            Some([first, parts @ ..]) => (first, parts),
            Some([]) => return Err(protocol("a script returned an empty list")),
            None => (value, &[][..]),
        };
        let status = first.as_text().ok_or_else(|| protocol("a script returned no status"))?;
        let reply = ScriptReply { status, parts };
        match status {
            "foreign" => Err(foreign_data(reply.text(0)?)),
            "failed" => Err(refusal(ServerError::from_script(reply.text(0)?))),
            _ => Ok(reply),
        }
    }

    pub(crate) fn part(&self, at: usize) -> Result<&'a Value, LockError> {
        self.parts.get(at).ok_or_else(|| protocol(format!("'{}' has no part {at}", self.status)))
    }

    pub(crate) fn text(&self, at: usize) -> Result<&'a str, LockError> {
        self.part(at)?.as_text().ok_or_else(|| self.unexpected(at))
    }

    pub(crate) fn number(&self, at: usize) -> Result<u64, LockError> {
        let number = self.part(at)?.as_integer().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| self.unexpected(at))
    }

    fn count(&self, at: usize) -> Result<usize, LockError> {
        usize::try_from(self.number(at)?).map_err(|_| self.unexpected(at))
    }

    pub(crate) fn millis(&self, at: usize) -> Result<Duration, LockError> {
        self.number(at).map(Duration::from_millis)
    }

    fn list(&self, at: usize) -> Result<&'a [Value], LockError> {
        self.part(at)?.as_array().ok_or_else(|| self.unexpected(at))
    }

    fn record(&self, value: &Value) -> Result<Record, LockError> {
        let record = value.as_bytes().and_then(Record::parse);
        record.ok_or_else(|| protocol(format!("'{}' came with an invalid record", self.status)))
    }

    /// Reads the holder that blocks the caller: the server's time, its record, and the time left.
    pub(crate) fn blocker(&self, at: usize) -> Result<Option<Box<HolderSummary>>, LockError> {
        if *self.part(at + 1)? == Value::Nil {
            return Ok(None);
        }
        if let Some(record) = of_other_library(self.part(at + 1)?) {
            let left = self.optional_millis(at + 2)?;
            return Ok(Some(Box::new(record.summary(self.number(at)?, left))));
        }
        let record = self.record(self.part(at + 1)?)?;
        Ok(Some(Box::new(record.summary(self.number(at)?, self.millis(at + 2)?))))
    }

    /// Reads a duration that may be unlimited.
    pub(crate) fn optional_millis(&self, at: usize) -> Result<Option<Duration>, LockError> {
        match self.part(at)? {
            Value::Nil => Ok(None),
            _ => self.millis(at).map(Some),
        }
    }

    pub(crate) fn unexpected(&self, at: usize) -> LockError {
        protocol(format!("part {at} of '{}' is invalid", self.status))
    }

    pub(crate) fn unknown_status(&self) -> LockError {
        protocol(format!("a script returned '{}'", self.status.escape_debug()))
    }
}

fn foreign_data(found: &str) -> LockError {
    LockError::new(ENGINE, ErrorKind::Foreign { found: found.to_owned() }, Certainty::NotApplied)
}

fn refused(kind: ErrorKind) -> LockError {
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// Reads the reply to an acquire; `limit` is the longest queue.
pub(crate) fn acquired(
    value: &Value,
    request: &AcquireRequest,
    limit: usize,
) -> Result<AcquireReply, LockError> {
    let granted = |token: &str, left| {
        let token = token.parse().map_err(|_| protocol("a grant came without a token"))?;
        Ok(AcquireReply::Granted { token, left, anchor: None })
    };
    let reply = ScriptReply::of(value)?;
    match reply.status {
        // A new grant: the token only.
        token if token.len() == 16 && reply.parts.is_empty() => {
            granted(token, request.hold.duration())
        }
        "granted" => granted(reply.text(0)?, Some(reply.millis(1)?)),
        "queued" => Ok(AcquireReply::Queued {
            position: Some(reply.count(0)?),
            next_look: reply.millis(1)?,
            holder: reply.blocker(2)?,
        }),
        "busy" => Ok(AcquireReply::Busy {
            at_most: Some(reply.millis(0)?),
            next_look: reply.millis(1)?,
            holder: reply.blocker(2)?,
        }),
        "unknown" => Ok(AcquireReply::Unknown),
        "cancelled" => Err(refused(ErrorKind::Cancelled)),
        "revoked" => {
            let reason = LostReason::Revoked(reply.text(0)?.to_owned());
            Err(refused(ErrorKind::Lost { reason }))
        }
        "full" => Err(refused(ErrorKind::TooManyWaiters { limit })),
        "terms" => {
            let message =
                "was asked before with another mode or lease; draw a new lease id for that";
            Err(LockError::invalid(ENGINE, "lease_id", message))
        }
        "mode" => {
            let used = match reply.number(0)? {
                0 => "a mutex or read/write lock".to_owned(),
                of => format!("a semaphore of {of}"),
            };
            let message = format!("the name is in use as {used}, not as {}", request.mode);
            Err(LockError::invalid(ENGINE, "mode", message))
        }
        _ => Err(reply.unknown_status()),
    }
}

/// Reads the reply to one renewal of a batch; for a renewed grant it is the ms that are left.
pub(crate) fn renewal(value: &Value) -> Result<RenewReply, LockError> {
    if let Value::Integer(left) = value {
        let left =
            u64::try_from(*left).map_err(|_| protocol("a renewal returned a negative duration"))?;
        return Ok(RenewReply::Renewed { left: Some(Duration::from_millis(left)) });
    }
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "queued" => {
            Ok(RenewReply::Queued { position: Some(reply.count(0)?), next_look: reply.millis(1)? })
        }
        "held" => Ok(RenewReply::Held { left: Some(reply.millis(0)?) }),
        "revoked" => Ok(RenewReply::Revoked {
            reason: reply.text(0)?.to_owned(),
            left: Some(reply.millis(1)?),
        }),
        "unknown" => Ok(RenewReply::Unknown),
        _ => Err(reply.unknown_status()),
    }
}

/// Reads the replies to a batch of renewals.
pub(crate) fn renewed(
    value: &Value,
    renewals: usize,
) -> Result<Vec<Result<RenewReply, LockError>>, LockError> {
    match value.as_array() {
        Some(replies) if replies.len() == renewals => Ok(replies.iter().map(renewal).collect()),
        _ => {
            Err(protocol(format!("the reply to {renewals} renewals is not a list of that length")))
        }
    }
}

pub(crate) fn released(value: &Value) -> Result<ReleaseReply, LockError> {
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "released" => {
            let held_for = match reply.parts {
                [] => None,
                _ => Some(Duration::from_micros(reply.number(0)?)),
            };
            Ok(ReleaseReply::Released { held_for })
        }
        "withdrawn" => Ok(ReleaseReply::Withdrawn),
        "nothing" => {
            let revoked = match reply.part(0)? {
                Value::Nil => None,
                _ => Some(reply.text(0)?.to_owned()),
            };
            Ok(ReleaseReply::NotHeld { revoked })
        }
        _ => Err(reply.unknown_status()),
    }
}

pub(crate) fn operated(value: &Value) -> Result<OperationReply, LockError> {
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "done" => Ok(OperationReply::Done),
        "notified" => Ok(OperationReply::Notified { left: Some(reply.millis(0)?) }),
        "nothing" => Ok(OperationReply::NothingThere),
        _ => Err(reply.unknown_status()),
    }
}

pub(crate) fn latch(value: &Value) -> Result<LatchReply, LockError> {
    let reply = ScriptReply::of(value)?;
    if reply.status != "latch" {
        return Err(reply.unknown_status());
    }
    let count = reply.text(0)?.parse().map_err(|_| reply.unexpected(0))?;
    Ok(LatchReply { count, changed: reply.text(1)? == "1" })
}

/// Reads the states of these names.
pub(crate) fn inspected(
    value: &Value,
    names: &[LockName],
) -> Result<Vec<Result<Snapshot, LockError>>, LockError> {
    match value.as_array() {
        Some(replies) if replies.len() == names.len() => {
            Ok(replies.iter().zip(names).map(|(reply, name)| snapshot(reply, name)).collect())
        }
        _ => Err(protocol(format!(
            "the reply to an inspection of {} names has another length",
            names.len()
        ))),
    }
}

fn snapshot(value: &Value, name: &LockName) -> Result<Snapshot, LockError> {
    let reply = ScriptReply::of(value)?;
    if reply.status != "shown" {
        return Err(reply.unknown_status());
    }
    let now_us = reply.number(0)?;
    let mut holders = Vec::new();
    for parts in reply.list(2)?.chunks(3) {
        holders.push(holder(&reply, parts, now_us)?);
    }
    // Tokens give the order in which grants began.
    holders.sort_by_key(|holder| holder.summary.token);
    let mut queue = Vec::new();
    for waiter in reply.list(4)? {
        queue.push(reply.record(waiter)?.waiter(now_us));
    }
    Ok(Snapshot {
        name: name.clone(),
        holders,
        holder_count: reply.count(1)?,
        queue,
        queue_length: reply.count(3)?,
        permits_of: match reply.number(5)? {
            0 => None,
            of => Some(u32::try_from(of).map_err(|_| reply.unexpected(5))?),
        },
        freeze: freeze(&reply)?,
        servers: None,
    })
}

fn holder(reply: &ScriptReply<'_>, parts: &[Value], now_us: u64) -> Result<HolderView, LockError> {
    let [record, left, revoked] = parts else {
        return Err(reply.unexpected(2));
    };
    let known = left.as_integer().and_then(|left| u64::try_from(left).ok());
    let known = known.map(Duration::from_millis);
    if let Some(record) = of_other_library(record)
        && (known.is_some() || *left == Value::Nil)
    {
        return Ok(record.view(now_us, known));
    }
    let left = known.ok_or_else(|| reply.unexpected(2))?;
    let revoked = revoked.as_text().unwrap_or_default().to_owned();
    Ok(reply.record(record)?.holder(now_us, left, revoked))
}

/// Reads a holder of another library, on a node of a quorum in the plain dialect.
fn of_other_library(shown: &Value) -> Option<plain_record::Record> {
    let beginning = shown.as_bytes()?.strip_prefix(b"?")?;
    Some(plain_record::Record::of_other_library(beginning))
}

/// Reads a freeze: its token in sixteen digits and the operator's reason.
fn freeze(reply: &ScriptReply<'_>) -> Result<Option<FreezeView>, LockError> {
    if *reply.part(6)? == Value::Nil {
        return Ok(None);
    }
    let text = reply.text(6)?;
    let (token, reason) = text.split_at_checked(16).ok_or_else(|| reply.unexpected(6))?;
    Ok(Some(FreezeView {
        reason: reason.to_owned(),
        left: reply.millis(7)?,
        active: reply.number(8)? == 1,
        token: token.parse().ok(),
    }))
}

/// Reads a reply to `SCAN`: the next cursor and the keys.
pub(crate) fn listed(value: &Value) -> Result<(Vec<u8>, &[Value]), LockError> {
    match value.as_array() {
        Some([cursor, keys]) => match (cursor.as_bytes(), keys.as_array()) {
            (Some(cursor), Some(keys)) => Ok((cursor.to_vec(), keys)),
            _ => Err(protocol("SCAN returned no cursor or no keys")),
        },
        _ => Err(protocol("SCAN returned no pair")),
    }
}

#[cfg(test)]
mod tests;
