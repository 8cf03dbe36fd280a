//! URLs of engines: parsing, and display without secrets.

use holdline_core::{Escaped, LockError, nearest};

/// A URL, split at its scheme and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineUrl<'a> {
    pub(crate) scheme: &'a str,
    /// The text between scheme and parameters, without leading slashes.
    pub(crate) rest: &'a str,
    pub(crate) parameters: Option<&'a str>,
}

impl<'a> EngineUrl<'a> {
    /// Splits a URL; `None` if it has no scheme.
    pub(crate) fn split(url: &'a str) -> Option<EngineUrl<'a>> {
        let (scheme, rest) = url.split_once(':')?;
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if scheme.is_empty() || !scheme.chars().all(good) {
            return None;
        }
        let (rest, parameters) = match rest.split_once('?') {
            Some((rest, parameters)) => (rest, Some(parameters)),
            None => (rest, None),
        };
        Some(EngineUrl { scheme, rest: rest.strip_prefix("//").unwrap_or(rest), parameters })
    }
}

/// Formats a URL without user, password and parameter values that could be secrets.
///
/// ```
/// assert_eq!(
///     holdline::redact_url("redis://app:s3cret@db:6379/0?password=x&lease=1"),
///     "redis://…@db:6379/0?password=…&lease=1",
/// );
/// ```
pub fn redact_url(url: &str) -> String {
    // A `?` before the last `@` is part of a password that was not encoded.
    let user_ends = if is_of_machine(url) { 0 } else { url.rfind('@').unwrap_or(0) };
    let (head, parameters) = match url[user_ends..].find('?') {
        Some(at) => (&url[..user_ends + at], Some(&url[user_ends + at + 1..])),
        None => (url, None),
    };
    let mut shown = match (head.split_once("://"), head.rsplit_once('@')) {
        _ if is_of_machine(url) => head.to_owned(),
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => {
            let scheme = head.split_once(':').map_or("", |(scheme, _)| scheme);
            format!("{scheme}:…@{host}")
        }
        (_, None) => head.to_owned(),
    };
    for (number, parameter) in parameters.into_iter().flat_map(|text| text.split('&')).enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        shown.push_str(key);
        if !value.is_empty() {
            shown.push('=');
            shown.push_str(if is_plain(key) { value } else { "…" });
        }
    }
    Escaped(&shown).to_string()
}

/// Returns whether a URL is local to this machine; its path may contain any character, and there is
/// no user.
fn is_of_machine(url: &str) -> bool {
    url.starts_with("local:") || url.starts_with("memory:")
}

/// Returns whether a parameter's value may be shown, because its name does not suggest a secret.
fn is_plain(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    !["pass", "secret", "token", "auth", "key", "cred", "user"]
        .iter()
        .any(|word| key.contains(word))
}

/// Makes the error for a parameter that an engine does not know.
pub(crate) fn unknown_parameter(
    engine: &'static str,
    parameters: &str,
    known: &[&str],
) -> LockError {
    let key = parameters.split(['=', '&']).next().unwrap_or_default();
    let key = Escaped(key);
    match nearest(&key.to_string(), known.iter().copied()) {
        Some(near) => LockError::invalid(
            engine,
            "url",
            format_args!("no parameter '{key}': did you mean '{near}'?"),
        ),
        None => {
            LockError::invalid(engine, "url", format_args!("takes no parameters, found '{key}'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        for (url, shown) in [
            ("redis://u:p/w?x@h:1/2?db=1", "redis://…@h:1/2?db=1"),
            ("redis://u:p@ss@h:1/2", "redis://…@h:1/2"),
            ("redis://:pw@h", "redis://…@h"),
            ("redlock://a:1,b:2", "redlock://a:1,b:2"),
            ("mysql:u:p@h", "mysql:…@h"),
            ("memory:a?Token=1&x=2&flag", "memory:a?Token=…&x=2&flag"),
            ("local:///tmp/a:b@c?dir=1", "local:///tmp/a:b@c?dir=1"),
            ("local:\u{1b}[31m", "local:\\u{1b}[31m"),
        ] {
            assert_eq!(redact_url(url), shown);
        }
    }

    #[test]
    fn urls_are_split_at_scheme_and_parameters() {
        let split = EngineUrl::split("memory:tests?x=1").expect("a scheme");
        assert_eq!((split.scheme, split.rest, split.parameters), ("memory", "tests", Some("x=1")));
        assert_eq!(EngineUrl::split("local://").map(|url| url.rest), Some(""));
        for bad in ["memory", ":x", "a b:c", "/tmp/x"] {
            assert_eq!(EngineUrl::split(bad), None, "{bad}");
        }
    }
}
