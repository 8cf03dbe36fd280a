//! Several stores on one command line: `--url NAME=URL`, as `serve` and `top` take it.
//!
//! At most one URL has no name: it is the default store.

use std::collections::BTreeSet;

use holdline_core::Escaped;

use crate::address::has_password;
use crate::failure::Failure;

/// Splits `NAME=URL`; `None` for a URL without a name. Before the `=` of a URL's parameter stands a
/// scheme with its colon.
pub(crate) fn split(url: &str) -> Option<(&str, &str)> {
    url.split_once('=').filter(|(name, _)| !name.contains([':', '/', '?']))
}

/// Returns the URL of the default store: the one without a name, or else the first one.
pub(crate) fn default_url(urls: &[String]) -> Option<String> {
    let nameless = urls.iter().find(|url| split(url).is_none());
    let first = || urls.first().and_then(|url| split(url)).map(|(_, url)| url);
    nameless.map(String::as_str).or_else(first).map(str::to_owned)
}

/// Checks the URLs against each other. `fix` is what to do about a password.
pub(crate) fn check(urls: &[String], fix: &str) -> Result<(), Failure> {
    if urls.iter().filter(|url| split(url).is_none()).count() > 1 {
        let message = "--url: only one store can be the one without a name";
        return Err(Failure::usage(message).fix("name the others: --url NAME=URL"));
    }
    let mut known = BTreeSet::new();
    for (name, url) in urls.iter().filter_map(|url| split(url)) {
        let shown = Escaped(name);
        if has_password(url) {
            let message = "--url: the URL holds a password, which every user of this machine can \
                           read in the list of processes";
            return Err(Failure::usage(message).fix(fix));
        }
        if !known.insert(name) {
            return Err(Failure::usage(format_args!("--url: there are two stores `{shown}`")));
        }
        if name.is_empty() || url.is_empty() {
            let message = format_args!("--url {shown}=: a name or a URL is missing");
            return Err(Failure::usage(message).fix("write --url NAME=URL"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(urls: &[&str]) -> Vec<String> {
        urls.iter().map(|&url| url.to_owned()).collect()
    }

    #[test]
    fn a_name_stands_before_a_url() {
        assert_eq!(split("a=redis://h?db=1"), Some(("a", "redis://h?db=1")));
        assert_eq!(split("redis://h?db=1"), None);
        assert_eq!(split("local:/a=b"), None);
        for (given, default) in
            [(&["a=x:", "y:"][..], Some("y:")), (&["a=x:", "b=y:"], Some("x:")), (&[], None)]
        {
            assert_eq!(default_url(&urls(given)).as_deref(), default);
        }
    }

    #[test]
    fn wrong_stores_are_named_and_passwords_stay_out_of_sight() {
        for (given, says) in [
            (&["x:", "y:"][..], "only one store"),
            (&["a=x:", "a=y:"], "two stores `a`"),
            (&["=x:"], "is missing"),
            (&["a="], "is missing"),
            (&["a=redis://u:CANARY@h"], "holds a password"),
        ] {
            let failure = check(&urls(given), "use a file").expect_err("wrong");
            assert!(failure.message.contains(says), "{}", failure.message);
            assert!(!format!("{failure:?}").contains("CANARY"));
        }
        assert!(check(&urls(&["a=x:", "b=y:", "z:"]), "").is_ok());
    }
}
