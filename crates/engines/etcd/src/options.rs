//! The settings of an etcd engine, in code or in a URL.
//!
//! `etcd://[user[:password]@]host[:port][,host[:port]…]`, `etcds://` for TLS. No password is ever
//! shown: not by `Debug`, not in a message.

use std::path::Path;

use holdline_core::{LockError, accept_url};
use holdline_net::files::read_pem;
use holdline_net::settings::ClusterSettings;
use holdline_net::tls::TlsFiles;
use holdline_net::url::{Reader, Server};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::error::ENGINE;

const LONGEST_PREFIX: usize = 256;
/// The certificate authorities that the machine trusts, on Debian and most other systems.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const URL: Reader = Reader { engine: ENGINE, port: 2379 };
const PARAMETERS: [&str; 4] = ["ca", "cert", "key", "prefix"];

/// The settings of an etcd engine.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    pub(crate) cluster: ClusterSettings,
    prefix: String,
    tls: Option<TlsFiles>,
}

impl Default for EtcdOptions {
    fn default() -> EtcdOptions {
        EtcdOptions {
            cluster: ClusterSettings::new(URL),
            prefix: "holdline/".to_owned(),
            tls: None,
        }
    }
}

impl EtcdOptions {
    /// Reads the settings from a URL, with the parameters `prefix`, `user`, `password_file`,
    /// `password_env` (the name of a variable), `connect_timeout_ms`, `command_timeout_ms`,
    /// `max_waiters`, and for TLS `ca`, `cert` and `key`.
    ///
    /// # Errors
    /// `Invalid` names what is wrong with the URL, and never shows its password. For an unknown
    /// parameter it suggests the nearest known one. No connection was made.
    pub fn from_url(url: &str) -> Result<EtcdOptions, LockError> {
        let url = &*accept_url(url).map_err(|why| URL.bad(why))?;
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let tls = match scheme {
            "etcd" => None,
            "etcds" => Some(TlsFiles::default()),
            _ => return Err(URL.bad("must begin with `etcd://` or `etcds://`")),
        };
        let mut options = EtcdOptions { tls, ..EtcdOptions::default() };
        let (hosts, parameters) = options.cluster.read(URL, rest)?;
        options.cluster.members = members(hosts)?;
        for (key, value) in parameters {
            options.set(&key, value)?;
        }
        options.validate()?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), LockError> {
        match key {
            "ca" | "cert" | "key" => match &mut self.tls {
                Some(files) => files.set(key, value),
                None => {
                    return Err(URL.bad(format!("has `{key}`, which needs TLS: write `etcds://`")));
                }
            },
            "prefix" => self.prefix = value,
            common => self.cluster.set(URL, &PARAMETERS, common, &value)?,
        }
        Ok(())
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the setting and its limits.
    pub fn validate(&self) -> Result<(), LockError> {
        self.cluster.validate(ENGINE)?;
        let good = self.prefix.is_empty() || self.prefix.ends_with('/');
        if !good || self.prefix.len() > LONGEST_PREFIX || self.prefix.contains('\0') {
            let message = format!(
                "must be empty or end with `/`, and have {LONGEST_PREFIX} bytes at most, as in \
                 `holdline/`"
            );
            return Err(LockError::invalid(ENGINE, "prefix", message));
        }
        self.tls.as_ref().map_or(Ok(()), |files| files.validate(URL))
    }

    /// Sets the prefix of every key; the default is `holdline/`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> EtcdOptions {
        self.prefix = prefix.into();
        self
    }
}

holdline_net::with_cluster_settings!(EtcdOptions);

impl EtcdOptions {
    /// The same settings for one of the members alone.
    pub(crate) fn only(&self, member: &Server) -> EtcdOptions {
        let members = vec![member.clone()];
        let cluster = ClusterSettings { members, ..self.cluster.clone() };
        EtcdOptions { cluster, ..self.clone() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns whether the password would be sent to another machine in clear text.
    pub(crate) fn exposes_password(&self) -> bool {
        self.tls.is_none() && self.cluster.needs_tls()
    }

    /// Returns whether TLS is used without a client certificate.
    pub(crate) fn shows_no_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|files| files.cert.is_none())
    }

    /// Returns the files of TLS; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// Reads what TLS needs; `None` without TLS.
    pub(crate) fn tls_config(&self) -> Result<Option<ClientTlsConfig>, LockError> {
        let Some(files) = &self.tls else { return Ok(None) };
        let read = |what: &'static str, path: &Path| {
            read_pem(path).map_err(|error| {
                LockError::invalid(ENGINE, what, format!("{}: {error}", path.display()))
            })
        };
        let authorities = files.ca.as_deref().unwrap_or(Path::new(AUTHORITIES));
        let mut config =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca", authorities)?));
        if let (Some(cert), Some(key)) = (&files.cert, &files.key) {
            config = config.identity(Identity::from_pem(read("cert", cert)?, read("key", key)?));
        }
        Ok(Some(config))
    }
}

fn members(hosts: &str) -> Result<Vec<Server>, LockError> {
    match hosts.strip_suffix('/').unwrap_or(hosts) {
        path if path.contains('/') => {
            Err(URL.bad("has a path: etcd has no databases; keys are set apart by `prefix`"))
        }
        hosts => URL.servers(hosts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_user_and_prefix_are_read_and_the_password_is_not_shown() {
        let url = "etcd://ann:p%40ss@a,b:7,[::1]:9?prefix=locks/&command_timeout_ms=500";
        let options = EtcdOptions::from_url(url).expect("good");
        let members: Vec<String> =
            options.cluster.members.iter().map(ToString::to_string).collect();
        assert_eq!(members, ["a:2379", "b:7", "[::1]:9"]);
        assert_eq!(options.cluster.user.as_deref(), Some("ann"));
        assert_eq!(options.cluster.password.last().as_deref(), Some("p@ss"));
        assert_eq!((options.prefix(), options.command_timeout().as_millis()), ("locks/", 500));
        assert!(options.exposes_password() && !format!("{options:?}").contains("p@ss"));
        let empty = EtcdOptions::from_url("etcd://").expect("good");
        assert_eq!(empty.cluster.members, EtcdOptions::default().cluster.members);
    }

    #[test]
    fn errors_name_the_parameter_and_show_no_password() {
        for (url, says) in [
            ("etdc://a", "etcds://"),
            ("etcd://a:x", "port"),
            ("etcd://a,,b", "without a host"),
            ("etcd://::1", "brackets"),
            ("etcd://[::1", "without its `]`"),
            ("etcd://a/db", "path"),
            ("etcd://ann@a", "needs a password"),
            ("etcd://:s3cret@a", "is missing"),
            ("etcd://a?prefx=b/", "did you mean `prefix`?"),
            ("etcd://a?prefix=b", "end with `/`"),
            ("etcd://a?prefix=b/&prefix=c/", "twice"),
            ("etcd://a?ca=/x", "etcds://"),
            ("etcds://a?cert=/x", "both"),
            ("etcd://a?max_waiters=0", "from 1"),
            ("etcd://a?command_timeout_ms=s3cret", "whole number"),
            ("etcd://ann:s3?cret@a", "%3F"),
            ("etcd://a?user=ann&password_file=/no/where", "No such file"),
            ("etcd://a?user=ann&password_file=/dev/zero", "longer"),
            ("etcd://a?password_env=HOLDLINE_NO_SUCH_VARIABLE", "not set"),
        ] {
            let error = EtcdOptions::from_url(url).expect_err(url).to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{url}: {error}");
        }
    }
}
