//! Parts of a sorted set: by rank, by score, by bytes.

use crate::call::{Call, integer, is};
use crate::commands::lists::between;
use crate::data::SortedSet;
use crate::number;
use crate::refusal::{Answer, NOT_INTEGER, Refusal, SYNTAX};
use crate::resp::Reply;

const NO_FLOAT: &str = "ERR min or max is not a float";
const NO_BYTES: &str = "ERR min or max not valid string range item";

/// What a range is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Rank,
    Score,
    Bytes,
}

/// One end of a range of scores; the number itself may be left out.
#[derive(Debug, Clone, Copy)]
struct Bound {
    score: f64,
    excluded: bool,
}

impl Bound {
    fn read(text: &[u8]) -> Result<Bound, Refusal> {
        let (digits, excluded) = match text.strip_prefix(b"(") {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        // The server reads a number as C does: of nothing it makes 0.
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

/// One end of a range of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Edge {
    First,
    Last,
    With(Vec<u8>),
    Without(Vec<u8>),
}

impl Edge {
    fn read(text: &[u8]) -> Result<Edge, Refusal> {
        match text {
            b"-" => Ok(Edge::First),
            b"+" => Ok(Edge::Last),
            [b'[', bytes @ ..] => Ok(Edge::With(bytes.to_vec())),
            [b'(', bytes @ ..] => Ok(Edge::Without(bytes.to_vec())),
            _ => Err(NO_BYTES.into()),
        }
    }

    /// Whether nothing can be between this edge and the other.
    fn is_past(&self, high: &Edge) -> bool {
        match (self, high) {
            (Edge::Last, _) | (_, Edge::First) => self != high,
            (Edge::First, _) | (_, Edge::Last) => false,
            (Edge::With(low), Edge::With(high)) => low > high,
            (Edge::With(low) | Edge::Without(low), Edge::With(high) | Edge::Without(high)) => {
                low >= high
            }
        }
    }

    fn is_below(&self, member: &[u8]) -> bool {
        match self {
            Edge::First => true,
            Edge::Last => false,
            Edge::With(bytes) => bytes.as_slice() <= member,
            Edge::Without(bytes) => bytes.as_slice() < member,
        }
    }

    fn is_above(&self, member: &[u8]) -> bool {
        match self {
            Edge::First => false,
            Edge::Last => true,
            Edge::With(bytes) => bytes.as_slice() >= member,
            Edge::Without(bytes) => bytes.as_slice() > member,
        }
    }
}

/// A part of a set, lower end first.
enum Part {
    Ranks(i64, i64),
    Scores(Bound, Bound),
    Bytes(Edge, Edge),
}

impl Part {
    fn read(by: By, low: &[u8], high: &[u8]) -> Result<Part, Refusal> {
        Ok(match by {
            By::Rank => Part::Ranks(integer(low)?, integer(high)?),
            By::Score => Part::Scores(Bound::read(low)?, Bound::read(high)?),
            By::Bytes => Part::Bytes(Edge::read(low)?, Edge::read(high)?),
        })
    }

    /// The members inside, least first; ranks count from the end that is asked for.
    fn of(&self, set: &SortedSet, reversed: bool) -> Vec<(f64, Vec<u8>)> {
        let owned = |(score, member): (f64, &Vec<u8>)| (score, member.clone());
        match self {
            Part::Ranks(start, end) => {
                let part = between(*start, *end, set.len());
                let (skip, take) = (part.start, part.len());
                if reversed {
                    return set.iter().rev().skip(skip).take(take).map(owned).collect();
                }
                set.iter().skip(skip).take(take).map(owned).collect()
            }
            Part::Scores(low, high) => {
                let from = set.starting_at(low.score);
                let from = from.skip_while(|(score, _)| !low.is_below(*score));
                let mut part: Vec<_> =
                    from.take_while(|(score, _)| high.is_above(*score)).map(owned).collect();
                if reversed {
                    part.reverse();
                }
                part
            }
            // Meant for sets of one score. With others the server stops at the first member
            // outside, and so do we.
            Part::Bytes(low, high) => {
                let mut members = set.iter();
                let (first, last) = (members.next(), members.next_back().or(set.iter().next()));
                let reaches = first.is_some_and(|(_, member)| high.is_above(member))
                    && last.is_some_and(|(_, member)| low.is_below(member));
                if !reaches || low.is_past(high) {
                    return Vec::new();
                }
                let (below, above) = (|m: &[u8]| low.is_below(m), |m: &[u8]| high.is_above(m));
                if reversed {
                    let part = set.iter().rev().skip_while(|(_, m)| !above(m));
                    return part.take_while(|(_, m)| below(m)).map(owned).collect();
                }
                let part = set.iter().skip_while(|(_, m)| !below(m));
                part.take_while(|(_, m)| above(m)).map(owned).collect()
            }
        }
    }
}

/// What is asked besides the part.
#[derive(Default)]
struct Asked {
    by: Option<By>,
    reversed: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl Asked {
    fn read(args: &[&[u8]], whole: bool) -> Result<Asked, Refusal> {
        let mut asked = Asked::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if is(word, "WITHSCORES") {
                asked.with_scores = true;
            } else if is(word, "LIMIT") && words.len() >= 2 {
                let mut number = || {
                    let text = words.next().ok_or(SYNTAX)?;
                    number::strict(text).ok_or(Refusal::from(NOT_INTEGER))
                };
                asked.limit = Some((number()?, number()?));
            } else if whole && is(word, "REV") {
                asked.reversed = true;
            } else if whole && is(word, "BYSCORE") {
                asked.by = Some(By::Score);
            } else if whole && is(word, "BYLEX") {
                asked.by = Some(By::Bytes);
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(asked)
    }

    fn check(&self, by: By) -> Result<(), Refusal> {
        if self.limit.is_some() && by == By::Rank {
            return Err("ERR syntax error, LIMIT is only supported in combination with either \
                 BYSCORE or BYLEX"
                .into());
        }
        if self.with_scores && by == By::Bytes {
            return Err(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX".into()
            );
        }
        Ok(())
    }

    /// Cuts the limit out of a part.
    fn cut(&self, part: Vec<(f64, Vec<u8>)>) -> Vec<(f64, Vec<u8>)> {
        let Some((skip, count)) = self.limit else { return part };
        let Ok(skip) = usize::try_from(skip) else { return Vec::new() };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        part.into_iter().skip(skip).take(count).collect()
    }
}

fn answer(call: &mut Call<'_>, by: By, asked: &Asked) -> Answer {
    asked.check(by)?;
    let (mut low, mut high) = (call.args[2], call.args[3]);
    if asked.reversed && by != By::Rank {
        std::mem::swap(&mut low, &mut high);
    }
    let part = Part::read(by, low, high)?;
    let set = call.find::<SortedSet>(call.args[1])?;
    let found = set.map(|set| part.of(set, asked.reversed)).unwrap_or_default();
    let found = asked.cut(found).into_iter();
    Ok(if asked.with_scores {
        Reply::Pairs(found.map(|(s, m)| (Reply::Bulk(m), Reply::Double(s))).collect())
    } else {
        Reply::bulks(found.map(|(_, member)| member))
    })
}

pub(crate) fn zrange(call: &mut Call<'_>) -> Answer {
    let asked = Asked::read(&call.args[4..], true)?;
    answer(call, asked.by.unwrap_or(By::Rank), &asked)
}

pub(crate) fn zrevrange(call: &mut Call<'_>) -> Answer {
    let mut asked = Asked::read(&call.args[4..], false)?;
    asked.reversed = true;
    answer(call, By::Rank, &asked)
}

pub(crate) fn zrangeby(call: &mut Call<'_>, by: By, reversed: bool) -> Answer {
    let mut asked = Asked::read(&call.args[4..], false)?;
    asked.reversed = reversed;
    answer(call, by, &asked)
}

fn count(call: &mut Call<'_>, by: By) -> Answer {
    let part = Part::read(by, call.args[2], call.args[3])?;
    let set = call.find::<SortedSet>(call.args[1])?;
    Ok(Reply::count(set.map_or(0, |set| part.of(set, false).len())))
}

pub(crate) fn zcount(call: &mut Call<'_>) -> Answer {
    count(call, By::Score)
}

pub(crate) fn zlexcount(call: &mut Call<'_>) -> Answer {
    count(call, By::Bytes)
}

pub(crate) fn zremrange(call: &mut Call<'_>, by: By) -> Answer {
    let key = call.args[1];
    let part = Part::read(by, call.args[2], call.args[3])?;
    let Some(set) = call.find::<SortedSet>(key)? else { return Ok(Reply::Integer(0)) };
    let gone = part.of(set, false);
    gone.iter().for_each(|(_, member)| {
        set.remove(member);
    });
    if !gone.is_empty() {
        call.changed(key);
    }
    Ok(Reply::count(gone.len()))
}
