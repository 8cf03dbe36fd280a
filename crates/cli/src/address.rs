//! Engine URLs as text: whether one holds a password, and what a job may see of it.
//!
//! The library and its engines parse URLs; [`holdline::redact_url`] formats one for display.
//! Invariant A1: a part that may be secret is treated as secret.

use holdline_core::percent_decode;

/// Returns whether a URL contains a password.
pub(crate) fn has_password(url: &str) -> bool {
    // A local path may contain any character, and there is no password.
    if url.starts_with("local:") || url.starts_with("memory:") {
        return false;
    }
    let (_, rest) = split_scheme(url);
    let user = rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let parameters = rest.split_once('?').map_or("", |(_, parameters)| parameters);
    let secret = |parameter: &str| {
        parameter.split_once('=').is_some_and(|(key, value)| is_secret(key) && !value.is_empty())
    };
    user || parameters.split('&').any(secret)
}

/// Returns the URL without its password, or `None` if it cannot be removed with certainty.
pub(crate) fn without_password(url: &str) -> Option<String> {
    if !has_password(url) {
        return Some(url.to_owned());
    }
    let (url, parameters) = match url.split_once('?') {
        Some((url, parameters)) => (url, without_passwords(parameters)),
        None => (url, String::new()),
    };
    let stripped = without_user_password(url)? + &parameters;
    (!has_password(&stripped)).then_some(stripped)
}

/// Returns the parameters without those that can only be passwords, with a `?` if any remain.
fn without_passwords(parameters: &str) -> String {
    let is_password = |parameter: &&str| {
        let key = parameter.split_once('=').map_or("", |(key, _)| key);
        key.to_ascii_lowercase().contains("pass") && is_secret(key)
    };
    let kept: Vec<&str> = parameters.split('&').filter(|part| !is_password(part)).collect();
    if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) }
}

/// Returns the environment variable that holds the password, if a URL names one.
pub(crate) fn password_variable(url: &str) -> Option<String> {
    let (_, parameters) = url.split_once('?')?;
    let value = |part| str::strip_prefix(part, "password_env=").or(part.strip_prefix("token_env="));
    let value = parameters.split('&').find_map(value)?;
    let name = String::from_utf8(percent_decode(value)?).ok()?;
    // No environment variable has another name.
    (!name.is_empty() && !name.contains(['=', '\0'])).then_some(name)
}

fn without_user_password(url: &str) -> Option<String> {
    if !has_password(url) {
        return Some(url.to_owned());
    }
    let (before, rest) = split_scheme(url);
    let (user, host) = rest.split_once('@')?;
    let (user, password) = user.split_once(':')?;
    let plain = !password.contains(['/', '?', '#']) && !host.contains('@');
    let stripped = format!("{before}{user}@{host}");
    (plain && !user.contains('/') && !has_password(&stripped)).then_some(stripped)
}

fn split_scheme(url: &str) -> (&str, &str) {
    match url.find("://") {
        Some(at) => url.split_at(at + 3),
        // Without `://` the host cannot be located, so the whole URL is searched.
        None => url.split_at(url.find(':').map_or(0, |at| at + 1)),
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    // These are names of keys in the store, of files, and of variables.
    let named = ["key_template", "password_file", "key", "password_env", "token_file", "token_env"];
    if named.contains(&key.as_str()) {
        return false;
    }
    ["pass", "secret", "token", "auth", "key"].iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_and_not_shown() {
        for url in [
            "local:",
            "local:/var/lib/x",
            "local:///tmp/a:b@c",
            "memory:a:b@c",
            "redis://h:6379/0",
            "redis://user:CANARY@h/0",
            "redis://:CANARY@h",
            "redis://u:CANARY/with?all@kinds@h/0",
            "redlock://a:CANARY@h1,b:CANARY@h2",
            "redis://h?password=CANARY&db=1",
            "redis://h?db=1&Auth_Token=CANARY",
            "redis:u:CANARY@h",
            "redis://u@h",
            "redis://h?key_template=app:{name}&password_file=/run/secrets/redis",
            "redis://h?user=locker&password_env=REDIS_PASSWORD",
            "https://h?token_file=/run/secrets/token",
            "https://h?token=CANARY",
            "rediss://h?ca=/etc/ca.pem&cert=/etc/me.pem&key=/etc/me.key",
        ] {
            assert_eq!(has_password(url), url.contains("CANARY"), "{url}");
            assert!(!holdline::redact_url(url).contains("CANARY"), "{url}");
        }
    }

    #[test]
    fn the_variable_of_a_password_is_found() {
        for (url, expected) in [
            ("redis://h", None),
            ("redis://h?password_env=PW", Some("PW")),
            ("https://h?token_env=TOKEN", Some("TOKEN")),
            ("rediss://u@h/1?ca=/x&password_env=MY%5FPW&db=1", Some("MY_PW")),
            ("redis://h?password_env=", None),
            ("redis://h?password_env=%zz", None),
            ("redis://h?password_env=A%3DB", None),
            ("redis://h?xpassword_env=PW", None),
        ] {
            assert_eq!(password_variable(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_child_gets_the_url_without_its_password_or_none() {
        for (url, expected) in [
            ("local:", Some("local:")),
            ("redis://user:CANARY@h/0", Some("redis://user@h/0")),
            ("redis://:CANARY@h", Some("redis://@h")),
            ("redis://u:CANARY/with?all@kinds@h/0", None),
            ("redlock://a:CANARY@h1,b:CANARY@h2", None),
            ("local:///tmp/a:b@c", Some("local:///tmp/a:b@c")),
            ("redis://h?password=CANARY", Some("redis://h")),
            ("redis://u:CANARY@h/0?db=1&Passwd=CANARY&x=2", Some("redis://u@h/0?db=1&x=2")),
            // These may select the store, so they are not simply removed.
            ("redis://h?key_prefix=CANARY", None),
            ("redis://u:CANARY?a@h/0", None),
        ] {
            assert_eq!(without_password(url).as_deref(), expected, "{url}");
        }
    }
}
