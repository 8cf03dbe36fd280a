//! Where the value of a leader is stored.
//!
//! The value of a campaign is in the metadata of the leader's own grant, which never changes. A
//! leader that proclaims another value holds a second lock, whose metadata has the term, a number
//! and the value. There are two such locks: the next value is stored in the one before the other
//! is released, so a reader always finds the last value or the one before it.
//!
//! Invariant V1: a value counts only with the term of the present leader, so what a dead leader
//! has left says nothing about the next one.
//! Invariant V2: of two values of one term, the one with the larger number counts.

use holdline_core::{ErrorKind, FencingToken, HolderFields, LockError, LockName};

use crate::client::Client;
use crate::guard::Guard;
use crate::plan::options::LockOptions;

/// What follows the name of an election in the names of its two value locks.
const SUFFIXES: [&str; 2] = [":proclaimed-0", ":proclaimed-1"];
/// The labels of a value lock.
const TERM: &str = "election_term";
const NUMBER: &str = "election_value_number";
/// How often a reader looks when it has found nothing: a value may have moved between two looks.
const LOOKS: usize = 2;

/// The two locks that store proclaimed values.
#[derive(Clone, Debug)]
pub(super) struct Proclaimed {
    names: [LockName; 2],
}

/// A value that is stored, with the lock that stores it.
pub(super) struct Stored {
    slot: usize,
    number: u64,
    guard: Guard,
}

impl Stored {
    /// Ends it: observers find the value of the campaign.
    pub(super) async fn release(self) {
        let _ = self.guard.release().await;
    }
}

impl Proclaimed {
    /// Forms the names of the two locks.
    pub(super) fn of(client: &Client, election: &LockName) -> Result<Proclaimed, LockError> {
        let name = |suffix: &str| {
            LockName::new(format!("{election}{suffix}")).map_err(|error| {
                let longest = holdline_core::name::MAX_NAME_BYTES - suffix.len();
                let message = format_args!("an election's may have {longest} bytes: {error}");
                LockError::invalid(client.capabilities().engine, "name", message)
            })
        };
        Ok(Proclaimed { names: [name(SUFFIXES[0])?, name(SUFFIXES[1])?] })
    }

    /// Stores a value as the one after `before`, which is still stored.
    pub(super) async fn store(
        &self,
        client: &Client,
        options: &LockOptions,
        term: FencingToken,
        before: Option<&Stored>,
    ) -> Result<Stored, LockError> {
        let number = before.map_or(1, |before| before.number + 1);
        let options = options
            .clone()
            .with_label(TERM, term.to_string())
            .with_label(NUMBER, number.to_string());
        let lock = |slot: usize| client.mutex_with(self.names[slot].as_str(), &options);
        if let Some(before) = before {
            let slot = 1 - before.slot;
            return Ok(Stored { slot, number, guard: lock(slot)?.lock().await? });
        }
        // What a dead leader has left is in the way of one of them at most, but for a moment.
        match lock(0)?.try_lock().await {
            Ok(guard) => Ok(Stored { slot: 0, number, guard }),
            Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => {
                Ok(Stored { slot: 1, number, guard: lock(1)?.lock().await? })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the value that the leader of this term has proclaimed last; `None` if it has
    /// proclaimed none.
    pub(super) async fn read(
        &self,
        client: &Client,
        term: FencingToken,
    ) -> Result<Option<String>, LockError> {
        let mut found: Option<(u64, String)> = None;
        for name in std::iter::repeat_n(&self.names, LOOKS).flatten() {
            let snapshot = client.admin().inspect(name).await?;
            for holder in &snapshot.holders {
                let stored = stored(holder.summary.metadata.fields(), term);
                found = found.max(stored);
            }
            if name == &self.names[1] && found.is_some() {
                break;
            }
        }
        Ok(found.map(|(_, value)| value))
    }
}

/// Returns number and value of a value lock, if it is of this term.
fn stored(fields: HolderFields, term: FencingToken) -> Option<(u64, String)> {
    let label = |key| fields.labels.get(key).and_then(|text: &String| text.parse::<u64>().ok());
    if label(TERM)? != term.get() {
        return None;
    }
    Some((label(NUMBER)?, fields.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_with_its_own_term_only() {
        let fields = |term: &str, number: &str| HolderFields {
            value: "v".into(),
            labels: [(TERM.into(), term.into()), (NUMBER.into(), number.into())].into(),
            ..HolderFields::default()
        };
        let term = FencingToken::new(7).expect("a token");
        assert_eq!(stored(fields("7", "3"), term), Some((3, "v".into())));
        for (term_label, number) in [("6", "3"), ("8", "3"), ("7", "x"), ("", ""), ("x", "1")] {
            assert_eq!(stored(fields(term_label, number), term), None, "{term_label} {number}");
        }
        assert_eq!(stored(HolderFields::default(), term), None);
    }
}
