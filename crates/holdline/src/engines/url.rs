//! URLs of engines: parsing, and display without secrets.
//!
//! - Invariant U1: only what a URL of ours can consist of is shown. A text that is no URL of ours
//!   may be the connection string of another program, and hold a password anywhere.

use holdline_core::{Escaped, LockError, nearest};

use super::known::known_engine;

/// The parameters whose values are no secrets. Names of files and variables are none either.
const SHOWN_PARAMETERS: &[&str] = &[
    "acl",
    "application_name",
    "ca",
    "cert",
    "channel_binding",
    "client_name",
    "command_timeout_ms",
    "connect_timeout",
    "connect_timeout_ms",
    "db",
    "dbname",
    "dialect",
    "dir",
    "family",
    "fencing",
    "host",
    "hostaddr",
    "key",
    "key_template",
    "max_lease_duration_ms",
    "max_waiters",
    "password_env",
    "password_file",
    "port",
    "prefix",
    "protocol",
    "publish",
    "schema",
    "signal_template",
    "socket",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "token_env",
    "token_file",
    "transaction_limit_ms",
];
/// What replaces a part that is not shown.
const HIDDEN: &str = "…";
/// What replaces a text that is no URL of ours.
const NOT_A_URL: &str = "(a text that is not a Holdline URL)";

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

/// Formats a URL without user, password and all that could be a secret: a parameter that no engine
/// has, and each part that is not spelled as it must be.
///
/// Of a text that is no URL of an engine nothing is shown.
///
/// ```
/// assert_eq!(
///     holdline::redact_url("redis://app:s3cret@db:6379/0?password=x&db=1"),
///     "redis://…@db:6379/0?…&db=1",
/// );
/// assert!(!holdline::redact_url("host=db password=s3cret").contains("s3cret"));
/// ```
pub fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return NOT_A_URL.to_owned() };
    let scheme = scheme.to_ascii_lowercase();
    if known_engine(&scheme).is_none() {
        return NOT_A_URL.to_owned();
    }
    let mut shown = format!("{scheme}:");
    // A `?` before the last `@` is part of a password that was not encoded. A local path may
    // contain any character, and there is no user.
    let is_of_machine = matches!(scheme.as_str(), "local" | "memory");
    let user_ends = if is_of_machine { None } else { rest.rfind('@') };
    let query = rest[user_ends.unwrap_or(0)..].find('?').map(|at| user_ends.unwrap_or(0) + at);
    let (place, parameters) = match query {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    match scheme.as_str() {
        "memory" => shown.push_str(place),
        "local" if place.is_empty() || place.starts_with('/') => shown.push_str(place),
        "local" => shown.push_str(HIDDEN),
        _ => push_place(&mut shown, place),
    }
    for (number, parameter) in parameters.into_iter().flat_map(|text| text.split('&')).enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        push_parameter(&mut shown, parameter);
    }
    Escaped(&shown).to_string()
}

/// Appends `//…@servers/path`, as far as it is spelled as such.
fn push_place(shown: &mut String, place: &str) {
    let Some(place) = place.strip_prefix("//") else { return shown.push_str(HIDDEN) };
    shown.push_str("//");
    let servers_and_path = match place.rsplit_once('@') {
        Some((_, after)) => {
            shown.push_str(HIDDEN);
            shown.push('@');
            after
        }
        None => place,
    };
    let path_begins = servers_and_path.find('/').unwrap_or(servers_and_path.len());
    let (servers, path) = servers_and_path.split_at(path_begins);
    let is_path = |c: char| c.is_alphanumeric() || "/._~%+-".contains(c);
    if !servers.split(',').all(is_server) {
        return shown.push_str(HIDDEN);
    }
    shown.push_str(servers);
    shown.push_str(if path.chars().all(is_path) { path } else { HIDDEN });
}

/// Returns whether a text is spelled `host`, `host:port` or `[address]:port`. After a `:` that
/// begins no port, a password may stand.
fn is_server(text: &str) -> bool {
    let is_port = |port: &str| port.len() <= 5 && port.chars().all(|c| c.is_ascii_digit());
    if let Some((address, after)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_address = |c: char| c.is_ascii_hexdigit() || ":.%".contains(c);
        let port = after.strip_prefix(':').unwrap_or(after);
        return address.chars().all(is_address) && is_port(port);
    }
    let (host, port) = text.split_once(':').unwrap_or((text, ""));
    host.chars().all(|c| c.is_alphanumeric() || "._%-".contains(c)) && is_port(port)
}

/// Appends a parameter if its name is known and its value is spelled as one.
fn push_parameter(shown: &mut String, parameter: &str) {
    let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    if !SHOWN_PARAMETERS.contains(&key) {
        return shown.push_str(HIDDEN);
    }
    shown.push_str(key);
    if !value.is_empty() {
        let is_value = |c: char| c.is_alphanumeric() || "/._~%+:{}-".contains(c);
        shown.push('=');
        shown.push_str(if value.chars().all(is_value) { value } else { HIDDEN });
    }
}

/// Returns the error for a text that has no scheme. It does not show the text, and names what it
/// looks like.
pub(crate) fn no_scheme(text: &str, schemes: impl Iterator<Item = &'static str>) -> LockError {
    let advice = foreign_text(text).unwrap_or_else(|| {
        let known: Vec<String> = schemes.map(|scheme| format!("{scheme}:")).collect();
        format!("write for example {}", known.join(" or "))
    });
    let message =
        format_args!("has no scheme (it may be a password, so it is not shown): {advice}");
    LockError::invalid("holdline", "url", message)
}

/// Returns the advice for a text that looks like a connection string of another program.
pub(crate) fn foreign_text(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let (what, instead) = if has(&["@tcp(", "@unix("]) {
        ("the data source name of a MySQL driver", "`mysql://USER@HOST/DATABASE`")
    } else if has(&[",password=", ",ssl="]) {
        ("the connection string of a Redis client for .NET", "`redis://HOST:PORT`")
    } else if has(&["server=", "driver=", "dsn=", "uid=", "pwd="]) {
        let instead = "`postgres://USER@HOST/DATABASE` or `mysql://USER@HOST/DATABASE`";
        ("a connection string of ODBC or .NET", instead)
    } else if has(&["host=", "hostaddr=", "dbname=", "service="]) {
        ("libpq's keywords", "`postgres://USER@HOST/DATABASE`")
    } else {
        return None;
    };
    Some(format!("it looks like {what}: write {instead}"))
}

/// Returns the advice for a scheme of another program's connection strings, by what follows it.
pub(crate) fn foreign_scheme(scheme: &str, rest: &str) -> Option<String> {
    if scheme == "jdbc" {
        let inner = rest.split(':').next().unwrap_or_default();
        let ours = known_engine(inner).is_some();
        let way = "with the user before the `@`, as in `postgres://USER@HOST/DATABASE`";
        return Some(if ours {
            format!("no engine 'jdbc:': write it without `jdbc:`, {way}")
        } else {
            "no engine 'jdbc:', and none for this database".to_owned()
        });
    }
    // SQLAlchemy names its driver behind a `+`.
    let (dialect, _) = scheme.split_once('+')?;
    known_engine(dialect).is_some().then(|| {
        format!("no engine with a driver behind `+`: write `{dialect}:` alone, without a driver")
    })
}

/// Makes the error for a parameter that an engine does not know.
pub(crate) fn unknown_parameter(
    engine: &'static str,
    parameters: &str,
    known: &[&str],
) -> LockError {
    let key = parameters.split(['=', '&']).next().unwrap_or_default();
    match nearest(key, known.iter().copied()) {
        Some(near) => LockError::invalid(
            engine,
            "url",
            format_args!("has an unknown parameter: did you mean '{near}'?"),
        ),
        None => LockError::invalid(engine, "url", "has a `?`, but this engine has no parameters"),
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
            ("REDIS://:pw@h", "redis://…@h"),
            ("redlock://a:1,b:2", "redlock://a:1,b:2"),
            ("etcd://[::1]:2379,b", "etcd://[::1]:2379,b"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            ("postgres://u@%2Frun%2Fpg/db", "postgres://…@%2Frun%2Fpg/db"),
            ("redis://h?key_template=app:{name}", "redis://h?key_template=app:{name}"),
            ("mysql:u:p@h", "mysql:…"),
            ("memory:a?Token=1&x=2&flag", "memory:a?…&…&…"),
            ("local:///tmp/a:b@c?dir=1", "local:///tmp/a:b@c?dir=1"),
            ("local:///\u{1b}[31m", "local:///\\u{1b}[31m"),
            ("local:pw", "local:…"),
            // A password in the place of another part.
            ("redis://u:pw", "redis://…"),
            ("redis://h:1,password=pw", "redis://…"),
            ("redis://h:1/0;password=pw", "redis://h:1…"),
            ("redis://h?db=0;password=pw", "redis://h?db=…"),
            ("redis://h?pw", "redis://h?…"),
            ("postgres://u@h/d password=pw", "postgres://…@h…"),
            ("host=h password=pw", NOT_A_URL),
            ("jdbc:postgresql://h/d?password=pw", NOT_A_URL),
            ("pw", NOT_A_URL),
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
