//! The keys of a lock in the plain dialect. `docs/keys.md` describes their contents.
//!
//! The lock key is the template with the name unchanged, so that other libraries find it. Other
//! keys start with our own prefix, and exist only with fencing.

use holdline_core::{LeaseId, LockError, LockName};

use crate::error::ENGINE;
use crate::keys::check_foreign_key;
use crate::options::RedisOptions;

/// The placeholder of the name in a template.
const PLACEHOLDER: &str = "{name}";

/// What follows the prefix in a mark.
const MARK: &str = "1m:";

/// How keys are made.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The text before and after the name.
    lock: (String, String),
    signal: Option<String>,
    prefix: String,
}

impl Keys {
    fn new(template: &str, signal: Option<&str>, prefix: &str) -> Keys {
        let (before, after) = template.split_once(PLACEHOLDER).unwrap_or((template, ""));
        let lock = (before.to_owned(), after.to_owned());
        Keys { lock, signal: signal.map(str::to_owned), prefix: prefix.to_owned() }
    }

    /// Makes the keys that the options ask for.
    pub(crate) fn of(options: &RedisOptions) -> Keys {
        Keys::new(options.key_template(), options.signal_template(), options.prefix())
    }

    pub(crate) fn lock(&self, name: &LockName) -> Vec<u8> {
        self.lock_parts(name).concat()
    }

    /// Checks that the lock key of a name is none of our other keys, and no signal's.
    ///
    /// # Errors
    /// `Invalid`: it is one.
    pub(crate) fn check(&self, name: &LockName) -> Result<(), LockError> {
        let key = [self.lock.0.as_str(), name.as_str(), &self.lock.1].concat();
        check_foreign_key(name, &key, &self.prefix, &[MARK])?;
        let Some((before, after)) =
            self.signal.as_deref().and_then(|one| one.split_once(PLACEHOLDER))
        else {
            return Ok(());
        };
        let other = key.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        if other.is_some_and(|other| LockName::new(other).is_ok()) {
            let message = format!(
                "the key of this name would be {}, which `signal_template` makes of another name",
                key.escape_debug(),
            );
            return Err(LockError::invalid(ENGINE, "name", message).with_name(name));
        }
        Ok(())
    }

    /// Returns the lock key in parts.
    pub(super) fn lock_parts<'a>(&'a self, name: &'a LockName) -> [&'a [u8]; 3] {
        [&self.lock.0, name.as_str(), &self.lock.1].map(str::as_bytes)
    }

    /// Returns the list to which a release adds an element.
    pub(crate) fn signal(&self, name: &LockName) -> Option<Vec<u8>> {
        self.signal.as_deref().map(|template| fill(template, name))
    }

    /// Returns the key of the counter, which is that of the native dialect.
    pub(crate) fn counter(&self) -> Vec<u8> {
        format!("{}fence", self.prefix).into_bytes()
    }

    /// Returns the key of the mark that a lease id may not return for this name.
    pub(crate) fn mark(&self, name: &LockName, lease_id: LeaseId) -> Vec<u8> {
        let head = format!("{}{MARK}{}:", self.prefix, lease_id.to_hex());
        [head.into_bytes(), self.lock(name)].concat()
    }
}

fn fill(template: &str, name: &LockName) -> Vec<u8> {
    template.replacen(PLACEHOLDER, name.as_str(), 1).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_whose_key_has_another_use_is_refused() {
        for (template, signal, refused, accepted) in [
            ("holdline:{name}", None, "fence", "fences"),
            ("holdline:{name}", None, "node:1", "node:2"),
            ("holdline:{name}", None, "1m:0:x", "1m"),
            ("{name}", None, "holdline:fence", "fence"),
            ("{name}", None, "holdline-audit:{holdline:}", "audit"),
            ("lock:{name}", Some("lock:signal:{name}"), "signal:x", "signal"),
        ] {
            let keys = Keys::new(template, signal, "holdline:");
            let check = |name: &str| keys.check(&LockName::new(name).expect("a good name"));
            assert!(check(refused).is_err(), "{template} {refused}");
            check(accepted).expect("no key of ours");
        }
    }

    #[test]
    fn keys_are_those_of_the_other_libraries() {
        let name = LockName::new("a{name}:b").expect("a good name");
        for (template, key) in [
            ("{name}", "a{name}:b"),
            ("lock:{name}", "lock:a{name}:b"),
            ("redlock:{name}", "redlock:a{name}:b"),
            ("mutex:{name}:x", "mutex:a{name}:b:x"),
        ] {
            assert_eq!(Keys::new(template, None, "p:").lock(&name), key.as_bytes());
        }
    }

    #[test]
    fn other_keys_start_with_our_prefix() {
        let name = LockName::new("n").expect("a good name");
        let keys = Keys::new("{name}", Some("lock-signal:{name}"), "p:");
        let mark = keys.mark(&name, LeaseId::from_bytes([0xab; 16]));
        assert_eq!(mark, format!("p:1m:{}:n", "ab".repeat(16)).as_bytes());
        assert_eq!(keys.counter(), b"p:fence");
        assert_eq!(keys.signal(&name), Some(b"lock-signal:n".to_vec()));
    }
}
