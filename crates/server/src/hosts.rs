//! The names by which clients reach this server: a request for another name is refused.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Uri};

use crate::problem::Problem;

/// How many headers a request may have.
const MOST_HEADERS: usize = 64;

/// The names by which clients reach this server.
pub(crate) struct Hosts {
    names: Vec<String>,
    listens_everywhere: bool,
    local: IpAddr,
}

impl Hosts {
    /// `listen` is the address of the server; a server with a socket only has none.
    pub(crate) fn new(listen: Option<SocketAddr>, names: &[String]) -> Hosts {
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let local = listen.map_or(IpAddr::from([127, 0, 0, 1]), |listen| listen.ip());
        Hosts { names, listens_everywhere: local.is_unspecified(), local }
    }

    /// Returns whether an authority (`host` or `host:port`) names this server. An address cannot be
    /// rebound: a client that sends one means the machine that it reached.
    fn is_ours(&self, authority: &str) -> bool {
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.listens_everywhere || address == self.local || address.is_loopback();
        }
        host.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    /// Checks that a request is for this server, and not from a page of another origin.
    pub(crate) fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        if headers.len() > MOST_HEADERS {
            return Err(Problem::too_many_headers(MOST_HEADERS));
        }
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        let host = uri.authority().map(http::uri::Authority::as_str).or(host);
        if hosts.next().is_some() || !host.is_some_and(|host| self.is_ours(host)) {
            return Err(Problem::wrong_host());
        }
        for origin in headers.get_all(ORIGIN) {
            let origin: Option<Uri> = origin.to_str().ok().and_then(|text| text.parse().ok());
            let authority = origin.as_ref().and_then(Uri::authority);
            // The same host and port: a page of another port of this machine is another origin.
            if authority.is_none_or(|authority| Some(authority.as_str()) != host) {
                return Err(Problem::wrong_origin());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &'static str)| {
            (name.clone(), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn only_requests_for_this_server_from_its_own_pages_pass() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 7654));
        let hosts = Hosts::new(Some(listen), &["Locks.Example".to_owned()]);
        let check = |pairs: &[(HeaderName, &'static str)]| {
            hosts
                .check(&headers(pairs), &Uri::from_static("/v1/locks"))
                .map_err(|p| p.kind().word())
        };
        for host in ["localhost", "LOCALHOST:7654", "127.0.0.1:1", "[::1]:7654", "locks.example"] {
            assert_eq!(check(&[(HOST, host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1", ""] {
            assert_eq!(check(&[(HOST, host)]), Err("wrong_host"), "{host}");
        }
        assert_eq!(check(&[]), Err("wrong_host"));
        let here = (HOST, "localhost:7654");
        assert_eq!(check(&[here.clone(), (ORIGIN, "http://localhost:7654")]), Ok(()));
        for origin in ["http://evil.example", "http://localhost:8080", "null", "", "x y"] {
            assert_eq!(check(&[here.clone(), (ORIGIN, origin)]), Err("wrong_origin"), "{origin}");
        }
    }
}
