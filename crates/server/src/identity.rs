//! Somebody who has proved who they are: the name, and the rights with where they are good.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::Operator;
use jiff::Timestamp;

use crate::address::ClientAddress;
use crate::config::{ConfigError, IdentityEntry};
use crate::problem::Problem;
use crate::rights::{Right, Rights};

/// Who sends a request, and from which address.
#[derive(Clone, Debug)]
pub struct Identity {
    known: Arc<Known>,
    address: Option<ClientAddress>,
}

#[derive(Debug)]
struct Known {
    /// The name of the token, the person, or the address.
    name: String,
    rights: Rights,
    stores: Scope,
    /// The prefixes of lock names.
    prefixes: Scope,
    expires: Option<Timestamp>,
}

/// Where the rights are good.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    Everywhere,
    Only(Vec<String>),
}

impl Scope {
    /// In the settings no entry means everywhere.
    fn of(entries: &[String]) -> Scope {
        if entries.is_empty() { Scope::Everywhere } else { Scope::Only(entries.to_vec()) }
    }

    fn covers(&self, covered: impl Fn(&str) -> bool) -> bool {
        match self {
            Scope::Everywhere => true,
            Scope::Only(entries) => entries.iter().any(|entry| covered(entry)),
        }
    }

    /// What is in both. `common` returns what two entries have in common.
    fn and(&self, other: &Scope, common: impl Fn(&str, &str) -> Option<String>) -> Scope {
        let (ours, theirs) = match (self, other) {
            (Scope::Everywhere, scope) | (scope, Scope::Everywhere) => return scope.clone(),
            (Scope::Only(ours), Scope::Only(theirs)) => (ours, theirs),
        };
        let pairs = ours.iter().flat_map(|our| theirs.iter().map(move |their| (our, their)));
        Scope::Only(pairs.filter_map(|(our, their)| common(our, their)).collect())
    }
}

fn same_store(one: &str, other: &str) -> Option<String> {
    (one == other).then(|| one.to_owned())
}

/// The names that begin with two prefixes begin with the longer one, if it begins with the other.
fn longer_prefix(one: &str, other: &str) -> Option<String> {
    if one.starts_with(other) {
        return Some(one.to_owned());
    }
    other.starts_with(one).then(|| other.to_owned())
}

impl Identity {
    /// Somebody who may do everything.
    pub(crate) fn unlimited(name: String) -> Identity {
        Identity::of(Known {
            name,
            rights: Rights::ALL,
            stores: Scope::Everywhere,
            prefixes: Scope::Everywhere,
            expires: None,
        })
    }

    /// Somebody whom an entry of the settings names.
    pub(crate) fn of_entry(entry: IdentityEntry<'_>) -> Result<Identity, ConfigError> {
        Ok(Identity::of(Known {
            name: entry.name.to_owned(),
            rights: rights(entry)?,
            stores: Scope::of(entry.stores),
            prefixes: Scope::of(entry.prefixes),
            expires: expiry(entry)?,
        }))
    }

    fn of(known: Known) -> Identity {
        Identity { known: Arc::new(known), address: None }
    }

    /// Returns who has proved to be both: it may do what both may.
    pub(crate) fn and(&self, other: &Identity) -> Identity {
        let one = &self.known;
        let other = &other.known;
        let expires = [one.expires, other.expires].into_iter().flatten().min();
        Identity::of(Known {
            name: format!("{} ({})", one.name, other.name),
            rights: one.rights.and(other.rights),
            stores: one.stores.and(&other.stores, same_store),
            prefixes: one.prefixes.and(&other.prefixes, longer_prefix),
            expires,
        })
    }

    /// Returns this identity until `end` at the latest.
    pub(crate) fn until(&self, end: Timestamp) -> Identity {
        let known = &self.known;
        let expires = known.expires.map_or(end, |expires| expires.min(end));
        Identity::of(Known {
            name: known.name.clone(),
            rights: known.rights,
            stores: known.stores.clone(),
            prefixes: known.prefixes.clone(),
            expires: Some(expires),
        })
    }

    /// Returns this identity, at the address that the request is from.
    pub(crate) fn at(self, address: ClientAddress) -> Identity {
        Identity { address: Some(address), ..self }
    }

    /// Returns the address of who sends the request.
    pub(crate) fn address(&self) -> Option<ClientAddress> {
        self.address
    }

    /// Returns who acts, for the audit trail.
    pub(crate) fn operator(&self) -> Operator {
        let from = self.address.map(|address| address.to_string()).unwrap_or_default();
        Operator { who: self.name().to_owned(), from }
    }

    /// Checks that a store may be used.
    pub(crate) fn may_use(&self, store: &str) -> Result<(), Problem> {
        if self.known.stores.covers(|known| known == store) {
            return Ok(());
        }
        Err(Problem::outside_stores())
    }

    /// Returns the name, by which limits are counted and sessions are owned.
    pub fn name(&self) -> &str {
        &self.known.name
    }

    /// Checks that a right is given, whatever the name.
    ///
    /// # Errors
    /// It is not.
    pub fn may(&self, right: Right) -> Result<(), Problem> {
        if self.known.rights.has(right) { Ok(()) } else { Err(Problem::lacks_right(right)) }
    }

    /// Checks that a right is given for a lock name, or for all names with a prefix.
    ///
    /// # Errors
    /// It is not.
    pub fn may_on(&self, right: Right, name: &str) -> Result<(), Problem> {
        self.may(right)?;
        if self.covers(name) { Ok(()) } else { Err(Problem::outside_prefixes()) }
    }

    /// Returns whether all names that begin with this text are within the prefixes.
    pub fn covers(&self, name: &str) -> bool {
        self.known.prefixes.covers(|prefix| name.starts_with(prefix))
    }

    /// Returns after how long the proof of the identity expires; `None` if it does not.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        let left = self.known.expires?.duration_since(Timestamp::now());
        Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
    }

    /// Returns whether the proof has not expired.
    pub(crate) fn is_current(&self) -> bool {
        self.expires_in().is_none_or(|left| !left.is_zero())
    }
}

/// Reads the rights by their names.
fn rights(entry: IdentityEntry<'_>) -> Result<Rights, ConfigError> {
    entry.rights.iter().try_fold(Rights::default(), |rights, name| {
        rights.with(name).ok_or_else(|| {
            ConfigError::new(format_args!(
                "{entry}: no right `{name}`: known are view, lock, operate, admin"
            ))
        })
    })
}

/// Reads when a proof expires.
fn expiry(entry: IdentityEntry<'_>) -> Result<Option<Timestamp>, ConfigError> {
    let parsed = entry.expires.map(str::parse::<Timestamp>).transpose();
    parsed.map_err(|_| {
        ConfigError::new(format_args!("{entry}: `expires` is no time such as 2027-01-31T00:00:00Z"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TokenConfig;

    fn narrowed(one: &str, other: &str) -> Identity {
        let identity = |text: &str| {
            let text = format!("sha256 = \"{}\"\n{text}", "0".repeat(64));
            let token: TokenConfig = toml::from_str(&text).expect("a token");
            Identity::of_entry(IdentityEntry::of_token(&token)).expect("good")
        };
        identity(one).and(&identity(other))
    }

    #[test]
    fn two_proofs_give_what_both_give() {
        let build = "name = \"build\"\nrights = [\"view\", \"lock\"]\nprefixes = [\"ci/\", \"x\"]\n\
                     expires = \"2998-01-01T00:00:00Z\"";
        let token = "name = \"ci\"\nrights = [\"lock\", \"operate\"]\n\
                     prefixes = [\"ci/a\", \"y\"]\nstores = [\"s\"]\n\
                     expires = \"2999-01-01T00:00:00Z\"";
        for identity in [narrowed(token, build), narrowed(build, token)] {
            assert!(identity.may_on(Right::Lock, "ci/a/1").is_ok());
            for name in ["ci/", "ci/b", "x", "y", ""] {
                assert!(identity.may_on(Right::Lock, name).is_err(), "{name}");
            }
            assert!(identity.may(Right::View).is_err() && identity.may(Right::Operate).is_err());
            assert!(identity.may_use("s").is_ok() && identity.may_use("default").is_err());
            let expires = identity.known.expires.map(|at| at.to_string());
            assert_eq!(expires.as_deref(), Some("2998-01-01T00:00:00Z"));
        }
        assert_eq!(narrowed(token, build).name(), "ci (build)");
        let elsewhere = "name = \"e\"\nrights = [\"lock\"]\nprefixes = [\"z\"]\nstores = [\"t\"]";
        let nothing = narrowed(token, elsewhere);
        assert!(!nothing.covers("z") && !nothing.covers("ci/a") && !nothing.covers(""));
        assert!(nothing.may_use("s").is_err() && nothing.may_use("t").is_err());
    }
}
