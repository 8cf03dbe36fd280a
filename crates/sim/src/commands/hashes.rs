//! Hashes: fields and values under one key.

use super::{Command, DENY_OOM, FAST, READ, WRITE, one};
use crate::call::Call;
use crate::data::Hash;
use crate::errors::{CommandResult, wrong_count};
use crate::resp::Reply;

/// Up to this size, a hash keeps the order of its fields, as in the server's compact encoding.
const COMPACT: usize = 512;

pub(crate) const TABLE: &[Command] = &[
    one("hset", -4, WRITE | DENY_OOM | FAST, hset),
    one("hsetnx", 4, WRITE | DENY_OOM | FAST, hsetnx),
    one("hget", 3, READ | FAST, hget),
    one("hmget", -3, READ | FAST, hmget),
    one("hgetall", 2, READ, hgetall),
    one("hdel", -3, WRITE | FAST, hdel),
    one("hlen", 2, READ | FAST, hlen),
];

fn hset(call: &mut Call<'_>) -> CommandResult {
    if call.args.len() % 2 == 1 {
        return Err(wrong_count(call.name));
    }
    let key = call.args[1];
    let pairs = &call.args[2..];
    let hash = call.make::<Hash>(key)?;
    let mut added = 0;
    for pair in pairs.chunks_exact(2) {
        added += i64::from(hash.insert(pair[0].to_vec(), pair[1].to_vec()).is_none());
    }
    call.changed(key);
    Ok(Reply::Integer(added))
}

fn hsetnx(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let field = call.args[2];
    let value = call.args[3];
    let hash = call.make::<Hash>(key)?;
    if hash.contains_key(field) {
        return Ok(Reply::Integer(0));
    }
    hash.insert(field.to_vec(), value.to_vec());
    call.changed(key);
    Ok(Reply::Integer(1))
}

fn hget(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let field = call.args[2];
    let value = call.find::<Hash>(key)?.and_then(|hash| hash.get(field));
    Ok(Reply::bulk_or_null(value.cloned()))
}

fn hmget(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let fields = &call.args[2..];
    let hash = call.find::<Hash>(key)?;
    let one = |field: &&[u8]| hash.as_ref().and_then(|hash| hash.get(*field)).cloned();
    Ok(Reply::Array(fields.iter().map(|field| Reply::bulk_or_null(one(field))).collect()))
}

fn hgetall(call: &mut Call<'_>) -> CommandResult {
    let hash = call.find::<Hash>(call.args[1])?;
    let pairs = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(Reply::Map(pairs.map(|(f, v)| (Reply::bulk(f), Reply::bulk(v))).collect()))
}

fn hdel(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let fields = &call.args[2..];
    let Some(hash) = call.find::<Hash>(key)? else { return Ok(Reply::Integer(0)) };
    let mut gone = 0;
    for field in fields {
        let compact = hash.len() <= COMPACT;
        let old = if compact { hash.shift_remove(*field) } else { hash.swap_remove(*field) };
        gone += i64::from(old.is_some());
    }
    if gone > 0 {
        call.changed(key);
    }
    Ok(Reply::Integer(gone))
}

fn hlen(call: &mut Call<'_>) -> CommandResult {
    Ok(Reply::count(call.find::<Hash>(call.args[1])?.map_or(0, |hash| hash.len())))
}
