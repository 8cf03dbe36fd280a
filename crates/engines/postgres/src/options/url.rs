//! The parts of a PostgreSQL URL. An error shows only the wrong part, and never the text before an
//! `@`.

use std::fmt;
use std::path::PathBuf;

use holdline_core::{LockError, accept_url};
use holdline_net::url::Credentials;

use super::{URL, bad};

/// How many hosts one URL may name.
const MAX_HOSTS: usize = 16;

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
    /// In the order in which they are tried.
    pub(super) addresses: Vec<Address>,
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
        let user = user.or_else(|| of("user").cloned()).ok_or_else(no_user)?;
        let (place, path) = place.split_once('/').unwrap_or((place, ""));
        let addresses = addresses(place, of("host"), of("port"))?;
        let database = Some(URL.text(path)?).filter(|name| !name.is_empty());
        Ok(Parts { addresses, user, password, database, parameters })
    }
}

/// Reads the hosts and their ports, which the parameters `host` and `port` replace. As in libpq,
/// there is one port for all hosts, or one for each.
fn addresses(
    place: &str,
    hosts: Option<&String>,
    ports: Option<&String>,
) -> Result<Vec<Address>, LockError> {
    let mut found = place.split(',').map(|one| URL.host(one)).collect::<Result<Vec<_>, _>>()?;
    if let Some(hosts) = hosts {
        let written: Vec<&str> = hosts.split(',').collect();
        let port_of = |at: usize| match found.len() {
            1 => found[0].1,
            _ => found.get(at).and_then(|(_, port)| *port),
        };
        found = written.iter().enumerate().map(|(at, h)| ((*h).to_owned(), port_of(at))).collect();
    }
    if let Some(ports) = ports {
        let ports = ports.split(',').map(|port| URL.a_port(port)).collect::<Result<Vec<_>, _>>()?;
        if ports.len() != 1 && ports.len() != found.len() {
            return Err(bad("has a `port` for some hosts only: name one port, or one for each"));
        }
        for (at, (_, port)) in found.iter_mut().enumerate() {
            *port = ports.get(at).or(ports.first()).copied();
        }
    }
    if found.len() > MAX_HOSTS {
        return Err(bad(format_args!("names more than {MAX_HOSTS} hosts")));
    }
    if found.len() > 1 && found.iter().any(|(host, _)| host.is_empty()) {
        return Err(bad("names a host without a name between its commas"));
    }
    let address = |(host, port): (String, Option<u16>)| {
        let port = port.unwrap_or(URL.port);
        match host.as_str() {
            socket if socket.starts_with('/') => Address::Unix(socket.into(), port),
            "" => Address::Tcp { host: URL.here().host, port },
            _ => Address::Tcp { host, port },
        }
    };
    Ok(found.into_iter().map(address).collect())
}
