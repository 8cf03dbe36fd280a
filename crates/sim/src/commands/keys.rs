//! Keys of any kind: there or not, of which kind, all of them.

use super::{Command, DENY_OOM, FAST, READ, WRITE, container, keyless, many, one};
use crate::call::{Call, is};
use crate::data::Entry;
use crate::glob;
use crate::number;
use crate::refusal::{Answer, NO_SUCH_KEY, Refusal, SYNTAX};
use crate::resp::Reply;

pub(crate) const TABLE: &[Command] = &[
    many("del", -2, WRITE, del),
    many("unlink", -2, WRITE | FAST, del),
    many("exists", -2, READ | FAST, exists),
    many("touch", -2, READ | FAST, exists),
    one("type", 2, READ | FAST, kind),
    keyless("keys", 2, READ, keys),
    keyless("scan", -2, READ, scan),
    keyless("dbsize", 1, READ | FAST, dbsize),
    keyless("randomkey", 1, READ, randomkey),
    Command { keys: (1, 2, 1), ..one("rename", 3, WRITE, |call| rename(call, false)) },
    Command { keys: (1, 2, 1), ..one("renamenx", 3, WRITE | FAST, |call| rename(call, true)) },
    Command { keys: (1, 2, 1), ..one("copy", -3, WRITE | DENY_OOM, copy) },
    one("delex", -2, WRITE | FAST, delex),
    keyless("flushdb", -1, WRITE, |call| flush(call, false)),
    keyless("flushall", -1, WRITE, |call| flush(call, true)),
    container("object", OBJECT),
];

const OBJECT: &[Command] = &[
    Command { keys: (2, 2, 1), ..one("object|encoding", 3, READ, encoding) },
    Command { keys: (2, 2, 1), ..one("object|refcount", 3, READ, refcount) },
    Command { keys: (2, 2, 1), ..one("object|idletime", 3, READ, idletime) },
];

fn del(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.args[1..].iter().filter(|key| call.remove(key)).count()))
}

fn exists(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.args[1..].iter().filter(|key| call.entry(key).is_some()).count()))
}

fn kind(call: &mut Call<'_>) -> Answer {
    let name = call.entry(call.args[1]).map_or("none", |entry| entry.value.kind());
    Ok(Reply::status(name))
}

/// DELEX of Redis 8.4: deletes if the value is, or is not, the one given.
fn delex(call: &mut Call<'_>) -> Answer {
    let key = call.args[1];
    let equal = match &call.args[2..] {
        [] => return Ok(Reply::flag(call.remove(key))),
        [word, value] if is(word, "IFEQ") => (true, *value),
        [word, value] if is(word, "IFNE") => (false, *value),
        _ => return Err(SYNTAX.into()),
    };
    let Some(value) = call.find::<Vec<u8>>(key)? else { return Ok(Reply::Integer(0)) };
    if (value.as_slice() == equal.1) != equal.0 {
        return Ok(Reply::Integer(0));
    }
    Ok(Reply::flag(call.remove(key)))
}

fn keys(call: &mut Call<'_>) -> Answer {
    call.state.expire_all();
    let pattern = call.args[1];
    let space = call.space();
    let fitting = space.iter().filter(|(key, _)| glob::matches(pattern, key));
    Ok(Reply::bulks(fitting.map(|(key, _)| key.clone())))
}

/// What the SCAN family is asked for.
pub(crate) struct ScanOptions<'a> {
    cursor: u64,
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    pub(crate) fn read(
        cursor: &[u8],
        args: &[&'a [u8]],
        typed: bool,
    ) -> Result<ScanOptions<'a>, Refusal> {
        let mut options =
            ScanOptions { cursor: self::cursor(cursor)?, pattern: None, count: 10, kind: None };
        for pair in args.chunks(2) {
            match pair {
                [word, count] if is(word, "COUNT") => {
                    let count = crate::call::integer(count)?;
                    options.count = usize::try_from(count).ok().filter(|c| *c > 0).ok_or(SYNTAX)?;
                }
                [word, pattern] if is(word, "MATCH") => options.pattern = Some(pattern),
                [word, kind] if typed && is(word, "TYPE") => options.kind = Some(kind),
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(options)
    }

    pub(crate) fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// The one page of a scan through nothing.
pub(crate) fn empty_page() -> Reply {
    page(std::iter::empty())
}

/// Reads where a scan goes on.
pub(crate) fn cursor(text: &[u8]) -> Result<u64, Refusal> {
    let cursor = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    cursor.ok_or("ERR invalid cursor".into())
}

/// The one page of a scan through a collection: all of it.
pub(crate) fn page(items: impl Iterator<Item = Vec<u8>>) -> Reply {
    Reply::Array(vec![Reply::bulk(b"0"), Reply::bulks(items)])
}

fn scan(call: &mut Call<'_>) -> Answer {
    let options = ScanOptions::read(call.args[1], &call.args[2..], true)?;
    let (next, mut keys) = call.space().scan(options.cursor, options.count);
    keys.retain(|key| {
        let kind = call.entry(key).map(|entry| entry.value.kind());
        let fits = |kind: &str| options.kind.is_none_or(|wanted| is(wanted, kind));
        kind.is_some_and(fits) && options.fits(key)
    });
    Ok(Reply::Array(vec![Reply::bulk(next.to_string().as_bytes()), Reply::bulks(keys)]))
}

fn dbsize(call: &mut Call<'_>) -> Answer {
    call.state.expire_all();
    Ok(Reply::count(call.space().len()))
}

fn randomkey(call: &mut Call<'_>) -> Answer {
    call.state.expire_all();
    let count = call.space().len();
    let at = usize::try_from(call.state.dice.below(count as u64)).unwrap_or(0);
    let key = call.space().iter().nth(at).map(|(key, _)| key.clone());
    Ok(Reply::bulk_or_null(key))
}

fn rename(call: &mut Call<'_>, only_new: bool) -> Answer {
    let (from, to) = (call.args[1], call.args[2]);
    if call.entry(from).is_none() {
        return Err(NO_SUCH_KEY.into());
    }
    let taken = call.entry(to).is_some();
    if only_new && taken {
        return Ok(Reply::Integer(0));
    }
    if from != to
        && let Some(entry) = call.space().remove(from)
    {
        call.changed(from);
        call.put(to, entry);
    }
    Ok(if only_new { Reply::Integer(1) } else { Reply::OK })
}

fn copy(call: &mut Call<'_>) -> Answer {
    let (from, to) = (call.args[1], call.args[2]);
    let replace = match &call.args[3..] {
        [] => false,
        [word] if is(word, "REPLACE") => true,
        _ => return Err(SYNTAX.into()),
    };
    if from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(entry) = call.entry(from).cloned() else { return Ok(Reply::Integer(0)) };
    if !replace && call.entry(to).is_some() {
        return Ok(Reply::Integer(0));
    }
    call.put(to, entry);
    Ok(Reply::Integer(1))
}

fn flush(call: &mut Call<'_>, all: bool) -> Answer {
    match &call.args[1..] {
        [] => {}
        [word] if is(word, "SYNC") || is(word, "ASYNC") => {}
        _ => return Err(SYNTAX.into()),
    }
    let db = call.db;
    call.state.flush((!all).then_some(db));
    Ok(Reply::OK)
}

fn entry_of<'b>(call: &'b mut Call<'_>) -> Option<&'b mut Entry> {
    call.entry(call.args[2])
}

fn encoding(call: &mut Call<'_>) -> Answer {
    let name = entry_of(call).map(|entry| entry.value.encoding().as_bytes().to_vec());
    Ok(Reply::bulk_or_null(name))
}

fn refcount(call: &mut Call<'_>) -> Answer {
    Ok(entry_of(call).map_or(Reply::Null, |_| Reply::Integer(1)))
}

fn idletime(call: &mut Call<'_>) -> Answer {
    Ok(entry_of(call).map_or(Reply::Null, |_| Reply::Integer(0)))
}

/// Reads the number of a database.
pub(crate) fn database(text: &[u8], error: &'static str) -> Result<usize, Refusal> {
    let number = number::strict(text).ok_or(error)?;
    let known = usize::try_from(number).ok().filter(|db| *db < crate::state::DATABASES);
    known.ok_or("ERR DB index is out of range".into())
}
