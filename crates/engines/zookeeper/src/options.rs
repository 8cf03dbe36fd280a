//! What can be set for a ZooKeeper engine, in code or in a URL.
//!
//! `zk://[user:password@]host[:port][,host[:port]…][/chroot]`. No password is ever shown: not by
//! `Debug`, not in a message. There is no TLS: the client crate's brings a C library's build.

use std::path::Path;
use std::time::Duration;

use holdline_core::LockError;
use holdline_net::secret::Secret;
use holdline_net::url::{Reader, Server};

use crate::error::ENGINE;

const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);
const MOST_WAITERS: usize = 100_000;
const LONGEST_CHROOT: usize = 512;
/// The client crate's builds a C library, and takes no connection of ours.
const NO_TLS: &str = "which this engine does not speak: write `zk://`, and let it go over a tunnel";
const DEFAULT_CHROOT: &str = "/holdline";
const URL: Reader = Reader { engine: ENGINE, port: 2181 };
const PARAMETERS: [&str; 8] = [
    "acl",
    "command_timeout_ms",
    "connect_timeout_ms",
    "family",
    "max_waiters",
    "password_env",
    "password_file",
    "user",
];

/// Whose locks ours share names with: none sees the nodes of another family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Apache Curator's `InterProcessMutex`.
    Curator,
    /// Apache Curator's `InterProcessReadWriteLock`.
    CuratorReadWrite,
    /// kazoo's `Lock`, `WriteLock` and `ReadLock`.
    Kazoo,
}

/// Who we are, and who else may use what we make.
#[derive(Clone, Debug, Default)]
struct Access {
    user: Option<String>,
    password: Secret,
    /// Everybody may, or only who we are; by itself as there is a user.
    open: Option<bool>,
}

/// The settings of a ZooKeeper engine.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    members: Vec<Server>,
    chroot: String,
    access: Access,
    family: Family,
    connect_timeout: Duration,
    command_timeout: Duration,
    max_waiters: usize,
}

impl Default for ZooKeeperOptions {
    fn default() -> ZooKeeperOptions {
        ZooKeeperOptions {
            members: vec![URL.here()],
            chroot: DEFAULT_CHROOT.to_owned(),
            access: Access::default(),
            family: Family::Curator,
            connect_timeout: Duration::from_secs(3),
            command_timeout: Duration::from_secs(3),
            max_waiters: 10_000,
        }
    }
}

impl ZooKeeperOptions {
    /// Reads the settings from a URL, with the parameters `user`, `password_file`, `password_env`
    /// (the name of a variable), `acl` (`creator` or `open`), `family` (`curator`,
    /// `curator-readwrite` or `kazoo`), `connect_timeout_ms`, `command_timeout_ms` and
    /// `max_waiters`.
    ///
    /// # Errors
    /// `Invalid` tells what is wrong with the URL, and never shows its password; an unknown
    /// parameter is told with the nearest known spelling. No connection was made.
    pub fn from_url(url: &str) -> Result<ZooKeeperOptions, LockError> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        match scheme {
            "zk" => {}
            "zks" => return Err(URL.bad(format_args!("asks for TLS, {NO_TLS}"))),
            _ => return Err(URL.bad("must begin with `zk://`")),
        }
        let mut options = ZooKeeperOptions::default();
        let (credentials, parameters) = URL.split(rest)?;
        options.access.user = credentials.user;
        options.access.password = Secret::new(credentials.password);
        let place = credentials.place;
        let (hosts, chroot) = place.split_at(place.find('/').unwrap_or(place.len()));
        options.members = URL.servers(hosts)?;
        if !chroot.is_empty() {
            options.chroot = URL.text(chroot)?;
        }
        for (key, value) in parameters {
            options.set(&key, value)?;
        }
        options.validate()?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), LockError> {
        match key {
            "acl" => {
                self.access.open =
                    Some(URL.one_of(key, &value, [("creator", false), ("open", true)])?);
            }
            "command_timeout_ms" => self.command_timeout = URL.millis(key, &value)?,
            "connect_timeout_ms" => self.connect_timeout = URL.millis(key, &value)?,
            "family" => {
                let known = [
                    ("curator", Family::Curator),
                    ("curator-readwrite", Family::CuratorReadWrite),
                    ("kazoo", Family::Kazoo),
                ];
                self.family = URL.one_of(key, &value, known)?;
            }
            "max_waiters" => self.max_waiters = URL.number(key, &value)?,
            "password_env" => self.access.password = Secret::from_variable(ENGINE, &value)?,
            "password_file" => self.access.password = Secret::from_file(ENGINE, Path::new(&value))?,
            "user" => self.access.user = Some(value),
            "ca" | "cert" | "key" => {
                return Err(URL.bad(format_args!("has `{key}`, which is for TLS, {NO_TLS}")));
            }
            unknown => return Err(URL.unknown(unknown, PARAMETERS, &PARAMETERS)),
        }
        Ok(())
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the setting that is wrong and what it may be.
    pub fn validate(&self) -> Result<(), LockError> {
        for (field, value) in
            [("connect_timeout", self.connect_timeout), ("command_timeout", self.command_timeout)]
        {
            if !TIMEOUTS.contains(&value) {
                let message = format!("must be from 10ms to 60s, not {value:?}");
                return Err(LockError::invalid(ENGINE, field, message));
            }
        }
        if !(1..=MOST_WAITERS).contains(&self.max_waiters) {
            let message = format!("must be from 1 to {MOST_WAITERS}, not {}", self.max_waiters);
            return Err(LockError::invalid(ENGINE, "max_waiters", message));
        }
        let parts = self.chroot.trim_end_matches('/').split('/').skip(1);
        let good = self.chroot == "/"
            || (self.chroot.starts_with('/')
                && parts.into_iter().all(|part| !matches!(part, "" | "." | ".."))
                && !self.chroot.chars().any(char::is_control));
        if !good || self.chroot.len() > LONGEST_CHROOT {
            let message = format!(
                "must be a path of {LONGEST_CHROOT} bytes at most, such as `{DEFAULT_CHROOT}`"
            );
            return Err(LockError::invalid(ENGINE, "chroot", message));
        }
        match (&self.access.user, self.access.password.expose(), self.access.open) {
            (Some(_), None, _) => {
                let message =
                    "needs a password: in the URL, by `password_file`, `password_env`, or in code";
                Err(LockError::invalid(ENGINE, "user", message))
            }
            (None, Some(_), _) => Err(LockError::invalid(
                ENGINE,
                "user",
                "is missing: ZooKeeper knows no password alone",
            )),
            (None, None, Some(false)) => Err(LockError::invalid(
                ENGINE,
                "acl",
                "`creator` needs user and password: without them nobody is the creator",
            )),
            _ => Ok(()),
        }
    }

    /// Sets user and password, which then need not stand in a URL.
    #[must_use]
    pub fn with_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> ZooKeeperOptions {
        self.access.user = Some(user.into());
        self.access.password = Secret::new(Some(password.into()));
        self
    }

    /// Sets the node below which all others lie: `/holdline` unless set.
    #[must_use]
    pub fn with_chroot(mut self, chroot: impl Into<String>) -> ZooKeeperOptions {
        self.chroot = chroot.into();
        self
    }

    /// Sets whose locks ours share names with; those of Curator's mutex unless set.
    #[must_use]
    pub fn with_family(mut self, family: Family) -> ZooKeeperOptions {
        self.family = family;
        self
    }

    /// Lets everybody do everything with the nodes that are made, or only who knows user and
    /// password: that is so where they are set, unless it is set here.
    #[must_use]
    pub fn with_open_acl(mut self, open: bool) -> ZooKeeperOptions {
        self.access.open = Some(open);
        self
    }

    /// Sets how long making a connection to one member may take; 3 s unless set.
    #[must_use]
    pub fn with_connect_timeout(mut self, limit: Duration) -> ZooKeeperOptions {
        self.connect_timeout = limit;
        self
    }

    /// Sets how long one request may take; 3 s unless set.
    #[must_use]
    pub fn with_command_timeout(mut self, limit: Duration) -> ZooKeeperOptions {
        self.command_timeout = limit;
        self
    }

    /// Sets how many contenders may queue for one name; 10,000 unless set.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> ZooKeeperOptions {
        self.max_waiters = max_waiters;
        self
    }
}

impl ZooKeeperOptions {
    pub(crate) fn members(&self) -> &[Server] {
        &self.members
    }

    /// The members, as the client crate takes them.
    pub(crate) fn hosts(&self) -> String {
        self.members.iter().map(Server::to_string).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// What `digest` is told: user and password.
    pub(crate) fn digest(&self) -> Option<String> {
        Some(format!("{}:{}", self.access.user.as_ref()?, self.access.password.expose()?))
    }

    /// Tells whether everybody may use the nodes that are made.
    pub(crate) fn is_open(&self) -> bool {
        self.access.open.unwrap_or(self.access.user.is_none())
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    pub(crate) fn max_waiters(&self) -> usize {
        self.max_waiters
    }

    /// Tells whether the password would travel a network where others can read it.
    pub(crate) fn exposes_password(&self) -> bool {
        let here = |member: &Server| {
            let parsed = member.host.parse::<std::net::IpAddr>();
            member.host == "localhost" || parsed.is_ok_and(|ip| ip.is_loopback())
        };
        self.access.password.expose().is_some() && !self.members.iter().all(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_members_root_and_user() {
        let url = "zk://ann:s3%3Acret@a,b:2182,[::1]:2183/apps/locks?max_waiters=7\
                   &command_timeout_ms=900&family=curator-readwrite&acl=open";
        let options = ZooKeeperOptions::from_url(url).expect("good");
        assert_eq!(options.hosts(), "a:2181,b:2182,[::1]:2183");
        assert_eq!(options.chroot(), "/apps/locks");
        assert_eq!(options.digest().as_deref(), Some("ann:s3:cret"));
        assert_eq!((options.family(), options.is_open()), (Family::CuratorReadWrite, true));
        assert_eq!(options.command_timeout(), Duration::from_millis(900));
        assert_eq!(options.max_waiters(), 7);
        assert!(options.exposes_password());
        assert!(!format!("{options:?}").contains("cret"));
        let plain = ZooKeeperOptions::from_url("zk://").expect("good");
        assert_eq!((plain.hosts().as_str(), plain.chroot()), ("127.0.0.1:2181", "/holdline"));
        assert!(plain.is_open() && plain.family() == Family::Curator && !plain.exposes_password());
        let root = ZooKeeperOptions::from_url("zk://a/").expect("good");
        assert_eq!(root.chroot(), "/");
        let closed = ZooKeeperOptions::from_url("zk://ann:pw@a").expect("good");
        assert!(!closed.is_open());
    }

    #[test]
    fn what_is_wrong_is_told_and_no_password() {
        for (url, says) in [
            ("zookeeper://a", "must begin with `zk://`"),
            ("zks://a", "over a tunnel"),
            ("zk://a?ca=/x", "over a tunnel"),
            ("zk://a:b", "port"),
            ("zk://a:99999", "port"),
            ("zk://a,,b", "without a host"),
            ("zk://::1", "brackets"),
            ("zk://a/x/../y", "path"),
            ("zk://a/x//y", "path"),
            ("zk://a?chroot=/x", "unknown parameter"),
            ("zk://a?famly=kazoo", "did you mean `family`?"),
            ("zk://a?family=semaphore", "`curator` or `curator-readwrite` or `kazoo`"),
            ("zk://a?acl=world", "`creator` or `open`"),
            ("zk://a?acl=creator", "needs user and password"),
            ("zk://ann@a", "needs a password"),
            ("zk://:s3cret@a", "no password alone"),
            ("zk://a?max_waiters=0", "from 1"),
            ("zk://a?max_waiters=1&max_waiters=2", "twice"),
            ("zk://a?command_timeout_ms=s3cret", "whole number"),
            ("zk://ann:s3?cret@a", "%3F"),
            ("zk://a?user=ann&password_file=/no/where", "No such file"),
            ("zk://a?password_env=HOLDLINE_NO_SUCH_VARIABLE", "not set"),
        ] {
            let error = ZooKeeperOptions::from_url(url).expect_err(url).to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{url}: {error}");
        }
    }
}
