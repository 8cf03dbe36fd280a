//! Sorted sets: members with scores, as permits and queues use them.
//!
//! Read next: `range` for the many ways to ask for a part.

mod range;

use super::{Command, DENY_OOM, FAST, READ, WRITE, one};
use crate::call::{Call, is};
use crate::commands::keys::{ScanOptions, cursor, empty_page, page};
use crate::data::SortedSet;
use crate::number;
use crate::refusal::{Answer, NOT_FLOAT, NOT_POSITIVE, Refusal, SYNTAX};
use crate::resp::{Reply, float_text};

const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

pub(crate) const TABLE: &[Command] = &[
    one("zadd", -4, WRITE | DENY_OOM | FAST, zadd),
    one("zincrby", 4, WRITE | DENY_OOM | FAST, zincrby),
    one("zrem", -3, WRITE | FAST, zrem),
    one("zcard", 2, READ | FAST, zcard),
    one("zscore", 3, READ | FAST, zscore),
    one("zmscore", -3, READ | FAST, zmscore),
    one("zrank", 3, READ | FAST, |call| rank(call, false)),
    one("zrevrank", 3, READ | FAST, |call| rank(call, true)),
    one("zcount", 4, READ | FAST, range::zcount),
    one("zlexcount", 4, READ | FAST, range::zlexcount),
    one("zpopmin", -2, WRITE | FAST, |call| pop(call, false)),
    one("zpopmax", -2, WRITE | FAST, |call| pop(call, true)),
    one("zrange", -4, READ, range::zrange),
    one("zrevrange", -4, READ, range::zrevrange),
    one("zrangebyscore", -4, READ, |call| range::zrangeby(call, range::By::Score, false)),
    one("zrevrangebyscore", -4, READ, |call| range::zrangeby(call, range::By::Score, true)),
    one("zrangebylex", -4, READ, |call| range::zrangeby(call, range::By::Bytes, false)),
    one("zrevrangebylex", -4, READ, |call| range::zrangeby(call, range::By::Bytes, true)),
    one("zremrangebyscore", 4, WRITE, |call| range::zremrange(call, range::By::Score)),
    one("zremrangebyrank", 4, WRITE, |call| range::zremrange(call, range::By::Rank)),
    one("zremrangebylex", 4, WRITE, |call| range::zremrange(call, range::By::Bytes)),
    one("zscan", -3, READ, zscan),
];

/// The words before the scores of ZADD.
#[derive(Default)]
struct AddOptions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

impl AddOptions {
    /// Reads the words and returns how many they were.
    fn read(args: &[&[u8]]) -> (AddOptions, usize) {
        let mut options = AddOptions::default();
        for (at, word) in args.iter().enumerate() {
            let flag = match word {
                word if is(word, "NX") => &mut options.absent,
                word if is(word, "XX") => &mut options.present,
                word if is(word, "GT") => &mut options.greater,
                word if is(word, "LT") => &mut options.less,
                word if is(word, "CH") => &mut options.changed,
                word if is(word, "INCR") => &mut options.increment,
                _ => return (options, at),
            };
            *flag = true;
        }
        (options, args.len())
    }

    fn check(&self, words: usize) -> Result<(), Refusal> {
        if words == 0 || words % 2 == 1 {
            return Err(SYNTAX.into());
        }
        if self.absent && self.present {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        if self.greater && self.less || self.absent && (self.greater || self.less) {
            let says = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(says.into());
        }
        if self.increment && words > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok(())
    }

    /// The new score, or `None` if the options forbid a change.
    fn decide(&self, old: Option<f64>, asked: f64) -> Result<Option<f64>, Refusal> {
        let Some(old) = old else { return Ok((!self.present).then_some(asked)) };
        if self.absent {
            return Ok(None);
        }
        let new = if self.increment { old + asked } else { asked };
        if new.is_nan() {
            return Err(NOT_A_NUMBER.into());
        }
        let forbidden = self.greater && new <= old || self.less && new >= old;
        Ok((!forbidden).then_some(new))
    }
}

fn zadd(call: &mut Call<'_>) -> Answer {
    let (options, taken) = AddOptions::read(&call.args[2..]);
    let (key, pairs) = (call.args[1], &call.args[2 + taken..]);
    options.check(pairs.len())?;
    let mut scores = Vec::new();
    for pair in pairs.chunks_exact(2) {
        scores.push((number::float(pair[0]).ok_or(NOT_FLOAT)?, pair[1]));
    }
    let there = call.find::<SortedSet>(key)?.is_some();
    if options.present && !there {
        return Ok(if options.increment { Reply::Null } else { Reply::Integer(0) });
    }
    let set = call.make::<SortedSet>(key)?;
    let (mut added, mut moved, mut last) = (0, 0, None);
    for (asked, member) in scores {
        let old = set.score(member);
        last = match options.decide(old, asked) {
            Ok(new) => new,
            Err(refusal) => {
                call.changed(key);
                return Err(refusal);
            }
        };
        if let Some(new) = last {
            set.insert(member, new);
            added += i64::from(old.is_none());
            moved += i64::from(old.is_some_and(|old| old != new));
        }
    }
    // Even without a change: what was made for nothing must not stay.
    call.changed(key);
    Ok(if options.increment {
        last.map_or(Reply::Null, Reply::Double)
    } else {
        Reply::Integer(if options.changed { added + moved } else { added })
    })
}

fn zincrby(call: &mut Call<'_>) -> Answer {
    let (key, member) = (call.args[1], call.args[3]);
    let by = number::float(call.args[2]).ok_or(NOT_FLOAT)?;
    let old = call.find::<SortedSet>(key)?.and_then(|set| set.score(member));
    let new = old.map_or(by, |old| old + by);
    if new.is_nan() {
        return Err(NOT_A_NUMBER.into());
    }
    call.make::<SortedSet>(key)?.insert(member, new);
    call.changed(key);
    Ok(Reply::Double(new))
}

fn zrem(call: &mut Call<'_>) -> Answer {
    let (key, members) = (call.args[1], &call.args[2..]);
    let Some(set) = call.find::<SortedSet>(key)? else { return Ok(Reply::Integer(0)) };
    let gone = members.iter().filter(|member| set.remove(member)).count();
    if gone > 0 {
        call.changed(key);
    }
    Ok(Reply::count(gone))
}

fn zcard(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.find::<SortedSet>(call.args[1])?.map_or(0, |set| set.len())))
}

fn zscore(call: &mut Call<'_>) -> Answer {
    let (key, member) = (call.args[1], call.args[2]);
    let score = call.find::<SortedSet>(key)?.and_then(|set| set.score(member));
    Ok(score.map_or(Reply::Null, Reply::Double))
}

fn zmscore(call: &mut Call<'_>) -> Answer {
    let (key, members) = (call.args[1], &call.args[2..]);
    let set = call.find::<SortedSet>(key)?;
    let one = |member: &&[u8]| set.as_ref().and_then(|set| set.score(member));
    let scores = members.iter().map(|member| one(member).map_or(Reply::Null, Reply::Double));
    Ok(Reply::Array(scores.collect()))
}

fn rank(call: &mut Call<'_>, reversed: bool) -> Answer {
    let (key, member) = (call.args[1], call.args[2]);
    let Some(set) = call.find::<SortedSet>(key)? else { return Ok(Reply::Null) };
    let rank = set.rank(member);
    let rank = if reversed { rank.map(|rank| set.len() - 1 - rank) } else { rank };
    Ok(rank.map_or(Reply::Null, Reply::count))
}

fn pop(call: &mut Call<'_>, largest: bool) -> Answer {
    let key = call.args[1];
    let count = match &call.args[2..] {
        [] => None,
        [count] => {
            let count = number::strict(count).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(NOT_POSITIVE)?)
        }
        _ => return Err(SYNTAX.into()),
    };
    let Some(set) = call.find::<SortedSet>(key)? else { return Ok(Reply::Array(Vec::new())) };
    let taken = std::iter::from_fn(|| set.pop(largest)).take(count.unwrap_or(1));
    let pairs: Vec<_> =
        taken.map(|(score, member)| (Reply::Bulk(member), Reply::Double(score))).collect();
    if !pairs.is_empty() {
        call.changed(key);
    }
    Ok(match count {
        Some(_) => Reply::Pairs(pairs),
        None => Reply::Array(pairs.into_iter().flat_map(|(m, s)| [m, s]).collect()),
    })
}

fn zscan(call: &mut Call<'_>) -> Answer {
    cursor(call.args[2])?;
    if call.find::<SortedSet>(call.args[1])?.is_none() {
        return Ok(empty_page());
    }
    let options = ScanOptions::read(call.args[2], &call.args[3..], false)?;
    let set = call.find::<SortedSet>(call.args[1])?;
    let members = set.into_iter().flat_map(|set| set.iter());
    let fitting = members.filter(|(_, member)| options.fits(member));
    Ok(page(fitting.flat_map(|(score, m)| [m.clone(), float_text(score).into_bytes()])))
}
