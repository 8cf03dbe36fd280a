//! Streams, as far as an audit trail needs them: appending with ids of the server, and reading from
//! the end.
//!
//! `MAXLEN ~` trims exactly here; a real server removes whole nodes only, so it keeps a few more.

use super::{Command, DENY_OOM, FAST, READ, WRITE, one};
use crate::call::{Call, is};
use crate::data::{Stream, StreamId as Id};
use crate::errors::{CommandResult, ErrorReply, SYNTAX};
use crate::resp::Reply;

pub(crate) const TABLE: &[Command] = &[
    one("xadd", -5, WRITE | DENY_OOM | FAST, xadd),
    one("xlen", 2, READ | FAST, xlen),
    one("xrevrange", -4, READ, xrevrange),
];

fn count(text: &[u8]) -> Result<usize, ErrorReply> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or(SYNTAX.into())
}

/// `XADD key [MAXLEN [=|~] count] * field value …`
fn xadd(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let mut rest = &call.args[2..];
    let mut most = None;
    if let [word, more @ ..] = rest
        && is(word, "MAXLEN")
    {
        rest = more;
        if let [sign, more @ ..] = rest
            && matches!(*sign, b"~" | b"=")
        {
            rest = more;
        }
        let [number, more @ ..] = rest else { return Err(SYNTAX.into()) };
        most = Some(count(number)?);
        rest = more;
    }
    let [id, fields @ ..] = rest else { return Err(SYNTAX.into()) };
    if *id != b"*" || fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let fields = fields.iter().map(|field| field.to_vec()).collect();
    let now = u64::try_from(call.now_ms()).unwrap_or(0);
    let stream = call.make::<Stream>(key)?;
    let id = match stream.last_key_value() {
        Some((&(last, number), _)) if last >= now => (last, number + 1),
        _ => (now, 0),
    };
    stream.insert(id, fields);
    while most.is_some_and(|most| stream.len() > most) {
        stream.pop_first();
    }
    call.changed(key);
    Ok(Reply::Bulk(written(id)))
}

fn written((at, number): Id) -> Vec<u8> {
    format!("{at}-{number}").into_bytes()
}

fn xlen(call: &mut Call<'_>) -> CommandResult {
    Ok(Reply::count(call.find::<Stream>(call.args[1])?.map_or(0, |stream| stream.len())))
}

/// Reads an end of a range; `number` stands where the text has a time only.
fn end(text: &[u8], number: u64) -> Result<Id, ErrorReply> {
    let invalid = "ERR Invalid stream ID specified as stream command argument";
    match text {
        b"-" => return Ok((0, 0)),
        b"+" => return Ok((u64::MAX, u64::MAX)),
        _ => {}
    }
    let text = std::str::from_utf8(text).map_err(|_| invalid)?;
    let (at, number) = match text.split_once('-') {
        Some((at, number)) => (at, number.parse().map_err(|_| invalid)?),
        None => (text, number),
    };
    Ok((at.parse().map_err(|_| invalid)?, number))
}

/// `XREVRANGE key end start [COUNT count]`
fn xrevrange(call: &mut Call<'_>) -> CommandResult {
    let last = end(call.args[2], u64::MAX)?;
    let first = end(call.args[3], 0)?;
    let most = match &call.args[4..] {
        [] => usize::MAX,
        [word, number] if is(word, "COUNT") => count(number)?,
        _ => return Err(SYNTAX.into()),
    };
    let Some(stream) = call.find::<Stream>(call.args[1])?.filter(|_| first <= last) else {
        return Ok(Reply::Array(Vec::new()));
    };
    let entries = stream.range(first..=last).rev().take(most).map(|(id, fields)| {
        Reply::Array(vec![Reply::Bulk(written(*id)), Reply::bulks(fields.iter().cloned())])
    });
    Ok(Reply::Array(entries.collect()))
}
