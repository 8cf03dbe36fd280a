//! Lists: queues of waiters and tokens to pop.

use std::collections::VecDeque;

use super::{Command, DENY_OOM, FAST, READ, WRITE, one};
use crate::call::{Call, is};
use crate::refusal::{Answer, NO_SUCH_KEY, NOT_POSITIVE, Refusal, SYNTAX, wrong_count};
use crate::resp::Reply;

pub(crate) type List = VecDeque<Vec<u8>>;

/// Which end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Left,
    Right,
}

impl End {
    pub(crate) fn read(word: &[u8]) -> Result<End, Refusal> {
        if is(word, "LEFT") {
            Ok(End::Left)
        } else if is(word, "RIGHT") {
            Ok(End::Right)
        } else {
            Err(SYNTAX.into())
        }
    }

    pub(crate) fn pop(self, list: &mut List) -> Option<Vec<u8>> {
        if self == End::Left { list.pop_front() } else { list.pop_back() }
    }

    fn push(self, list: &mut List, item: Vec<u8>) {
        if self == End::Left { list.push_front(item) } else { list.push_back(item) }
    }
}

pub(crate) const TABLE: &[Command] = &[
    one("lpush", -3, WRITE | DENY_OOM | FAST, |call| push(call, End::Left, false)),
    one("rpush", -3, WRITE | DENY_OOM | FAST, |call| push(call, End::Right, false)),
    one("lpushx", -3, WRITE | DENY_OOM | FAST, |call| push(call, End::Left, true)),
    one("rpushx", -3, WRITE | DENY_OOM | FAST, |call| push(call, End::Right, true)),
    one("lpop", -2, WRITE | FAST, |call| pop(call, End::Left)),
    one("rpop", -2, WRITE | FAST, |call| pop(call, End::Right)),
    one("llen", 2, READ | FAST, llen),
    one("lrange", 4, READ, lrange),
    one("lindex", 3, READ, lindex),
    one("lset", 4, WRITE | DENY_OOM, lset),
    one("lrem", 4, WRITE, lrem),
    one("ltrim", 4, WRITE, ltrim),
    one("linsert", 5, WRITE | DENY_OOM, linsert),
    one("lpos", -3, READ, lpos),
    Command {
        keys: (1, 2, 1),
        ..one("lmove", 5, WRITE | DENY_OOM, |call| {
            let (from, to) = (End::read(call.args[3])?, End::read(call.args[4])?);
            move_between(call, from, to)
        })
    },
    Command {
        keys: (1, 2, 1),
        ..one("rpoplpush", 3, WRITE | DENY_OOM, |call| move_between(call, End::Right, End::Left))
    },
];

fn push(call: &mut Call<'_>, end: End, only_there: bool) -> Answer {
    let (key, items) = (call.args[1], &call.args[2..]);
    if only_there && call.find::<List>(key)?.is_none() {
        return Ok(Reply::Integer(0));
    }
    let list = call.make::<List>(key)?;
    items.iter().for_each(|item| end.push(list, item.to_vec()));
    let length = list.len();
    call.changed(key);
    call.state.ready.push((call.db, key.to_vec()));
    Ok(Reply::count(length))
}

fn pop(call: &mut Call<'_>, end: End) -> Answer {
    let key = call.args[1];
    let count = match &call.args[2..] {
        [] => None,
        [count] => {
            let count = crate::number::strict(count).and_then(|c| usize::try_from(c).ok());
            Some(count.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(wrong_count(call.name)),
    };
    let Some(list) = call.find::<List>(key)? else {
        return Ok(if count.is_some() { Reply::NullArray } else { Reply::Null });
    };
    let Some(count) = count else {
        let item = end.pop(list);
        call.changed(key);
        return Ok(Reply::bulk_or_null(item));
    };
    let taken: Vec<_> = std::iter::from_fn(|| end.pop(list)).take(count).collect();
    if !taken.is_empty() {
        call.changed(key);
    }
    Ok(Reply::bulks(taken))
}

fn llen(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.find::<List>(call.args[1])?.map_or(0, |list| list.len())))
}

/// The part of a length that two places, counted from either end, enclose.
pub(crate) fn between(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let whole = i64::try_from(length).unwrap_or(i64::MAX);
    let start = if start < 0 { start.saturating_add(whole).max(0) } else { start };
    let end = if end < 0 { end.saturating_add(whole) } else { end }.min(whole - 1);
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => start..end + 1,
        _ => 0..0,
    }
}

fn lrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let Some(list) = call.find::<List>(call.args[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let part = between(start, end, list.len());
    Ok(Reply::bulks(list.range(part).cloned()))
}

/// Where a place counted from either end is.
fn place(at: i64, length: usize) -> Option<usize> {
    let whole = i64::try_from(length).unwrap_or(i64::MAX);
    let at = if at < 0 { at.saturating_add(whole) } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

fn lindex(call: &mut Call<'_>) -> Answer {
    // The key comes first: a wrong type is told even if the number is none.
    let key = call.args[1];
    if call.find::<List>(key)?.is_none() {
        return Ok(Reply::Null);
    }
    let at = call.integer(2)?;
    let list = call.find::<List>(key)?;
    let item = list.and_then(|list| list.get(place(at, list.len())?));
    Ok(Reply::bulk_or_null(item.cloned()))
}

fn lset(call: &mut Call<'_>) -> Answer {
    let (key, value) = (call.args[1], call.args[3]);
    if call.find::<List>(key)?.is_none() {
        return Err(NO_SUCH_KEY.into());
    }
    let at = call.integer(2)?;
    let list = call.find::<List>(key)?.ok_or(NO_SUCH_KEY)?;
    let at = place(at, list.len()).ok_or("ERR index out of range")?;
    list[at] = value.to_vec();
    call.changed(key);
    Ok(Reply::OK)
}

fn lrem(call: &mut Call<'_>) -> Answer {
    let (key, wanted) = (call.args[1], call.args[3]);
    let count = call.integer(2)?;
    let Some(list) = call.find::<List>(key)? else { return Ok(Reply::Integer(0)) };
    let limit = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut gone = 0;
    let mut keep = |item: &Vec<u8>| {
        let goes = gone < limit && item == wanted;
        gone += u64::from(goes);
        !goes
    };
    if count < 0 {
        let mut reversed: List = std::mem::take(list).into_iter().rev().collect();
        reversed.retain(&mut keep);
        *list = reversed.into_iter().rev().collect();
    } else {
        list.retain(&mut keep);
    }
    if gone > 0 {
        call.changed(key);
    }
    Ok(Reply::Integer(i64::try_from(gone).unwrap_or(i64::MAX)))
}

fn ltrim(call: &mut Call<'_>) -> Answer {
    let key = call.args[1];
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let Some(list) = call.find::<List>(key)? else { return Ok(Reply::OK) };
    let part = between(start, end, list.len());
    list.truncate(part.end);
    list.drain(..part.start);
    call.changed(key);
    Ok(Reply::OK)
}

fn linsert(call: &mut Call<'_>) -> Answer {
    let (key, pivot, value) = (call.args[1], call.args[3], call.args[4]);
    let after = is(call.args[2], "AFTER");
    if !after && !is(call.args[2], "BEFORE") {
        return Err(SYNTAX.into());
    }
    let Some(list) = call.find::<List>(key)? else { return Ok(Reply::Integer(0)) };
    let Some(at) = list.iter().position(|item| item == pivot) else {
        return Ok(Reply::Integer(-1));
    };
    list.insert(at + usize::from(after), value.to_vec());
    let length = list.len();
    call.changed(key);
    Ok(Reply::count(length))
}

/// What LPOS is asked for.
struct PosOptions {
    rank: i64,
    count: Option<usize>,
    longest: usize,
}

impl PosOptions {
    fn read(args: &[&[u8]]) -> Result<PosOptions, Refusal> {
        const ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from \
             the second ... or use negative to start from the end of the list";
        let mut options = PosOptions { rank: 1, count: None, longest: 0 };
        for pair in args.chunks(2) {
            let [word, number] = pair else { return Err(SYNTAX.into()) };
            let size = |number: &[u8], error: &'static str| {
                let number = crate::number::strict(number).filter(|number| *number >= 0);
                number.and_then(|number| usize::try_from(number).ok()).ok_or(Refusal::from(error))
            };
            if is(word, "RANK") {
                options.rank = crate::call::integer(number)?;
                if options.rank == 0 {
                    return Err(ZERO.into());
                }
            } else if is(word, "COUNT") {
                options.count = Some(size(number, "ERR COUNT can't be negative")?);
            } else if is(word, "MAXLEN") {
                options.longest = size(number, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(options)
    }

    fn places(&self, list: &List, wanted: &[u8]) -> Vec<usize> {
        let limit = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let looked = if self.longest == 0 { list.len() } else { self.longest };
        // The least number has no opposite: the server counts from its end, and skips nothing.
        let past = self.rank.checked_abs().unwrap_or(1) - 1;
        let skip = usize::try_from(past).unwrap_or(usize::MAX);
        let hit = |(at, item): (usize, &Vec<u8>)| (item == wanted).then_some(at);
        let items = list.iter().enumerate();
        if self.rank < 0 {
            items.rev().take(looked).filter_map(hit).skip(skip).take(limit).collect()
        } else {
            items.take(looked).filter_map(hit).skip(skip).take(limit).collect()
        }
    }
}

fn lpos(call: &mut Call<'_>) -> Answer {
    let options = PosOptions::read(&call.args[3..])?;
    let (key, wanted) = (call.args[1], call.args[2]);
    let list = call.find::<List>(key)?;
    let places = list.map(|list| options.places(list, wanted)).unwrap_or_default();
    Ok(match options.count {
        Some(_) => Reply::Array(places.into_iter().map(Reply::count).collect()),
        None => places.first().map_or(Reply::Null, |at| Reply::count(*at)),
    })
}

pub(crate) fn move_between(call: &mut Call<'_>, from: End, to: End) -> Answer {
    let (source, target) = (call.args[1], call.args[2]);
    if call.find::<List>(source)?.is_none() {
        return Ok(Reply::Null);
    }
    call.find::<List>(target)?;
    let item = call.find::<List>(source)?.and_then(|list| from.pop(list));
    let Some(item) = item else { return Ok(Reply::Null) };
    if source != target {
        call.changed(source);
    }
    to.push(call.make::<List>(target)?, item.clone());
    call.changed(target);
    call.state.ready.push((call.db, target.to_vec()));
    Ok(Reply::Bulk(item))
}
