//! The limits of the settings, each and in combination.

use std::time::Duration;

use holdline_core::LockError;

use holdline_net::tls::TlsFiles;

use super::{Address, Dialect, Layout, Publish, RedisOptions, URL};
use crate::error::ENGINE;

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);

impl RedisOptions {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the setting that is wrong and what it may be.
    pub fn validate(&self) -> Result<(), LockError> {
        self.limits.validate(ENGINE, SHORTEST_TIMEOUT)?;
        self.validate_layout()?;
        if let Some(group) = &self.group {
            group.validate()?;
        }
        self.validate_failover()?;
        self.validate_cluster()?;
        if self.access.user.is_some() && !self.access.password.is_set() {
            let message = "needs a password: in the URL, by `password_file`, `password_env`, or in \
                           code; for a user with `nopass`, any password will do";
            return Err(LockError::invalid(ENGINE, "user", message));
        }
        self.validate_tls()
    }

    /// Checks that messages are sharded on a cluster only.
    ///
    /// # Errors
    /// `Invalid`: they are to be so on one server. The connection to a node of a cluster has the
    /// options of one server, so `validate` does not check this.
    pub(crate) fn validate_publish(&self) -> Result<(), LockError> {
        let sharded = matches!(self.layout.publish, Publish::Sharded | Publish::Both);
        if !sharded || self.is_of_cluster() {
            return Ok(());
        }
        let message = "must be `auto` or `plain` but on a cluster: Redisson publishes by \
                       `SPUBLISH` there only";
        Err(LockError::invalid(ENGINE, "publish", message))
    }

    fn validate_cluster(&self) -> Result<(), LockError> {
        if !matches!(self.access.address, Address::Cluster { .. }) {
            return Ok(());
        }
        if self.access.db != 0 {
            let message = "must be left out: a cluster has one database";
            return Err(LockError::invalid(ENGINE, "db", message));
        }
        if self.layout.dialect == Dialect::Plain {
            return self.validate_plain_on_cluster();
        }
        let key_template = self.key_template();
        let prefix = self.prefix();
        let redisson = self.layout.dialect == Dialect::Redisson;
        let before = key_template.split("{name}").next().unwrap_or_default();
        if before.contains('{') && !redisson {
            let message = "must have no `{` before `{name}` in a cluster: the name alone is to \
                           make the slot";
            return Err(LockError::invalid(ENGINE, "key_template", message));
        }
        if prefix.contains('{') {
            let message = "must have no `{` in a cluster: the name alone is to make the slot";
            return Err(LockError::invalid(ENGINE, "prefix", message));
        }
        if key_template == format!("{prefix}fence:{{name}}") {
            let message = "must differ from that of the counters: leave out `fence:`";
            return Err(LockError::invalid(ENGINE, "key_template", message));
        }
        Ok(())
    }

    /// Each lock has one key there, since others would be in other slots.
    fn validate_plain_on_cluster(&self) -> Result<(), LockError> {
        if self.layout.fencing {
            let message = "must be `off` in the plain dialect on a cluster: a counter of tokens \
                           would be on another node than the lock";
            return Err(LockError::invalid(ENGINE, "fencing", message));
        }
        if self.layout.signal_template.is_some() {
            let message = "must be left out on a cluster: the list would be on another node than \
                           the lock";
            return Err(LockError::invalid(ENGINE, "signal_template", message));
        }
        Ok(())
    }

    fn validate_layout(&self) -> Result<(), LockError> {
        let Layout { dialect, fencing, signal_template, publish, .. } = &self.layout;
        let templates = [
            ("key_template", Some(self.key_template())),
            ("signal_template", signal_template.as_deref()),
        ];
        for (field, template) in templates {
            if template.is_some_and(|template| template.matches("{name}").count() != 1) {
                let message = "must contain `{name}` once, as in `holdline:{name}`";
                return Err(LockError::invalid(ENGINE, field, message));
            }
        }
        if signal_template.as_deref() == Some(self.key_template()) {
            let message = "must differ from `key_template`: it names another key";
            return Err(LockError::invalid(ENGINE, "signal_template", message));
        }
        let plain_only = "in the plain dialect only (`dialect=plain`)";
        let of_others = "in the dialects of other libraries only (`dialect=plain`, \
                         `dialect=redisson`)";
        let redisson_only = "in the Redisson dialect only (`dialect=redisson`)";
        for (field, changed, verb, dialects, which) in [
            (
                "fencing",
                !fencing,
                "be switched off",
                &[Dialect::Plain, Dialect::Redisson][..],
                of_others,
            ),
            ("signal_template", signal_template.is_some(), "be set", &[Dialect::Plain], plain_only),
            ("publish", *publish != Publish::Auto, "be set", &[Dialect::Redisson], redisson_only),
        ] {
            if changed && !dialects.contains(dialect) {
                let message = format!("can {verb} {which}");
                return Err(LockError::invalid(ENGINE, field, message));
            }
        }
        Ok(())
    }

    fn validate_tls(&self) -> Result<(), LockError> {
        let TlsFiles { ca, cert, key, .. } = &self.access.tls;
        let tls = matches!(
            self.access.address,
            Address::Tcp { tls: true, .. }
                | Address::Service { tls: true, .. }
                | Address::Cluster { tls: true, .. }
        );
        if !tls && (ca.is_some() || cert.is_some() || key.is_some()) {
            let message = "`ca`, `cert` and `key` need TLS: write `rediss://`";
            return Err(LockError::invalid(ENGINE, "url", message));
        }
        self.access.tls.validate(URL)
    }
}
