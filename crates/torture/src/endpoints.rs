//! The servers that a URL names, so that a proxy can be put before each.

use std::fmt;

/// A server, as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, an IPv6 one without its brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A URL taken apart around its servers.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Up to the first server; may hold a password.
    before: String,
    servers: Vec<Endpoint>,
    after: String,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Endpoints {
    /// Finds the servers of a URL; `None` where no proxy can stand before them: the engine has no
    /// server, is reached by a unix socket, or looks at the server's certificate.
    pub fn of(url: &str) -> Option<Endpoints> {
        let (scheme, rest) = url.split_once("://")?;
        let port = match scheme {
            "redis" | "redlock" => 6379,
            "mysql" | "mariadb" => 3306,
            "postgres" | "postgresql" => 5432,
            "etcd" => 2379,
            "zk" => 2181,
            _ => return None,
        };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        // Of these the URL would say something else than its authority.
        let moves = |part: &str| {
            let key = part.split_once('=').map_or(part, |(key, _)| key);
            ["host", "port", "socket", "sslmode", "ca"].contains(&key) || key.contains('@')
        };
        if query.is_some_and(|query| query.split('&').any(moves) || query.contains('@')) {
            return None;
        }
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (format!("{credentials}@"), rest),
            None => (String::new(), rest),
        };
        let (hosts, path) = match rest.split_once('/') {
            Some((hosts, path)) => (hosts, format!("/{path}")),
            None => (rest, String::new()),
        };
        let servers: Option<Vec<_>> = hosts.split(',').map(|host| endpoint(host, port)).collect();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let before = format!("{scheme}://{credentials}");
        Some(Endpoints { before, servers: servers?, after: path + &query })
    }

    /// Returns the servers, in the order of the URL.
    pub fn servers(&self) -> &[Endpoint] {
        &self.servers
    }

    /// Returns the URL with other servers in place of these. It may contain a password.
    pub fn with_servers(&self, servers: &[Endpoint]) -> String {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        format!("{}{}{}", self.before, servers.join(","), self.after)
    }
}

fn endpoint(text: &str, port: u16) -> Option<Endpoint> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(digits) => digits.parse().ok()?,
        None if rest.is_empty() => port,
        None => return None,
    };
    // A percent sign is a socket's path, or a name that only the engine can read.
    if host.contains('%') {
        return None;
    }
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    Some(Endpoint { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_and_replaced() {
        for (url, servers, replaced) in [
            ("redis://h", "h:6379", "redis://p:1"),
            ("redis://u:p/w@[::1]:7/2?db=1", "[::1]:7", "redis://u:p/w@p:1/2?db=1"),
            ("redlock://u:p@a,b:2,c", "a:6379 b:2 c:6379", "redlock://u:p@p:1,p:2,p:3"),
            ("etcd://a,b/?prefix=x/", "a:2379 b:2379", "etcd://p:1,p:2/?prefix=x/"),
            ("zk://u:p/w@a,b:2/x?acl=open", "a:2181 b:2", "zk://u:p/w@p:1,p:2/x?acl=open"),
            ("mysql://me@db/x?prefix=s", "db:3306", "mysql://me@p:1/x?prefix=s"),
            ("postgres://me@db/x?schema=s", "db:5432", "postgres://me@p:1/x?schema=s"),
        ] {
            let found = Endpoints::of(url).unwrap_or_else(|| panic!("{url}"));
            let listed: Vec<String> = found.servers().iter().map(ToString::to_string).collect();
            assert_eq!(listed.join(" "), servers, "{url}");
            let proxies = (1..).map(|port| Endpoint { host: "p".into(), port });
            let proxies: Vec<Endpoint> = proxies.take(found.servers().len()).collect();
            assert_eq!(found.with_servers(&proxies), replaced);
            assert!(!format!("{found:?}").contains("p/w"));
        }
    }

    #[test]
    fn where_no_proxy_can_stand_there_is_none() {
        for url in [
            "local:",
            "memory:",
            "rediss://h",
            "etcds://h",
            "zks://h",
            "redis+unix:///run/redis.sock",
            "postgres://me@%2Frun/db",
            "postgres://me@h/db?sslmode=verify-full",
            "mysql://me@/db?socket=/run/s",
            "postgres://me@/db?host=/run",
            "redis://u:p?w@h",
        ] {
            assert_eq!(Endpoints::of(url), None, "{url}");
        }
    }
}
