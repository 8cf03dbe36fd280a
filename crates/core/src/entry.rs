//! The rule for text from outside where it enters: a URL, a password, the value of a setting.
//!
//! Files of secrets often end with a line feed that `echo` wrote, or with a carriage return of
//! another system. White space that is silently kept makes another password, or another store:
//! two contenders would not exclude each other. White space that is silently removed can be a part
//! of a password. So it is refused, with a message that names it.
//!
//! - E1: no message shows the text itself: it may be a password.

use std::borrow::Cow;
use std::fmt;

/// The schemes whose text after the colon is a path or a name, which may contain blanks.
const WITH_BLANKS: [&str; 2] = ["local", "memory"];
const QUOTATION_MARKS: [char; 5] = ['"', '\'', '`', '“', '”'];

/// A character at the beginning or the end of a text that does not belong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayCharacter {
    at_the_end: bool,
    found: char,
}

impl StrayCharacter {
    /// Returns the white space, or other invisible character, with which a text ends or begins;
    /// `None` for a text without.
    ///
    /// ```
    /// use holdline_core::StrayCharacter;
    /// let stray = StrayCharacter::of("secret\n").map(|stray| stray.to_string());
    /// assert_eq!(stray.as_deref(), Some("ends with a line feed (\\n)"));
    /// assert_eq!(StrayCharacter::of("two words"), None);
    /// ```
    pub fn of(text: &str) -> Option<StrayCharacter> {
        let last = text.chars().next_back().filter(|c| is_stray(*c));
        let first = text.chars().next().filter(|c| is_stray(*c));
        let last = last.map(|found| StrayCharacter { at_the_end: true, found });
        last.or(first.map(|found| StrayCharacter { at_the_end: false, found }))
    }
}

impl fmt::Display for StrayCharacter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.at_the_end { "ends" } else { "begins" };
        match self.found {
            '\n' => write!(f, "{side} with a line feed (\\n)"),
            '\r' => write!(f, "{side} with a carriage return (\\r)"),
            '\t' => write!(f, "{side} with a tab (\\t)"),
            ' ' => write!(f, "{side} with a blank"),
            other => write!(f, "{side} with the invisible character U+{:04X}", u32::from(other)),
        }
    }
}

/// Returns whether a character at an end of a text is one that nobody means to write there.
fn is_stray(c: char) -> bool {
    let has_no_width = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}');
    c.is_whitespace() || c.is_control() || has_no_width
}

/// Returns a URL with its scheme in lower case, as the engines read it.
///
/// A text without a scheme is returned unchanged: the code that reads the scheme refuses it.
///
/// # Errors
/// The URL begins or ends with white space or with a quotation mark, or has white space inside
/// where it must be percent-encoded. The message does not show the URL, and continues a sentence
/// that begins with "the URL".
pub fn accept_url(url: &str) -> Result<Cow<'_, str>, String> {
    if let Some(stray) = StrayCharacter::of(url) {
        return Err(format!("{stray}: remove it, or percent-encode what belongs to the URL"));
    }
    if url.starts_with(QUOTATION_MARKS) || url.ends_with(QUOTATION_MARKS) {
        let message = "begins or ends with a quotation mark: remove it (`docker --env-file` \
                       leaves quotation marks in a value)";
        return Err(message.to_owned());
    }
    let Some(scheme) = scheme_of(url) else { return Ok(Cow::Borrowed(url)) };
    let lower = scheme.to_ascii_lowercase();
    let may_have_blanks = WITH_BLANKS.contains(&lower.as_str());
    if !may_have_blanks && url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let message = "has white space inside: write a blank of a user, password or value as `%20`";
        return Err(message.to_owned());
    }
    if lower == scheme {
        return Ok(Cow::Borrowed(url));
    }
    Ok(Cow::Owned(format!("{lower}{}", &url[scheme.len()..])))
}

/// Returns the scheme of a URL; `None` for a text without one.
fn scheme_of(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (!scheme.is_empty() && scheme.chars().all(good)).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_characters_are_named() {
        for (text, says) in [
            ("x\n", Some("ends with a line feed (\\n)")),
            ("x\r\n", Some("ends with a line feed (\\n)")),
            ("x\r", Some("ends with a carriage return (\\r)")),
            ("x ", Some("ends with a blank")),
            ("\tx", Some("begins with a tab (\\t)")),
            (" x", Some("begins with a blank")),
            ("x\u{a0}", Some("ends with the invisible character U+00A0")),
            ("\u{feff}x", Some("begins with the invisible character U+FEFF")),
            ("\n", Some("ends with a line feed (\\n)")),
            ("a b", None),
            ("", None),
        ] {
            let stray = StrayCharacter::of(text).map(|stray| stray.to_string());
            assert_eq!(stray.as_deref(), says, "{text:?}");
        }
    }

    #[test]
    fn a_url_is_taken_with_its_scheme_in_lower_case() {
        for (url, taken) in [
            ("redis://h", "redis://h"),
            ("REDIS://H/0?User=A", "redis://H/0?User=A"),
            ("Redis+Sentinel://a/B", "redis+sentinel://a/B"),
            ("LOCAL:///srv/My Locks", "local:///srv/My Locks"),
            ("memory:a b", "memory:a b"),
            ("host=h password=x", "host=h password=x"),
            ("", ""),
        ] {
            assert_eq!(accept_url(url).expect(url), taken);
        }
    }

    #[test]
    fn white_space_and_quotation_marks_are_refused_and_not_shown() {
        for (url, says) in [
            ("redis://u:s3cret@h\n", "line feed"),
            ("redis://u:s3cret@h\r", "carriage return"),
            (" redis://u:s3cret@h", "begins with a blank"),
            ("redis://u:s3 cret@h", "%20"),
            ("redis://u:s3cret@h\n/0", "white space inside"),
            ("local:///srv/s3cret ", "ends with a blank"),
            ("memory:s3cret\n", "line feed"),
            ("\"redis://u:s3cret@h\"", "quotation mark"),
            ("'redis://u:s3cret@h", "quotation mark"),
            ("s3cret\n", "line feed"),
        ] {
            let error = accept_url(url).expect_err(url);
            assert!(error.contains(says) && !error.contains("s3"), "{url:?}: {error}");
        }
    }
}
