//! Which names to watch: `*` stands for any text and `?` for one character.

use holdline_core::{LockError, LockName};

/// A pattern of lock names: `*` stands for any text, also none and also with `/` in it; `?` stands
/// for one character; after `\` a character stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    parts: Vec<Part>,
    prefix: String,
    exact: Option<LockName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Character(char),
    One,
    Any,
}

impl NamePattern {
    /// Reads a pattern. The empty pattern and `*` match every name.
    ///
    /// # Errors
    /// `Invalid` for a pattern that no lock name can match.
    pub fn new(text: &str) -> Result<NamePattern, LockError> {
        let invalid = |message: &dyn std::fmt::Display| {
            Err(LockError::invalid("holdline", "pattern", format_args!("{message}")))
        };
        let mut parts = Vec::new();
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            parts.push(match character {
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::One,
                '\\' => match characters.next() {
                    Some(escaped) => Part::Character(escaped),
                    None => return invalid(&"ends with a `\\` that escapes nothing"),
                },
                character => Part::Character(character),
            });
        }
        if parts.is_empty() {
            parts.push(Part::Any);
        }
        let literal = |part: &Part| match part {
            Part::Character(character) => Some(*character),
            Part::One | Part::Any => None,
        };
        let prefix: String = parts.iter().map_while(literal).collect();
        let is_exact = parts.iter().all(|part| literal(part).is_some());
        let exact = match is_exact.then(|| LockName::new(&prefix)) {
            Some(Ok(name)) => Some(name),
            Some(Err(error)) => return invalid(&error),
            None if prefix.chars().any(char::is_control) => {
                return invalid(&"lock names have no control characters");
            }
            None => None,
        };
        Ok(NamePattern { parts, prefix, exact })
    }

    /// Matches the names that begin with this text.
    pub fn of_prefix(prefix: impl Into<String>) -> NamePattern {
        let prefix = prefix.into();
        let mut parts: Vec<Part> = prefix.chars().map(Part::Character).collect();
        parts.push(Part::Any);
        NamePattern { parts, prefix, exact: None }
    }

    /// Matches this name only.
    pub fn of_name(name: &LockName) -> NamePattern {
        let prefix = name.as_str().to_owned();
        let parts = prefix.chars().map(Part::Character).collect();
        NamePattern { parts, prefix, exact: Some(name.clone()) }
    }

    /// Returns the text with which every match begins.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the only name that matches, if the pattern has no wildcard.
    pub fn exact(&self) -> Option<&LockName> {
        self.exact.as_ref()
    }

    /// Returns whether a name matches.
    pub fn matches(&self, name: &LockName) -> bool {
        // One place to go back to is enough: a later `*` can match all that an earlier one could.
        let text: Vec<char> = name.as_str().chars().collect();
        let mut at = 0;
        let mut part = 0;
        let mut back = None;
        while at < text.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    back = Some((at, part + 1));
                    part += 1;
                    continue;
                }
                Some(Part::One) => {}
                Some(Part::Character(character)) if *character == text[at] => {}
                _ => {
                    let Some((from, after)) = back else { return false };
                    at = from + 1;
                    part = after;
                    back = Some((from + 1, after));
                    continue;
                }
            }
            at += 1;
            part += 1;
        }
        self.parts[part..].iter().all(|rest| *rest == Part::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        let name = LockName::new(name).expect("a good name");
        NamePattern::new(pattern).expect("a good pattern").matches(&name)
    }

    #[test]
    fn wildcards_stand_for_text() {
        for (pattern, good, bad) in [
            ("", &["a", "x/y"][..], &[][..]),
            ("*", &["a", "x/y"], &[]),
            ("a", &["a"], &["b", "aa"]),
            ("deploy/*", &["deploy/", "deploy/eu/1"], &["deploy", "x/deploy/1"]),
            ("*eu*", &["eu", "a-eu-b", "eeu"], &["e-u"]),
            ("a?c*d", &["abcd", "a\u{e9}cxxd", "abcdd"], &["acd", "abc", "abcdx"]),
            ("a**b", &["ab", "axb"], &["a"]),
            ("*a*b*c", &["aabbcc", "xaybzc"], &["acb", "abcx"]),
            ("\\*", &["*"], &["a"]),
            ("\\\\?", &["\\x"], &["\\", "x"]),
        ] {
            for name in good {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in bad {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn a_pattern_knows_its_prefix_and_whether_it_is_exact() {
        let pattern = |text| NamePattern::new(text).expect("a good pattern");
        assert_eq!(pattern("a\\*b*c").prefix(), "a*b");
        assert_eq!(pattern("a\\*b").exact().map(LockName::as_str), Some("a*b"));
        assert_eq!(pattern("a?").exact(), None);
        let name = LockName::new("a*b").expect("a good name");
        assert!(NamePattern::of_prefix("a*").matches(&name));
    }

    #[test]
    fn a_pattern_that_nothing_matches_is_refused() {
        for wrong in ["a\\", "a\u{1b}", "a\nb*", &"x".repeat(600)] {
            assert!(NamePattern::new(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_worst_pattern_takes_no_exponential_time() {
        let name = "a".repeat(512);
        assert!(!matches(&"*a".repeat(100).replace("**", "*"), &format!("{}b", &name[1..])));
    }
}
