//! The keys of a lock. `docs/keys.md` describes their contents.
//!
//! A lock name becomes its *lock key* by the template: `{name}` is replaced by the name in braces,
//! so that all keys of a name share a slot. Every other key of the name is the lock key and a
//! suffix, which starts with a colon and the version of the format. In a cluster each name has a
//! counter of its own, in its slot.
//!
//! - Invariant K1: two names never share a key: the text between the braces contains no brace.
//! - Invariant K2: in a cluster, the text before the braces contains no brace, so that only the
//!   name determines the slot.

use std::borrow::Cow;

use holdline_core::{LockError, LockName};

use crate::args::Args;
use crate::error::ENGINE;
use crate::options::RedisOptions;

/// The suffixes: the version of the format, and what the key is for.
const QUEUE: &str = ":1q";
const DATA: &str = ":1d";
const LATCH: &str = ":1c";
const COUNTER: &str = "fence";
/// What the key of the audit trail begins with. It is no prefix of the locks' own keys: who may
/// write those must not be able to change the trail.
const AUDIT: &str = "holdline-audit:";
/// Never exists: a node rejects a call that names it while its slot migrates.
const GUARD: &str = ":1m";
/// What a node of a quorum stores about its set.
const NODE: &str = "node:1";
/// What is stored about the master term, where Sentinels choose the master.
const MASTER_TERM: &str = "reign:1";
/// The prefix that stands in the scripts `server_one`, `quorum_of_one` and `quorum_plain_of_one`.
const PREFIX_IN_SCRIPTS: &str = "holdline:";
/// The placeholder of the name in a template.
const PLACEHOLDER: &str = "{name}";

/// How keys are made.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    before: String,
    after: String,
    prefix: String,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One counter for all names.
    Server,
    /// A counter for each name, and all keys of a name in its slot.
    Cluster,
    /// The name is inserted into the template unchanged.
    Plain,
}

/// The keys of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameKeys {
    pub(crate) lock: Vec<u8>,
    pub(crate) queue: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Layout {
    /// Takes a template that contains `{name}` once, and the prefix of keys that belong to no name.
    pub(crate) fn new(template: &str, prefix: &str) -> Layout {
        let (before, after) = template.split_once(PLACEHOLDER).unwrap_or((template, ""));
        let before = before.to_owned();
        let after = after.to_owned();
        let prefix = prefix.to_owned();
        Layout { before, after, prefix, shape: Shape::Server }
    }

    /// Returns the layout for the options of a server or a cluster.
    pub(crate) fn of(options: &RedisOptions) -> Layout {
        let make = if options.is_of_cluster() { Layout::of_cluster } else { Layout::new };
        make(options.key_template(), options.prefix())
    }

    /// Makes the layout of a cluster.
    pub(crate) fn of_cluster(template: &str, prefix: &str) -> Layout {
        Layout { shape: Shape::Cluster, ..Layout::new(template, prefix) }
    }

    /// Makes the layout of the plain dialect: the name is inserted unchanged, and the other keys of
    /// a quorum start with the prefix.
    pub(crate) fn plain(template: &str, prefix: &str) -> Layout {
        Layout { shape: Shape::Plain, ..Layout::new(template, prefix) }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.shape == Shape::Plain
    }

    /// Checks that the lock key of a name is none of our other keys.
    ///
    /// # Errors
    /// `Invalid`: it is one.
    pub(crate) fn check(&self, name: &LockName) -> Result<(), LockError> {
        if self.is_plain() {
            check_foreign_key(name, &self.lock_key(name.as_str()), &self.prefix, &[])
        } else {
            Ok(())
        }
    }

    /// Returns the counter's key. The scripts derive the channels from it, so its end is fixed.
    pub(crate) fn counter(&self) -> Vec<u8> {
        format!("{}{COUNTER}", self.prefix).into_bytes()
    }

    /// Returns the channel of a process's inbox.
    pub(crate) fn inbox(&self, inbox: &str) -> Vec<u8> {
        format!("{}inbox:{inbox}", self.prefix).into_bytes()
    }

    pub(crate) fn keys_of(&self, name: &LockName) -> NameKeys {
        let lock = self.lock_key(name.as_str());
        let with = |suffix: &str| [lock.as_bytes(), suffix.as_bytes()].concat();
        NameKeys { queue: with(QUEUE), data: with(DATA), lock: lock.into_bytes() }
    }

    /// Returns the key of the latch of this name, which is no key of the lock.
    pub(crate) fn latch_of(&self, name: &LockName) -> Vec<u8> {
        [self.lock_key(name.as_str()).as_bytes(), LATCH.as_bytes()].concat()
    }

    /// Returns whether this is the key of a latch.
    pub(crate) fn is_latch(&self, key: &[u8]) -> bool {
        let lock = key.strip_suffix(LATCH.as_bytes());
        lock.and_then(|lock| self.name_of(lock)).is_some_and(|name| self.latch_of(&name) == key)
    }

    /// Returns the key of the counter that gives a name its tokens.
    pub(crate) fn counter_of(&self, name: &LockName) -> Vec<u8> {
        if self.has_counters() {
            format!("{}{COUNTER}:{{{}}}", self.prefix, escape(name.as_str())).into_bytes()
        } else {
            self.counter()
        }
    }

    /// Returns whether each name has a counter of its own.
    pub(crate) fn has_counters(&self) -> bool {
        self.shape == Shape::Cluster
    }

    /// Returns the key of the audit trail, of all engines with this prefix.
    pub(crate) fn audit(&self) -> Vec<u8> {
        format!("{AUDIT}{{{}}}", escape(&self.prefix)).into_bytes()
    }

    pub(crate) fn push_counter(&self, keys: &mut Args) {
        keys.push_concat(&[self.prefix.as_bytes(), COUNTER.as_bytes()]);
    }

    /// Adds the key of a name's counter. The scripts derive the channels from it, so the part
    /// before the name is fixed.
    pub(crate) fn push_counter_of(&self, keys: &mut Args, name: &LockName) {
        keys.push(self.counter_of(name));
    }

    /// Adds the key that never exists, in a cluster.
    pub(crate) fn push_guard(&self, keys: &mut Args, name: &LockName) {
        if self.has_counters() {
            keys.push_concat(&[self.lock_key(name.as_str()).as_bytes(), GUARD.as_bytes()]);
        }
    }

    /// Returns the hash tag of a name, which determines its slot.
    pub(crate) fn hash_tag(name: &LockName) -> Cow<'_, str> {
        escape(name.as_str())
    }

    /// Returns the key of a quorum's node.
    pub(crate) fn node(&self) -> Vec<u8> {
        format!("{}{NODE}", self.prefix).into_bytes()
    }

    /// Adds the key of a quorum's node. The scripts derive the channels from it, so its end is
    /// fixed.
    pub(crate) fn push_node(&self, keys: &mut Args) {
        keys.push_concat(&[self.prefix.as_bytes(), NODE.as_bytes()]);
    }

    /// Returns the key of the master term.
    pub(crate) fn master_term(&self) -> Vec<u8> {
        format!("{}{MASTER_TERM}", self.prefix).into_bytes()
    }

    /// Returns the channel on which a node of a quorum announces that a name is free.
    pub(crate) fn wake(&self, name: &LockName) -> Vec<u8> {
        format!("{}wake:{}", self.prefix, self.lock_key(name.as_str())).into_bytes()
    }

    /// Returns whether the counter's key is the scripts' default, which requests omit.
    pub(crate) fn has_default_counter(&self) -> bool {
        self.prefix == PREFIX_IN_SCRIPTS && !self.has_counters()
    }

    /// Adds the lock key of a name, from which the scripts derive the other keys.
    pub(crate) fn push_lock(&self, keys: &mut Args, name: &LockName) {
        if self.is_plain() {
            let parts = [self.before.as_str(), name.as_str(), &self.after];
            return keys.push_concat(&parts.map(str::as_bytes));
        }
        let name = escape(name.as_str());
        let parts = [&self.before, "{", &name, "}", &self.after];
        keys.push_concat(&parts.map(str::as_bytes));
    }

    fn lock_key(&self, name: &str) -> String {
        if self.is_plain() {
            return [&self.before, name, &self.after].concat();
        }
        format!("{}{{{}}}{}", self.before, escape(name), self.after)
    }

    /// Returns whether every key of the database may be a lock: the template is the name alone.
    pub(crate) fn matches_every_key(&self) -> bool {
        self.is_plain() && self.before.is_empty() && self.after.is_empty()
    }

    /// Returns the name whose lock key or data key this is.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<LockName> {
        let key = std::str::from_utf8(key).ok()?;
        if self.is_plain() {
            let name = key.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
            return LockName::new(name).ok().filter(|name| self.check(name).is_ok());
        }
        let key = key.strip_suffix(DATA).unwrap_or(key);
        let escaped = key.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        let escaped = escaped.strip_prefix('{')?.strip_suffix('}')?;
        let name = unescape(escaped)?;
        // Only a key that we would write ourselves is ours.
        let name = LockName::new(name).ok()?;
        (escape(name.as_str()) == escaped).then_some(name)
    }

    /// Returns the pattern of `SCAN` that the keys of all names beginning with `prefix` match.
    pub(crate) fn names_beginning(&self, prefix: &str) -> Vec<u8> {
        let mut pattern = String::new();
        if self.is_plain() {
            push_literal(&mut pattern, &[&self.before, prefix].concat());
            pattern.push('*');
            push_literal(&mut pattern, &self.after);
        } else {
            push_literal(&mut pattern, &format!("{}{{{}", self.before, escape(prefix)));
            pattern.push('*');
        }
        pattern.into_bytes()
    }
}

/// Adds a text that a pattern of `SCAN` matches as it is.
fn push_literal(pattern: &mut String, text: &str) {
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
}

/// Checks that the lock key of a name is no key that we use for something else. Only the dialects
/// that insert names unchanged need it. `beginnings` follow the prefix in such keys.
///
/// # Errors
/// `Invalid`: it is one. Nothing was sent.
pub(crate) fn check_foreign_key(
    name: &LockName,
    key: &str,
    prefix: &str,
    beginnings: &[&str],
) -> Result<(), LockError> {
    let rest = key.strip_prefix(prefix);
    let is_ours = rest.is_some_and(|rest| {
        let whole = [COUNTER, NODE, MASTER_TERM].contains(&rest);
        whole || beginnings.iter().any(|beginning| rest.starts_with(beginning))
    });
    if !is_ours && !key.starts_with(AUDIT) {
        return Ok(());
    }
    let key = key.escape_debug();
    let message = format!(
        "the key of this name would be {key}, which Holdline uses for itself: choose another name, \
         `key_template` or `prefix`",
    );
    Err(LockError::invalid(ENGINE, "name", message).with_name(name))
}

/// Escapes braces, which would end the hash tag, and the escape character itself.
fn escape(name: &str) -> Cow<'_, str> {
    if !name.contains(['{', '}', '%']) {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '{' => escaped.push_str("%7B"),
            '}' => escaped.push_str("%7D"),
            '%' => escaped.push_str("%25"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

fn unescape(escaped: &str) -> Option<String> {
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((plain, behind)) = rest.split_once('%') {
        name.push_str(plain);
        name.push(match behind.get(..2)? {
            "7B" => '{',
            "7D" => '}',
            "25" => '%',
            _ => return None,
        });
        rest = &behind[2..];
    }
    name.push_str(rest);
    Some(name)
}

#[cfg(test)]
mod tests;
