//! The layout of the nodes.
//!
//! | node | data | meaning |
//! |---|---|---|
//! | `<root>/<name>` | none | the queue of a name: a container, which the servers delete when it is empty |
//! | `<root>/<name>/_c_<lease id>-lock-<number>` | record | an exclusive contender |
//! | `<root>/<name>/_c_<lease id>-__WRIT__<number>` | record | the same, for Curator's read/write locks |
//! | `<root>/<name>/_c_<lease id>-__lock__<number>` | record | the same, for kazoo; `__rlock__`: a shared contender |
//! | `<root>/<name>/_c_<lease id>-__READ__<number>` | record | a shared contender |
//! | `<root>/<name>/_c_<lease id>-__PERM__<of>-<count>-<number>` | record | a contender for permits |
//! | `<root>/<name>/_c_<guid>-lock-<number>` and so on | any | a contender of Curator, whose GUID has dashes |
//! | `<root>/<name>/<guid>__lock__<number>`, `__rlock__` | any | a contender of kazoo, whose GUID has none |
//! | `<root>/.marks/<lease id>-revoked` | reason | a grant that an operator took away |
//!
//! The number has ten digits and comes from ZooKeeper. It alone decides the order. A name is one
//! component of a path: characters that a path cannot contain are percent-encoded, and so is a dot
//! at its start.

use std::fmt::Write;

use holdline_core::{LeaseId, LockName, Mode, percent_decode};

use crate::options::Family;

const MARKS: &str = ".marks";
const HEAD: &str = "_c_";
const LOCK: &str = "lock-";
const WRITE: &str = "__WRIT__";
const READ: &str = "__READ__";
const KAZOO_LOCK: &str = "__lock__";
const KAZOO_READ: &str = "__rlock__";
const PERMITS: &str = "__PERM__";
/// The length of a lease id, and of one of Curator's GUIDs with its dashes.
const OUR_DIGITS: usize = 32;
const GUID_DIGITS: usize = 36;

/// The paths of this engine's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Without a slash at its end: empty for `/`.
    root: String,
    family: Family,
}

/// A contender, as far as its node shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedNode {
    /// The GUID; for Holdline's nodes the lease id.
    pub(crate) id: LeaseId,
    pub(crate) ours: bool,
    pub(crate) mode: Mode,
    /// The family whose locks see such a node; none for permits.
    pub(crate) family: Option<Family>,
    /// The sequence number; negative if the servers' counter has overflowed.
    pub(crate) number: i64,
}

impl Layout {
    pub(crate) fn new(root: &str, family: Family) -> Layout {
        Layout { root: root.trim_end_matches('/').to_owned(), family }
    }

    /// Returns the root of all nodes.
    pub(crate) fn root(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// Returns the node of a name's queue.
    pub(crate) fn queue(&self, name: &LockName) -> String {
        format!("{}/{}", self.root, encode(name.as_str()))
    }

    /// Returns the path of a node in a name's queue.
    pub(crate) fn child(&self, name: &LockName, child: &str) -> String {
        format!("{}/{child}", self.queue(name))
    }

    /// Returns the path of a contender's node, to which ZooKeeper adds the number.
    pub(crate) fn contender(&self, name: &LockName, lease_id: LeaseId, mode: Mode) -> String {
        let kind = match (mode, self.family) {
            (Mode::Exclusive, Family::Curator) => LOCK.to_owned(),
            (Mode::Exclusive, Family::CuratorReadWrite) => WRITE.to_owned(),
            (Mode::Exclusive, Family::Kazoo) => KAZOO_LOCK.to_owned(),
            (Mode::Shared, Family::Kazoo) => KAZOO_READ.to_owned(),
            (Mode::Shared, _) => READ.to_owned(),
            (Mode::Permits { count, of }, _) => format!("{PERMITS}{of}-{count}-"),
        };
        format!("{}/{HEAD}{}-{kind}", self.queue(name), lease_id.to_hex())
    }

    /// Returns the family whose locks see a contender of this mode.
    pub(crate) fn family_of(&self, mode: Mode) -> Option<Family> {
        match (mode, self.family) {
            (Mode::Exclusive, family) | (Mode::Shared, family @ Family::Kazoo) => Some(family),
            (Mode::Shared, _) => Some(Family::CuratorReadWrite),
            (Mode::Permits { .. }, _) => None,
        }
    }

    /// Returns the parent of the marks.
    pub(crate) fn marks(&self) -> String {
        format!("{}/{MARKS}", self.root)
    }

    /// Returns the path of the mark that a lease id's grant was revoked.
    pub(crate) fn revoked(&self, lease_id: LeaseId) -> String {
        format!("{}/{MARKS}/{}-revoked", self.root, lease_id.to_hex())
    }

    /// Returns the lock name of a child of the root; `None` for the marks and for foreign nodes.
    pub(crate) fn name_of(&self, child: &str) -> Option<LockName> {
        let name = String::from_utf8(percent_decode(child)?).ok()?;
        let name = LockName::new(name).ok()?;
        (encode(name.as_str()) == child).then_some(name)
    }
}

/// Parses a node of a queue; `None` if it does not belong to a lock.
pub(crate) fn parse_node(child: &str) -> Option<ParsedNode> {
    let (id, ours, rest) = match child.strip_prefix(HEAD) {
        // A node of kazoo has no head, and no dash after its GUID.
        None => (child.get(..OUR_DIGITS)?.parse().ok()?, false, child.get(OUR_DIGITS..)?),
        Some(rest) => match parse_id(rest, OUR_DIGITS) {
            Some((id, rest)) => (id, true, rest),
            None => parse_id(rest, GUID_DIGITS).map(|(id, rest)| (id, false, rest))?,
        },
    };
    let curators = child.starts_with(HEAD);
    let (mode, family, number) = if let Some(number) = rest.strip_prefix(KAZOO_LOCK) {
        (Mode::Exclusive, Some(Family::Kazoo), number)
    } else if let Some(number) = rest.strip_prefix(KAZOO_READ) {
        (Mode::Shared, Some(Family::Kazoo), number)
    } else if let Some(number) = rest.strip_prefix(LOCK).filter(|_| curators) {
        (Mode::Exclusive, Some(Family::Curator), number)
    } else if let Some(number) = rest.strip_prefix(WRITE).filter(|_| curators) {
        (Mode::Exclusive, Some(Family::CuratorReadWrite), number)
    } else if let Some(number) = rest.strip_prefix(READ).filter(|_| curators) {
        (Mode::Shared, Some(Family::CuratorReadWrite), number)
    } else {
        let (of, rest) = rest.strip_prefix(PERMITS).filter(|_| ours)?.split_once('-')?;
        let (count, number) = rest.split_once('-')?;
        (Mode::permits(count.parse().ok()?, of.parse().ok()?).ok()?, None, number)
    };
    // A counter that has overflowed is negative: `queue` reports that.
    let digits = number.strip_prefix('-').unwrap_or(number);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| plain)?;
    Some(ParsedNode { id, ours, mode, family, number })
}

/// Splits an id of this length, and the text after the dash that follows it.
fn parse_id(text: &str, digits: usize) -> Option<(LeaseId, &str)> {
    let id = text.get(..digits)?;
    let rest = text.get(digits..)?.strip_prefix('-')?;
    let id: String = match digits {
        OUR_DIGITS => id.to_owned(),
        _ => id.chars().filter(|character| *character != '-').collect(),
    };
    Some((id.parse().ok()?, rest))
}

fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (at, character) in name.char_indices() {
        let plain = match character {
            '/' | '%' => false,
            '.' => at > 0,
            '\u{20}'..='\u{7e}' => true,
            // ZooKeeper accepts neither control characters nor surrogate pairs.
            other => matches!(other, '\u{a0}'..='\u{d7ff}' | '\u{f900}'..='\u{ffef}'),
        };
        if plain {
            encoded.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LeaseId = LeaseId::from_bytes([0xab; 16]);

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a good name")
    }

    #[test]
    fn a_node_contains_its_contender() {
        let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 2, of: 12 }];
        for family in [Family::Curator, Family::CuratorReadWrite, Family::Kazoo] {
            let layout = Layout::new("/holdline", family);
            for mode in modes {
                let path = layout.contender(&name("a"), ID, mode) + "0000000042";
                let child = path.rsplit_once('/').expect("a path").1;
                let family = layout.family_of(mode);
                let wanted = ParsedNode { id: ID, ours: true, mode, family, number: 42 };
                assert_eq!(parse_node(child), Some(wanted), "{child}");
            }
        }
    }

    #[test]
    fn nodes_of_others_are_known_by_their_guids() {
        let guid = "_c_0f8fad5b-d9cb-469f-a165-70867728950e";
        for (end, mode, family) in [
            ("lock-0000000007", Mode::Exclusive, Family::Curator),
            ("__WRIT__0000000007", Mode::Exclusive, Family::CuratorReadWrite),
            ("__READ__0000000007", Mode::Shared, Family::CuratorReadWrite),
        ] {
            let found = parse_node(&format!("{guid}-{end}")).expect("one of Curator's");
            assert!(!found.ours && found.number == 7);
            assert_eq!((found.mode, found.family), (mode, Some(family)));
        }
        for other in ["config", "lock-0000000001", "_c_1-lock-1", "_c_", "lease-0000000001"] {
            assert_eq!(parse_node(other), None, "{other}");
        }
        let guid_of_kazoo = "0f8fad5bd9cb469fa16570867728950e";
        for (end, mode) in [("__lock__", Mode::Exclusive), ("__rlock__", Mode::Shared)] {
            let found = parse_node(&format!("{guid_of_kazoo}{end}0000000007")).expect("kazoo's");
            assert!(!found.ours && found.number == 7);
            assert_eq!((found.mode, found.family), (mode, Some(Family::Kazoo)));
        }
        for end in ["-__lock__1", "lock-1", "__READ__1", "__PERM__2-1-1", "__lock__--00000001"] {
            assert_eq!(parse_node(&format!("{guid_of_kazoo}{end}")), None, "{end}");
        }
        assert_eq!(parse_node(&format!("{guid}-lock-")), None);
        assert_eq!(parse_node(&format!("{guid}-lock-+1")), None);
        assert_eq!(parse_node(&format!("{guid}-__PERM__2-1-0000000001")), None);
    }

    #[test]
    fn a_name_is_one_part_of_a_path_and_comes_back() {
        let layout = Layout::new("/", Family::Curator);
        assert_eq!(layout.root(), "/");
        for text in ["a", "a/b", "%2F", "\u{202e}a", "é🔒", "..", ".marks", "a b", "\u{e000}"] {
            let path = layout.queue(&name(text));
            let child = path.strip_prefix('/').expect("below the root");
            assert!(!child.contains('/') && !child.starts_with('.'), "{child}");
            assert_eq!(layout.name_of(child), Some(name(text)), "{child}");
        }
        assert_eq!(layout.name_of(".marks"), None);
        assert_eq!(layout.name_of("a%2f"), None);
    }
}
