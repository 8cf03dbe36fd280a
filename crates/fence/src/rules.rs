//! The decision what a resource accepts, without I/O.
//!
//! Invariant F2: a mark never decreases.
//! Invariant F3: an accepted request has a token at least as large as the mark.
//! Invariant F4: a token that is accepted for a write or a seal is the mark afterwards.

use std::fmt;
use std::num::NonZeroU64;

use holdline_core::{FencingToken, LockName};

use super::refusals::{OnRefusal, RefusalObserver};
use super::{Access, FenceError, Proof, StaleToken};

/// What a resource requires besides "no smaller token than the mark".
///
/// To fence a resource of your own, evaluate these rules in the atomic step that writes:
/// [`Rules::raise`] before a write or a seal, [`Rules::check`] before a read. Then pass the answer
/// to [`Rules::report`], which counts and logs refusals.
///
/// # Examples
/// ```
/// use holdline_fence::{FenceError, Proof, Rules};
/// use holdline_fence::{FencingToken, LockName};
/// use std::num::NonZeroU64;
///
/// let rules = Rules::default()
///     .guarded_by(LockName::new("stock/17")?)
///     .max_jump(NonZeroU64::new(1 << 32).expect("not zero"));
/// let mark = Some(FencingToken::new(34)?);
///
/// let late = Proof::exclusive(FencingToken::new(33)?).with_name(LockName::new("stock/17")?);
/// assert!(matches!(rules.raise(mark, &late), Err(FenceError::Stale(_))));
///
/// let absurd = Proof::exclusive(FencingToken::MAX).with_name(LockName::new("stock/17")?);
/// assert!(matches!(rules.raise(mark, &absurd), Err(FenceError::TooFar { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    guarded_by: Option<LockName>,
    max_jump: Option<NonZeroU64>,
    on_refusal: OnRefusal,
}

impl Rules {
    /// Accepts only proofs that carry this lock name.
    ///
    /// Tokens of two names cannot be compared, so a resource that is written under two names is not
    /// fenced at all. This rule detects the mistake. The name is a rule of this program and is not
    /// stored with the mark.
    #[must_use]
    pub fn guarded_by(mut self, name: LockName) -> Rules {
        self.guarded_by = Some(name);
        self
    }

    /// Refuses a token that is more than `limit` above the mark, so that one wrong or hostile
    /// number cannot make all later tokens stale.
    ///
    /// Choose it far above the jumps of honest tokens: 2^20 with each boot on `local:`, a million
    /// for each second without requests on a Redis server, and any amount with `holdline fence
    /// bump`. A resource without a mark accepts any first token: seal it at its setup. For an
    /// intended jump, seal once without this rule.
    #[must_use]
    pub fn max_jump(mut self, limit: NonZeroU64) -> Rules {
        self.max_jump = Some(limit);
        self
    }

    /// Notifies an observer of each holder that the resource refuses: a closure, or what another
    /// crate makes a [`RefusalObserver`].
    ///
    /// # Examples
    /// ```
    /// use holdline_fence::{Refusal, Rules};
    ///
    /// let rules = Rules::default().with_observer(|refusal: &Refusal<'_>| {
    ///     eprintln!("{}: {}", refusal.resource, refusal.error);
    /// });
    /// ```
    #[must_use]
    pub fn with_observer<Kind>(mut self, observer: impl RefusalObserver<Kind>) -> Rules {
        self.on_refusal = OnRefusal::new(observer);
        self
    }

    /// Returns the most that a token may be above the mark, if there is a limit.
    pub fn jump_limit(&self) -> Option<NonZeroU64> {
        self.max_jump
    }

    /// Returns an answer unchanged; a refusal is counted ([`crate::Refusals`]) and logged as a
    /// warning, and the observer is notified ([`Rules::with_observer`]).
    ///
    /// The resources of this crate call it themselves. A resource of your own calls it once for
    /// each answer.
    ///
    /// # Errors
    /// Those of `answer`, unchanged.
    pub fn report<T>(
        &self,
        resource: &dyn fmt::Display,
        answer: Result<T, FenceError>,
    ) -> Result<T, FenceError> {
        if let Err(error) = &answer {
            self.on_refusal.report(resource, error);
        }
        answer
    }

    /// Decides whether a holder may read, if the mark is `mark`.
    ///
    /// # Errors
    /// `Stale` or `OtherName`. Nothing is changed either way.
    pub fn check<A: Access>(
        &self,
        mark: Option<FencingToken>,
        proof: &Proof<A>,
    ) -> Result<(), FenceError> {
        if let Some(guarded_by) = &self.guarded_by
            && proof.name() != Some(guarded_by)
        {
            let shown = proof.name().cloned();
            return Err(FenceError::OtherName { guarded_by: guarded_by.clone(), shown });
        }
        match mark {
            Some(seen) if proof.token() < seen => {
                Err(StaleToken { mine: proof.token(), seen }.into())
            }
            _ => Ok(()),
        }
    }

    /// Decides whether a holder may seal or write, if the mark is `mark`, and returns the new mark.
    /// Store it in the same atomic step.
    ///
    /// # Errors
    /// `Stale`, `OtherName` or `TooFar`. The mark must stay unchanged.
    pub fn raise(
        &self,
        mark: Option<FencingToken>,
        proof: &Proof,
    ) -> Result<FencingToken, FenceError> {
        self.check(mark, proof)?;
        if let (Some(seen), Some(limit)) = (mark, self.max_jump)
            && proof.token().get() - seen.get() > limit.get()
        {
            let limit = limit.get();
            return Err(FenceError::TooFar { mine: proof.token(), seen, limit });
        }
        Ok(proof.token())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("in range")
    }

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("allowed")
    }

    fn outcome<T>(answer: &Result<T, FenceError>) -> &'static str {
        match answer {
            Ok(_) => "yes",
            Err(FenceError::Stale(_)) => "stale",
            Err(FenceError::TooFar { .. }) => "far",
            Err(FenceError::OtherName { .. }) => "name",
            Err(_) => "another error",
        }
    }

    #[test]
    fn a_smaller_token_is_stale_and_an_equal_one_is_accepted() {
        let largest = FencingToken::MAX.get();
        for (mark, mine, says) in [
            (None, 1, "yes"),
            (None, largest, "yes"),
            (Some(34), 33, "stale"),
            (Some(34), 34, "yes"),
            (Some(34), 35, "yes"),
            (Some(34), 1, "stale"),
            (Some(1), largest, "yes"),
            (Some(largest), largest, "yes"),
            (Some(largest), largest - 1, "stale"),
        ] {
            let mark = mark.map(token);
            let rules = Rules::default();
            let raised = rules.raise(mark, &Proof::exclusive(token(mine)));
            assert_eq!(outcome(&raised), says, "raise {mark:?} to {mine}");
            assert!(raised.is_err() || raised.ok() == Some(token(mine)));
            let exclusive = rules.check(mark, &Proof::exclusive(token(mine)));
            assert_eq!(outcome(&exclusive), says, "check {mark:?} against {mine}");
            let shared = rules.check(mark, &Proof::shared(token(mine)));
            assert_eq!(outcome(&shared), says, "check {mark:?} against shared {mine}");
        }
    }

    #[test]
    fn a_jump_is_limited_from_the_first_mark_on() {
        let rules = Rules::default().max_jump(NonZeroU64::new(10).expect("not zero"));
        for (mark, mine, says) in [
            (None, FencingToken::MAX.get(), "yes"),
            (Some(34), 44, "yes"),
            (Some(34), 45, "far"),
            (Some(34), FencingToken::MAX.get(), "far"),
            (Some(34), 33, "stale"),
        ] {
            let answer = rules.raise(mark.map(token), &Proof::exclusive(token(mine)));
            assert_eq!(outcome(&answer), says, "{mark:?} to {mine}");
        }
        // A check raises nothing, so it locks nobody out.
        let check = rules.check(Some(token(34)), &Proof::shared(FencingToken::MAX));
        assert_eq!(outcome(&check), "yes");
    }

    #[test]
    fn another_name_and_a_missing_name_are_refused() {
        let rules = Rules::default().guarded_by(name("a"));
        let mine = Proof::exclusive(token(35));
        let mark = Some(token(34));
        for (proof, says) in [
            (mine.clone().with_name(name("a")), "yes"),
            (mine.clone().with_name(name("b")), "name"),
            (mine.clone(), "name"),
        ] {
            assert_eq!(outcome(&rules.raise(mark, &proof)), says, "{proof:?}");
            assert_eq!(outcome(&rules.check(mark, &proof)), says, "{proof:?}");
        }
        let unbound = Rules::default().raise(mark, &mine.with_name(name("b")));
        assert_eq!(outcome(&unbound), "yes");
    }
}
