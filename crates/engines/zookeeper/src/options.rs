//! The settings of a ZooKeeper engine, in code or in a URL.
//!
//! `zk://[user:password@]host[:port][,host[:port]…][/chroot]`, `zks://` for TLS. No password is
//! ever shown: not by `Debug`, not in a message.

use holdline_core::{LockError, accept_url};
use holdline_net::settings::ClusterSettings;
use holdline_net::tls::TlsFiles;
use holdline_net::url::Reader;

use crate::error::ENGINE;

const LONGEST_CHROOT: usize = 512;
const DEFAULT_CHROOT: &str = "/holdline";
const URL: Reader = Reader { engine: ENGINE, port: 2181 };
/// The default port with TLS: that of ZooKeeper's documentation.
const TLS_PORT: u16 = 2281;
const PARAMETERS: [&str; 5] = ["acl", "ca", "cert", "family", "key"];

/// Which other library shares names with Holdline. No family sees the nodes of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Apache Curator's `InterProcessMutex`.
    Curator,
    /// Apache Curator's `InterProcessReadWriteLock`.
    CuratorReadWrite,
    /// kazoo's `Lock`, `WriteLock` and `ReadLock`.
    Kazoo,
}

/// The settings of a ZooKeeper engine.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    pub(crate) cluster: ClusterSettings,
    chroot: String,
    /// Whether every client may use the nodes of the locks. The default: only if there is no user.
    open: Option<bool>,
    family: Family,
    tls: Option<TlsFiles>,
}

impl Default for ZooKeeperOptions {
    fn default() -> ZooKeeperOptions {
        ZooKeeperOptions {
            cluster: ClusterSettings::new(URL),
            chroot: DEFAULT_CHROOT.to_owned(),
            open: None,
            family: Family::Curator,
            tls: None,
        }
    }
}

impl ZooKeeperOptions {
    /// Reads the settings from a URL, with the parameters `user`, `password_file`, `password_env`
    /// (the name of a variable), `acl` (`creator` or `open`), `family` (`curator`,
    /// `curator-readwrite` or `kazoo`), `connect_timeout_ms`, `command_timeout_ms`, `max_waiters`,
    /// and for TLS `ca`, `cert` and `key`.
    ///
    /// # Errors
    /// `Invalid` names what is wrong with the URL, and never shows its password. For an unknown
    /// parameter it suggests the nearest known one. No connection was made.
    pub fn from_url(url: &str) -> Result<ZooKeeperOptions, LockError> {
        let url = &*accept_url(url).map_err(|why| URL.bad(why))?;
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let tls = match scheme {
            "zk" => None,
            "zks" => Some(TlsFiles::default()),
            _ => return Err(URL.bad("must begin with `zk://` or `zks://`")),
        };
        let port = if tls.is_some() { TLS_PORT } else { URL.port };
        let mut options = ZooKeeperOptions { tls, ..ZooKeeperOptions::default() };
        let (place, parameters) = options.cluster.read(URL, rest)?;
        let (hosts, chroot) = place.split_at(place.find('/').unwrap_or(place.len()));
        options.cluster.members = Reader { port, ..URL }.servers(hosts)?;
        if !chroot.is_empty() {
            options = options.with_chroot(URL.text(chroot)?);
        }
        for (key, value) in parameters {
            options.set(&key, &value)?;
        }
        options.validate()?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), LockError> {
        match key {
            "acl" => {
                self.open = Some(URL.one_of(key, value, [("creator", false), ("open", true)])?);
            }
            "family" => {
                let known = [
                    ("curator", Family::Curator),
                    ("curator-readwrite", Family::CuratorReadWrite),
                    ("kazoo", Family::Kazoo),
                ];
                self.family = URL.one_of(key, value, known)?;
            }
            "ca" | "cert" | "key" => match &mut self.tls {
                Some(files) => files.set(key, value),
                None => {
                    return Err(
                        URL.bad(format_args!("has `{key}`, which needs TLS: write `zks://`"))
                    );
                }
            },
            common => self.cluster.set(URL, &PARAMETERS, common, value)?,
        }
        Ok(())
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the setting and its limits.
    pub fn validate(&self) -> Result<(), LockError> {
        self.cluster.validate(ENGINE)?;
        let parts = self.chroot.split('/').skip(1);
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
        if self.cluster.user.is_none() && self.open == Some(false) {
            let message = "`creator` needs user and password: without them there is no creator";
            return Err(LockError::invalid(ENGINE, "acl", message));
        }
        self.tls.as_ref().map_or(Ok(()), |files| files.validate(URL))
    }

    /// Sets the root of all nodes; the default is `/holdline`. A slash at its end does not make
    /// another root.
    #[must_use]
    pub fn with_chroot(mut self, chroot: impl Into<String>) -> ZooKeeperOptions {
        self.chroot = chroot.into();
        let length = self.chroot.trim_end_matches('/').len();
        self.chroot.truncate(length.max(1));
        self
    }

    /// Sets the library that shares names with Holdline; the default is Curator's mutex.
    #[must_use]
    pub fn with_family(mut self, family: Family) -> ZooKeeperOptions {
        self.family = family;
        self
    }

    /// Gives every client all rights on the nodes of the locks, or only clients with this user and
    /// password. The default is the latter if a user is set.
    #[must_use]
    pub fn with_open_acl(mut self, open: bool) -> ZooKeeperOptions {
        self.open = Some(open);
        self
    }
}

holdline_net::with_cluster_settings!(ZooKeeperOptions);

impl ZooKeeperOptions {
    /// Returns the files of TLS; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// Returns whether the password would be sent to another machine in clear text.
    pub(crate) fn exposes_password(&self) -> bool {
        self.tls.is_none() && self.cluster.needs_tls()
    }

    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Returns user and password in the syntax of the scheme `digest`.
    pub(crate) async fn digest(&self) -> Option<String> {
        self.cluster.credentials().await.map(|(user, password)| format!("{user}:{password}"))
    }

    /// Returns whether every client may use the nodes of the locks.
    pub(crate) fn is_open(&self) -> bool {
        self.open.unwrap_or(self.cluster.user.is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hosts(options: &ZooKeeperOptions) -> String {
        let hosts: Vec<String> = options.cluster.members.iter().map(ToString::to_string).collect();
        hosts.join(",")
    }

    #[test]
    fn a_url_names_members_root_and_user() {
        let url = "zk://ann:s3%3Acret@a,b:2182,[::1]:2183/apps/locks?max_waiters=7\
                   &command_timeout_ms=900&family=curator-readwrite&acl=open";
        let options = ZooKeeperOptions::from_url(url).expect("good");
        assert_eq!(hosts(&options), "a:2181,b:2182,[::1]:2183");
        assert_eq!(options.chroot(), "/apps/locks");
        assert_eq!(options.cluster.user.as_deref(), Some("ann"));
        assert_eq!(options.cluster.password.last().as_deref(), Some("s3:cret"));
        assert_eq!((options.family(), options.is_open()), (Family::CuratorReadWrite, true));
        assert_eq!(options.command_timeout(), Duration::from_millis(900));
        assert_eq!(options.max_waiters(), 7);
        assert!(options.exposes_password());
        assert!(!format!("{options:?}").contains("cret"));
        let plain = ZooKeeperOptions::from_url("zk://").expect("good");
        assert_eq!((hosts(&plain).as_str(), plain.chroot()), ("127.0.0.1:2181", "/holdline"));
        assert!(plain.is_open() && plain.family() == Family::Curator && !plain.exposes_password());
        for url in ["zk://a/apps/locks/", "zk://a/apps/locks", "ZK://a/apps/locks//"] {
            assert_eq!(ZooKeeperOptions::from_url(url).expect(url).chroot(), "/apps/locks");
        }
        let root = ZooKeeperOptions::from_url("zk://a/").expect("good");
        assert_eq!(root.chroot(), "/");
        let closed = ZooKeeperOptions::from_url("zk://ann:pw@a").expect("good");
        assert!(!closed.is_open());
        let secure = ZooKeeperOptions::from_url("zks://ann:pw@a,b:7?ca=/ca.crt").expect("good");
        assert_eq!(hosts(&secure), "a:2281,b:7");
        assert!(secure.tls().is_some_and(|files| files.ca.is_some()) && !secure.exposes_password());
    }

    #[test]
    fn errors_name_the_parameter_and_show_no_password() {
        for (url, says) in [
            ("zookeeper://a", "must begin with `zk://` or `zks://`"),
            ("zks://a?cert=/x", "both `cert` and `key`"),
            ("zk://a?ca=/x", "write `zks://`"),
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
