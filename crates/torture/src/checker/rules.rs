//! The rules C1 to C4, each a sort and a sweep.
//!
//! Every rule returns its first witnesses, the earlier one first, or `None`.

use std::collections::BTreeMap;

use holdline_core::{FencingToken, Mode, Moment};

use super::event::{Attempt, Write};

type Witnesses<'a> = Option<Vec<&'a Attempt>>;

/// A certain hold: from, to, whose.
type Span<'a> = (Moment, Moment, &'a Attempt);

fn spans<'a>(all: &'a [Attempt], wanted: impl Fn(Mode) -> bool) -> Vec<Span<'a>> {
    let mut spans: Vec<Span<'a>> = all
        .iter()
        .filter(|attempt| wanted(attempt.mode))
        .filter_map(|attempt| attempt.certain().map(|(from, to)| (from, to, attempt)))
        .collect();
    spans.sort_by_key(|(from, to, attempt)| (*from, *to, attempt.id));
    spans
}

/// C1, exclusive and shared: sweeps by beginning and remembers the longest of each mode so far.
pub(super) fn overlap(all: &[Attempt]) -> Witnesses<'_> {
    let mut exclusive: Option<Span<'_>> = None;
    let mut shared: Option<Span<'_>> = None;
    for span in spans(all, |mode| mode.permits_of().is_none()) {
        let alone = span.2.mode == Mode::Exclusive;
        let rivals = if alone { [exclusive, shared] } else { [exclusive, None] };
        if let Some(rival) = rivals.into_iter().flatten().find(|rival| rival.1 > span.0) {
            return Some(vec![rival.2, span.2]);
        }
        let longest = if alone { &mut exclusive } else { &mut shared };
        if longest.is_none_or(|longest| longest.1 < span.1) {
            *longest = Some(span);
        }
    }
    None
}

/// C1, permits: sweeps over beginnings and ends (ends first, holds are half open) and adds up.
pub(super) fn over_admission(all: &[Attempt]) -> Witnesses<'_> {
    let spans = spans(all, |mode| mode.permits_of().is_some());
    let mut turns: Vec<(Moment, bool, usize)> = Vec::with_capacity(spans.len() * 2);
    for (slot, (from, to, _)) in spans.iter().enumerate() {
        turns.push((*from, true, slot));
        turns.push((*to, false, slot));
    }
    turns.sort_unstable();
    let mut inside: BTreeMap<usize, &Attempt> = BTreeMap::new();
    let mut taken = 0_u64;
    for (_, begins, slot) in turns {
        let attempt = spans[slot].2;
        let Mode::Permits { count, of } = attempt.mode else { continue };
        if begins {
            inside.insert(slot, attempt);
            taken += u64::from(count);
            if taken > u64::from(of) {
                return Some(inside.into_values().collect());
            }
        } else {
            inside.remove(&slot);
            taken -= u64::from(count);
        }
    }
    None
}

/// C2: distinct, in all modes.
pub(super) fn duplicate_token(all: &[Attempt]) -> Witnesses<'_> {
    let mut grants: Vec<(FencingToken, Moment, &Attempt)> = all
        .iter()
        .filter_map(|attempt| attempt.grant.map(|grant| (grant.token, grant.known, attempt)))
        .collect();
    grants.sort_by_key(|(token, known, _)| (*token, *known));
    let pair = grants.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
    Some(vec![pair[0].2, pair[1].2])
}

/// C2: asked for after another was known means a larger token. This needs no assumption on time.
pub(super) fn token_order_by_asking(all: &[Attempt]) -> Witnesses<'_> {
    let grants: Vec<_> = all
        .iter()
        .filter(|attempt| attempt.mode == Mode::Exclusive)
        .filter_map(|attempt| {
            let grant = attempt.grant?;
            Some(Ordered { began: attempt.called, ended: grant.known, token: grant.token, attempt })
        })
        .collect();
    first_regress(grants)
}

/// C2: tokens grow in the order of holding. Overlapping holds are C1's matter, so the order of
/// their beginnings is meant.
pub(super) fn token_order_by_holding(all: &[Attempt]) -> Witnesses<'_> {
    let spans = spans(all, |mode| mode == Mode::Exclusive);
    let pair = spans
        .windows(2)
        .find(|pair| pair[0].1 <= pair[1].0 && pair[0].2.token() > pair[1].2.token())?;
    Some(vec![pair[0].2, pair[1].2])
}

/// C3: a write that left after a larger token's write was answered must not be accepted.
pub(super) fn stale_write<'a>(all: &'a [Attempt], writes: &[Write]) -> Witnesses<'a> {
    let accepted = writes.iter().map(|write| Ordered {
        began: write.sent,
        ended: write.answered,
        token: write.token,
        attempt: &all[write.by],
    });
    first_regress(accepted.collect())
}

struct Ordered<'a> {
    began: Moment,
    ended: Moment,
    token: FencingToken,
    attempt: &'a Attempt,
}

/// Finds a later one with a smaller token: sweeps by beginning, beside it by end, and keeps the
/// largest token among all that had ended.
fn first_regress(mut by_began: Vec<Ordered<'_>>) -> Witnesses<'_> {
    by_began.sort_by_key(|one| one.began);
    let mut by_ended: Vec<(Moment, FencingToken, &Attempt)> =
        by_began.iter().map(|one| (one.ended, one.token, one.attempt)).collect();
    by_ended.sort_by_key(|one| one.0);
    let mut ended = by_ended.into_iter().peekable();
    let mut largest: Option<(FencingToken, &Attempt)> = None;
    for one in by_began {
        while let Some((_, token, attempt)) = ended.next_if(|before| before.0 < one.began) {
            if largest.is_none_or(|(largest, _)| largest < token) {
                largest = Some((token, attempt));
            }
        }
        if let Some((_, before)) = largest.filter(|(token, _)| *token > one.token) {
            return Some(vec![before, one.attempt]);
        }
    }
    None
}

/// C4: sweeps by beginning of the certain hold and remembers, for each way of holding, which of
/// those already granted was asked for last. Costs n log n times the number of ways.
pub(super) fn passed(all: &[Attempt]) -> Witnesses<'_> {
    let mut asked_last: BTreeMap<(u8, u32), &Attempt> = BTreeMap::new();
    for (_, _, attempt) in spans(all, |_| true) {
        if let Some(queued) = attempt.queued {
            let passer = asked_last
                .values()
                .find(|granted| granted.excludes(attempt) && granted.called > queued);
            if let Some(passer) = passer {
                return Some(vec![attempt, *passer]);
            }
        }
        let behaviour = match attempt.mode {
            Mode::Exclusive => (0, 0),
            Mode::Shared => (1, 0),
            Mode::Permits { count, .. } => (2, count),
        };
        let last = asked_last.entry(behaviour).or_insert(attempt);
        if last.called < attempt.called {
            *last = attempt;
        }
    }
    None
}
