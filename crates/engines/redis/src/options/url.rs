//! The parts of a Redis URL. Messages show the wrong part only, and never what comes before an `@`.

use std::path::PathBuf;

use holdline_core::{LockError, accept_url};
use holdline_net::url::{Credentials, Server};

use super::address::Address;
use super::group::SentinelGroup;
use super::{URL, bad, group, read};

pub(super) struct Parts {
    pub(super) address: Address,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: Option<u32>,
    pub(super) group: Option<SentinelGroup>,
    pub(super) parameters: Vec<(String, String)>,
}

impl Parts {
    pub(super) fn split(url: &str) -> Result<Parts, LockError> {
        let url = &*accept_url(url).map_err(bad)?;
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = URL.parameters(query)?;
        // Templates may contain an `@`; the rest of a password begins with no known parameter.
        let is_known =
            |key: &str| read::PARAMETERS.contains(&key) || group::PARAMETERS.contains(&key);
        if query.contains('@') && !parameters.iter().all(|(key, _)| is_known(key)) {
            return Err(URL.at_in_query());
        }
        let mut parts = match scheme {
            "redis" => network(before, false)?,
            "rediss" => network(before, true)?,
            "redis+unix" => socket(before)?,
            "redis+sentinel" => service(before, false)?,
            "rediss+sentinel" => service(before, true)?,
            "redis-cluster" => cluster(before, false)?,
            "rediss-cluster" => cluster(before, true)?,
            _ => {
                return Err(bad("must begin with `redis://`, `rediss://`, `redis+unix://`, \
                                `redis+sentinel://` or `redis-cluster://`"));
            }
        };
        parts.parameters = parameters;
        Ok(parts)
    }
}

/// What is meant by several servers depends on what they are to each other.
const SEVERAL: &str = "names several servers: write `redis+sentinel://` if they are Sentinels, \
                       `redis-cluster://` if they are nodes of a cluster, `redlock://` if they are \
                       independent, and of a primary with replicas the primary alone";

/// `user:password@host:port/db`.
fn network(rest: &str, tls: bool) -> Result<Parts, LockError> {
    let Credentials { user, password, rest } = URL.credentials(rest)?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains(',') {
        return Err(bad(SEVERAL));
    }
    let Server { host, port } = URL.server(host)?;
    let db = database(path.strip_suffix('/').unwrap_or(path), "redis://localhost/0")?;
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
    let Credentials { user, password, rest } = URL.credentials(rest)?;
    let (group, db) = SentinelGroup::split(rest, tls)?;
    let db = database(db, "redis+sentinel://one,two/SERVICE/0")?;
    let address = Address::Service { name: group.service().to_owned(), tls };
    Ok(Parts { address, user, password, db, group: Some(group), parameters: Vec::new() })
}

/// `user:password@node:port,node`.
fn cluster(rest: &str, tls: bool) -> Result<Parts, LockError> {
    const EXAMPLE: &str = "`redis-cluster://one,two:7001,three`";
    if rest.matches('@').count() > 1 {
        return Err(bad("has more than one `@`: user and password stand once, before the first \
                        node, and a password's own `@` is written `%40`"));
    }
    let Credentials { user, password, rest } = URL.credentials(rest)?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() {
        return Err(bad("names a database: a cluster has none, leave the path out"));
    }
    let seeds = super::group::places(hosts, URL, "node", EXAMPLE)?;
    let address = Address::Cluster { seeds, tls };
    Ok(Parts { address, user, password, db: None, group: None, parameters: Vec::new() })
}

/// `user:password@/path/of/the/socket`.
fn socket(rest: &str) -> Result<Parts, LockError> {
    let Credentials { user, password, rest } = URL.credentials(rest)?;
    let path = PathBuf::from(URL.text(rest)?);
    if !path.is_absolute() {
        return Err(bad(
            "must name the socket's absolute path, as in `redis+unix:///run/redis.sock`",
        ));
    }
    let address = Address::Unix(path);
    Ok(Parts { address, user, password, db: None, group: None, parameters: Vec::new() })
}
