//! The parts of a Redis URL. No message here shows more than the part that is wrong, and never
//! what stands before an `@`.

use std::fmt;
use std::path::PathBuf;

use holdline_core::{LockError, percent_decode};

use super::group::Group;
use super::{DEFAULT_PORT, bad};

/// Where the server is. It shows itself without user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A TCP port.
    Tcp { host: String, port: u16, tls: bool },
    /// A unix socket.
    Unix(PathBuf),
    /// The master of a service, whatever server that is at the time.
    Service { name: String, tls: bool },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Service { name, .. } => {
                write!(f, "the master of `{}`", holdline_core::Escaped(name))
            }
        }
    }
}

/// What is said instead of showing what may be the rest of a password.
pub(super) const AT_IN_QUERY: &str =
    "has an `@` behind its `?`: a password's own `?` is written `%3F`";

pub(super) struct Parts {
    pub(super) address: Address,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: Option<u32>,
    pub(super) group: Option<Group>,
    pub(super) parameters: Vec<(String, String)>,
}

impl Parts {
    pub(super) fn split(url: &str) -> Result<Parts, LockError> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = parameters(query)?;
        let mut parts = match scheme {
            "redis" => network(before, false)?,
            "rediss" => network(before, true)?,
            "redis+unix" => socket(before)?,
            "redis+sentinel" => service(before, false)?,
            "rediss+sentinel" => service(before, true)?,
            _ => {
                return Err(bad(
                    "must begin with `redis://`, `rediss://`, `redis+unix://` or `redis+sentinel://`",
                ));
            }
        };
        parts.parameters = parameters;
        Ok(parts)
    }
}

/// `user:password@host:port/db`.
fn network(rest: &str, tls: bool) -> Result<Parts, LockError> {
    let (user, password, rest) = credentials(rest)?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = host_and_port(host, DEFAULT_PORT)?;
    let db = database(path, "redis://localhost/0")?;
    let address = Address::Tcp { host, port, tls };
    Ok(Parts { address, user, password, db, group: None, parameters: Vec::new() })
}

fn database(path: &str, example: &str) -> Result<Option<u32>, LockError> {
    match path {
        "" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| {
            bad(format_args!("has a path that is no database number, as in `{example}`"))
        }),
    }
}

/// `user:password@sentinel:port,…/service/db`.
fn service(rest: &str, tls: bool) -> Result<Parts, LockError> {
    let (user, password, rest) = credentials(rest)?;
    let (group, db) = Group::split(rest, tls)?;
    let db = database(db, "redis+sentinel://one,two/SERVICE/0")?;
    let address = Address::Service { name: group.service().to_owned(), tls };
    Ok(Parts { address, user, password, db, group: Some(group), parameters: Vec::new() })
}

/// `user:password@/path/of/the/socket`.
fn socket(rest: &str) -> Result<Parts, LockError> {
    let (user, password, rest) = credentials(rest)?;
    let path = PathBuf::from(text(rest)?);
    if !path.is_absolute() {
        return Err(bad(
            "must name the socket's absolute path, as in `redis+unix:///run/redis.sock`",
        ));
    }
    let address = Address::Unix(path);
    Ok(Parts { address, user, password, db: None, group: None, parameters: Vec::new() })
}

type Credentials<'a> = (Option<String>, Option<String>, &'a str);

/// What stands before the last `@`. A password with an `@` of its own is understood.
fn credentials(rest: &str) -> Result<Credentials<'_>, LockError> {
    let Some((before, rest)) = rest.rsplit_once('@') else { return Ok((None, None, rest)) };
    let (user, password) = before.split_once(':').unwrap_or((before, ""));
    let known = |part: &str| match part {
        "" => Ok(None),
        part => text(part).map(Some),
    };
    Ok((known(user)?, known(password)?, rest))
}

pub(super) fn host_and_port(host: &str, usual: u16) -> Result<(String, u16), LockError> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => (name, None),
            Some((name, port)) if port.starts_with(':') => (name, Some(&port[1..])),
            _ => return Err(bad("has a `[` without its `]` before the port")),
        },
        None => match host.rsplit_once(':') {
            Some((name, _)) if name.contains(':') => {
                return Err(bad("must write an IPv6 address in brackets, as in `[::1]:6379`"));
            }
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let port = match port {
        None => usual,
        Some(digits) => digits.parse().map_err(|_| bad("has a port that is no number to 65535"))?,
    };
    let name = if name.is_empty() { "127.0.0.1".to_owned() } else { text(name)? };
    Ok((name, port))
}

fn parameters(query: &str) -> Result<Vec<(String, String)>, LockError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let key = text(key)?;
        if found.iter().any(|(known, _)| *known == key) && !key.contains('@') {
            return Err(bad(format!("has the parameter `{key}` twice")));
        }
        found.push((key, text(value)?));
    }
    Ok(found)
}

/// Undoes percent-encoding.
pub(super) fn text(encoded: &str) -> Result<String, LockError> {
    let bytes = percent_decode(encoded);
    let bytes = bytes.ok_or_else(|| bad("has a `%` without two hex digits behind it"))?;
    let good = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    good.ok_or_else(|| bad("has percent-encoded bytes that are no text"))
}
