//! What comes back: each reply of a script becomes a typed value, and what has another shape is a
//! `Protocol` error.

use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, FreezeView, HolderSummary, HolderView,
    LatchReply, LockError, LockName, LostReason, OperationReply, ReleaseReply, RenewReply,
    Snapshot,
};

use super::record::Record;
use crate::error::{ENGINE, ServerWords, protocol, refusal};
use crate::node::Value;
use crate::plain;

/// A reply: its first word, and the parts behind it.
pub(crate) struct Reply<'a> {
    pub(crate) word: &'a str,
    pub(crate) parts: &'a [Value],
}

impl<'a> Reply<'a> {
    pub(crate) fn of(value: &'a Value) -> Result<Reply<'a>, LockError> {
        let (first, parts) = match value.as_array() {
            Some([first, parts @ ..]) => (first, parts),
            Some([]) => return Err(protocol("a script answered an empty list")),
            None => (value, &[][..]),
        };
        let word = first.as_text().ok_or_else(|| protocol("a script answered without a word"))?;
        let reply = Reply { word, parts };
        match word {
            "foreign" => Err(foreign(reply.text(0)?)),
            "failed" => Err(refusal(ServerWords::caught(reply.text(0)?))),
            _ => Ok(reply),
        }
    }

    pub(crate) fn part(&self, at: usize) -> Result<&'a Value, LockError> {
        self.parts.get(at).ok_or_else(|| protocol(format!("'{}' has no part {at}", self.word)))
    }

    pub(crate) fn text(&self, at: usize) -> Result<&'a str, LockError> {
        self.part(at)?.as_text().ok_or_else(|| self.odd(at))
    }

    pub(crate) fn number(&self, at: usize) -> Result<u64, LockError> {
        let number = self.part(at)?.as_integer().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| self.odd(at))
    }

    fn count(&self, at: usize) -> Result<usize, LockError> {
        usize::try_from(self.number(at)?).map_err(|_| self.odd(at))
    }

    pub(crate) fn millis(&self, at: usize) -> Result<Duration, LockError> {
        self.number(at).map(Duration::from_millis)
    }

    fn list(&self, at: usize) -> Result<&'a [Value], LockError> {
        self.part(at)?.as_array().ok_or_else(|| self.odd(at))
    }

    fn record(&self, value: &Value) -> Result<Record, LockError> {
        let record = value.as_bytes().and_then(Record::parse);
        record.ok_or_else(|| protocol(format!("'{}' came with what is no record", self.word)))
    }

    /// Reads who is in the way: the server's time, the record, and how much it has left.
    pub(crate) fn blocker(&self, at: usize) -> Result<Option<Box<HolderSummary>>, LockError> {
        if *self.part(at + 1)? == Value::Nil {
            return Ok(None);
        }
        if let Some(record) = of_another(self.part(at + 1)?) {
            let left = self.perhaps_millis(at + 2)?;
            return Ok(Some(Box::new(record.summary(self.number(at)?, left))));
        }
        let record = self.record(self.part(at + 1)?)?;
        Ok(Some(Box::new(record.summary(self.number(at)?, self.millis(at + 2)?))))
    }

    /// Reads a time that may have no end.
    pub(crate) fn perhaps_millis(&self, at: usize) -> Result<Option<Duration>, LockError> {
        match self.part(at)? {
            Value::Nil => Ok(None),
            _ => self.millis(at).map(Some),
        }
    }

    pub(crate) fn odd(&self, at: usize) -> LockError {
        protocol(format!("part {at} of '{}' is not what it must be", self.word))
    }

    pub(crate) fn unknown(&self) -> LockError {
        protocol(format!("a script answered '{}'", self.word.escape_debug()))
    }
}

fn foreign(found: &str) -> LockError {
    LockError::new(ENGINE, ErrorKind::Foreign { found: found.to_owned() }, Certainty::NotApplied)
}

fn refused(kind: ErrorKind) -> LockError {
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// Reads the reply to an acquire; `limit` is how many may wait.
pub(crate) fn acquired(
    value: &Value,
    request: &AcquireRequest,
    limit: usize,
) -> Result<AcquireReply, LockError> {
    let granted = |token: &str, left| {
        let token = token.parse().map_err(|_| protocol("a grant came without a token"))?;
        Ok(AcquireReply::Granted { token, left, anchor: None })
    };
    let reply = Reply::of(value)?;
    match reply.word {
        // A grant that begins now: the token alone.
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
        _ => Err(reply.unknown()),
    }
}

/// Reads the reply to one line of a batch; what was renewed answers how many ms are left.
fn line(value: &Value) -> Result<RenewReply, LockError> {
    if let Value::Integer(left) = value {
        let left =
            u64::try_from(*left).map_err(|_| protocol("a renewal left less than nothing"))?;
        return Ok(RenewReply::Renewed { left: Some(Duration::from_millis(left)) });
    }
    let reply = Reply::of(value)?;
    match reply.word {
        "queued" => {
            Ok(RenewReply::Queued { position: Some(reply.count(0)?), next_look: reply.millis(1)? })
        }
        "handed" => Ok(RenewReply::Handed { claim_within: Some(reply.millis(0)?) }),
        "revoked" => Ok(RenewReply::Revoked {
            reason: reply.text(0)?.to_owned(),
            left: Some(reply.millis(1)?),
        }),
        "unknown" => Ok(RenewReply::Unknown),
        _ => Err(reply.unknown()),
    }
}

/// Reads the replies to a batch of so many lines.
pub(crate) fn renewed(
    value: &Value,
    lines: usize,
) -> Result<Vec<Result<RenewReply, LockError>>, LockError> {
    match value.as_array() {
        Some(replies) if replies.len() == lines => Ok(replies.iter().map(line).collect()),
        _ => {
            Err(protocol(format!("{lines} lines were sent, and the answer is no list of so many")))
        }
    }
}

pub(crate) fn released(value: &Value) -> Result<ReleaseReply, LockError> {
    let reply = Reply::of(value)?;
    match reply.word {
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
        _ => Err(reply.unknown()),
    }
}

pub(crate) fn operated(value: &Value) -> Result<OperationReply, LockError> {
    let reply = Reply::of(value)?;
    match reply.word {
        "done" => Ok(OperationReply::Done),
        "told" => Ok(OperationReply::Told { left: Some(reply.millis(0)?) }),
        "nothing" => Ok(OperationReply::NothingThere),
        "latch" => {
            let count = reply.text(0)?.parse().map_err(|_| reply.odd(0))?;
            Ok(OperationReply::Latch(LatchReply { count, changed: reply.text(1)? == "1" }))
        }
        _ => Err(reply.unknown()),
    }
}

/// Reads how these names stand.
pub(crate) fn inspected(
    value: &Value,
    names: &[LockName],
) -> Result<Vec<Result<Snapshot, LockError>>, LockError> {
    match value.as_array() {
        Some(replies) if replies.len() == names.len() => {
            Ok(replies.iter().zip(names).map(|(reply, name)| snapshot(reply, name)).collect())
        }
        _ => Err(protocol(format!("{} names were asked for, and not so many shown", names.len()))),
    }
}

fn snapshot(value: &Value, name: &LockName) -> Result<Snapshot, LockError> {
    let reply = Reply::of(value)?;
    if reply.word != "shown" {
        return Err(reply.unknown());
    }
    let now_us = reply.number(0)?;
    let mut holders = Vec::new();
    for parts in reply.list(2)?.chunks(3) {
        holders.push(holder(&reply, parts, now_us)?);
    }
    // Tokens tell the order in which grants began.
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
            of => Some(u32::try_from(of).map_err(|_| reply.odd(5))?),
        },
        freeze: freeze(&reply)?,
    })
}

fn holder(reply: &Reply<'_>, parts: &[Value], now_us: u64) -> Result<HolderView, LockError> {
    let [record, left, revoked] = parts else {
        return Err(reply.odd(2));
    };
    let known = left.as_integer().and_then(|left| u64::try_from(left).ok());
    let known = known.map(Duration::from_millis);
    if let Some(record) = of_another(record)
        && (known.is_some() || *left == Value::Nil)
    {
        return Ok(record.view(now_us, known));
    }
    let left = known.ok_or_else(|| reply.odd(2))?;
    let revoked = revoked.as_text().unwrap_or_default().to_owned();
    Ok(reply.record(record)?.holder(now_us, left, revoked))
}

/// A holder of another library, on a node of a quorum in the plain dialect.
fn of_another(shown: &Value) -> Option<plain::Record> {
    let beginning = shown.as_bytes()?.strip_prefix(b"?")?;
    Some(plain::Record::of_another(beginning))
}

/// Reads the freeze: its token in sixteen digits and the operator's words.
fn freeze(reply: &Reply<'_>) -> Result<Option<FreezeView>, LockError> {
    if *reply.part(6)? == Value::Nil {
        return Ok(None);
    }
    let text = reply.text(6)?;
    let (token, reason) = text.split_at_checked(16).ok_or_else(|| reply.odd(6))?;
    Ok(Some(FreezeView {
        reason: reason.to_owned(),
        left: reply.millis(7)?,
        active: reply.number(8)? == 1,
        token: token.parse().ok(),
    }))
}

/// Reads one answer of `SCAN`: where to go on, and the keys.
pub(crate) fn listed(value: &Value) -> Result<(Vec<u8>, &[Value]), LockError> {
    match value.as_array() {
        Some([cursor, keys]) => match (cursor.as_bytes(), keys.as_array()) {
            (Some(cursor), Some(keys)) => Ok((cursor.to_vec(), keys)),
            _ => Err(protocol("SCAN answered without a cursor or without keys")),
        },
        _ => Err(protocol("SCAN answered what is no pair")),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::contract::MIN_CLAIM_WINDOW;
    use holdline_core::{ClientId, Hold, LeaseId, Metadata, Mode};

    use super::*;

    fn request() -> AcquireRequest {
        AcquireRequest {
            name: LockName::new("a").expect("a good name"),
            lease_id: LeaseId::from_bytes([1; 16]),
            client: ClientId::from_u64(1),
            mode: Mode::Exclusive,
            hold: Hold::Leased(Duration::from_secs(1)),
            queue: false,
            known: false,
            claim_window: MIN_CLAIM_WINDOW,
            metadata: Metadata::default(),
        }
    }

    #[test]
    fn a_token_alone_is_a_grant_with_all_of_its_lease() {
        let reply = acquired(&word("0000000000000042"), &request(), 1).expect("a grant");
        let AcquireReply::Granted { token, left, .. } = reply else { panic!("{reply:?}") };
        assert_eq!((token.get(), left), (42, Some(Duration::from_secs(1))));
    }

    #[test]
    fn a_number_alone_is_a_renewal_and_what_is_left_in_ms() {
        let left = Some(Duration::from_secs(30));
        assert_eq!(line(&Value::Integer(30_000)).expect("renewed"), RenewReply::Renewed { left });
    }

    fn word(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn what_has_another_shape_is_a_protocol_error_and_never_a_grant() {
        for odd in [
            Value::Nil,
            Value::Integer(-1),
            Value::Array(Vec::new()),
            Value::Array(vec![Value::Nil]),
            word("granted"),
            word("hello"),
            word("000000000000000x"),
            word("0000000000000000"),
            Value::Array(vec![word("granted"), word("0"), word("30000")]),
            Value::Array(vec![word("granted"), word("1"), word("-2")]),
            Value::Array(vec![word("queued"), Value::Integer(-1), Value::Integer(1)]),
            Value::Bytes(vec![0xff]),
        ] {
            let told = acquired(&odd, &request(), 1).expect_err("no grant");
            assert!(matches!(told.kind(), ErrorKind::Protocol { .. }), "{odd:?}: {told}");
            assert_eq!(told.certainty(), Certainty::Unknown);
            assert!(released(&odd).is_err() && operated(&odd).is_err() && line(&odd).is_err());
            assert!(renewed(&odd, 2).is_err() && listed(&odd).is_err());
        }
    }

    #[test]
    fn what_is_not_ours_is_foreign_and_nothing_was_applied() {
        let reply = Value::Array(vec![word("foreign"), word("a hash")]);
        let told = released(&reply).expect_err("foreign");
        assert_eq!(*told.kind(), ErrorKind::Foreign { found: "a hash".into() });
        assert_eq!(told.certainty(), Certainty::NotApplied);
    }
}
