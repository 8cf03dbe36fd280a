//! The keys and channels of a name, as Redisson makes them. `docs/redisson.md` has the table.
//!
//! The key of a lock is its name itself, or what the template makes of it: that is Redisson's
//! `NameMapper`. Redisson wraps the name in other keys in braces, unless it contains a `{`. So it
//! does not notice that `a{b` has no hash tag: in a cluster the keys of such a name are in
//! different slots. We refuse it there.

use holdline_core::{LeaseId, LockError, LockKind, LockName, Mode};

use super::owner::owner_of;
use crate::args::Args;
use crate::cluster::key_slot;
use crate::error::ENGINE;
use crate::keys::check_foreign_key;
use crate::options::RedisOptions;

/// The channels begin with these texts; behind them is the name.
pub(super) const LOCK_CHANNEL: &str = "redisson_lock__channel:";
const READ_WRITE_CHANNEL: &str = "redisson_rwlock:";
pub(super) const SEMAPHORE_CHANNEL: &str = "redisson_sc:";

/// The placeholder of the name in the template.
const PLACEHOLDER: &str = "{name}";

/// How names become keys.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    before: String,
    after: String,
    prefix: String,
}

/// A name as Redisson has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The key of the lock.
    pub(crate) key: String,
    /// The name in other keys and in channels.
    pub(crate) tag: String,
}

impl Mapped {
    fn of(key: String) -> Mapped {
        let tag = if key.contains('{') { key.clone() } else { format!("{{{key}}}") };
        Mapped { key, tag }
    }
}

impl Names {
    /// Makes the names that the options ask for.
    pub(crate) fn of(options: &RedisOptions) -> Names {
        Names::new(options.key_template(), options.prefix())
    }

    fn new(template: &str, prefix: &str) -> Names {
        let (before, after) = template.split_once(PLACEHOLDER).unwrap_or((template, ""));
        Names { before: before.into(), after: after.into(), prefix: prefix.into() }
    }

    pub(crate) fn map(&self, name: &LockName) -> Mapped {
        Mapped::of([&self.before, name.as_str(), &self.after].concat())
    }

    /// Checks that the lock key of a name is no key that Redisson or we use for something else.
    ///
    /// # Errors
    /// `Invalid`: it is one.
    pub(crate) fn check(&self, name: &LockName) -> Result<(), LockError> {
        let key = self.map(name).key;
        check_foreign_key(name, &key, &self.prefix, &["mark:", "grants:", "beats:"])?;
        check_foreign_key(name, &key, "redisson_lock_", &["token:", "queue:", "timeout:"])
    }

    /// Returns the slot of all keys of a name.
    ///
    /// # Errors
    /// `Invalid`: they are in different slots.
    pub(crate) fn slot(&self, name: &LockName) -> Result<u16, LockError> {
        let mapped = self.map(name);
        let slot = key_slot(mapped.key.as_bytes());
        let others = [self.counter(&mapped), self.permits(&mapped)];
        if others.iter().all(|key| key_slot(key.as_bytes()) == slot) {
            return Ok(slot);
        }
        let message = format!(
            "Redisson's keys of '{}' are in different slots of a cluster, so that a release fails \
             there: use a name without braces, or with one hash tag as in `{{orders}}:7`",
            mapped.key.escape_debug()
        );
        Err(LockError::invalid(ENGINE, "name", message).with_name(name))
    }

    /// Returns what our own keys begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Checks that a latch's channel is in the slot of its key, as Redisson's scripts need it.
    ///
    /// # Errors
    /// `Invalid`: it is not.
    pub(crate) fn check_latch(&self, name: &LockName) -> Result<(), LockError> {
        let key = self.map(name).key;
        if !key.contains(['{', '}']) {
            return Ok(());
        }
        let message = "the name of a latch must have no `{` or `}` in a cluster: Redisson puts \
                       braces around all of it";
        Err(LockError::invalid(ENGINE, "name", message).with_name(name))
    }

    /// Returns the channel on which the release of a lock is published.
    pub(crate) fn channel(&self, mapped: &Mapped, mode: Mode, kind: LockKind) -> String {
        let channel = match mode {
            Mode::Permits { .. } => SEMAPHORE_CHANNEL,
            Mode::Exclusive if kind.is_mutex() => LOCK_CHANNEL,
            Mode::Exclusive | Mode::Shared => READ_WRITE_CHANNEL,
        };
        format!("{channel}{}", mapped.tag)
    }

    /// Returns the key of the counter of an `RFencedLock`.
    pub(crate) fn counter(&self, mapped: &Mapped) -> String {
        format!("redisson_lock_token:{}", mapped.tag)
    }

    /// Returns the key of the counter of the lock with this key.
    pub(crate) fn counter_of_key(&self, key: &str) -> String {
        self.counter(&Mapped::of(key.to_owned()))
    }

    /// Returns the key of the mark that a lease id may not return for this name.
    pub(crate) fn mark(&self, mapped: &Mapped, lease_id: LeaseId) -> String {
        format!("{}mark:{}:{}", self.prefix, mapped.tag, lease_id.to_hex())
    }

    /// Returns the key of the records where the lock has no room for them.
    pub(crate) fn records(&self, mapped: &Mapped) -> String {
        format!("{}grants:{}", self.prefix, mapped.tag)
    }

    /// Returns the key of the permits that are held.
    pub(crate) fn permits(&self, mapped: &Mapped) -> String {
        format!("{}:timeout", mapped.tag)
    }

    /// Returns the key of a read hold.
    pub(crate) fn read_hold(&self, mapped: &Mapped, lease_id: LeaseId) -> String {
        format!("{}:{}:rwlock_timeout:1", mapped.tag, owner_of(lease_id))
    }

    /// Adds the keys that find the grant of a lease id, whichever kind of lock it is of.
    pub(crate) fn push_grant(&self, keys: &mut Args, mapped: &Mapped, lease_id: LeaseId) {
        keys.push(&mapped.key);
        keys.push(self.mark(mapped, lease_id));
        keys.push(self.records(mapped));
        keys.push(self.permits(mapped));
        keys.push(self.read_hold(mapped, lease_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a good name")
    }

    #[test]
    fn a_name_whose_key_has_another_use_is_refused() {
        let names = Names::new("{name}", "holdline:");
        for refused in [
            "holdline:grants:{a}",
            "holdline:mark:{a}:0",
            "redisson_lock_token:{a}",
            "holdline:fence",
        ] {
            assert!(names.check(&name(refused)).is_err(), "{refused}");
        }
        for accepted in ["grants:{a}", "holdline:a", "redisson_lock"] {
            names.check(&name(accepted)).expect("no key of ours");
        }
    }

    #[test]
    fn keys_are_redissons() {
        let names = Names::new("{name}", "holdline:");
        for (text, tag) in [("a", "{a}"), ("x:{a}:y", "x:{a}:y"), ("a{b", "a{b"), ("a}b", "{a}b}")]
        {
            let mapped = names.map(&name(text));
            assert_eq!((mapped.key.as_str(), mapped.tag.as_str()), (text, tag));
            assert_eq!(names.counter(&mapped), format!("redisson_lock_token:{tag}"));
            assert_eq!(names.permits(&mapped), format!("{tag}:timeout"));
        }
        let lease_id = LeaseId::from_bytes([0xab; 16]);
        let mapped = names.map(&name("a"));
        assert_eq!(
            names.mark(&mapped, lease_id),
            format!("holdline:mark:{{a}}:{}", lease_id.to_hex())
        );
        let hold = names.read_hold(&mapped, lease_id);
        assert_eq!(hold, format!("{{a}}:{}:rwlock_timeout:1", owner_of(lease_id)));
    }

    #[test]
    fn a_template_is_a_name_mapper() {
        let mapped = Names::new("app:{name}", "holdline:").map(&name("a"));
        assert_eq!((mapped.key.as_str(), mapped.tag.as_str()), ("app:a", "{app:a}"));
    }

    #[test]
    fn names_whose_keys_would_be_apart_are_refused() {
        let names = Names::new("{name}", "holdline:");
        for good in ["a", "{a}", "x{a}y", "{a}{b}", "a:b.c"] {
            assert!(names.slot(&name(good)).is_ok(), "{good}");
        }
        for bad in ["a{b", "x{}y", "a}b", "}a{b"] {
            let error = names.slot(&name(bad)).expect_err("in different slots");
            assert!(error.to_string().contains("different slots"), "{bad}: {error}");
        }
    }
}
