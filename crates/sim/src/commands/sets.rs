//! Sets: members without order.

use super::{Command, DENY_OOM, FAST, READ, WRITE, many, one};
use crate::call::Call;
use crate::commands::keys::{ScanOptions, cursor, empty_page, page};
use crate::data::Members;
use crate::refusal::{Answer, NOT_POSITIVE, Refusal, SYNTAX};
use crate::resp::Reply;

pub(crate) const TABLE: &[Command] = &[
    one("sadd", -3, WRITE | DENY_OOM | FAST, sadd),
    one("srem", -3, WRITE | FAST, srem),
    one("sismember", 3, READ | FAST, sismember),
    one("smismember", -3, READ | FAST, smismember),
    one("smembers", 2, READ, smembers),
    one("scard", 2, READ | FAST, scard),
    one("spop", -2, WRITE | FAST, spop),
    one("srandmember", -2, READ, srandmember),
    Command { keys: (1, 2, 1), ..one("smove", 4, WRITE | FAST, smove) },
    many("sinter", -2, READ, |call| combined(call, inter)),
    many("sunion", -2, READ, |call| combined(call, union)),
    many("sdiff", -2, READ, |call| combined(call, difference)),
    one("sscan", -3, READ, sscan),
];

fn sadd(call: &mut Call<'_>) -> Answer {
    let (key, members) = (call.args[1], &call.args[2..]);
    let set = call.make::<Members>(key)?;
    let added = members.iter().filter(|member| set.insert(member.to_vec())).count();
    if added > 0 {
        call.changed(key);
    }
    Ok(Reply::count(added))
}

fn srem(call: &mut Call<'_>) -> Answer {
    let (key, members) = (call.args[1], &call.args[2..]);
    let Some(set) = call.find::<Members>(key)? else { return Ok(Reply::Integer(0)) };
    let gone = members.iter().filter(|member| set.swap_remove(**member)).count();
    if gone > 0 {
        call.changed(key);
    }
    Ok(Reply::count(gone))
}

fn sismember(call: &mut Call<'_>) -> Answer {
    let (key, member) = (call.args[1], call.args[2]);
    Ok(Reply::flag(call.find::<Members>(key)?.is_some_and(|set| set.contains(member))))
}

fn smismember(call: &mut Call<'_>) -> Answer {
    let (key, members) = (call.args[1], &call.args[2..]);
    let set = call.find::<Members>(key)?;
    let one = |member: &&[u8]| set.as_ref().is_some_and(|set| set.contains(*member));
    Ok(Reply::Array(members.iter().map(|member| Reply::flag(one(member))).collect()))
}

fn as_reply(set: &Members) -> Reply {
    Reply::Set(set.iter().map(|member| Reply::bulk(member)).collect())
}

fn smembers(call: &mut Call<'_>) -> Answer {
    let set = call.find::<Members>(call.args[1])?;
    Ok(set.map_or(Reply::Set(Vec::new()), |set| as_reply(set)))
}

fn scard(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.find::<Members>(call.args[1])?.map_or(0, |set| set.len())))
}

/// How many members are asked for; negative means with repetition.
fn asked(call: &Call<'_>) -> Result<Option<i64>, Refusal> {
    match &call.args[2..] {
        [] => Ok(None),
        [count] => crate::call::integer(count).map(Some),
        _ => Err(SYNTAX.into()),
    }
}

fn draw(call: &mut Call<'_>, among: usize) -> usize {
    usize::try_from(call.state.dice.below(among as u64)).unwrap_or(0)
}

fn spop(call: &mut Call<'_>) -> Answer {
    let key = call.args[1];
    let count = match &call.args[2..] {
        [] => None,
        [count] => {
            let count = crate::number::strict(count).and_then(|c| usize::try_from(c).ok());
            Some(count.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(SYNTAX.into()),
    };
    let Some(length) = call.find::<Members>(key)?.map(|set| set.len()) else {
        return Ok(if count.is_some() { Reply::Set(Vec::new()) } else { Reply::Null });
    };
    let mut taken = Vec::new();
    for left in (1..=length).rev().take(count.unwrap_or(1)) {
        let at = draw(call, left);
        let member = call.find::<Members>(key)?.and_then(|set| set.swap_remove_index(at));
        taken.extend(member.map(Reply::Bulk));
    }
    if !taken.is_empty() {
        call.changed(key);
    }
    Ok(match count {
        Some(_) => Reply::Set(taken),
        None => taken.pop().unwrap_or(Reply::Null),
    })
}

fn srandmember(call: &mut Call<'_>) -> Answer {
    let count = asked(call)?;
    let mut members: Vec<Vec<u8>> = match call.find::<Members>(call.args[1])? {
        Some(set) => set.iter().cloned().collect(),
        None if count.is_some() => return Ok(Reply::Array(Vec::new())),
        None => return Ok(Reply::Null),
    };
    let Some(count) = count else {
        let at = draw(call, members.len());
        return Ok(Reply::Bulk(members.swap_remove(at)));
    };
    // More than a thousand repetitions of anything would only cost memory.
    let limit = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        let limit = limit.min(1000);
        let picks = (0..limit).map(|_| draw(call, members.len())).collect::<Vec<_>>();
        return Ok(Reply::bulks(picks.into_iter().map(|at| members[at].clone())));
    }
    let mut taken = Vec::new();
    while taken.len() < limit && !members.is_empty() {
        let at = draw(call, members.len());
        taken.push(members.swap_remove(at));
    }
    Ok(Reply::bulks(taken))
}

fn smove(call: &mut Call<'_>) -> Answer {
    let (from, to, member) = (call.args[1], call.args[2], call.args[3]);
    let Some(set) = call.find::<Members>(from)? else { return Ok(Reply::Integer(0)) };
    let there = set.contains(member);
    call.find::<Members>(to)?;
    if from == to || !there {
        return Ok(Reply::flag(there));
    }
    if let Some(set) = call.find::<Members>(from)? {
        set.swap_remove(member);
    }
    call.changed(from);
    call.make::<Members>(to)?.insert(member.to_vec());
    call.changed(to);
    Ok(Reply::Integer(1))
}

fn inter(left: &Members, right: &Members) -> Members {
    left.intersection(right).cloned().collect()
}

fn union(left: &Members, right: &Members) -> Members {
    left.union(right).cloned().collect()
}

fn difference(left: &Members, right: &Members) -> Members {
    left.difference(right).cloned().collect()
}

fn combined(call: &mut Call<'_>, combine: fn(&Members, &Members) -> Members) -> Answer {
    let mut sets = Vec::new();
    for key in &call.args[1..] {
        sets.push(call.find::<Members>(key)?.cloned().unwrap_or_default());
    }
    let mut sets = sets.into_iter();
    let first = sets.next().unwrap_or_default();
    Ok(as_reply(&sets.fold(first, |left, right| combine(&left, &right))))
}

fn sscan(call: &mut Call<'_>) -> Answer {
    cursor(call.args[2])?;
    if call.find::<Members>(call.args[1])?.is_none() {
        return Ok(empty_page());
    }
    let options = ScanOptions::read(call.args[2], &call.args[3..], false)?;
    let set = call.find::<Members>(call.args[1])?;
    let members = set.into_iter().flat_map(|set| set.iter());
    Ok(page(members.filter(|member| options.fits(member)).cloned()))
}
