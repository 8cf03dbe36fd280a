//! Sorted sets: members with scores, as permits and queues use them.

use super::{Command, DENY_OOM, FAST, READ, WRITE, one};
use crate::call::{Call, is};
use crate::commands::lists::between;
use crate::data::SortedSet;
use crate::errors::{CommandResult, ErrorReply, NOT_FLOAT, NOT_INTEGER, SYNTAX};
use crate::number;
use crate::resp::Reply;

const NO_FLOAT: &str = "ERR min or max is not a float";

pub(crate) const TABLE: &[Command] = &[
    one("zadd", -4, WRITE | DENY_OOM | FAST, zadd),
    one("zrem", -3, WRITE | FAST, zrem),
    one("zcard", 2, READ | FAST, zcard),
    one("zscore", 3, READ | FAST, zscore),
    one("zrank", 3, READ | FAST, zrank),
    one("zcount", 4, READ | FAST, zcount),
    one("zrange", -4, READ, zrange),
    one("zrangebyscore", -4, READ, zrangebyscore),
];

fn zadd(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let pairs = &call.args[2..];
    if pairs.len() % 2 == 1 {
        return Err(SYNTAX.into());
    }
    let mut scores = Vec::new();
    for pair in pairs.chunks_exact(2) {
        scores.push((number::float(pair[0]).ok_or(NOT_FLOAT)?, pair[1]));
    }
    let set = call.make::<SortedSet>(key)?;
    let mut added = 0;
    for (score, member) in scores {
        added += i64::from(set.score(member).is_none());
        set.insert(member, score);
    }
    call.changed(key);
    Ok(Reply::Integer(added))
}

fn zrem(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let members = &call.args[2..];
    let Some(set) = call.find::<SortedSet>(key)? else { return Ok(Reply::Integer(0)) };
    let gone = members.iter().filter(|member| set.remove(member)).count();
    if gone > 0 {
        call.changed(key);
    }
    Ok(Reply::count(gone))
}

fn zcard(call: &mut Call<'_>) -> CommandResult {
    Ok(Reply::count(call.find::<SortedSet>(call.args[1])?.map_or(0, |set| set.len())))
}

fn zscore(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let member = call.args[2];
    let score = call.find::<SortedSet>(key)?.and_then(|set| set.score(member));
    Ok(score.map_or(Reply::Null, Reply::Double))
}

fn zrank(call: &mut Call<'_>) -> CommandResult {
    let key = call.args[1];
    let member = call.args[2];
    let rank = call.find::<SortedSet>(key)?.and_then(|set| set.rank(member));
    Ok(rank.map_or(Reply::Null, Reply::count))
}

/// One bound of a range of scores, included or excluded.
#[derive(Debug, Clone, Copy)]
struct Bound {
    score: f64,
    excluded: bool,
}

impl Bound {
    fn read(text: &[u8]) -> Result<Bound, ErrorReply> {
        let (digits, excluded) = match text.strip_prefix(b"(") {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        // The server parses like C: an empty text is 0.
        let score = if digits.is_empty() { Some(0.0) } else { number::float(digits) };
        let score = score.ok_or(NO_FLOAT)?;
        Ok(Bound { score, excluded })
    }

    fn is_below(self, score: f64) -> bool {
        if self.excluded { self.score < score } else { self.score <= score }
    }

    fn is_above(self, score: f64) -> bool {
        if self.excluded { self.score > score } else { self.score >= score }
    }
}

/// Returns the members with scores between two bounds, lowest first.
fn in_bounds(set: &SortedSet, low: Bound, high: Bound) -> Vec<(f64, Vec<u8>)> {
    let from = set.starting_at(low.score).skip_while(|(score, _)| !low.is_below(*score));
    let inside = from.take_while(|(score, _)| high.is_above(*score));
    inside.map(|(score, member)| (score, member.clone())).collect()
}

/// The options of ZRANGE and ZRANGEBYSCORE.
#[derive(Default)]
struct RangeOptions {
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl RangeOptions {
    fn read(args: &[&[u8]]) -> Result<RangeOptions, ErrorReply> {
        let mut options = RangeOptions::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if is(word, "WITHSCORES") {
                options.with_scores = true;
            } else if is(word, "LIMIT") && words.len() >= 2 {
                let mut number = || {
                    let text = words.next().ok_or(SYNTAX)?;
                    number::strict(text).ok_or(ErrorReply::from(NOT_INTEGER))
                };
                options.limit = Some((number()?, number()?));
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(options)
    }

    /// Applies the limit to a range.
    fn cut(&self, range: Vec<(f64, Vec<u8>)>) -> Vec<(f64, Vec<u8>)> {
        let Some((skip, count)) = self.limit else { return range };
        let Ok(skip) = usize::try_from(skip) else { return Vec::new() };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        range.into_iter().skip(skip).take(count).collect()
    }

    fn reply(&self, range: Vec<(f64, Vec<u8>)>) -> Reply {
        let range = range.into_iter();
        if self.with_scores {
            Reply::Pairs(range.map(|(s, m)| (Reply::Bulk(m), Reply::Double(s))).collect())
        } else {
            Reply::bulks(range.map(|(_, member)| member))
        }
    }
}

fn zrange(call: &mut Call<'_>) -> CommandResult {
    let options = RangeOptions::read(&call.args[4..])?;
    if options.limit.is_some() {
        return Err("ERR syntax error, LIMIT is only supported in combination with either \
             BYSCORE or BYLEX"
            .into());
    }
    let start = call.integer(2)?;
    let end = call.integer(3)?;
    let set = call.find::<SortedSet>(call.args[1])?;
    let range = set.map(|set| {
        let ranks = between(start, end, set.len());
        let members = set.iter().skip(ranks.start).take(ranks.len());
        members.map(|(score, member)| (score, member.clone())).collect()
    });
    Ok(options.reply(range.unwrap_or_default()))
}

fn zrangebyscore(call: &mut Call<'_>) -> CommandResult {
    let options = RangeOptions::read(&call.args[4..])?;
    let low = Bound::read(call.args[2])?;
    let high = Bound::read(call.args[3])?;
    let set = call.find::<SortedSet>(call.args[1])?;
    let range = set.map(|set| in_bounds(set, low, high)).unwrap_or_default();
    Ok(options.reply(options.cut(range)))
}

fn zcount(call: &mut Call<'_>) -> CommandResult {
    let low = Bound::read(call.args[2])?;
    let high = Bound::read(call.args[3])?;
    let set = call.find::<SortedSet>(call.args[1])?;
    Ok(Reply::count(set.map_or(0, |set| in_bounds(set, low, high).len())))
}
