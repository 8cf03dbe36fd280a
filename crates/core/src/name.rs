//! The name of a lock.
//!
//! A name is UTF-8 text of 1 to 512 bytes without control characters. It is compared byte by
//! byte: no folding of case, no normalisation, so `é` written in two ways is two names. The
//! engine forms the store's key.
//! Invariant N1: every `LockName` obeys these rules.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::escape::Escaped;

/// The longest lock name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 512;

/// A lock name: what the user writes, 1 to 512 bytes of UTF-8 without control characters.
///
/// `Display` escapes what a terminal could interpret (bidirectional overrides, invisible
/// characters); [`LockName::as_str`] gives the exact text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks `text` and makes it a lock name.
    ///
    /// # Errors
    /// [`NameError`] when the text is empty, longer than [`MAX_NAME_BYTES`], or holds a control
    /// character (U+0000 to U+001F, U+007F to U+009F). No request was sent.
    pub fn new(text: impl AsRef<str>) -> Result<LockName, NameError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        if let Some((at, character)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(NameError::Control { at, character });
        }
        Ok(LockName(Arc::from(text)))
    }

    /// Returns the exact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text cannot be a lock name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a lock name must have at least one character")]
    Empty,
    /// The text is longer than [`MAX_NAME_BYTES`].
    #[error("a lock name may have at most {MAX_NAME_BYTES} bytes, this one has {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The text holds a control character.
    #[error(
        "a lock name may not hold control characters, found {} at byte {at}",
        Escaped(.character.encode_utf8(&mut [0; 4]))
    )]
    Control {
        /// Where it stands, in bytes from the start.
        at: usize,
        /// The character.
        character: char,
    },
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Escaped(&self.0), f)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockName({self})")
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<LockName, NameError> {
        LockName::new(text)
    }
}

impl TryFrom<String> for LockName {
    type Error = NameError;
    fn try_from(text: String) -> Result<LockName, NameError> {
        LockName::new(text)
    }
}

impl TryFrom<&str> for LockName {
    type Error = NameError;
    fn try_from(text: &str) -> Result<LockName, NameError> {
        LockName::new(text)
    }
}

impl From<LockName> for String {
    fn from(name: LockName) -> String {
        name.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_ordinary_names() {
        for text in ["a", "orders/17", "nightly backup", "ключ", "🔒", "{a}:b", &"x".repeat(512)]
        {
            assert_eq!(LockName::new(text).expect("allowed").as_str(), text);
        }
    }

    #[test]
    fn refuses_invalid_names() {
        assert_eq!(LockName::new(""), Err(NameError::Empty));
        assert_eq!(LockName::new("x".repeat(513)), Err(NameError::TooLong { bytes: 513 }));
        for bad in ["a\nb", "a\0b", "a\x1bb", "a\u{7f}b", "a\u{9b}b"] {
            assert!(matches!(LockName::new(bad), Err(NameError::Control { at: 1, .. })), "{bad:?}");
        }
    }

    #[test]
    fn names_are_shown_escaped_and_kept_exact() {
        let name = LockName::new("a\u{202e}b").expect("allowed");
        assert_eq!(name.to_string(), "a\\u{202e}b");
        assert_eq!(name.as_str(), "a\u{202e}b");
        let reply = LockName::new("a\x1b]0;b").expect_err("refused").to_string();
        assert!(reply.contains("\\u{1b}") && !reply.contains('\x1b'), "{reply}");
    }

    #[test]
    fn two_spellings_of_one_letter_are_two_names() {
        assert_ne!(LockName::new("\u{e9}"), LockName::new("e\u{301}"));
    }
}
