//! Decodes replies: the columns of each row become a typed value.

use std::collections::HashMap;
use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, AuditEntry, AuditId, AuditPage, AuditRecord, AuditRequest,
    Certainty, ErrorKind, FencingToken, FreezeView, GrantState, HolderFields, HolderSummary,
    HolderView, LeaseId, LockError, LockName, LostReason, Metadata, Mode, OperationReply,
    ReleaseReply, Snapshot, WaiterView,
};

use super::rows::Row;

/// Reads the holder or the freeze that blocks the name.
fn blocker(row: &impl Row) -> Result<Option<Box<HolderSummary>>, LockError> {
    let blocker = match row.word("by_mode")? {
        None => return Ok(None),
        Some("f") => freeze_summary(
            row.token("by_token")?,
            row.text("by_metadata")?.unwrap_or_default(),
            row.duration("by_rest")?,
        ),
        Some(_) => HolderSummary {
            lease_id: row.short("by_id")?,
            token: row.token("by_token")?,
            mode: row.mode("by_mode", "by_permits", "by_total")?,
            held_for: row.duration("by_held")?,
            left: row.duration("by_rest")?,
            no_expiry: false,
            metadata: row.metadata("by_metadata")?,
        },
    };
    Ok(Some(Box::new(blocker)))
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
        no_expiry: false,
        // A reason with many escaped characters may not fit; then the freeze is shown without it.
        metadata: Metadata::new(&fields).unwrap_or_default(),
    }
}

/// Reads the reply to an acquire; `limit` is how many contenders may wait.
///
/// # Errors
/// Those of the contract, by the outcome, and `Protocol`.
pub fn acquired<R: Row>(
    row: &R,
    request: &AcquireRequest,
    limit: usize,
) -> Result<AcquireReply, LockError> {
    let not_applied = |kind| Err(LockError::new(R::ENGINE, kind, Certainty::NotApplied));
    match row.sure_word("outcome")? {
        "granted" => {
            let token = row.token("token")?;
            let token = token.ok_or_else(|| row.protocol("a grant came without a token"))?;
            let left = Some(row.sure_duration("rest")?);
            Ok(AcquireReply::Granted { token, left, anchor: None })
        }
        "queued" => Ok(AcquireReply::Queued {
            position: row.number("place")?.and_then(|place| usize::try_from(place).ok()),
            holder: blocker(row)?,
            next_look: row.sure_duration("look")?,
        }),
        "busy" => Ok(AcquireReply::Busy {
            holder: blocker(row)?,
            at_most: row.duration("rest")?,
            next_look: row.sure_duration("look")?,
        }),
        "unknown" => Ok(AcquireReply::Unknown),
        "cancelled" => not_applied(ErrorKind::Cancelled),
        "revoked" => {
            let reason = LostReason::Revoked(row.text("note")?.unwrap_or_default());
            not_applied(ErrorKind::Lost { reason })
        }
        "full" => not_applied(ErrorKind::TooManyWaiters { limit }),
        "terms" => {
            let message =
                "was asked before with another mode or lease; draw a new lease id for that";
            Err(LockError::invalid(R::ENGINE, "lease_id", message))
        }
        "kind" => {
            let used = match row.number("by_total")? {
                None => "a mutex or read/write lock".to_owned(),
                Some(of) => format!("a semaphore of {of}"),
            };
            let message = format!("the name is in use as {used}, not as {}", request.mode);
            Err(LockError::invalid(R::ENGINE, "mode", message))
        }
        other => Err(unknown(row, other)),
    }
}

/// An outcome that this version does not know.
pub fn unknown(row: &impl Row, outcome: &str) -> LockError {
    row.protocol(format!("an answer says '{}'", outcome.escape_debug()))
}

/// Reads the reply to a release.
///
/// # Errors
/// `Protocol`.
pub fn released(row: &impl Row) -> Result<ReleaseReply, LockError> {
    match row.sure_word("outcome")? {
        "released" => Ok(ReleaseReply::Released { held_for: row.duration("held")? }),
        "withdrawn" => Ok(ReleaseReply::Withdrawn),
        "nothing" => Ok(ReleaseReply::NotHeld { revoked: row.text("note")? }),
        other => Err(unknown(row, other)),
    }
}

/// Reads the reply to an operator's command.
///
/// # Errors
/// `Protocol`.
pub fn operated(row: &impl Row) -> Result<OperationReply, LockError> {
    match row.sure_word("outcome")? {
        "done" => Ok(OperationReply::Done),
        "notified" => Ok(OperationReply::Notified { left: row.duration("rest")? }),
        "nothing" => Ok(OperationReply::NothingThere),
        other => Err(unknown(row, other)),
    }
}

/// Reads records of the audit trail.
///
/// # Errors
/// `Protocol`.
pub fn audit_page<R: Row>(
    rows: impl Iterator<Item = R>,
    request: &AuditRequest,
) -> Result<AuditPage, LockError> {
    let entries = rows.map(|row| {
        let number = |column| row.sure_number(column).map(|n| u64::try_from(n).unwrap_or(0));
        let id = AuditId { at_ms: number("at_ms")?, number: number("id")? };
        Ok(AuditEntry { id, record: AuditRecord::from_encoded(row.sure_bytes("record")?) })
    });
    Ok(AuditPage::of(entries.collect::<Result<_, LockError>>()?, request))
}

/// Reads names, one a row, from this column.
///
/// # Errors
/// `Foreign`: a name is none that we have written. `Protocol`.
pub fn names<R: Row>(
    rows: impl Iterator<Item = R>,
    column: &str,
) -> Result<Vec<LockName>, LockError> {
    let name = |row: R| {
        let text = std::str::from_utf8(row.sure_bytes(column)?).ok();
        text.and_then(|text| LockName::new(text).ok()).ok_or_else(|| {
            let found = "a row stands under a name that is no lock name".to_owned();
            LockError::new(R::ENGINE, ErrorKind::Foreign { found }, Certainty::NotApplied)
        })
    };
    rows.map(name).collect()
}

/// Reads the states of names; a name without a row is free.
///
/// # Errors
/// `Protocol`.
pub fn inspected<R: Row>(
    rows: impl Iterator<Item = R>,
    names: &[LockName],
) -> Result<Vec<Snapshot>, LockError> {
    let mut found: HashMap<&[u8], Snapshot> =
        names.iter().map(|name| (name.as_str().as_bytes(), Snapshot::free(name.clone()))).collect();
    for row in rows {
        if let Some(snapshot) = found.get_mut(row.sure_bytes("name")?) {
            add(snapshot, &row)?;
        }
    }
    Ok(names.iter().filter_map(|name| found.remove(name.as_str().as_bytes())).collect())
}

fn add(snapshot: &mut Snapshot, row: &impl Row) -> Result<(), LockError> {
    match row.sure_word("part")? {
        "name" => {
            snapshot.holder_count = row.count("holders")?;
            snapshot.queue_length = row.count("queued")?;
            let total = row.number("total")?;
            snapshot.permits_of = total.and_then(|total| u32::try_from(total).ok());
            if row.word("kind")?.is_some() {
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

fn holder(row: &impl Row) -> Result<HolderView, LockError> {
    let state = match row.sure_word("state")? {
        "r" => GrantState::Revoked(row.text("note")?.unwrap_or_default()),
        _ => GrantState::Held,
    };
    Ok(HolderView {
        summary: HolderSummary {
            lease_id: row.short("id")?,
            token: row.token("token")?,
            mode: row.mode("mode", "permits", "total")?,
            held_for: row.duration("passed")?,
            left: row.duration("rest")?,
            no_expiry: false,
            metadata: row.metadata("metadata")?,
        },
        state,
        detached: row.sure_word("kind")? == "d",
        live: false,
        pids: Vec::new(),
    })
}
