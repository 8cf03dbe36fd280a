//! Which keys a lock has. `docs/keys.md` says what stands in them.
//!
//! A lock name becomes its *lock key* by the template: `{name}` is replaced by the name in braces,
//! so that all keys of a name share a slot. All other keys of the name are the lock key and a
//! suffix that begins with a colon and the number of the format.
//! In a cluster each name has a counter of its own, in its slot.
//! Invariant K1: two names never share a key: what stands between the braces holds none.
//! Invariant K2: what stands before the braces in a cluster holds none, so that the name alone
//! makes the slot.

use std::borrow::Cow;

use holdline_core::LockName;

use crate::node::Words;
use crate::options::RedisOptions;

/// The number of the format, and what each key is for.
const LINE: &str = ":1q";
const DATA: &str = ":1d";
const COUNTER: &str = "fence";
/// Is never written: a call that names it is refused as a whole while its slot moves.
const NEVER: &str = ":1m";
/// What a node of a quorum keeps of its set.
const NODE: &str = "node:1";
/// What is kept of the servers that Sentinels make masters.
const REIGN: &str = "reign:1";
/// What the scripts take for the prefix unless they are told another.
const USUAL_PREFIX: &str = "holdline:";
/// Stands for the name in a template.
const PLACE: &str = "{name}";

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
    /// A counter a name, and all keys of a name in its slot.
    Cluster,
    /// The name stands in the template as it is.
    Plain,
}

/// The keys of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameKeys {
    pub(crate) lock: Vec<u8>,
    pub(crate) line: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Layout {
    /// Takes a template that holds `{name}` once, and the prefix of what belongs to no name.
    pub(crate) fn new(template: &str, prefix: &str) -> Layout {
        let (before, after) = template.split_once(PLACE).unwrap_or((template, ""));
        let (before, after, prefix) = (before.to_owned(), after.to_owned(), prefix.to_owned());
        Layout { before, after, prefix, shape: Shape::Server }
    }

    /// The layout that the settings of a server or a cluster make.
    pub(crate) fn of(options: &RedisOptions) -> Layout {
        let make = if options.is_of_cluster() { Layout::of_cluster } else { Layout::new };
        make(options.key_template(), options.prefix())
    }

    /// The same in a cluster.
    pub(crate) fn of_cluster(template: &str, prefix: &str) -> Layout {
        Layout { shape: Shape::Cluster, ..Layout::new(template, prefix) }
    }

    /// The same in the plain dialect: the name stands in the template as it is, and what a quorum
    /// keeps besides stands under the prefix.
    pub(crate) fn plain(template: &str, prefix: &str) -> Layout {
        Layout { shape: Shape::Plain, ..Layout::new(template, prefix) }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.shape == Shape::Plain
    }

    /// Returns the counter's key. The scripts make the channels of it: keep its ending.
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
        NameKeys { line: with(LINE), data: with(DATA), lock: lock.into_bytes() }
    }

    /// Returns the key of the counter that a name draws from.
    pub(crate) fn counter_of(&self, name: &LockName) -> Vec<u8> {
        match self.has_counters() {
            true => format!("{}{COUNTER}:{{{}}}", self.prefix, escape(name.as_str())).into_bytes(),
            false => self.counter(),
        }
    }

    /// Tells whether each name has a counter of its own.
    pub(crate) fn has_counters(&self) -> bool {
        self.shape == Shape::Cluster
    }

    pub(crate) fn push_counter(&self, keys: &mut Words) {
        keys.push_parts(&[self.prefix.as_bytes(), COUNTER.as_bytes()]);
    }

    /// Adds the key of the counter that a name has. The scripts make the channels of it: keep what
    /// stands before the name.
    pub(crate) fn push_counter_of(&self, keys: &mut Words, name: &LockName) {
        keys.push(self.counter_of(name));
    }

    /// Adds the key that is never written, in a cluster.
    pub(crate) fn push_never(&self, keys: &mut Words, name: &LockName) {
        if self.has_counters() {
            keys.push_parts(&[self.lock_key(name.as_str()).as_bytes(), NEVER.as_bytes()]);
        }
    }

    /// Returns what makes the slot of a name.
    pub(crate) fn tag(name: &LockName) -> Cow<'_, str> {
        escape(name.as_str())
    }

    /// Returns the key of what a node of a quorum keeps.
    pub(crate) fn node(&self) -> Vec<u8> {
        format!("{}{NODE}", self.prefix).into_bytes()
    }

    /// Adds the key of what a node of a quorum keeps. The scripts make the channels of it: keep its
    /// ending.
    pub(crate) fn push_node(&self, keys: &mut Words) {
        keys.push_parts(&[self.prefix.as_bytes(), NODE.as_bytes()]);
    }

    /// Returns the key of what is kept of the servers that Sentinels make masters.
    pub(crate) fn reign(&self) -> Vec<u8> {
        format!("{}{REIGN}", self.prefix).into_bytes()
    }

    /// Returns the channel on which a node of a quorum tells that a name is free.
    pub(crate) fn wake(&self, name: &LockName) -> Vec<u8> {
        format!("{}wake:{}", self.prefix, self.lock_key(name.as_str())).into_bytes()
    }

    /// Tells whether the scripts know the counter's key, which then need not be named.
    pub(crate) fn has_usual_counter(&self) -> bool {
        self.prefix == USUAL_PREFIX && !self.has_counters()
    }

    /// Adds the lock key of a name: the scripts make the others of it.
    pub(crate) fn push_lock(&self, keys: &mut Words, name: &LockName) {
        if self.is_plain() {
            let parts = [self.before.as_str(), name.as_str(), &self.after];
            return keys.push_parts(&parts.map(str::as_bytes));
        }
        let name = escape(name.as_str());
        let parts = [&self.before, "{", &name, "}", &self.after];
        keys.push_parts(&parts.map(str::as_bytes));
    }

    fn lock_key(&self, name: &str) -> String {
        if self.is_plain() {
            return [&self.before, name, &self.after].concat();
        }
        format!("{}{{{}}}{}", self.before, escape(name), self.after)
    }

    /// Returns the name whose lock key or data key this is.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<LockName> {
        let key = std::str::from_utf8(key).ok()?;
        let key = key.strip_suffix(DATA).unwrap_or(key);
        let escaped = key.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        let escaped = escaped.strip_prefix('{')?.strip_suffix('}')?;
        let name = unescape(escaped)?;
        // Only what we would write ourselves is ours.
        let name = LockName::new(name).ok()?;
        (escape(name.as_str()) == escaped).then_some(name)
    }

    /// Returns the pattern of `SCAN` that all keys of the names with this prefix match.
    pub(crate) fn pattern(&self, prefix: &str) -> Vec<u8> {
        let text = format!("{}{{{}", self.before, escape(prefix));
        let mut pattern = String::with_capacity(text.len() + 1);
        for character in text.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('*');
        pattern.into_bytes()
    }
}

/// Writes braces, which would end the slot's tag, and the mark of the escape itself otherwise.
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
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("holdline:{name}", "holdline:")
    }

    #[test]
    fn names_become_keys_and_come_back() {
        for (text, key) in [
            ("demo", "holdline:{demo}"),
            ("a:1q", "holdline:{a:1q}"),
            ("{a}:1d", "holdline:{%7Ba%7D:1d}"),
            ("%7B", "holdline:{%257B}"),
            ("ключ 🔒", "holdline:{ключ 🔒}"),
        ] {
            let name = LockName::new(text).expect("a good name");
            let keys = layout().keys_of(&name);
            assert_eq!(String::from_utf8_lossy(&keys.lock), key);
            assert_eq!(layout().name_of(&keys.lock), Some(name.clone()));
            assert_eq!(layout().name_of(&keys.data).as_ref(), Some(&name));
            assert_eq!(layout().name_of(&keys.line), None);
            let mut words = Words::default();
            layout().push_lock(&mut words, &name);
            assert_eq!(words.as_written(), Words::from([keys.lock]).as_written());
        }
    }

    #[test]
    fn the_scripts_know_the_suffixes_the_usual_counter_and_the_usual_request() {
        let acquire = include_str!("../scripts/acquire.fast.lua");
        for suffix in [LINE, DATA] {
            assert!(acquire.contains(&format!("LOCK .. '{suffix}'")), "{suffix}");
        }
        let options = crate::RedisOptions::default();
        let (layout, prefix) = (Layout::new(options.key_template(), options.prefix()), "mine:");
        let counter = String::from_utf8(layout.counter()).expect("text");
        assert!(include_str!("../scripts/of_one.lua").contains(&format!("or '{counter}'")));
        assert!(layout.has_usual_counter());
        assert!(!Layout::new(options.key_template(), prefix).has_usual_counter());
        let usual = format!("'x-q {}'", options.max_waiters());
        assert!(acquire.contains(&usual), "{usual}");
    }

    #[test]
    fn what_we_would_not_write_is_no_name() {
        for key in [
            "holdline:fence",
            "holdline:{}",
            "holdline:{a",
            "holdline:{a}b",
            "holdline:{a%}",
            "holdline:{a%41}",
            "holdline:{%7b}",
            "other:{a}",
            "holdline:{a}:1t:00",
            "holdline:{a\u{1b}}",
        ] {
            assert_eq!(layout().name_of(key.as_bytes()), None, "{key}");
        }
        assert_eq!(layout().name_of(b"holdline:{\xff}"), None);
    }

    #[test]
    fn in_the_plain_dialect_a_name_stands_as_it_is() {
        let layout = Layout::plain("lock:{name}:x", "mine:");
        let name = LockName::new("a{b}%").expect("a good name");
        let mut words = Words::default();
        layout.push_lock(&mut words, &name);
        assert_eq!(words.as_written(), Words::from(["lock:a{b}%:x"]).as_written());
        assert_eq!(layout.wake(&name), b"mine:wake:lock:a{b}%:x");
    }

    #[test]
    fn in_a_cluster_all_keys_of_a_name_have_its_tag_and_no_other() {
        let layout = Layout::of_cluster("app:{name}:{x}", "app:");
        for (text, tag) in [("demo", "demo"), ("{a}b", "%7Ba%7Db"), ("}{", "%7D%7B"), ("%", "%25")]
        {
            let name = LockName::new(text).expect("a good name");
            let mut words = Words::default();
            layout.push_lock(&mut words, &name);
            layout.push_counter_of(&mut words, &name);
            layout.push_never(&mut words, &name);
            let written = String::from_utf8_lossy(words.as_written()).into_owned();
            let keys: Vec<&str> = written.lines().filter(|line| !line.starts_with('$')).collect();
            let expected = [
                format!("app:{{{tag}}}:{{x}}"),
                format!("app:fence:{{{tag}}}"),
                format!("app:{{{tag}}}:{{x}}:1m"),
            ];
            assert_eq!(keys, expected);
            for key in keys {
                let tagged = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                assert_eq!(tagged.map(|(tagged, _)| tagged), Some(&*Layout::tag(&name)), "{key}");
                let alone = layout.name_of(key.as_bytes());
                assert_eq!(alone, (key == expected[0]).then(|| name.clone()));
            }
            assert!(!layout.has_usual_counter());
        }
    }

    #[test]
    fn a_template_may_have_both_ends() {
        let layout = Layout::new("app:{name}:lock", "app:");
        let name = LockName::new("a*b").expect("a good name");
        let keys = layout.keys_of(&name);
        assert_eq!(String::from_utf8_lossy(&keys.data), "app:{a*b}:lock:1d");
        assert_eq!(layout.name_of(&keys.data), Some(name));
        assert_eq!(layout.pattern("a*"), b"app:{a\\**");
        assert_eq!(layout.counter(), b"app:fence");
    }
}
