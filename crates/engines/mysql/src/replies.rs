//! Decodes the replies that only MariaDB has: those to a batch of renewals.

use std::time::Duration;

use holdline_core::{LockError, RenewReply};

use crate::error::protocol;
use crate::rows::{Set, only};

/// Reads the reply to one renewal of a batch: outcome, rest, place, next look and note. `None`:
/// another session has locked the name's row, and nothing was applied.
fn renewal(words: &str) -> Result<Option<RenewReply>, LockError> {
    let odd = || protocol("a renewal of the batch has another shape");
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
        "held" => RenewReply::Held { left: Some(duration(rest)?) },
        "revoked" => RenewReply::Revoked {
            reason: from_hex(note).ok_or_else(odd)?,
            left: Some(duration(rest)?),
        },
        "unknown" => RenewReply::Unknown,
        _ => return Err(odd()),
    }))
}

fn from_hex(word: &str) -> Option<String> {
    let digits = word.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.map(byte).collect();
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The replies to the renewals of a batch; `None` if the name's row was locked.
pub(crate) type BatchReplies = Vec<Result<Option<RenewReply>, LockError>>;

/// Reads the replies to a batch, whose renewals were sent in this order.
pub(crate) fn renewed(answer: &[Set], order: &[usize]) -> Result<BatchReplies, LockError> {
    let text: &str = only(answer)?.sure("answers")?;
    let missing = || Err(protocol("a renewal of the batch was not answered"));
    let mut replies: BatchReplies = order.iter().map(|_| missing()).collect();
    for (at, words) in order.iter().zip(text.lines()) {
        if let Some(reply) = replies.get_mut(*at) {
            *reply = renewal(words);
        }
    }
    Ok(replies)
}
