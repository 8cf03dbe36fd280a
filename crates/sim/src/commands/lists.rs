//! Lists: the queues on which other libraries wait for a release.

use std::collections::VecDeque;

use super::{Command, DENY_OOM, FAST, READ, WRITE, one};
use crate::call::Call;
use crate::errors::CommandResult;
use crate::resp::Reply;

pub(crate) type List = VecDeque<Vec<u8>>;

pub(crate) const TABLE: &[Command] = &[
    one("lpush", -3, WRITE | DENY_OOM | FAST, lpush),
    one("llen", 2, READ | FAST, llen),
    one("lrange", 4, READ, lrange),
];

fn lpush(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let items = &call.args[2..];
    let list = call.make::<List>(key)?;
    items.iter().for_each(|item| list.push_front(item.to_vec()));
    let length = list.len();
    call.changed(key);
    Ok(Reply::count(length))
}

fn llen(call: &mut Call<'_>) -> CommandResult {
    Ok(Reply::count(call.find::<List>(call.args[1])?.map_or(0, |list| list.len())))
}

/// Returns the range between two indices; negative ones count from the end.
pub(crate) fn between(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let whole = i64::try_from(length).unwrap_or(i64::MAX);
    let start = if start < 0 { start.saturating_add(whole).max(0) } else { start };
    let end = if end < 0 { end.saturating_add(whole) } else { end }.min(whole - 1);
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => start..end + 1,
        _ => 0..0,
    }
}

fn lrange(call: &mut Call<'_>) -> CommandResult {
    let start = call.integer(2)?;
    let end = call.integer(3)?;
    let Some(list) = call.find::<List>(call.args[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let part = between(start, end, list.len());
    Ok(Reply::bulks(list.range(part).cloned()))
}
