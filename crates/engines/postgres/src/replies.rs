//! Decodes replies: each row becomes a typed value; a row of another shape is a `Protocol` error.

use std::collections::HashMap;
use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, AuditEntry, AuditId, AuditPage, AuditRecord, AuditRequest,
    Certainty, ErrorKind, FencingToken, FreezeView, GrantState, HolderFields, HolderSummary,
    HolderView, LeaseId, LockError, LockName, LostReason, Metadata, Mode, OperationReply,
    ReleaseReply, RenewReply, ShortLeaseId, Snapshot, WaiterView,
};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::error::{ENGINE, protocol, unavailable};

/// A row, read by the names of its columns.
struct Columns<'a>(&'a Row);

impl<'a> Columns<'a> {
    fn maybe<T: FromSql<'a>>(&self, column: &str) -> Result<Option<T>, LockError> {
        let read = self.0.try_get::<_, Option<T>>(column);
        read.map_err(|_| protocol(format!("an answer has no good column `{column}`")))
    }

    fn sure<T: FromSql<'a>>(&self, column: &str) -> Result<T, LockError> {
        let read = self.maybe(column)?;
        read.ok_or_else(|| protocol(format!("an answer has nothing in column `{column}`")))
    }

    fn duration(&self, column: &str) -> Result<Option<Duration>, LockError> {
        let micros = self.maybe::<i64>(column)?;
        Ok(micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }

    fn sure_duration(&self, column: &str) -> Result<Duration, LockError> {
        let read = self.duration(column)?;
        read.ok_or_else(|| protocol(format!("an answer has nothing in column `{column}`")))
    }

    fn count(&self, column: &str) -> Result<usize, LockError> {
        Ok(usize::try_from(self.sure::<i32>(column)?).unwrap_or(0))
    }

    fn token(&self, column: &str) -> Result<Option<FencingToken>, LockError> {
        let number = self.maybe::<i64>(column)?;
        let token = number.map(|n| u64::try_from(n).ok().and_then(|n| FencingToken::new(n).ok()));
        match token {
            Some(None) => Err(protocol("an answer has a fencing token that is none")),
            Some(token) => Ok(token),
            None => Ok(None),
        }
    }

    fn text(&self, column: &str) -> Result<Option<String>, LockError> {
        let bytes = self.maybe::<&[u8]>(column)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    fn metadata(&self, column: &str) -> Result<Metadata, LockError> {
        // Longer text was not written by us and is ignored.
        let text = self.text(column)?.unwrap_or_default();
        Ok(Metadata::from_encoded(&text).unwrap_or_default())
    }

    fn short(&self, column: &str) -> Result<ShortLeaseId, LockError> {
        let mut whole = [0; 16];
        match self.sure::<&[u8]>(column)? {
            first @ [_, _, _, _] => whole[..4].copy_from_slice(first),
            _ => return Err(protocol("an answer has a lease id of another length")),
        }
        Ok(LeaseId::from_bytes(whole).short())
    }

    fn mode(&self, letter: &str, permits: &str, total: &str) -> Result<Mode, LockError> {
        let odd = || protocol("an answer has an unknown mode");
        match self.sure::<&str>(letter)? {
            "x" => Ok(Mode::Exclusive),
            "s" => Ok(Mode::Shared),
            "p" => {
                let number = |n: i32| u32::try_from(n).map_err(|_| odd());
                let (count, of) = (number(self.sure(permits)?)?, number(self.sure(total)?)?);
                Mode::permits(count, of).map_err(|_| odd())
            }
            _ => Err(odd()),
        }
    }

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

fn one(rows: &[Row]) -> Result<Columns<'_>, LockError> {
    match rows {
        [row] => Ok(Columns(row)),
        _ => Err(protocol(format!("an answer has {} rows and not one", rows.len()))),
    }
}

fn not_applied(kind: ErrorKind) -> LockError {
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// Reads the token of a short grant; `None` if it granted nothing.
pub(crate) fn granted(
    rows: &[Row],
    request: &AcquireRequest,
) -> Result<Option<AcquireReply>, LockError> {
    let Some(token) = one(rows)?.token("grant_free_1")? else { return Ok(None) };
    Ok(Some(AcquireReply::Granted { token, left: request.hold.duration(), anchor: None }))
}

/// Reads how long a lease was held that a short release has ended; `None` if it ended none.
pub(crate) fn held_for(rows: &[Row]) -> Result<Option<Duration>, LockError> {
    one(rows)?.duration("release_alone_1")
}

/// Reads the reply to an acquire; `limit` is how many contenders may wait.
pub(crate) fn acquired(
    rows: &[Row],
    request: &AcquireRequest,
    limit: usize,
) -> Result<AcquireReply, LockError> {
    let row = one(rows)?;
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
            position: Some(row.count("place")?),
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
            let used = match row.maybe::<i32>("by_total")? {
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

fn item(row: &Columns<'_>) -> Result<RenewReply, LockError> {
    match row.sure::<&str>("outcome")? {
        "renewed" => Ok(RenewReply::Renewed { left: Some(row.sure_duration("rest")?) }),
        "queued" => Ok(RenewReply::Queued {
            position: Some(row.count("place")?),
            next_look: row.sure_duration("look")?,
        }),
        "handed" => Ok(RenewReply::Handed { claim_within: row.duration("rest")? }),
        "revoked" => Ok(RenewReply::Revoked {
            reason: row.text("note")?.unwrap_or_default(),
            left: Some(row.sure_duration("rest")?),
        }),
        "unknown" => Ok(RenewReply::Unknown),
        other => Err(unknown(other)),
    }
}

/// Reads the replies to a batch of this many items; they come in the order of the names. An item
/// whose row another session has locked is not answered, and was not applied.
pub(crate) fn renewed(rows: &[Row], batch: usize) -> Vec<Result<RenewReply, LockError>> {
    let missing = || {
        let message = "another session has locked the row of this name";
        Err(unavailable(message, Certainty::NotApplied))
    };
    let mut replies: Vec<Result<RenewReply, LockError>> = (0..batch).map(|_| missing()).collect();
    for row in rows {
        let row = Columns(row);
        let at = row.sure::<i32>("line").ok().and_then(|n| usize::try_from(n - 1).ok());
        if let Some(reply) = at.and_then(|at| replies.get_mut(at)) {
            *reply = item(&row);
        }
    }
    replies
}

pub(crate) fn released(rows: &[Row]) -> Result<ReleaseReply, LockError> {
    let row = one(rows)?;
    match row.sure::<&str>("outcome")? {
        "released" => Ok(ReleaseReply::Released { held_for: row.duration("held")? }),
        "withdrawn" => Ok(ReleaseReply::Withdrawn),
        "nothing" => Ok(ReleaseReply::NotHeld { revoked: row.text("note")? }),
        other => Err(unknown(other)),
    }
}

pub(crate) fn revoked(rows: &[Row]) -> Result<OperationReply, LockError> {
    let row = one(rows)?;
    match row.sure::<&str>("outcome")? {
        "done" => Ok(OperationReply::Done),
        "notified" => Ok(OperationReply::Notified { left: row.duration("rest")? }),
        "nothing" => Ok(OperationReply::NothingThere),
        other => Err(unknown(other)),
    }
}

pub(crate) fn unfrozen(rows: &[Row]) -> Result<OperationReply, LockError> {
    Ok(match one(rows)?.sure::<bool>("unfreeze_1")? {
        true => OperationReply::Done,
        false => OperationReply::NothingThere,
    })
}

/// Reads records of the audit trail.
pub(crate) fn audit_page(rows: &[Row], request: &AuditRequest) -> Result<AuditPage, LockError> {
    let entries = rows.iter().map(Columns).map(|row| {
        let number = |column| Ok::<_, LockError>(row.sure::<i64>(column)?.try_into().unwrap_or(0));
        let id = AuditId { at_ms: number("at_ms")?, number: number("id")? };
        Ok(AuditEntry { id, record: AuditRecord::from_encoded(row.sure("record")?) })
    });
    Ok(AuditPage::of(entries.collect::<Result<_, LockError>>()?, request))
}

/// Reads names, one a row.
pub(crate) fn names(rows: &[Row]) -> Result<Vec<LockName>, LockError> {
    let name = |row| {
        let bytes = Columns(row).sure::<&[u8]>("list_1")?;
        a_name(bytes)
    };
    rows.iter().map(name).collect()
}

fn a_name(bytes: &[u8]) -> Result<LockName, LockError> {
    let text = std::str::from_utf8(bytes).ok();
    let name = text.and_then(|text| LockName::new(text).ok());
    name.ok_or_else(|| crate::error::foreign("a row stands under a name that is no lock name"))
}

/// Reads the states of names; a name without a row is free.
pub(crate) fn inspected(rows: &[Row], names: &[LockName]) -> Result<Vec<Snapshot>, LockError> {
    let mut found: HashMap<&[u8], Snapshot> =
        names.iter().map(|name| (name.as_str().as_bytes(), Snapshot::free(name.clone()))).collect();
    for row in rows {
        let row = Columns(row);
        if let Some(snapshot) = found.get_mut(row.sure::<&[u8]>("name")?) {
            add(snapshot, &row)?;
        }
    }
    Ok(names.iter().filter_map(|name| found.remove(name.as_str().as_bytes())).collect())
}

fn add(snapshot: &mut Snapshot, row: &Columns<'_>) -> Result<(), LockError> {
    match row.sure::<&str>("part")? {
        "name" => {
            snapshot.holder_count = row.count("holders")?;
            snapshot.queue_length = row.count("queued")?;
            let total = row.maybe::<i32>("total")?;
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

fn holder(row: &Columns<'_>) -> Result<HolderView, LockError> {
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
