//! The expiry of keys.

use super::{Command, FAST, READ, WRITE, one};
use crate::call::{Call, integer, is};
use crate::errors::{CommandResult, ErrorReply, invalid_expire};
use crate::resp::Reply;

pub(crate) const TABLE: &[Command] =
    &[one("pexpire", -3, WRITE | FAST, expire), one("pttl", 2, READ | FAST, time_left)];

/// The format of an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    SecondsAt,
    MillisecondsAt,
}

impl Unit {
    pub(crate) const ALL: [Unit; 4] =
        [Unit::Seconds, Unit::Milliseconds, Unit::SecondsAt, Unit::MillisecondsAt];

    /// Returns its option in SET.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Unit::Seconds => "EX",
            Unit::Milliseconds => "PX",
            Unit::SecondsAt => "EXAT",
            Unit::MillisecondsAt => "PXAT",
        }
    }

    fn in_seconds(self) -> bool {
        matches!(self, Unit::Seconds | Unit::SecondsAt)
    }

    fn is_relative(self) -> bool {
        matches!(self, Unit::Seconds | Unit::Milliseconds)
    }
}

/// Reads the expiry of SET, in unix milliseconds.
pub(crate) fn deadline(call: &Call<'_>, unit: Unit, text: &[u8]) -> Result<i64, ErrorReply> {
    let number = integer(text)?;
    let invalid = || invalid_expire(call.name);
    if number <= 0 {
        return Err(invalid());
    }
    absolute(call, unit, number).ok_or_else(invalid)
}

fn absolute(call: &Call<'_>, unit: Unit, number: i64) -> Option<i64> {
    let number = if unit.in_seconds() { number.checked_mul(1000)? } else { number };
    let base = if unit.is_relative() { call.now_ms() } else { 0 };
    number.checked_add(base)
}

/// The conditions of PEXPIRE.
#[derive(Debug, Clone, Copy, Default)]
struct ExpireConditions {
    without: bool,
    with: bool,
    later: bool,
    sooner: bool,
}

impl ExpireConditions {
    fn read(args: &[&[u8]]) -> Result<ExpireConditions, ErrorReply> {
        let mut conditions = ExpireConditions::default();
        for word in args {
            match word {
                word if is(word, "NX") => conditions.without = true,
                word if is(word, "XX") => conditions.with = true,
                word if is(word, "GT") => conditions.later = true,
                word if is(word, "LT") => conditions.sooner = true,
                other => {
                    let mut text = b"ERR Unsupported option ".to_vec();
                    text.extend_from_slice(other);
                    return Err(ErrorReply(text.into()));
                }
            }
        }
        if conditions.without && (conditions.with || conditions.later || conditions.sooner) {
            let says = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(says.into());
        }
        if conditions.later && conditions.sooner {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(conditions)
    }

    /// Returns whether an expiry may change from `old` to `new`. `None` never expires.
    fn allows(self, old: Option<i64>, new: i64) -> bool {
        !(self.without && old.is_some()
            || self.with && old.is_none()
            || self.later && old.is_none_or(|old| new <= old)
            || self.sooner && old.is_some_and(|old| new >= old))
    }
}

fn expire(call: &mut Call<'_>) -> CommandResult {
    let conditions = ExpireConditions::read(&call.args[3..])?;
    let number = call.integer(2)?;
    let invalid = || invalid_expire(call.name);
    let when = absolute(call, Unit::Milliseconds, number).ok_or_else(invalid)?;
    let key = call.args[1];
    let now = call.now_ms();
    let Some(entry) = call.entry(key) else { return Ok(Reply::Integer(0)) };
    if !conditions.allows(entry.expires_at, when) {
        return Ok(Reply::Integer(0));
    }
    entry.expires_at = Some(when);
    if when <= now {
        call.space().remove(key);
    }
    call.changed(key);
    Ok(Reply::Integer(1))
}

fn time_left(call: &mut Call<'_>) -> CommandResult {
    let now = call.now_ms();
    Ok(Reply::Integer(match call.entry(call.args[1]) {
        None => -2,
        Some(entry) => entry.expires_at.map_or(-1, |end| end.wrapping_sub(now).max(0)),
    }))
}
