//! Count-down latches: one row each, apart from those of the locks.

use holdline_core::{LatchCommand, LatchReply, LockName};

use crate::error::Fault;
use crate::keys;
use crate::rows::Rows;

/// Applies a command to the latch of this name.
pub(crate) fn ask(
    rows: Rows<'_>,
    name: &LockName,
    command: LatchCommand,
) -> Result<LatchReply, Fault> {
    let key = keys::latch(name);
    let row = rows.get(&key)?;
    let count = match &row {
        Some(text) => decode(text)?,
        None => 0,
    };
    let reply = command.apply(count);
    let text = reply.count.to_string().into_bytes();
    match (&row, reply.count) {
        _ if !reply.changed => {}
        (None, _) => rows.insert(&key, &text)?,
        (Some(_), 0) => rows.delete(&key)?,
        (Some(_), _) => rows.update(&key, &text)?,
    }
    Ok(reply)
}

fn decode(text: &[u8]) -> Result<u64, Fault> {
    let count = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    count.ok_or_else(|| Fault::Foreign("a latch that is no count".to_owned()))
}
