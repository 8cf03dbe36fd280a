//! The audit trail: a stream of the server, and its entries as records.

use holdline_core::audit::MAX_RECORDS;
use holdline_core::{AuditEntry, AuditId, AuditPage, AuditRecord, AuditRequest, LockError};

use super::RequestContext;
use super::replies::ScriptReply;
use crate::args::Args;
use crate::error::protocol;
use crate::link::{Call, RoutingPolicy, Value};

/// Makes the call that appends a record.
pub(crate) fn append(context: &RequestContext, record: &AuditRecord) -> Call {
    let text = record.to_encoded();
    call(context, Args::from(["append".to_owned(), MAX_RECORDS.to_string(), text]))
}

/// Makes the call that reads a page.
pub(crate) fn read(context: &RequestContext, request: &AuditRequest) -> Call {
    let last = request.before.map_or_else(|| "+".to_owned(), |id| before(id).to_string());
    let first = request.since_ms.to_string();
    let limit = request.limit().to_string();
    call(context, Args::from(["read".to_owned(), last, first, limit]))
}

fn call(context: &RequestContext, arguments: Args) -> Call {
    Call {
        script: context.scripts.audit(),
        keys: Args::from([context.layout.audit()]),
        arguments,
        routing: RoutingPolicy::Any,
        deadline: context.deadline,
    }
}

/// Returns the largest id before this one.
fn before(id: AuditId) -> AuditId {
    match id.number.checked_sub(1) {
        Some(number) => AuditId { number, ..id },
        None => AuditId { at_ms: id.at_ms.saturating_sub(1), number: u64::MAX },
    }
}

/// Reads the reply to an append.
pub(crate) fn appended(value: &Value) -> Result<(), LockError> {
    let reply = ScriptReply::of(value)?;
    if reply.status == "done" { Ok(()) } else { Err(reply.unknown_status()) }
}

/// Reads the reply to a read.
pub(crate) fn page(value: &Value, request: &AuditRequest) -> Result<AuditPage, LockError> {
    let reply = ScriptReply::of(value)?;
    if reply.status != "audit" {
        return Err(reply.unknown_status());
    }
    let entries = reply.part(0)?.as_array().ok_or_else(|| reply.unexpected(0))?;
    let entries = entries.iter().map(|entry| {
        let parts = entry.as_array().unwrap_or_default();
        let id = parts.first().and_then(Value::as_text).and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| protocol("an entry of the audit trail has no id"))?;
        // A user that may write the stream may add any fields: those are shown as unreadable.
        let fields = parts.get(1).and_then(Value::as_array).unwrap_or_default();
        let text = match fields {
            [name, text] if name.as_text() == Some("r") => text.as_bytes(),
            _ => None,
        };
        Ok(AuditEntry { id, record: AuditRecord::from_encoded(text.unwrap_or_default()) })
    });
    Ok(AuditPage::of(entries.collect::<Result<_, LockError>>()?, request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_before_the_first_of_a_millisecond_is_of_the_one_before() {
        for (id, expected) in [
            ((7, 3), "7-2"),
            ((7, 0), "6-18446744073709551615"),
            ((0, 0), "0-18446744073709551615"),
        ] {
            let id = AuditId { at_ms: id.0, number: id.1 };
            assert_eq!(before(id).to_string(), expected);
        }
    }
}
