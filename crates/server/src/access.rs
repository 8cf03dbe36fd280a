//! Who sends a request: by its headers, its connection and its login.
//!
//! - A1: a token is compared by its digest, in constant time; the token itself is never kept.
//! - A2: without any authentication configured, the server listens on loopback or on its socket
//!   only, and every client that reaches it may do everything.
//! - A4: a client that proves more than one thing, such as a token and a certificate, has the
//!   rights that each of them gives. A certificate that no entry names identifies nobody: it opens
//!   the connection, and no more.
//! - A3: who has logged in with a token is that token, as long as the settings have it: rights,
//!   expiry and removal take effect at once.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::address::{ClientAddress, PeerAddress};
use crate::certificate::Certificate;
use crate::config::{CertificateConfig, ConfigError, IdentityEntry, ServerConfig};
use crate::identity::Identity;
use crate::problem::Problem;
use crate::proxy::Proxy;

/// The other end of a connection, and what the connection proves about it.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) peer: PeerAddress,
    certificate: Option<Arc<Certificate>>,
    /// Who it is where no authentication is configured: its address or user, with all rights.
    identity: Identity,
}

impl Caller {
    pub(crate) fn new(peer: PeerAddress) -> Caller {
        Caller { peer, certificate: None, identity: Identity::unlimited(peer.to_string()) }
    }

    /// Adds the certificate of the client, whose signature TLS has checked.
    pub(crate) fn with_certificate(mut self, certificate: Option<Certificate>) -> Caller {
        self.certificate = certificate.map(Arc::new);
        self
    }
}

/// The digest of a token. It proves nothing: whether the server knows the token is asked anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

struct Token {
    digest: [u8; 32],
    identity: Identity,
}

/// Whom the server knows.
pub(crate) struct Access {
    tokens: Vec<Token>,
    proxy: Option<Proxy>,
    certificates: Vec<(CertificateConfig, Identity)>,
    socket_users: Vec<(u32, Identity)>,
    /// Nobody can prove anything: every client of an address may do everything.
    is_open: bool,
    /// The mode of the socket alone says who may do everything.
    socket_is_open: bool,
}

impl Access {
    pub(crate) fn of(config: &ServerConfig) -> Result<Access, ConfigError> {
        let mut tokens = Vec::with_capacity(config.tokens.len());
        for token in &config.tokens {
            let entry = IdentityEntry::of_token(token);
            let digest = digest_of_hex(&token.sha256).ok_or_else(|| {
                ConfigError::new(format_args!("{entry}: `sha256` must be 64 hexadecimal digits"))
            })?;
            if TokenDigest(digest) == TokenDigest::of("") {
                return Err(ConfigError::new(format_args!(
                    "{entry}: `sha256` is the digest of no text at all: was the variable empty?"
                )));
            }
            tokens.push(Token { digest, identity: Identity::of_entry(entry)? });
        }
        let mut certificates = Vec::with_capacity(config.certificates.len());
        for certificate in &config.certificates {
            let entry = IdentityEntry::of_certificate(certificate);
            if certificate.subject.is_none() && certificate.san.is_none() {
                return Err(ConfigError::new(format_args!(
                    "{entry}: needs `subject`, such as \"CN=build-7,O=Example\", or `san`, such as \
                     \"DNS:build-7.example\""
                )));
            }
            certificates.push((certificate.clone(), Identity::of_entry(entry)?));
        }
        let mut socket_users = Vec::new();
        for user in config.socket.iter().flat_map(|socket| &socket.users) {
            socket_users.push((user.uid, Identity::of_entry(IdentityEntry::of_socket_user(user))?));
        }
        let proxy = config.proxy.as_ref().map(Proxy::of).transpose()?;
        let is_open = tokens.is_empty() && certificates.is_empty() && proxy.is_none();
        let socket_is_open = config.socket.is_some() && socket_users.is_empty();
        Ok(Access { tokens, proxy, certificates, socket_users, is_open, socket_is_open })
    }

    /// Finds out who sends a request. `login` is the token with which the browser has logged in.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
        login: Option<&TokenDigest>,
    ) -> Result<Identity, Problem> {
        let identity = self.find(headers, caller, login)?;
        Ok(identity.at(self.address_of(headers, caller.peer)))
    }

    /// Finds the address of the client. A proxy of the settings names it; nobody else can.
    pub(crate) fn address_of(&self, headers: &HeaderMap, peer: PeerAddress) -> ClientAddress {
        let Some(proxy) = self.proxy.as_ref().filter(|proxy| proxy.has_address(peer)) else {
            return ClientAddress::Direct(peer);
        };
        match proxy.forwarded_for(headers, peer) {
            Some(client) => ClientAddress::Forwarded(client),
            None => ClientAddress::Proxy(peer),
        }
    }

    fn find(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
        login: Option<&TokenDigest>,
    ) -> Result<Identity, Problem> {
        let by_request = self.by_request(headers, caller, login)?;
        let by_connection = self.by_connection(caller);
        match (by_request, by_connection) {
            (Some(one), Some(other)) => Ok(one.and(&other)),
            (Some(identity), None) | (None, Some(identity)) => Ok(identity),
            (None, None) if self.admits_anybody_at(caller.peer) => Ok(caller.identity.clone()),
            (None, None) => Err(Problem::unauthenticated()),
        }
    }

    /// Finds out whom the request itself names; `None` if it names nobody.
    fn by_request(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
        login: Option<&TokenDigest>,
    ) -> Result<Option<Identity>, Problem> {
        let person = match &self.proxy {
            Some(proxy) => proxy.identify(headers, caller.peer)?,
            None => None,
        };
        let token = self.by_token(headers)?;
        match (person, token) {
            (Some(person), Some(token)) => Ok(Some(person.and(&token))),
            (Some(identity), None) | (None, Some(identity)) => Ok(Some(identity)),
            (None, None) => Ok(login.and_then(|digest| self.known(digest))),
        }
    }

    /// Finds out whom the header `Authorization` names; `None` if it is not there.
    fn by_token(&self, headers: &HeaderMap) -> Result<Option<Identity>, Problem> {
        if let Some(value) = headers.get(AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|text| {
                let (scheme, token) = text.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
            });
            let known = token.and_then(|token| self.known(&TokenDigest::of(token)));
            return known.ok_or_else(Problem::unauthenticated).map(Some);
        }
        Ok(None)
    }

    /// Finds out whom the connection itself names. What a proxy sends is not the proxy's own.
    fn by_connection(&self, caller: &Caller) -> Option<Identity> {
        match caller.peer {
            PeerAddress::Process { .. } if self.is_proxy(caller.peer) => None,
            PeerAddress::Process { uid } => {
                let known = self.socket_users.iter().find(|(known, _)| *known == uid);
                known.map(|(_, identity)| identity.clone())
            }
            PeerAddress::Network { .. } => {
                caller.certificate.as_ref().and_then(|shown| self.owner_of(shown))
            }
        }
    }

    fn is_proxy(&self, peer: PeerAddress) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| proxy.is_at(peer))
    }

    /// Returns the header in which a proxy names people.
    pub(crate) fn proxy_header(&self) -> Option<&HeaderName> {
        self.proxy.as_ref().and_then(|proxy| proxy.header.as_ref())
    }

    /// Returns whether connections are counted by the other end's address: a proxy has those of
    /// many clients.
    pub(crate) fn counts_connections_of(&self, peer: PeerAddress) -> bool {
        self.proxy.as_ref().is_none_or(|proxy| !proxy.has_address(peer))
    }

    /// Returns whether a client that proves nothing may do everything.
    fn admits_anybody_at(&self, peer: PeerAddress) -> bool {
        match peer {
            PeerAddress::Network { .. } => self.is_open,
            PeerAddress::Process { .. } => self.socket_is_open && !self.is_proxy(peer),
        }
    }

    /// Finds out whose certificate it is. If several entries name it, all of them must agree.
    fn owner_of(&self, shown: &Certificate) -> Option<Identity> {
        let entries = self.certificates.iter().filter(|(entry, _)| shown.is_meant_by(entry));
        let identities = entries.map(|(_, identity)| identity.clone());
        let owner = identities.reduce(|one, other| one.and(&other))?;
        Some(owner.until(shown.expires)).filter(Identity::is_current)
    }

    /// Returns whether some client that proves nothing may do everything.
    pub(crate) fn admits_anybody(&self) -> bool {
        self.is_open || self.socket_is_open
    }

    /// Returns the headers that say who sends a request.
    pub(crate) fn proof(&self, headers: &HeaderMap) -> HeaderMap {
        let proxy = self.proxy_header();
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
        found.filter(Identity::is_current)
    }
}

impl TokenDigest {
    /// Computes the digest of a token, whether the server knows it or not.
    pub fn of(token: &str) -> TokenDigest {
        TokenDigest(Sha256::digest(token.as_bytes()).into())
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
    use std::net::IpAddr;

    use super::*;
    use crate::rights::Right;

    fn here() -> Caller {
        Caller::new(PeerAddress::Network {
            ip: IpAddr::from([127, 0, 0, 1]),
            is_this_machine: true,
        })
    }

    fn elsewhere(last: u8) -> Caller {
        Caller::new(PeerAddress::Network {
            ip: IpAddr::from([10, 0, 0, last]),
            is_this_machine: false,
        })
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
        Access::of(&ServerConfig::from_toml(&text).expect("good")).expect("good")
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
        let proxy = elsewhere(1);
        let ana = with("x-forwarded-user", "ana");
        let known = access.identify(&ana, &proxy, None).expect("known");
        assert!(known.may_on(Right::Admin, "any").is_ok());
        assert!(access.identify(&ana, &elsewhere(2), None).is_err(), "from elsewhere");
        let ip = IpAddr::from([10, 0, 0, 1]);
        let local = Caller::new(PeerAddress::Network { ip, is_this_machine: true });
        assert!(access.identify(&ana, &local, None).is_err(), "a process of this machine");
        assert!(access.identify(&with("x-forwarded-user", "eve"), &proxy, None).is_err());
        let mut twice = ana;
        twice.append("x-forwarded-user", "eve".parse().expect("a value"));
        assert!(access.identify(&twice, &proxy, None).is_err());
    }

    #[test]
    fn a_person_with_a_token_may_what_both_may() {
        let access = access("2999-01-01T00:00:00Z");
        let mut both = with("x-forwarded-user", "ana");
        both.extend(with("authorization", "Bearer s3cret"));
        let known = access.identify(&both, &elsewhere(1), None).expect("known");
        assert_eq!(known.name(), "ana (ci)");
        assert!(known.may(Right::Admin).is_err() && known.may_on(Right::Lock, "ci/a").is_ok());
        both.extend(with("authorization", "Bearer other"));
        assert!(access.identify(&both, &elsewhere(1), None).is_err());
    }

    #[test]
    fn over_the_socket_the_system_says_who_asks() {
        let users = "[server.proxy]\nheader = \"X-Forwarded-User\"\nuids = [33]\n\
                     users = [{ name = \"ana\", rights = [\"view\"] }]\n[server.socket]\n\
                     path = \"/run/s\"\n";
        let entry = "users = [{ name = \"deploy\", uid = 7, rights = [\"lock\"] }]\n";
        let access =
            |text: &str| Access::of(&ServerConfig::from_toml(text).expect("good")).expect("good");
        let by_mode = access(users);
        let by_user = access(&format!("{users}{entry}"));
        let process = |uid| Caller::new(PeerAddress::Process { uid });
        let none = HeaderMap::new();
        let ana = with("x-forwarded-user", "ana");
        let known = |access: &Access, headers: &HeaderMap, uid| {
            access.identify(headers, &process(uid), None).ok()
        };
        let deploy = known(&by_user, &none, 7).expect("an entry");
        assert!(deploy.name() == "deploy" && deploy.may(Right::Lock).is_ok());
        assert!(deploy.may(Right::View).is_err() && deploy.operator().from == "uid:7");
        assert!(known(&by_user, &none, 8).is_none(), "no entry");
        let by_mode_only = known(&by_mode, &none, 8).expect("the mode lets it in");
        assert!(by_mode_only.name() == "uid:8" && by_mode_only.may(Right::Admin).is_ok());
        for access in [&by_mode, &by_user] {
            let person = known(access, &ana, 33).expect("the proxy");
            assert!(person.name() == "ana" && person.may(Right::Admin).is_err());
            assert!(known(access, &none, 33).is_none(), "the proxy has no rights of its own");
            assert!(known(access, &ana, 7).is_none(), "no proxy");
        }
    }

    #[test]
    fn a_login_lasts_as_long_as_its_token() {
        let none = HeaderMap::new();
        let digest = TokenDigest::of("s3cret");
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
