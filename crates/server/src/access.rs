//! Who sends a request, and what they may do.
//!
//! - A1: a token is compared by its digest, in constant time; the token itself is never kept.
//! - A2: without any authentication configured, the server listens on loopback only, and every
//!   client that reaches it may do everything.
//! - A3: who has logged in with a token is that token, as long as the settings have it: rights,
//!   expiry and removal take effect at once.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::Operator;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::config::{ConfigError, ServerConfig, TokenConfig, expiry, rights};
use crate::problem::Problem;

/// What somebody may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    view: bool,
    lock: bool,
    operate: bool,
    admin: bool,
}

/// One right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// See names, holders and events.
    View,
    /// Take, renew and release locks.
    Lock,
    /// Revoke grants; freeze and unfreeze names.
    Operate,
    /// Change what concerns the whole store.
    Admin,
}

impl Rights {
    pub(crate) const ALL: Rights = Rights { view: true, lock: true, operate: true, admin: true };
    const OF_CERTIFICATES: Rights = Rights { view: true, lock: true, operate: false, admin: false };

    /// Adds a right by its name; `None`: there is none of that name. `admin` includes all.
    pub(crate) fn with(self, name: &str) -> Option<Rights> {
        Some(match name {
            "view" => Rights { view: true, ..self },
            "lock" => Rights { lock: true, ..self },
            "operate" => Rights { operate: true, ..self },
            "admin" => Rights::ALL,
            _ => return None,
        })
    }

    fn has(self, right: Right) -> bool {
        match right {
            Right::View => self.view,
            Right::Lock => self.lock,
            Right::Operate => self.operate,
            Right::Admin => self.admin,
        }
    }
}

/// Who sends a request, and from which address.
#[derive(Clone, Debug)]
pub struct Identity {
    known: Arc<Known>,
    address: Option<IpAddr>,
}

#[derive(Debug)]
struct Known {
    /// The name of the token, the person, or the address.
    name: String,
    rights: Rights,
    /// The stores that may be used; all of them if there is none.
    stores: Vec<String>,
    prefixes: Vec<String>,
    expires: Option<Timestamp>,
}

impl Identity {
    fn new(name: &str, rights: Rights, (stores, prefixes): (&[String], &[String])) -> Identity {
        let (name, stores, prefixes) = (name.to_owned(), stores.to_vec(), prefixes.to_vec());
        Identity::known(Known { name, rights, stores, prefixes, expires: None })
    }

    fn of_token(token: &TokenConfig, rights: Rights, expires: Option<Timestamp>) -> Identity {
        let (name, stores) = (token.name.clone(), token.stores.clone());
        let prefixes = token.prefixes.clone();
        Identity::known(Known { name, rights, stores, prefixes, expires })
    }

    fn known(known: Known) -> Identity {
        Identity { known: Arc::new(known), address: None }
    }

    /// Returns who acts, for the audit trail. The address is that of the connection: behind a
    /// proxy, the proxy's.
    pub(crate) fn operator(&self) -> Operator {
        let from = self.address.map(|address| address.to_string()).unwrap_or_default();
        Operator { who: self.name().to_owned(), from }
    }

    /// Checks that a store may be used.
    pub(crate) fn may_use(&self, store: &str) -> Result<(), Problem> {
        let stores = &self.known.stores;
        match stores.is_empty() || stores.iter().any(|known| known == store) {
            true => Ok(()),
            false => Err(Problem::outside_stores()),
        }
    }

    /// Returns the name, by which limits are counted and sessions are owned.
    pub fn name(&self) -> &str {
        &self.known.name
    }

    /// Checks that a right is given, whatever the name.
    ///
    /// # Errors
    /// It is not.
    pub fn may(&self, right: Right) -> Result<(), Problem> {
        if self.known.rights.has(right) { Ok(()) } else { Err(Problem::lacks_right(right)) }
    }

    /// Checks that a right is given for a lock name, or for all names with a prefix.
    ///
    /// # Errors
    /// It is not.
    pub fn may_on(&self, right: Right, name: &str) -> Result<(), Problem> {
        self.may(right)?;
        if self.covers(name) { Ok(()) } else { Err(Problem::outside_prefixes()) }
    }

    /// Returns whether all names that begin with this text are within the prefixes.
    pub fn covers(&self, name: &str) -> bool {
        let prefixes = &self.known.prefixes;
        prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Returns after how long the token expires; `None` if it does not.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        let left = self.known.expires?.duration_since(Timestamp::now());
        Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
    }
}

/// The other end of a connection.
#[derive(Clone)]
pub(crate) struct Caller {
    address: IpAddr,
    /// Who it is where no authentication is configured: its address, with all rights.
    identity: Identity,
}

impl Caller {
    pub(crate) fn new(address: IpAddr) -> Caller {
        let identity = Identity::new(&address.to_string(), Rights::ALL, (&[], &[]));
        Caller { address, identity }
    }
}

/// The digest of a token. It proves nothing: whether the server knows the token is asked anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

struct Token {
    digest: [u8; 32],
    identity: Identity,
}

struct Proxy {
    header: HeaderName,
    addresses: Vec<IpAddr>,
    users: Vec<Identity>,
}

/// Whom the server knows.
pub(crate) struct Access {
    tokens: Vec<Token>,
    proxy: Option<Proxy>,
    certificates: bool,
}

impl Access {
    pub(crate) fn of(config: &ServerConfig) -> Result<Access, ConfigError> {
        let tokens = config.tokens.iter().map(|token| {
            let of = format!("tokens.{}", token.name);
            let digest = digest_of_hex(&token.sha256).ok_or_else(|| {
                ConfigError::new(format_args!("{of}: `sha256` must be 64 hexadecimal digits"))
            })?;
            let (rights, expires) =
                (rights(&token.rights, &of)?, expiry(token.expires.as_deref(), &of)?);
            Ok(Token { digest, identity: Identity::of_token(token, rights, expires) })
        });
        let proxy = config.proxy.as_ref().map(|proxy| {
            let header = proxy.header.to_ascii_lowercase();
            let header = HeaderName::try_from(header)
                .map_err(|_| ConfigError::new("proxy.header is no header name"))?;
            if proxy.addresses.is_empty() {
                return Err(ConfigError::new("proxy.addresses must name the proxy"));
            }
            let users = proxy.users.iter().map(|user| {
                let rights = rights(&user.rights, &format!("proxy.users.{}", user.name))?;
                Ok(Identity::new(&user.name, rights, (&user.stores, &user.prefixes)))
            });
            let users = users.collect::<Result<_, ConfigError>>()?;
            Ok(Proxy { header, addresses: proxy.addresses.clone(), users })
        });
        Ok(Access {
            tokens: tokens.collect::<Result<_, ConfigError>>()?,
            proxy: proxy.transpose()?,
            certificates: config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
        })
    }

    /// Finds out who sends a request. A connection with client certificates has shown a good one.
    /// `login` is the token with which the browser has logged in.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
        login: Option<&TokenDigest>,
    ) -> Result<Identity, Problem> {
        let identity = self.find(headers, caller, login)?;
        Ok(Identity { address: Some(caller.address), ..identity })
    }

    fn find(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
        login: Option<&TokenDigest>,
    ) -> Result<Identity, Problem> {
        if let Some(proxy) = &self.proxy
            && headers.contains_key(&proxy.header)
        {
            return proxy.identify(headers, caller.address);
        }
        if let Some(value) = headers.get(AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|text| {
                let (scheme, token) = text.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
            });
            let known = token.and_then(|token| self.known(&TokenDigest::of(token)));
            return known.ok_or_else(Problem::unauthenticated);
        }
        if let Some(identity) = login.and_then(|digest| self.known(digest)) {
            return Ok(identity);
        }
        if self.certificates {
            return Ok(Identity::new("certificate", Rights::OF_CERTIFICATES, (&[], &[])));
        }
        if self.tokens.is_empty() && self.proxy.is_none() {
            return Ok(caller.identity.clone());
        }
        Err(Problem::unauthenticated())
    }

    /// Returns the headers that say who sends a request.
    pub(crate) fn proof(&self, headers: &HeaderMap) -> HeaderMap {
        let proxy = self.proxy.as_ref().map(|proxy| &proxy.header);
        let mut proof = HeaderMap::new();
        for name in proxy.into_iter().chain([&AUTHORIZATION]) {
            for value in headers.get_all(name) {
                proof.append(name.clone(), value.clone());
            }
        }
        proof
    }

    /// Returns whether any token would be accepted.
    pub(crate) fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Compares with every token, so that the time does not reveal which one it was.
    pub(crate) fn known(&self, digest: &TokenDigest) -> Option<Identity> {
        let mut found = None;
        for known in &self.tokens {
            if is_equal(&known.digest, &digest.0) {
                found = Some(known.identity.clone());
            }
        }
        found.filter(|identity| identity.expires_in().is_none_or(|left| !left.is_zero()))
    }
}

impl TokenDigest {
    /// Computes the digest of a token, whether the server knows it or not.
    pub fn of(token: &str) -> TokenDigest {
        TokenDigest(Sha256::digest(token.as_bytes()).into())
    }
}

impl Proxy {
    fn identify(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Identity, Problem> {
        let mut values = headers.get_all(&self.header).iter();
        let name = values.next().and_then(|value| value.to_str().ok());
        if values.next().is_some() || !self.addresses.contains(&peer) {
            return Err(Problem::unauthenticated());
        }
        let user = self.users.iter().find(|user| Some(user.name()) == name);
        user.cloned().ok_or_else(Problem::unauthenticated)
    }
}

fn is_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

fn digest_of_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn here() -> Caller {
        Caller::new(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn hex(token: &str) -> String {
        Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn access(expires: &str) -> Access {
        let text = format!(
            "[[server.tokens]]\nname = \"ci\"\nsha256 = \"{}\"\nrights = [\"view\", \"lock\"]\n\
             prefixes = [\"ci/\"]\nexpires = \"{expires}\"\n[server.proxy]\n\
             header = \"X-Forwarded-User\"\naddresses = [\"10.0.0.1\"]\n\
             users = [{{ name = \"ana\", rights = [\"admin\"] }}]\n",
            hex("s3cret")
        );
        ServerConfig::from_toml(&text).expect("good").access().expect("good")
    }

    fn with(name: &'static str, value: &'static str) -> HeaderMap {
        [(HeaderName::from_static(name), value.parse().expect("a value"))].into_iter().collect()
    }

    #[test]
    fn a_token_has_its_rights_on_its_names_until_it_expires() {
        let good = with("authorization", "bearer s3cret");
        let identity =
            access("2999-01-01T00:00:00Z").identify(&good, &here(), None).expect("known");
        assert_eq!(identity.name(), "ci");
        assert!(identity.may_on(Right::Lock, "ci/build").is_ok());
        assert!(identity.may_on(Right::Lock, "prod").is_err());
        assert!(identity.may(Right::Operate).is_err());
        assert!(identity.expires_in().is_some());
        assert!(access("2001-01-01T00:00:00Z").identify(&good, &here(), None).is_err());
        for value in ["Bearer other", "Basic s3cret", "s3cret", "Bearer", ""] {
            let headers = with("authorization", value);
            assert!(
                access("2999-01-01T00:00:00Z").identify(&headers, &here(), None).is_err(),
                "{value}"
            );
        }
        assert!(access("2999-01-01T00:00:00Z").identify(&HeaderMap::new(), &here(), None).is_err());
    }

    #[test]
    fn a_person_is_known_by_the_header_of_the_proxy_only() {
        let access = access("2999-01-01T00:00:00Z");
        let proxy = Caller::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        let ana = with("x-forwarded-user", "ana");
        let known = access.identify(&ana, &proxy, None).expect("known");
        assert!(known.may_on(Right::Admin, "any").is_ok());
        assert!(access.identify(&ana, &here(), None).is_err(), "from elsewhere");
        assert!(access.identify(&with("x-forwarded-user", "eve"), &proxy, None).is_err());
        let mut twice = ana;
        twice.append("x-forwarded-user", "eve".parse().expect("a value"));
        assert!(access.identify(&twice, &proxy, None).is_err());
    }

    #[test]
    fn a_login_lasts_as_long_as_its_token() {
        let (none, digest) = (HeaderMap::new(), TokenDigest::of("s3cret"));
        let good = access("2999-01-01T00:00:00Z");
        let identity = good.identify(&none, &here(), Some(&digest)).expect("known");
        assert_eq!(identity.name(), "ci");
        let other = TokenDigest::of("other");
        assert!(good.identify(&none, &here(), Some(&other)).is_err());
        let over = access("2001-01-01T00:00:00Z");
        assert!(over.identify(&none, &here(), Some(&digest)).is_err(), "it has expired");
        let wrong = with("authorization", "Bearer other");
        assert!(good.identify(&wrong, &here(), Some(&digest)).is_err(), "the header comes first");
    }
}
