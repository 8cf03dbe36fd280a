//! The errors of a resource, and whether anything was changed.

use std::error::Error as StdError;

use holdline_core::{Certainty, FencingToken, LockName};

/// The resource has seen a larger fencing token: somebody else held the name after us.
///
/// Stop the guarded work, and acquire the name again before trying again: the resource will never
/// accept this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {mine} is stale: the resource has accepted {seen}")]
pub struct StaleToken {
    /// The token that was shown.
    pub mine: FencingToken,
    /// The largest token that the resource has accepted.
    pub seen: FencingToken,
}

/// Why a resource did not carry out a request.
///
/// [`FenceError::certainty`] says whether anything was changed. A refusal (`Stale`, `TooFar`,
/// `OtherName`) and `Foreign`, `Busy`, `Write` left mark and data unchanged; only after `Failed`
/// this may be unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A newer holder was here. Trying again is useless.
    #[error(transparent)]
    Stale(#[from] StaleToken),
    /// The token is further above the mark than the resource's rules allow.
    #[error(
        "fencing token {mine} is {} above the mark {seen}, more than the limit of {limit}",
        mine.get().saturating_sub(seen.get())
    )]
    TooFar {
        /// The token that was shown.
        mine: FencingToken,
        /// The largest token that the resource has accepted.
        seen: FencingToken,
        /// By how much a token may be larger than the mark.
        limit: u64,
    },
    /// The token belongs to another lock name; tokens of two names cannot be compared.
    #[error(
        "the resource is guarded by the lock {guarded_by}, not by {}",
        shown.as_ref().map_or_else(|| "a lock without a name".to_owned(), ToString::to_string)
    )]
    OtherName {
        /// The lock name that guards the resource.
        guarded_by: LockName,
        /// The lock name that was shown, if any.
        shown: Option<LockName>,
    },
    /// The data in the place of the mark is not ours or is damaged. It was left unchanged.
    #[error("no mark of ours, left as it is: {found}")]
    Foreign {
        /// The place, what was found, and what was expected.
        found: String,
    },
    /// Another process is inside its own atomic step. Nothing was changed; try again.
    #[error("{what}")]
    Busy {
        /// What is busy and how long we waited.
        what: String,
    },
    /// The write itself failed, and was undone. The mark is unchanged too.
    #[error("the write gave up: {}", chain(&**source))]
    Write {
        /// The error of the write.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The resource failed.
    #[error("{doing}: {}{}", chain(&**source), doubt(*certainty))]
    Failed {
        /// The operation.
        doing: String,
        /// Whether mark and data were changed.
        certainty: Certainty,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// Formats an error with its causes in one line, since some errors have the reason only in their
/// cause.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let says = error.to_string().replace('\n', "; ");
        if !text.contains(&says) {
            text = format!("{text}: {says}");
        }
        cause = error.source();
    }
    text
}

fn doubt(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::NotApplied => "",
        Certainty::Applied => " (mark and data were changed)",
        Certainty::Unknown => " (whether mark and data were changed is unknown)",
    }
}

impl FenceError {
    /// Makes the error of a write that failed.
    pub fn write(source: impl Into<Box<dyn StdError + Send + Sync>>) -> FenceError {
        FenceError::Write { source: source.into() }
    }

    /// Makes the error of a failure that changed neither mark nor data.
    pub fn failed(
        doing: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> FenceError {
        let certainty = Certainty::NotApplied;
        FenceError::Failed { doing: doing.into(), certainty, source: source.into() }
    }

    /// Makes the error of a failure after which mark and data are either both old or both new.
    pub fn unsure(
        doing: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> FenceError {
        let certainty = Certainty::Unknown;
        FenceError::Failed { doing: doing.into(), certainty, source: source.into() }
    }

    /// Returns whether mark and data were changed.
    pub fn certainty(&self) -> Certainty {
        match self {
            FenceError::Failed { certainty, .. } => *certainty,
            _ => Certainty::NotApplied,
        }
    }

    /// Returns whether the resource refused the token.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            FenceError::Stale(_) | FenceError::TooFar { .. } | FenceError::OtherName { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("in range")
    }

    #[test]
    fn only_a_failure_can_be_in_doubt() {
        let stale = FenceError::from(StaleToken { mine: token(33), seen: token(34) });
        let far = FenceError::TooFar { mine: token(90), seen: token(34), limit: 10 };
        let foreign = FenceError::Foreign { found: "a directory".to_owned() };
        let busy = FenceError::Busy { what: "locked".to_owned() };
        for (error, refusal, certainty) in [
            (stale, true, Certainty::NotApplied),
            (far, true, Certainty::NotApplied),
            (foreign, false, Certainty::NotApplied),
            (busy, false, Certainty::NotApplied),
            (FenceError::write("no stock"), false, Certainty::NotApplied),
            (FenceError::failed("opening", "gone"), false, Certainty::NotApplied),
            (FenceError::unsure("renaming", "gone"), false, Certainty::Unknown),
        ] {
            assert_eq!(error.is_refusal(), refusal, "{error}");
            assert_eq!(error.certainty(), certainty, "{error}");
        }
    }

    #[test]
    fn errors_contain_the_facts() {
        let name = |text| LockName::new(text).expect("allowed");
        let other = FenceError::OtherName { guarded_by: name("a"), shown: Some(name("b")) };
        let none = FenceError::OtherName { guarded_by: name("a"), shown: None };
        let far = FenceError::TooFar { mine: token(90), seen: token(34), limit: 10 };
        for (error, says) in [
            (
                FenceError::from(StaleToken { mine: token(33), seen: token(34) }),
                "fencing token 33 is stale: the resource has accepted 34",
            ),
            (far, "fencing token 90 is 56 above the mark 34, more than the limit of 10"),
            (other, "the resource is guarded by the lock a, not by b"),
            (none, "the resource is guarded by the lock a, not by a lock without a name"),
            (
                FenceError::unsure("renaming", "no disk"),
                "renaming: no disk (whether mark and data were changed is unknown)",
            ),
        ] {
            assert_eq!(error.to_string(), says);
        }
    }
}
