//! The parts of a PostgreSQL URL. No message here shows more than the part that is wrong, and
//! never what stands before an `@`.

use std::fmt;
use std::path::PathBuf;

use holdline_core::{LockError, percent_decode};

use super::bad;

const DEFAULT_PORT: u16 = 5432;

/// Where the server is. It shows itself without user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A TCP port.
    Tcp { host: String, port: u16 },
    /// A unix socket: its directory, and the port by which it is named.
    Unix(PathBuf, u16),
}

impl Address {
    /// The path of a unix socket.
    pub(crate) fn socket(directory: &std::path::Path, port: u16) -> PathBuf {
        directory.join(format!(".s.PGSQL.{port}"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path, port) => Address::socket(path, *port).display().fmt(f),
        }
    }
}

/// What is said instead of showing what may be the rest of a password.
const AT_IN_QUERY: &str =
    "has an `@` behind its `?`: write a password's own `?` as `%3F`, and any other `@` as `%40`";

pub(super) struct Parts {
    pub(super) address: Address,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
    pub(super) parameters: Vec<(String, String)>,
}

impl Parts {
    pub(super) fn split(url: &str) -> Result<Parts, LockError> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|s| url.strip_prefix(s));
        let rest = rest.ok_or_else(|| bad("must begin with `postgres://` or `postgresql://`"))?;
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        // It may be the end of a password: no part of it is shown.
        if query.contains('@') {
            return Err(bad(AT_IN_QUERY));
        }
        let parameters = parameters(query)?;
        // What stands before the last `@`. A password with an `@` of its own is understood.
        let (credentials, rest) = before.rsplit_once('@').unwrap_or(("", before));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (text(user)?, Some(text(password)?)),
            None => (text(credentials)?, None),
        };
        let of = |key: &str| parameters.iter().find(|(k, _)| k == key).map(|(_, value)| value);
        let user = match user.is_empty() {
            true => return Err(bad("names no user: write `postgres://USER@HOST/DATABASE`")),
            false => user,
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (mut host, mut port) = host_and_port(place)?;
        if let Some(value) = of("host") {
            host.clone_from(value);
        }
        if let Some(value) = of("port") {
            port = Some(a_port(value)?);
        }
        let port = port.unwrap_or(DEFAULT_PORT);
        let address = match host.as_str() {
            socket if socket.starts_with('/') => Address::Unix(socket.into(), port),
            "" => Address::Tcp { host: "127.0.0.1".to_owned(), port },
            many if many.contains(',') => {
                return Err(bad("names several hosts: name the one that takes writes"));
            }
            _ => Address::Tcp { host, port },
        };
        let database = Some(text(path)?).filter(|name| !name.is_empty());
        Ok(Parts {
            address,
            user,
            password: password.filter(|p| !p.is_empty()),
            database,
            parameters,
        })
    }
}

fn host_and_port(place: &str) -> Result<(String, Option<u16>), LockError> {
    let (name, port) = match place.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => (name, None),
            Some((name, port)) if port.starts_with(':') => (name, Some(&port[1..])),
            _ => return Err(bad("has a `[` without its `]` before the port")),
        },
        None => match place.rsplit_once(':') {
            Some((name, _)) if name.contains(':') => {
                return Err(bad("must write an IPv6 address in brackets, as in `[::1]:5432`"));
            }
            Some((name, port)) => (name, Some(port)),
            None => (place, None),
        },
    };
    Ok((text(name)?, port.map(a_port).transpose()?))
}

fn a_port(digits: &str) -> Result<u16, LockError> {
    let port = digits.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| bad("has a port that is no number from 1 to 65535"))
}

fn parameters(query: &str) -> Result<Vec<(String, String)>, LockError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let key = text(key)?;
        if found.iter().any(|(known, _)| *known == key) {
            return Err(bad(format!("has the parameter `{key}` twice")));
        }
        found.push((key, text(value)?));
    }
    Ok(found)
}

/// Undoes percent-encoding.
fn text(encoded: &str) -> Result<String, LockError> {
    let bytes = percent_decode(encoded);
    let bytes = bytes.ok_or_else(|| bad("has a `%` without two hex digits behind it"))?;
    let good = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    good.ok_or_else(|| bad("has percent-encoded bytes that are no text"))
}
