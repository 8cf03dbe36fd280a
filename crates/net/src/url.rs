//! Parses the URL of an engine.
//!
//! - U1: no message shows a value, nor the text before an `@`: either may be part of a password.
//! - U2: unknown input is refused with a message that names the known input; nothing is ignored.

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use holdline_core::{LockError, nearest, percent_decode};

/// How many servers one URL may name.
const MAX_SERVERS: usize = 32;
/// The longest name of a parameter that a message shows.
const LONGEST_KEY: usize = 40;
/// The host if none is named.
const THIS_MACHINE: &str = "127.0.0.1";
/// The message instead of a text that may be the rest of a password.
const AT_IN_QUERY: &str =
    "has an `@` after its `?`: write a password's own `?` as `%3F`, and any other `@` as `%40`";

/// Parses the URL of one engine.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The engine's short name.
    pub engine: &'static str,
    /// The default port of a server.
    pub port: u16,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The part of a URL before the `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// The user, if one is named.
    pub user: Option<String>,
    /// The password, if there is one.
    pub password: Option<String>,
    /// The text after the last `@`, unchanged.
    pub rest: &'a str,
}

impl Server {
    /// Returns whether it is this machine, by its name.
    pub fn is_here(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Reader {
    /// Returns this machine, with the default port.
    pub fn here(self) -> Server {
        Server { host: THIS_MACHINE.to_owned(), port: self.port }
    }

    /// Makes the error for a wrong URL.
    pub fn bad(self, message: impl Display) -> LockError {
        LockError::invalid(self.engine, "url", message)
    }

    /// Makes the error for an `@` where no password can be.
    pub fn at_in_query(self) -> LockError {
        self.bad(AT_IN_QUERY)
    }

    /// Splits the text after the scheme into the credentials and servers, and the parameters.
    ///
    /// # Errors
    /// `Invalid`: there is an `@` after the `?`, or as for the parts.
    pub fn split(self, rest: &str) -> Result<(Credentials<'_>, Vec<(String, String)>), LockError> {
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            return Err(self.at_in_query());
        }
        Ok((self.credentials(before)?, self.parameters(query)?))
    }

    /// Reads the credentials before the last `@`. The password may contain an `@`.
    ///
    /// # Errors
    /// `Invalid`, as for [`Reader::text`].
    pub fn credentials(self, before: &str) -> Result<Credentials<'_>, LockError> {
        let (credentials, rest) = before.rsplit_once('@').unwrap_or(("", before));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let known = |part: &str| Ok(Some(self.text(part)?).filter(|part| !part.is_empty()));
        Ok(Credentials { user: known(user)?, password: known(password)?, rest })
    }

    /// Reads the parameters after the `?`, in their order.
    ///
    /// # Errors
    /// `Invalid`: a parameter is given twice or has no value, or as for [`Reader::text`].
    pub fn parameters(self, query: &str) -> Result<Vec<(String, String)>, LockError> {
        let mut found: Vec<(String, String)> = Vec::new();
        // What follows the `?` may be the rest of a password whose `@` comes later.
        let bad = |message: &dyn Display| {
            if query.contains('@') { self.at_in_query() } else { self.bad(message) }
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(bad(&"has a parameter without a value: write `name=value`"));
            };
            let key = self.text(key)?;
            if found.iter().any(|(known, _)| *known == key) {
                return Err(bad(&format_args!("has the parameter {} twice", shown_key(&key))));
            }
            found.push((key, self.text(value)?));
        }
        Ok(found)
    }

    /// Reads servers that are separated by commas; an empty text is this machine at the default
    /// port.
    ///
    /// # Errors
    /// `Invalid`: one is named without a host, there are too many, or as for [`Reader::host`].
    pub fn servers(self, written: &str) -> Result<Vec<Server>, LockError> {
        if written.is_empty() {
            return Ok(vec![self.here()]);
        }
        let server = |written| match self.host(written)? {
            (host, _) if host.is_empty() => Err(self.bad("names a member without a host")),
            (host, port) => Ok(Server { host, port: port.unwrap_or(self.port) }),
        };
        let servers = written.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
        if servers.len() > MAX_SERVERS {
            Err(self.bad(format_args!("names more than {MAX_SERVERS} members")))
        } else {
            Ok(servers)
        }
    }

    /// Reads one server; without a name it is this machine.
    ///
    /// # Errors
    /// `Invalid`: there are several, or as for [`Reader::host`].
    pub fn server(self, written: &str) -> Result<Server, LockError> {
        if written.contains(',') {
            return Err(self.bad("names several servers, and takes one"));
        }
        let (host, port) = self.host(written)?;
        let port = port.unwrap_or(self.port);
        Ok(if host.is_empty() { Server { port, ..self.here() } } else { Server { host, port } })
    }

    /// Reads a host, which may be empty, and its port, if there is one.
    ///
    /// # Errors
    /// `Invalid`: the port is not valid, an IPv6 address has no brackets, or as for
    /// [`Reader::text`].
    pub fn host(self, written: &str) -> Result<(String, Option<u16>), LockError> {
        let (name, port) = match written.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, "")) => (name, None),
                Some((name, port)) if port.starts_with(':') => (name, Some(&port[1..])),
                _ => return Err(self.bad("has a `[` without its `]` before the port")),
            },
            None => match written.rsplit_once(':') {
                Some((name, _)) if name.contains(':') => {
                    let example = format_args!("as in `[::1]:{}`", self.port);
                    let message = format!("must write an IPv6 address in brackets, {example}");
                    return Err(self.bad(message));
                }
                Some((name, port)) => (name, Some(port)),
                None => (written, None),
            },
        };
        Ok((self.text(name)?, port.map(|digits| self.a_port(digits)).transpose()?))
    }

    /// Reads the number of a port.
    ///
    /// # Errors
    /// `Invalid`: it is none.
    pub fn a_port(self, digits: &str) -> Result<u16, LockError> {
        let port = digits.parse().ok().filter(|port| *port != 0);
        port.ok_or_else(|| self.bad("has a port that is no number from 1 to 65535"))
    }

    /// Decodes percent-encoding.
    ///
    /// # Errors
    /// `Invalid`: a `%` is not followed by two hex digits, or the result is not UTF-8.
    pub fn text(self, encoded: &str) -> Result<String, LockError> {
        let bytes = percent_decode(encoded);
        let bytes = bytes.ok_or_else(|| self.bad("has a `%` without two hex digits after it"))?;
        let good = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        good.ok_or_else(|| self.bad("has percent-encoded bytes that are not UTF-8"))
    }

    /// Reads a parameter that is a number.
    ///
    /// # Errors
    /// `Invalid`: it is no number, or too large.
    pub fn number<T: FromStr>(self, key: &str, value: &str) -> Result<T, LockError> {
        value.parse().map_err(|_| {
            if value.contains('@') {
                self.at_in_query()
            } else {
                self.bad(format_args!("has a `{key}` that is no whole number"))
            }
        })
    }

    /// Reads a parameter that is a time in milliseconds.
    ///
    /// # Errors
    /// `Invalid`, as for [`Reader::number`].
    pub fn millis(self, key: &str, value: &str) -> Result<Duration, LockError> {
        self.number(key, value).map(Duration::from_millis)
    }

    /// Reads a parameter that is one of some words.
    ///
    /// # Errors
    /// `Invalid`: it is none of them; the message lists them.
    pub fn one_of<T: Copy, const N: usize>(
        self,
        key: &str,
        value: &str,
        words: [(&str, T); N],
    ) -> Result<T, LockError> {
        let found = words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning);
        found.ok_or_else(|| {
            if value.contains('@') {
                self.at_in_query()
            } else {
                let known: Vec<String> =
                    words.iter().map(|(word, _)| format!("`{word}`")).collect();
                self.bad(format_args!("has a `{key}` that must be {}", known.join(" or ")))
            }
        })
    }

    /// Makes the error for an unknown parameter. The message suggests the nearest of `known`, or
    /// shows `listed` if none is near.
    pub fn unknown<'a>(
        self,
        key: &str,
        known: impl IntoIterator<Item = &'a str>,
        listed: &[&str],
    ) -> LockError {
        if key.contains('@') {
            return self.at_in_query();
        }
        let meant = match nearest(key, known) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!("known are {}", listed.join(", ")),
        };
        self.bad(format_args!("has the unknown parameter {}: {meant}", shown_key(key)))
    }
}

/// Returns the name of a parameter for a message. What is spelled like no name may be a password.
fn shown_key(key: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '-' | '.');
    if key.len() <= LONGEST_KEY && key.chars().all(is_word) {
        format!("`{key}`")
    } else {
        "`…`".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: Reader = Reader { engine: "test", port: 7 };

    #[test]
    fn a_url_is_split_and_a_password_may_contain_an_at() {
        let (credentials, parameters) =
            READER.split("ann:p@%3A@a,[::1]:9/x?b=%20c&&d=").expect("good");
        assert_eq!(credentials.user.as_deref(), Some("ann"));
        assert_eq!(credentials.password.as_deref(), Some("p@:"));
        assert_eq!(credentials.rest, "a,[::1]:9/x");
        let pairs = [("b", " c"), ("d", "")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(parameters, pairs);
        let servers = READER.servers("a,[::1]:9").expect("good");
        let shown: Vec<String> = servers.iter().map(Server::to_string).collect();
        assert_eq!(shown, ["a:7", "[::1]:9"]);
        assert_eq!(servers.iter().map(Server::is_here).collect::<Vec<_>>(), [false, true]);
        assert_eq!(READER.servers("").expect("good")[0].to_string(), "127.0.0.1:7");
        assert_eq!(READER.server(":8").expect("good").to_string(), "127.0.0.1:8");
        let nobody = READER.credentials("a").expect("good");
        assert_eq!(nobody, Credentials { user: None, password: None, rest: "a" });
    }

    #[test]
    fn errors_name_the_mistake_and_show_no_value() {
        let words = [("on", true), ("off", false)];
        for (error, says) in [
            (READER.split("a?b=s3cret@c").err(), "%3F"),
            (READER.split("ann:s3cret%@a").err(), "two hex digits"),
            (READER.split("a?s3cret@=1&s3cret@=2").err(), "%40"),
            (READER.parameters("b=s3cret&b=2").err(), "`b` twice"),
            (READER.parameters("s3cret").err(), "without a value"),
            (READER.parameters("s3cret&x@a").err(), "%3F"),
            (READER.parameters("s3cret1=a&s3cret1=b").err(), "`…` twice"),
            (Some(READER.unknown("s3cret;pw=x", ["port"], &["port"])), "parameter `…`"),
            (READER.parameters("b=s3cret%ff").err(), "not UTF-8"),
            (READER.servers("a,,b").err(), "without a host"),
            (READER.servers(&"a,".repeat(40)).err(), "without a host"),
            (READER.servers(&["a"; 33].join(",")).err(), "more than 32"),
            (READER.server("a:s3cret").err(), "from 1 to 65535"),
            (READER.server("a:0").err(), "from 1 to 65535"),
            (READER.server("a:1,s3cret").err(), "several servers"),
            (READER.server("::1").err(), "`[::1]:7`"),
            (READER.server("[::1").err(), "without its `]`"),
            (READER.number::<u8>("b", "s3cret").err(), "`b` that is no whole number"),
            (READER.millis("b", "1@s3cret").err(), "%3F"),
            (READER.one_of("b", "s3cret", words).err(), "must be `on` or `off`"),
            (Some(READER.unknown("prt", ["port"], &["port"])), "did you mean `port`?"),
            (Some(READER.unknown("x", ["port"], &["port", "q"])), "known are port, q"),
            (Some(READER.unknown("s3cret@", ["port"], &[])), "%3F"),
        ] {
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(says) && !error.contains("s3cret"), "{says}: {error}");
        }
    }
}
