//! The layout of the keys.
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `<prefix><name>/<lease>.<number>` | record | an exclusive contender |
//! | `<prefix><name>/<lease>-<lease id>` | record | the same, with a detached lease |
//! | `<prefix><name>/r-…` | record | a shared contender, with one of these two ends |
//! | `<prefix><name>/p<of>-<count>-…` | record | a contender for permits, with one of these two ends |
//! | `<prefix><name>/<lease>` | empty | a contender of Go's `concurrency` or of `etcdctl lock` |
//! | `<prefix>/<name>/<lease id>/gone` | empty | a lease id that was given up |
//! | `<prefix>/<name>/<lease id>/in-flight/gone` | empty | the same, on the etcd lease of its session |
//! | `<prefix>/<name>/<lease id>/revoked` | reason | a grant that an operator took away |
//!
//! `/` and `%` are percent-encoded in names. So the ranges of two names do not overlap, and the
//! empty name, which is the range of the marks, is no lock name. Only the create revision of a key
//! decides its position in the queue. Hexadecimal digits sort before `p` and `r`, so a transaction
//! can select the keys of one mode by a range.
//!
//! A deleted key stays in the server's index until the next compaction, and each range over the
//! queue passes it. So a session uses its keys again: the number is the smallest that the session
//! does not use for this name. Then the record contains the lease id. Any process may repeat the
//! request for a detached lease, so its key is made of its lease id.

use std::fmt::Write;

use holdline_core::{LeaseId, LockName, Mode, percent_decode};

/// The keys of this engine.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: String,
}

/// A range of keys: from the first up to the second, exclusive.
pub(crate) type Span = (Vec<u8>, Vec<u8>);

/// The end of a key, which the other keys of its etcd lease do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEnd {
    /// A number, which is used again when the key was deleted.
    Number(u32),
    LeaseId(LeaseId),
}

/// A contender, as far as its key shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedKey {
    /// A contender of Holdline. The lease id is `None` if only the record contains it.
    Ours { lease_id: Option<LeaseId>, mode: Mode },
    /// A Go mutex, on this etcd lease.
    Go { lease: i64 },
}

impl Layout {
    pub(crate) fn new(prefix: &str) -> Layout {
        Layout { prefix: prefix.to_owned() }
    }

    /// Returns the range of a name's queue.
    pub(crate) fn queue(&self, name: &LockName) -> Span {
        children(self.stem(name))
    }

    /// Returns the range of the exclusive contenders, including Go's.
    pub(crate) fn exclusive(&self, name: &LockName) -> Span {
        let stem = self.stem(name);
        (stem.clone().into_bytes(), format!("{stem}g").into_bytes())
    }

    /// Returns the ranges of the contenders that use the name as another kind of lock: those of a
    /// mutex for a semaphore, and those of a semaphore for a mutex.
    pub(crate) fn other_kinds(&self, name: &LockName, mode: Mode) -> Vec<Span> {
        let stem = self.stem(name);
        let span = |from: String, to: String| -> Span {
            (format!("{stem}{from}").into_bytes(), format!("{stem}{to}").into_bytes())
        };
        match mode {
            Mode::Exclusive | Mode::Shared => vec![span("p".into(), "q".into())],
            Mode::Permits { of, .. } => {
                let (_, end) = self.queue(name);
                let ours = (format!("p{of}-"), format!("p{of}."));
                let behind = (format!("{stem}{}", ours.1).into_bytes(), end);
                vec![span(String::new(), ours.0), behind]
            }
        }
    }

    /// Returns the key of a contender on an etcd lease.
    pub(crate) fn contender(
        &self,
        name: &LockName,
        end: KeyEnd,
        mode: Mode,
        lease: i64,
    ) -> Vec<u8> {
        let head = match mode {
            Mode::Exclusive => String::new(),
            Mode::Shared => "r-".to_owned(),
            Mode::Permits { count, of } => format!("p{of}-{count}-"),
        };
        let stem = self.stem(name);
        let key = match end {
            KeyEnd::Number(number) => format!("{stem}{head}{lease:x}.{number}"),
            KeyEnd::LeaseId(lease_id) => format!("{stem}{head}{lease:x}-{}", lease_id.to_hex()),
        };
        key.into_bytes()
    }

    /// Returns the range of the marks about a lease id.
    pub(crate) fn marks(&self, name: &LockName, lease_id: LeaseId) -> Span {
        children(self.marks_stem(name, lease_id))
    }

    /// Returns the key of the mark that a lease id was given up.
    pub(crate) fn gone(&self, name: &LockName, lease_id: LeaseId) -> Vec<u8> {
        (self.marks_stem(name, lease_id) + "gone").into_bytes()
    }

    /// Returns the key of the mark that a lease id was given up while a request without a reply may
    /// still make its key.
    pub(crate) fn gone_in_flight(&self, name: &LockName, lease_id: LeaseId) -> Vec<u8> {
        (self.marks_stem(name, lease_id) + "in-flight/gone").into_bytes()
    }

    /// Returns the key of the mark that a lease id's grant was revoked.
    pub(crate) fn revoked(&self, name: &LockName, lease_id: LeaseId) -> Vec<u8> {
        (self.marks_stem(name, lease_id) + "revoked").into_bytes()
    }

    /// Returns the range of the names that begin with this text; it may include the marks.
    pub(crate) fn names(&self, beginning: &str) -> Span {
        children(format!("{}{}", self.prefix, encode(beginning)))
    }

    /// Returns the lock name of a contender's key; `None` for a mark or a foreign key.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<LockName> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (name, parsed) = rest.split_once('/')?;
        parse_suffix(parsed)?;
        let name = String::from_utf8(percent_decode(name)?).ok()?;
        LockName::new(name).ok()
    }

    /// Parses a key of this name's queue; `None` if it is neither Holdline's nor Go's.
    pub(crate) fn parse_key(&self, name: &LockName, key: &[u8]) -> Option<ParsedKey> {
        let rest = key.strip_prefix(self.stem(name).as_bytes())?;
        parse_suffix(std::str::from_utf8(rest).ok()?)
    }

    fn stem(&self, name: &LockName) -> String {
        format!("{}{}/", self.prefix, encode(name.as_str()))
    }

    fn marks_stem(&self, name: &LockName, lease_id: LeaseId) -> String {
        format!("{}/{}/{}/", self.prefix, encode(name.as_str()), lease_id.to_hex())
    }
}

fn parse_suffix(text: &str) -> Option<ParsedKey> {
    if let Some(rest) = text.strip_prefix("r-") {
        let lease_id = ours(rest)?;
        return Some(ParsedKey::Ours { lease_id, mode: Mode::Shared });
    }
    if let Some(rest) = text.strip_prefix('p') {
        let (of, rest) = rest.split_once('-')?;
        let (count, rest) = rest.split_once('-')?;
        let mode = Mode::permits(count.parse().ok()?, of.parse().ok()?).ok()?;
        return Some(ParsedKey::Ours { lease_id: ours(rest)?, mode });
    }
    if text.contains(['-', '.']) {
        Some(ParsedKey::Ours { lease_id: ours(text)?, mode: Mode::Exclusive })
    } else {
        Some(ParsedKey::Go { lease: lease_of(text)? })
    }
}

/// `<lease>-<lease id>` or `<lease>.<number>`.
fn ours(text: &str) -> Option<Option<LeaseId>> {
    if let Some((lease, lease_id)) = text.split_once('-') {
        lease_of(lease)?;
        return Some(Some(lease_id.parse().ok()?));
    }
    let (lease, number) = text.split_once('.')?;
    lease_of(lease)?;
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<u32>().ok().filter(|_| is_plain).map(|_| None)
}

fn lease_of(digits: &str) -> Option<i64> {
    let plain = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    i64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

fn children(stem: String) -> Span {
    let mut from = stem.into_bytes();
    let end = end_of(&from);
    if from.is_empty() {
        // The smallest key that there can be.
        from.push(0);
    }
    (from, end)
}

/// The end of the range of all keys that begin with this one.
fn end_of(from: &[u8]) -> Vec<u8> {
    let mut end = from.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All there are.
    vec![0]
}

fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '/' | '%' => {
                let _ = write!(encoded, "%{:02X}", u32::from(character));
            }
            other => encoded.push(other),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a good name")
    }

    const ID: LeaseId = LeaseId::from_bytes([0xab; 16]);
    const OWN: KeyEnd = KeyEnd::LeaseId(ID);

    #[test]
    fn a_key_contains_its_contender_and_its_name() {
        let layout = Layout::new("holdline/");
        let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 2, of: 12 }];
        for text in ["a", "a/b", "%2F", "\u{202e}a", "é🔒", "..", "a b"] {
            for mode in modes {
                for (end, lease_id) in [(OWN, Some(ID)), (KeyEnd::Number(7), None)] {
                    let key = layout.contender(&name(text), end, mode, 0x694d);
                    let parsed = layout.parse_key(&name(text), &key);
                    assert_eq!(parsed, Some(ParsedKey::Ours { lease_id, mode }), "{text}");
                    assert_eq!(layout.name_of(&key), Some(name(text)));
                }
            }
        }
        let key = |end| {
            let key = layout.contender(&name("a/b"), end, Mode::Exclusive, 0x694d);
            String::from_utf8(key).expect("text")
        };
        assert_eq!(key(OWN), format!("holdline/a%2Fb/694d-{}", ID.to_hex()));
        assert_eq!(key(KeyEnd::Number(0)), "holdline/a%2Fb/694d.0");
        let go = layout.parse_key(&name("jobs"), b"holdline/jobs/694d7a");
        assert_eq!(go, Some(ParsedKey::Go { lease: 0x0069_4d7a }));
    }

    #[test]
    fn foreign_keys_are_no_contender() {
        let layout = Layout::new("");
        let ends = ["config", "", "694G", "694D", "r-1", "p3-4-1-x", "p2-0-1-x", "1-2", "-1", "+1"];
        for end in ends.into_iter().chain(["1.", ".1", "1.+1", "1.x", "r-1.-1", "1.4294967296"]) {
            let key = format!("jobs/{end}");
            assert_eq!(layout.parse_key(&name("jobs"), key.as_bytes()), None, "{end}");
            assert_eq!(layout.name_of(key.as_bytes()), None, "{end}");
        }
        let mark = layout.gone(&name("jobs"), ID);
        assert_eq!(layout.name_of(&mark), None);
    }

    #[test]
    fn the_keys_of_one_name_lie_apart_from_those_of_others_and_from_marks() {
        let layout = Layout::new("p/");
        let within = |span: &Span, key: &[u8]| span.0.as_slice() <= key && key < span.1.as_slice();
        let queue = layout.queue(&name("a"));
        for other in ["a/b", "a0", "aa", "a%", "A", "a."] {
            let key = layout.contender(&name(other), OWN, Mode::Exclusive, 1);
            assert!(!within(&queue, &key), "{other}");
        }
        assert!(!within(&queue, &layout.gone(&name("a"), ID)));
        assert!(within(&layout.marks(&name("a"), ID), &layout.revoked(&name("a"), ID)));
        assert!(within(&layout.names(""), &layout.contender(&name("é"), OWN, Mode::Shared, 1)));
        let all = Layout::new("").names("");
        assert_eq!(all, (vec![0], vec![0]));
    }

    #[test]
    fn the_ranges_of_other_kinds_hold_all_that_must_not_be_there_and_nothing_else() {
        let layout = Layout::new("");
        let semaphore = Mode::Permits { count: 1, of: 5 };
        let others = [Mode::Permits { count: 5, of: 50 }, Mode::Permits { count: 1, of: 4 }];
        let met = |asks: Mode, stands: Mode| {
            let spans = layout.other_kinds(&name("a"), asks);
            let met = [OWN, KeyEnd::Number(9)].map(|end| {
                let key = layout.contender(&name("a"), end, stands, 0xfff);
                spans.iter().any(|span| span.0 <= key && key < span.1)
            });
            assert_eq!(met[0], met[1]);
            met[0]
        };
        for plain in [Mode::Exclusive, Mode::Shared] {
            assert!(met(semaphore, plain) && met(plain, semaphore), "{plain}");
            assert!(!met(plain, Mode::Exclusive) && !met(plain, Mode::Shared), "{plain}");
        }
        assert!(!met(semaphore, Mode::Permits { count: 3, of: 5 }));
        assert!(others.iter().all(|other| met(semaphore, *other)));
        let exclusive = layout.exclusive(&name("a"));
        assert_eq!(exclusive, (b"a/".to_vec(), b"a/g".to_vec()));
    }
}
