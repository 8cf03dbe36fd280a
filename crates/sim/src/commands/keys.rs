//! Commands for keys of any type.

use super::{Command, FAST, READ, WRITE, keyless, many, one};
use crate::call::{Call, is};
use crate::errors::{CommandResult, ErrorReply, SYNTAX};
use crate::glob;
use crate::number;
use crate::resp::Reply;

pub(crate) const TABLE: &[Command] = &[
    many("del", -2, WRITE, del),
    many("exists", -2, READ | FAST, exists),
    one("type", 2, READ | FAST, kind),
    keyless("keys", 2, READ, keys),
    keyless("scan", -2, READ, scan),
    keyless("dbsize", 1, READ | FAST, dbsize),
    keyless("flushall", -1, WRITE, flushall),
];

fn del(call: &mut Call<'_>) -> CommandResult {
    Ok(Reply::count(call.args[1..].iter().filter(|key| call.remove(key)).count()))
}

fn exists(call: &mut Call<'_>) -> CommandResult {
    Ok(Reply::count(call.args[1..].iter().filter(|key| call.entry(key).is_some()).count()))
}

fn kind(call: &mut Call<'_>) -> CommandResult {
    let name = call.entry(call.args[1]).map_or("none", |entry| entry.value.kind());
    Ok(Reply::status(name))
}

fn keys(call: &mut Call<'_>) -> CommandResult {
    call.state.expire_all();
    let pattern = call.args[1];
    let space = call.space();
    let fitting = space.iter().filter(|(key, _)| glob::matches(pattern, key));
    Ok(Reply::bulks(fitting.map(|(key, _)| key.clone())))
}

/// The options of SCAN.
struct ScanOptions<'a> {
    cursor: u64,
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    fn read(cursor: &[u8], args: &[&'a [u8]]) -> Result<ScanOptions<'a>, ErrorReply> {
        let mut options =
            ScanOptions { cursor: self::cursor(cursor)?, pattern: None, count: 10, kind: None };
        for pair in args.chunks(2) {
            match pair {
                [word, count] if is(word, "COUNT") => {
                    let count = crate::call::integer(count)?;
                    options.count = usize::try_from(count).ok().filter(|c| *c > 0).ok_or(SYNTAX)?;
                }
                [word, pattern] if is(word, "MATCH") => options.pattern = Some(pattern),
                [word, kind] if is(word, "TYPE") => options.kind = Some(kind),
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(options)
    }

    fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// Reads the cursor of a scan.
fn cursor(text: &[u8]) -> Result<u64, ErrorReply> {
    let cursor = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    cursor.ok_or("ERR invalid cursor".into())
}

fn scan(call: &mut Call<'_>) -> CommandResult {
    let options = ScanOptions::read(call.args[1], &call.args[2..])?;
    let (next, mut keys) = call.space().scan(options.cursor, options.count);
    keys.retain(|key| {
        let kind = call.entry(key).map(|entry| entry.value.kind());
        let fits = |kind: &str| options.kind.is_none_or(|wanted| is(wanted, kind));
        kind.is_some_and(fits) && options.fits(key)
    });
    Ok(Reply::Array(vec![Reply::bulk(next.to_string().as_bytes()), Reply::bulks(keys)]))
}

fn dbsize(call: &mut Call<'_>) -> CommandResult {
    call.state.expire_all();
    Ok(Reply::count(call.space().len()))
}

fn flushall(call: &mut Call<'_>) -> CommandResult {
    match &call.args[1..] {
        [] => {}
        [word] if is(word, "SYNC") || is(word, "ASYNC") => {}
        _ => return Err(SYNTAX.into()),
    }
    call.state.flush();
    Ok(Reply::OK)
}

/// Reads the number of a database.
pub(crate) fn database(text: &[u8], error: &'static str) -> Result<usize, ErrorReply> {
    let number = number::strict(text).ok_or(error)?;
    let known = usize::try_from(number).ok().filter(|db| *db < crate::state::DATABASES);
    known.ok_or("ERR DB index is out of range".into())
}
