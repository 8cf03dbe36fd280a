//! Judges a concurrent history by what was seen from outside, in O(n log n).
//!
//! Many contenders run at once and each records what it saw, on one clock: when it sent its
//! request, when it was queued, what it was granted and until when it may rely on that, when it
//! released. The checker needs no model of the lock and no search: a violation has two witnesses
//! whose own records contradict each other. If a reply never came there is no claim, and so nothing
//! to contradict.
//!
//! - A **certain hold** lasts from the moment the grant was known to the earliest of: the release
//!   was sent, the loss was reported, `valid_until`. It is the time in which the holder was
//!   *entitled to rely on the lock*; the real grant is longer at both ends.
//! - C1: certain holds whose modes exclude each other do not overlap, and the permits held at one
//!   instant are no more than there are (P1).
//! - C2: no two grants of a name have one token; an exclusive grant that was requested after
//!   another was known has the larger token; tokens of certain exclusive holds grow in the order of
//!   holding (P2).
//! - C3: a resource that checks tokens never accepts one after it has answered to a larger (P2).
//! - C4: among attempts that exclude each other, one that was known to be queued before the other
//!   was requested is granted first (P8; only if the engine is fair, and only for attempts that
//!   kept their place: an attempt that queued again counts from its last queueing).
//! - C5: every attempt ends: by grant, by failure, or because its process was killed (P7).
//! - C6: a lease that was reported lost is never renewed afterwards (P6).
//!
//! Read next: [`event`] for what is recorded, [`crate::recorder`] for who records it.

pub mod event;
mod rules;

use std::fmt;

use holdline_core::{Capabilities, FencingToken, LockName, Mode, Moment};

use event::{Attempt, Name};
pub use event::{Event, MalformedHistory, Seen};

/// Which rules apply beside those that always do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// The engine says `fair`: C4 applies.
    pub fair: bool,
    /// The engine gives no fencing tokens: C2 and C3 do not apply.
    pub without_tokens: bool,
}

impl Rules {
    /// Returns the rules for an engine that says this about itself.
    pub fn of(capabilities: &Capabilities) -> Rules {
        Rules { fair: capabilities.fair, without_tokens: !capabilities.fencing }
    }

    fn apply_to(self, kind: ViolationKind) -> bool {
        match kind {
            ViolationKind::Passed => self.fair,
            ViolationKind::DuplicateToken
            | ViolationKind::TokenOrder
            | ViolationKind::StaleWrite => !self.without_tokens,
            _ => true,
        }
    }
}

/// One attempt, as a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Which attempt.
    pub attempt: u64,
    /// How it wanted to hold the name.
    pub mode: Mode,
    /// When it was asked for.
    pub called: Moment,
    /// When it was last known to be queued.
    pub queued: Option<Moment>,
    /// Its certain hold, if it was granted.
    pub held: Option<(Moment, Moment)>,
    /// Its token, if it was granted.
    pub token: Option<FencingToken>,
}

/// What a history shows that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The lock name.
    pub name: LockName,
    /// What is wrong.
    pub kind: ViolationKind,
    /// The witnesses: the earlier one first.
    pub witnesses: Vec<Witness>,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViolationKind {
    /// C1: two holders at once whose modes exclude each other.
    Overlap,
    /// C1: more permits were held at once than there are.
    OverAdmission,
    /// C2: two grants with one token.
    DuplicateToken,
    /// C2: the later asked for, or the later held, has the smaller token.
    TokenOrder,
    /// C3: the resource accepted a token after a larger one.
    StaleWrite,
    /// C4: the later one passed the earlier one in the queue.
    Passed,
    /// C5: an attempt never ended.
    Hung,
    /// C6: a lease came back to life.
    Resurrected,
}

/// Checks a history; the events may come in any order between attempts, those of one attempt
/// in their own.
///
/// Returns every kind of violation of every name once, with its first witnesses.
///
/// # Errors
/// [`MalformedHistory`] when the events of one attempt make no sense: the harness is wrong then,
/// not the engine.
pub fn check(events: &[Event], rules: Rules) -> Result<Vec<Violation>, MalformedHistory> {
    let names = event::by_name(events)?;
    Ok(names.iter().flat_map(|(name, seen)| check_name(name, seen, rules)).collect())
}

fn check_name(name: &LockName, seen: &Name, rules: Rules) -> Vec<Violation> {
    let all = &seen.attempts;
    let one = |attempt: Option<_>| attempt.map(|attempt| vec![attempt]);
    let found = [
        (ViolationKind::Overlap, rules::overlap(all)),
        (ViolationKind::OverAdmission, rules::over_admission(all)),
        (ViolationKind::DuplicateToken, rules::duplicate_token(all)),
        (
            ViolationKind::TokenOrder,
            rules::token_order_by_asking(all).or_else(|| rules::token_order_by_holding(all)),
        ),
        (ViolationKind::StaleWrite, rules::stale_write(all, &seen.writes)),
        (ViolationKind::Passed, rules::passed(all)),
        (ViolationKind::Hung, one(all.iter().find(|attempt| attempt.is_hung()))),
        (ViolationKind::Resurrected, one(all.iter().find(|attempt| attempt.resurrected))),
    ];
    let applies = found.into_iter().filter(|(kind, _)| rules.apply_to(*kind));
    applies
        .filter_map(|(kind, witnesses)| Some((kind, witnesses?)))
        .map(|(kind, witnesses)| Violation {
            name: name.clone(),
            kind,
            witnesses: witnesses.into_iter().map(Attempt::witness).collect(),
        })
        .collect()
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViolationKind::Overlap => "two holders at once (C1)",
            ViolationKind::OverAdmission => "more permits held than there are (C1)",
            ViolationKind::DuplicateToken => "two grants with one token (C2)",
            ViolationKind::TokenOrder => "the later grant has the smaller token (C2)",
            ViolationKind::StaleWrite => "the resource accepted an older token (C3)",
            ViolationKind::Passed => "a later contender passed an earlier one (C4)",
            ViolationKind::Hung => "an attempt never ended (C5)",
            ViolationKind::Resurrected => "a lease came back to life (C6)",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.kind)?;
        for witness in &self.witnesses {
            write!(f, "\n    {witness}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |moment: Moment| moment.as_nanos() as f64 / 1e6;
        write!(f, "attempt {} ({}) asked at {:.3} ms", self.attempt, self.mode, ms(self.called))?;
        if let Some(queued) = self.queued {
            write!(f, ", queued by {:.3} ms", ms(queued))?;
        }
        if let (Some((from, to)), Some(token)) = (self.held, self.token) {
            write!(f, ", token {token}, certain from {:.3} ms to {:.3} ms", ms(from), ms(to))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
