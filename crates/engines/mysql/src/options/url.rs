//! The parts of a URL of this engine.

use std::fmt;
use std::path::PathBuf;

use holdline_core::{LockError, accept_url};
use holdline_net::url::{Credentials, Server};

use super::{URL, bad};

/// Where the server is. It shows itself without user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A TCP port.
    Tcp(Server),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(server) => server.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

pub(super) struct Parts {
    pub(super) address: Address,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: String,
    pub(super) parameters: Vec<(String, String)>,
}

impl Parts {
    pub(super) fn split(url: &str) -> Result<Parts, LockError> {
        let url = &*accept_url(url).map_err(bad)?;
        let rest = ["mysql://", "mariadb://"].iter().find_map(|s| url.strip_prefix(s));
        let rest = rest.ok_or_else(|| bad("must begin with `mysql://` or `mariadb://`"))?;
        let (Credentials { user, password, rest: place }, parameters) = URL.split(rest)?;
        let user = user.ok_or_else(|| bad("names no user: write `mysql://USER@HOST/DATABASE`"))?;
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let database = URL.text(path)?;
        if database.is_empty() {
            return Err(bad("names no database: write `mysql://USER@HOST/DATABASE`"));
        }
        if host.contains(',') {
            return Err(bad("names several hosts: name the one that takes writes"));
        }
        let socket = parameters.iter().find(|(key, _)| key == "socket");
        let address = match (socket, host) {
            (None, _) => Address::Tcp(URL.server(host)?),
            (Some((_, path)), _) if !path.starts_with('/') => {
                return Err(bad("has a `socket` that is no path from `/` on"));
            }
            (Some((_, path)), "" | "localhost") => Address::Unix(path.into()),
            (Some(_), _) => return Err(bad("names both a host and a `socket`: leave one out")),
        };
        Ok(Parts { address, user, password, database, parameters })
    }
}
