//! Strings: the commands of simple locks.

use super::{Command, DENY_OOM, FAST, READ, WRITE, many, one};
use crate::call::{Call, is};
use crate::commands::expiry::{Unit, deadline};
use crate::data::{KeyEntry, Value};
use crate::errors::{CommandResult, ErrorReply, NOT_INTEGER, OVERFLOW, SYNTAX};
use crate::number;
use crate::resp::Reply;

const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// The largest length of a string.
const LONGEST: i64 = 512 * 1024 * 1024;

pub(crate) const TABLE: &[Command] = &[
    one("set", -3, WRITE | DENY_OOM, set),
    one("get", 2, READ | FAST, get),
    one("getset", 3, WRITE | DENY_OOM | FAST, getset),
    one("setrange", 4, WRITE | DENY_OOM, setrange),
    one("getrange", 4, READ, getrange),
    one("incr", 2, WRITE | DENY_OOM | FAST, incr),
    many("mget", -2, READ | FAST, mget),
];

/// The options of SET.
#[derive(Default)]
struct SetOptions<'a> {
    absent: bool,
    present: bool,
    get: bool,
    keep: bool,
    end: Option<(Unit, &'a [u8])>,
}

impl<'a> SetOptions<'a> {
    fn read(args: &[&'a [u8]]) -> Result<SetOptions<'a>, ErrorReply> {
        let mut options = SetOptions::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let alone = options.end.is_none() && !options.keep;
            let unit = Unit::ALL.into_iter().find(|unit| is(word, unit.option()));
            if is(word, "NX") && !options.present {
                options.absent = true;
            } else if is(word, "XX") && !options.absent {
                options.present = true;
            } else if is(word, "GET") {
                options.get = true;
            } else if is(word, "KEEPTTL") && options.end.is_none() {
                options.keep = true;
            } else if let Some(unit) = unit.filter(|_| alone) {
                options.end = Some((unit, words.next().ok_or(SYNTAX)?));
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(options)
    }
}

fn set(call: &mut Call<'_>) -> CommandResult {
    let options = SetOptions::read(&call.args[3..])?;
    let end = options.end.map(|(unit, text)| deadline(call, unit, text)).transpose()?;
    let key = call.args[1];
    let old = if options.get { call.find::<Vec<u8>>(key)?.cloned() } else { None };
    let there = call.entry(key).is_some();
    let met = !(options.absent && there) && (there || !options.present);
    if met {
        let kept = if options.keep { call.entry(key).and_then(|e| e.expires_at) } else { end };
        let value = Value::String(call.args[2].to_vec());
        call.put(key, KeyEntry { expires_at: kept, ..KeyEntry::new(value) });
    }
    Ok(if options.get {
        Reply::bulk_or_null(old)
    } else if met {
        Reply::OK
    } else {
        Reply::Null
    })
}

fn get(call: &mut Call<'_>) -> CommandResult {
    Ok(Reply::bulk_or_null(call.find::<Vec<u8>>(call.args[1])?.cloned()))
}

fn getset(call: &mut Call<'_>) -> CommandResult {
    let old = get(call)?;
    let value = Value::String(call.args[2].to_vec());
    call.put(call.args[1], KeyEntry::new(value));
    Ok(old)
}

fn setrange(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let patch = call.args[3];
    let offset = call.integer(2)?;
    if offset < 0 {
        return Err("ERR offset is out of range".into());
    }
    let length = call.find::<Vec<u8>>(key)?.map_or(0, |text| text.len());
    if patch.is_empty() {
        return Ok(Reply::count(length));
    }
    let end = i64::try_from(patch.len()).ok().and_then(|more| offset.checked_add(more));
    let (Some(end), Ok(offset)) = (end.filter(|end| *end <= LONGEST), usize::try_from(offset))
    else {
        return Err(TOO_LONG.into());
    };
    let text = call.make::<Vec<u8>>(key)?;
    let end = usize::try_from(end).unwrap_or(0);
    if text.len() < end {
        text.resize(end, 0);
    }
    text[offset..end].copy_from_slice(patch);
    let length = text.len();
    call.changed(key);
    Ok(Reply::count(length))
}

fn getrange(call: &mut Call<'_>) -> CommandResult {
    let start = call.integer(2)?;
    let end = call.integer(3)?;
    let Some(text) = call.find::<Vec<u8>>(call.args[1])? else {
        return Ok(Reply::Bulk(Vec::new()));
    };
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::Bulk(Vec::new()));
    }
    let from = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let start = from(start);
    let end = from(end).min(length - 1);
    if start > end || length == 0 {
        return Ok(Reply::Bulk(Vec::new()));
    }
    let at = |place: i64| usize::try_from(place).unwrap_or(0);
    Ok(Reply::bulk(&text[at(start)..=at(end)]))
}

fn incr(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let old = match call.find::<Vec<u8>>(key)? {
        Some(text) => number::strict(text).ok_or(NOT_INTEGER)?,
        None => 0,
    };
    let new = old.checked_add(1).ok_or(OVERFLOW)?;
    *call.make::<Vec<u8>>(key)? = new.to_string().into_bytes();
    call.changed(key);
    Ok(Reply::Integer(new))
}

fn mget(call: &mut Call<'_>) -> CommandResult {
    let keys = &call.args[1..];
    let one = |key: &&[u8]| match call.find::<Vec<u8>>(key) {
        Ok(Some(text)) => Reply::Bulk(text.clone()),
        _ => Reply::Null,
    };
    Ok(Reply::Array(keys.iter().map(one).collect()))
}
