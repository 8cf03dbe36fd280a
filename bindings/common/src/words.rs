//! Failures, losses, risks and releases as words and plain values, the same in every language.

use std::time::Duration;

use holdline::{ErrorKind, HolderSummary, LockError, LostReason, ReleaseOutcome, RiskReason};

/// Why a lease is lost or at risk: a word for programs, and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The word.
    pub word: &'static str,
    /// The text.
    pub text: String,
}

impl Reason {
    fn new(word: &'static str, text: impl Into<String>) -> Reason {
        Reason { word, text: text.into() }
    }
}

impl From<&LostReason> for Reason {
    fn from(reason: &LostReason) -> Reason {
        Reason::new(reason.word(), reason.to_string())
    }
}

impl From<&RiskReason> for Reason {
    /// A lease that is lost has the words of its loss.
    fn from(reason: &RiskReason) -> Reason {
        match reason {
            RiskReason::NotRenewed(Some(failure)) => {
                Reason::new("not_renewed", failure.to_string())
            }
            RiskReason::NotRenewed(None) => Reason::new("not_renewed", "no renewal was answered"),
            RiskReason::RunsOut => Reason::new("runs_out", "it is not renewed beyond its end"),
            RiskReason::Revoked(why) => Reason::from(&LostReason::Revoked(why.clone())),
            RiskReason::Lost(reason) => Reason::from(reason),
            RiskReason::Ended => Reason::new("released", "it was released"),
            _ => Reason::new("other", "it is at risk"),
        }
    }
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The store confirmed it. Otherwise the release goes on in the background.
    pub confirmed: bool,
    /// How long the lease was held; `None` if it was lost before.
    pub held_for: Option<Duration>,
    /// Why the lease had been lost before.
    pub lost: Option<Reason>,
    /// Why the store did not confirm.
    pub failure: Option<String>,
}

impl From<ReleaseOutcome> for Release {
    fn from(outcome: ReleaseOutcome) -> Release {
        let nothing = Release { confirmed: true, held_for: None, lost: None, failure: None };
        match outcome {
            ReleaseOutcome::Released { held_for, confirmed, failure } => {
                let failure = failure.map(|kind| kind.to_string());
                Release { confirmed, held_for: Some(held_for), failure, ..nothing }
            }
            ReleaseOutcome::Lost { reason } => {
                Release { confirmed: false, lost: Some(Reason::from(&reason)), ..nothing }
            }
            _ => nothing,
        }
    }
}

/// One detail of a failure.
#[derive(Clone, Copy, Debug)]
pub enum Detail<'a> {
    /// Who holds the name, if that is known.
    Holder(Option<&'a HolderSummary>),
    /// A time.
    Time(Duration),
    /// A number.
    Number(usize),
    /// A text.
    Text(&'a str),
    /// Several texts.
    Texts(&'a [String]),
}

/// Returns the details of a failure by their names: what its kind has besides its word.
pub fn details(error: &LockError) -> Vec<(&'static str, Detail<'_>)> {
    match error.kind() {
        ErrorKind::Busy { holder } => vec![("holder", Detail::Holder(holder.as_deref()))],
        ErrorKind::TimedOut { waited, holder } => {
            vec![("waited", Detail::Time(*waited)), ("holder", Detail::Holder(holder.as_deref()))]
        }
        ErrorKind::Lost { reason } => vec![("reason", Detail::Text(reason.word()))],
        ErrorKind::TooManyWaiters { limit } => vec![("limit", Detail::Number(*limit))],
        ErrorKind::NoQuorum { nodes } => vec![("nodes", Detail::Texts(nodes))],
        ErrorKind::Quarantined { left } => vec![("left", Detail::Time(*left))],
        ErrorKind::Unsupported { feature } => vec![("feature", Detail::Text(feature))],
        ErrorKind::Foreign { found } => vec![("found", Detail::Text(found))],
        ErrorKind::Invalid { field, .. } => vec![("field", Detail::Text(field))],
        _ => Vec::new(),
    }
}
