//! The parts of a PostgreSQL URL. An error shows only the wrong part, and never the text before an
//! `@`.

use std::fmt;
use std::path::PathBuf;

use holdline_core::{LockError, accept_url};
use holdline_net::url::Credentials;

use super::{URL, bad};

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

pub(super) struct Parts {
    pub(super) address: Address,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
    pub(super) parameters: Vec<(String, String)>,
}

impl Parts {
    pub(super) fn split(url: &str) -> Result<Parts, LockError> {
        let url = &*accept_url(url).map_err(bad)?;
        let rest = ["postgres://", "postgresql://"].iter().find_map(|s| url.strip_prefix(s));
        let rest = rest.ok_or_else(|| bad("must begin with `postgres://` or `postgresql://`"))?;
        let (Credentials { user, password, rest: place }, parameters) = URL.split(rest)?;
        let of = |key: &str| parameters.iter().find(|(k, _)| k == key).map(|(_, value)| value);
        let no_user = || bad("names no user: write `postgres://USER@HOST/DATABASE`");
        let user = user.ok_or_else(no_user)?;
        let (place, path) = place.split_once('/').unwrap_or((place, ""));
        let (mut host, mut port) = URL.host(place)?;
        if let Some(value) = of("host") {
            host.clone_from(value);
        }
        if let Some(value) = of("port") {
            port = Some(URL.a_port(value)?);
        }
        let port = port.unwrap_or(URL.port);
        let address = match host.as_str() {
            socket if socket.starts_with('/') => Address::Unix(socket.into(), port),
            "" => Address::Tcp { host: URL.here().host, port },
            many if many.contains(',') => {
                return Err(bad("names several hosts: name the one that takes writes"));
            }
            _ => Address::Tcp { host, port },
        };
        let database = Some(URL.text(path)?).filter(|name| !name.is_empty());
        Ok(Parts { address, user, password, database, parameters })
    }
}
