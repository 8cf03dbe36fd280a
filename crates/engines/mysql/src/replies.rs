//! Decodes replies: each row becomes a typed value; a row of another shape is a `Protocol` error.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::{ENGINE, protocol};
use crate::rows::{Row, Set, only};
use holdline_core::{
    AcquireReply, AcquireRequest, AuditEntry, AuditId, AuditPage, AuditRecord, AuditRequest,
    Certainty, ErrorKind, FencingToken, FreezeView, GrantState, HolderFields, HolderSummary,
    HolderView, LeaseId, LockError, LockName, LostReason, Metadata, Mode, OperationReply,
    ReleaseReply, RenewReply, Snapshot, WaiterView,
};

impl Row<'_> {
    /// Reads the holder or the freeze that blocks the name.
    fn blocker(&self) -> Result<Option<Box<HolderSummary>>, LockError> {
        let blocker = match self.maybe::<&str>("by_mode")? {
            None => return Ok(None),
            Some("f") => freeze_summary(
                self.token("by_token")?,
                self.text("by_metadata")?.unwrap_or_default(),
                self.duration("by_rest")?,
            ),
            Some(_) => HolderSummary {
                lease_id: self.short("by_id")?,
                token: self.token("by_token")?,
                mode: self.mode("by_mode", "by_permits", "by_total")?,
                held_for: self.duration("by_held")?,
                left: self.duration("by_rest")?,
                metadata: self.metadata("by_metadata")?,
            },
        };
        Ok(Some(Box::new(blocker)))
    }
}

fn freeze_summary(
    token: Option<FencingToken>,
    reason: String,
    left: Option<Duration>,
) -> HolderSummary {
    let fields =
        HolderFields { program: "an operator's freeze".into(), reason, ..HolderFields::default() };
    HolderSummary {
        lease_id: LeaseId::from_bytes([0; 16]).short(),
        token,
        mode: Mode::Exclusive,
        held_for: None,
        left,
        // A reason with many escaped characters may not fit; then the freeze is shown without it.
        metadata: Metadata::new(&fields).unwrap_or_default(),
    }
}

fn not_applied(kind: ErrorKind) -> LockError {
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// Reads the reply to an acquire; `limit` is how many contenders may wait.
pub(crate) fn acquired(
    answer: &[Set],
    request: &AcquireRequest,
    limit: usize,
) -> Result<AcquireReply, LockError> {
    let row = only(answer)?;
    match row.sure::<&str>("outcome")? {
        "granted" => {
            let token = row.token("token")?;
            let token = token.ok_or_else(|| protocol("a grant came without a token"))?;
            Ok(AcquireReply::Granted {
                token,
                left: Some(row.sure_duration("rest")?),
                anchor: None,
            })
        }
        "queued" => Ok(AcquireReply::Queued {
            position: row.maybe::<i64>("place")?.and_then(|place| usize::try_from(place).ok()),
            holder: row.blocker()?,
            next_look: row.sure_duration("look")?,
        }),
        "busy" => Ok(AcquireReply::Busy {
            holder: row.blocker()?,
            at_most: row.duration("rest")?,
            next_look: row.sure_duration("look")?,
        }),
        "unknown" => Ok(AcquireReply::Unknown),
        "cancelled" => Err(not_applied(ErrorKind::Cancelled)),
        "revoked" => {
            let reason = LostReason::Revoked(row.text("note")?.unwrap_or_default());
            Err(not_applied(ErrorKind::Lost { reason }))
        }
        "full" => Err(not_applied(ErrorKind::TooManyWaiters { limit })),
        "terms" => {
            let message =
                "was asked before with another mode or lease; draw a new lease id for that";
            Err(LockError::invalid(ENGINE, "lease_id", message))
        }
        "kind" => {
            let used = match row.maybe::<i64>("by_total")? {
                None => "a mutex or read/write lock".to_owned(),
                Some(of) => format!("a semaphore of {of}"),
            };
            let message = format!("the name is in use as {used}, not as {}", request.mode);
            Err(LockError::invalid(ENGINE, "mode", message))
        }
        other => Err(unknown(other)),
    }
}

fn unknown(outcome: &str) -> LockError {
    protocol(format!("an answer says '{}'", outcome.escape_debug()))
}

/// Reads the reply to one item of a batch: outcome, rest, place, next look and note. `None`:
/// another session has locked the name's row, and nothing was applied.
fn item(words: &str) -> Result<Option<RenewReply>, LockError> {
    let odd = || protocol("an item of the batch has another shape");
    let words: Vec<&str> = words.split(' ').collect();
    let [outcome, rest, place, look, note] = words.as_slice() else { return Err(odd()) };
    let duration = |word: &str| word.parse().map(Duration::from_micros).map_err(|_| odd());
    Ok(Some(match *outcome {
        "locked" => return Ok(None),
        "renewed" => RenewReply::Renewed { left: Some(duration(rest)?) },
        "queued" => RenewReply::Queued {
            position: match *place {
                "-" => None,
                number => Some(number.parse().map_err(|_| odd())?),
            },
            next_look: duration(look)?,
        },
        "handed" => RenewReply::Handed { claim_within: Some(duration(rest)?) },
        "revoked" => RenewReply::Revoked {
            reason: from_hex(note).ok_or_else(odd)?,
            left: Some(duration(rest)?),
        },
        "unknown" => RenewReply::Unknown,
        other => return Err(unknown(other)),
    }))
}

fn from_hex(word: &str) -> Option<String> {
    let digits = word.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.map(byte).collect();
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The replies to the items of a batch; `None` if the name's row was locked.
pub(crate) type BatchReplies = Vec<Result<Option<RenewReply>, LockError>>;

/// Reads the replies to a batch, whose items were sent in this order.
pub(crate) fn renewed(answer: &[Set], order: &[usize]) -> Result<BatchReplies, LockError> {
    let text: &str = only(answer)?.sure("answers")?;
    let missing = || Err(protocol("an item of the batch was not answered"));
    let mut replies: BatchReplies = order.iter().map(|_| missing()).collect();
    for (at, words) in order.iter().zip(text.lines()) {
        if let Some(reply) = replies.get_mut(*at) {
            *reply = item(words);
        }
    }
    Ok(replies)
}

pub(crate) fn released(answer: &[Set]) -> Result<ReleaseReply, LockError> {
    let row = only(answer)?;
    match row.sure::<&str>("outcome")? {
        "released" => Ok(ReleaseReply::Released { held_for: row.duration("held")? }),
        "withdrawn" => Ok(ReleaseReply::Withdrawn),
        "nothing" => Ok(ReleaseReply::NotHeld { revoked: row.text("note")? }),
        other => Err(unknown(other)),
    }
}

/// Reads the reply to an operator's command; some commands return no row.
pub(crate) fn operated(answer: &[Set]) -> Result<OperationReply, LockError> {
    if answer.is_empty() {
        return Ok(OperationReply::Done);
    }
    let row = only(answer)?;
    match row.sure::<&str>("outcome")? {
        "done" => Ok(OperationReply::Done),
        "notified" => Ok(OperationReply::Notified { left: row.duration("rest")? }),
        "nothing" => Ok(OperationReply::NothingThere),
        other => Err(unknown(other)),
    }
}

/// The microseconds of a millisecond.
pub(crate) const MICROS: u64 = 1_000;

/// Reads records of the audit trail.
pub(crate) fn audit_page(answer: &[Set], request: &AuditRequest) -> Result<AuditPage, LockError> {
    let [set] = answer else { return Err(protocol("an answer has no list")) };
    let entries = set.rows.iter().map(|row| {
        let row = Row::of(set, row);
        let number =
            |column| Ok::<u64, LockError>(row.sure::<i64>(column)?.try_into().unwrap_or(0));
        let id = AuditId { at_ms: number("at")? / MICROS, number: number("id")? };
        Ok(AuditEntry { id, record: AuditRecord::from_encoded(row.sure("record")?) })
    });
    Ok(AuditPage::of(entries.collect::<Result<_, LockError>>()?, request))
}

/// Reads names, one a row.
pub(crate) fn names(answer: &[Set]) -> Result<Vec<LockName>, LockError> {
    let [set] = answer else { return Err(protocol("an answer has no list")) };
    set.rows.iter().map(|row| a_name(Row::of(set, row).sure::<&[u8]>("name")?)).collect()
}

fn a_name(bytes: &[u8]) -> Result<LockName, LockError> {
    let text = std::str::from_utf8(bytes).ok();
    let name = text.and_then(|text| LockName::new(text).ok());
    name.ok_or_else(|| crate::error::foreign("a row stands under a name that is no lock name"))
}

/// Reads the states of names; a name without a row is free.
pub(crate) fn inspected(answer: &[Set], names: &[LockName]) -> Result<Vec<Snapshot>, LockError> {
    let mut found: HashMap<&[u8], Snapshot> =
        names.iter().map(|name| (name.as_str().as_bytes(), Snapshot::free(name.clone()))).collect();
    for set in answer {
        for row in &set.rows {
            let row = Row::of(set, row);
            if let Some(snapshot) = found.get_mut(row.sure::<&[u8]>("name")?) {
                add(snapshot, &row)?;
            }
        }
    }
    Ok(names.iter().filter_map(|name| found.remove(name.as_str().as_bytes())).collect())
}

fn add(snapshot: &mut Snapshot, row: &Row<'_>) -> Result<(), LockError> {
    match row.sure::<&str>("part")? {
        "name" => {
            snapshot.holder_count = row.count("holders")?;
            snapshot.queue_length = row.count("queued")?;
            let total = row.maybe::<i64>("total")?;
            snapshot.permits_of = total.and_then(|total| u32::try_from(total).ok());
            if row.maybe::<&str>("kind")?.is_some() {
                let token = row.token("token")?;
                snapshot.freeze = Some(FreezeView {
                    reason: row.text("note")?.unwrap_or_default(),
                    left: row.sure_duration("rest")?,
                    active: token.is_some(),
                    token,
                });
            }
        }
        "holder" => snapshot.holders.push(holder(row)?),
        _ => snapshot.queue.push(WaiterView {
            lease_id: row.short("id")?,
            mode: row.mode("mode", "permits", "total")?,
            waited: row.duration("passed")?,
            metadata: row.metadata("metadata")?,
        }),
    }
    Ok(())
}

fn holder(row: &Row<'_>) -> Result<HolderView, LockError> {
    let state = match row.sure::<&str>("state")? {
        "r" => GrantState::Revoked(row.text("note")?.unwrap_or_default()),
        "h" => GrantState::Handed,
        _ => GrantState::Held,
    };
    Ok(HolderView {
        summary: HolderSummary {
            lease_id: row.short("id")?,
            token: row.token("token")?,
            mode: row.mode("mode", "permits", "total")?,
            held_for: row.duration("passed")?,
            left: row.duration("rest")?,
            metadata: row.metadata("metadata")?,
        },
        state,
        detached: row.sure::<&str>("kind")? == "d",
        live: false,
        pids: Vec::new(),
    })
}
