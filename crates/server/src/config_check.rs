//! Reads the settings of a file, and checks them against each other.

use std::collections::BTreeSet;

use crate::access::Access;
use crate::config::{ConfigError, DEFAULT_STORE, ServerConfig};

impl ServerConfig {
    /// Reads the table `[server]` of a configuration file; the defaults where there is none.
    ///
    /// # Errors
    /// What is wrong, without the line that it is about: it may hold a secret.
    pub fn from_toml(text: &str) -> Result<ServerConfig, ConfigError> {
        let mut file: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            ConfigError::new(format_args!("line {line}: {}", error.message()))
        })?;
        let Some(server) = file.remove("server") else { return Ok(ServerConfig::default()) };
        let config: Result<ServerConfig, _> = server.try_into();
        let config = config
            .map_err(|error| ConfigError::new(format_args!("[server]: {}", error.message())))?;
        config.validate()?;
        Ok(config)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Access::of(self)?;
        let mut names = BTreeSet::new();
        for entry in self.entries() {
            if entry.name.is_empty() {
                return Err(ConfigError::new(format_args!("{entry}: the name is empty")));
            }
            // Sessions and limits are counted by the name.
            if !names.insert(entry.name) {
                return Err(ConfigError::new(format_args!(
                    "{entry}: two entries have this name: give each its own"
                )));
            }
        }
        self.stores().try_for_each(|(name, _)| store_name(name))?;
        let mut prefixes = BTreeSet::new();
        if let Some(twice) = self.long_holds.iter().find(|one| !prefixes.insert(&one.prefix)) {
            return Err(ConfigError::new(format_args!(
                "long_holds: two entries have the prefix {:?}: leave one out",
                twice.prefix
            )));
        }
        let limits = &self.limits;
        let positive = [
            ("connections", limits.connections),
            ("connections_per_address", limits.connections_per_address),
            ("body_bytes", limits.body_bytes),
            ("sessions", limits.sessions),
            ("sessions_per_client", limits.sessions_per_client),
            ("leases_per_client", limits.leases_per_client),
            ("leases_per_address", limits.leases_per_address),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::new(format_args!("limits.{name} must be above 0")));
        }
        if limits.header_bytes < 8 * 1024 {
            return Err(ConfigError::new("limits.header_bytes must be at least 8192"));
        }
        if limits.request_timeout_ms == 0 || limits.max_wait_ms > 24 * 60 * 60 * 1_000 {
            return Err(ConfigError::new(
                "limits.request_timeout_ms must be above 0, and limits.max_wait_ms at most a day",
            ));
        }
        self.validate_listeners()
    }

    /// Checks that nobody has rights who cannot prove who they are.
    fn validate_listeners(&self) -> Result<(), ConfigError> {
        let has_client_ca = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let names_people = self.proxy.as_ref().is_some_and(|proxy| proxy.header.is_some());
        let authenticates =
            !self.tokens.is_empty() || names_people || !self.certificates.is_empty();
        if !self.certificates.is_empty() && !has_client_ca {
            return Err(ConfigError::new(
                "certificates: nobody can show one: add `tls.client_ca`, which signs them",
            ));
        }
        if has_client_ca && !authenticates {
            return Err(ConfigError::new(
                "tls.client_ca: a certificate opens a connection, and gives no right: add \
                 `certificates`, which names those that have rights, or tokens",
            ));
        }
        if self.proxy.is_some() && !authenticates {
            return Err(ConfigError::new(
                "proxy: without `header` it names nobody: add the tokens that it passes on",
            ));
        }
        let Some(listen) = self.listen() else { return Ok(()) };
        if self.socket.is_some() && !authenticates {
            return Err(ConfigError::new(format_args!(
                "listen: every process on this machine could go by {listen} past the mode of the \
                 socket: leave `listen` out, or add tokens"
            )));
        }
        if listen.ip().is_loopback() {
            return Ok(());
        }
        if !authenticates {
            return Err(ConfigError::new(format_args!(
                "{listen} is reachable from other machines, and nobody is authenticated: add \
                 tokens, `certificates` or `proxy`, or listen on 127.0.0.1",
            )));
        }
        if self.tls.is_none() && self.proxy.is_none() {
            return Err(ConfigError::new(format_args!(
                "{listen} is reachable from other machines, and tokens would travel in clear text: \
                 add `tls`, or `proxy` with the addresses of a reverse proxy that has it",
            )));
        }
        Ok(())
    }

    /// Checks that the stores exist for which somebody has rights.
    pub(crate) fn check_stores(&self, served: &[&str]) -> Result<(), ConfigError> {
        for entry in self.entries() {
            let unknown = entry.stores.iter().find(|store| !served.contains(&store.as_str()));
            if let Some(unknown) = unknown {
                return Err(ConfigError::new(format_args!(
                    "{entry}: there is no store {unknown:?}: the stores of this server are {}",
                    served.join(", ")
                )));
            }
        }
        Ok(())
    }
}

/// Checks the name of a store, which is a part of paths.
pub(crate) fn store_name(name: &str) -> Result<(), ConfigError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let message = match name {
        DEFAULT_STORE => "is the name of the store that `url` names",
        _ if name.is_empty() || name.len() > 32 || !name.chars().all(is_plain) => {
            "must have 1 to 32 characters of a-z, 0-9, `-` and `_`"
        }
        _ => return Ok(()),
    };
    Err(ConfigError::new(format_args!("stores: the name {name:?} {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn what_would_let_strangers_in_is_refused() {
        let token = format!(
            "[[server.tokens]]\nname = \"ci\"\nsha256 = \"{DIGEST}\"\nrights = [\"lock\"]\n"
        );
        let open = "[server]\nlisten = \"0.0.0.0:1\"\n";
        let tls = "[server.tls]\ncert = \"/a\"\nkey = \"/b\"\n";
        let files = "cert = \"/a\"\nkey = \"/b\"\n";
        let anybody = "[[server.certificates]]\nname = \"x\"\nrights = []\n";
        let header = "header = \"X-Forwarded-User\"\n";
        let socket = "[server.socket]\npath = \"/run/s\"\n";
        let certificate = format!("{anybody}subject = \"CN=x\"\n");
        for (text, says) in [
            (open.to_owned(), "nobody is authenticated"),
            (format!("{open}{token}"), "clear text"),
            (format!("{open}{tls}"), "nobody is authenticated"),
            (token.replace("lock\"]", "lok\"]"), "no right `lok`"),
            (token.replace(DIGEST, "abc"), "64 hexadecimal digits"),
            (token.replace(DIGEST, EMPTY), "digest of no text"),
            (format!("{token}{token}"), "tokens.ci: two entries have this name"),
            (format!("{token}{certificate}"), "tls.client_ca"),
            (format!("[server.tls]\n{files}client_ca = \"/c\"\n"), "gives no right"),
            (format!("[server.tls]\n{files}client_ca = \"/c\"\n{anybody}"), "needs `subject`"),
            ("[server]\nlisten = \"here\"\n".to_owned(), "[server]"),
            ("[server]\nfoo = 1\n".to_owned(), "unknown field `foo`"),
            ("[server.limits]\nconnections = 0\n".to_owned(), "connections"),
            ("x = \n".to_owned(), "line 1"),
            (format!("{open}[server.proxy]\naddresses = [\"10.0.0.1\"]\n"), "names nobody"),
            (
                format!("[server.proxy]\n{header}addresses = [\"127.0.0.1\"]\n"),
                "trust_this_machine",
            ),
            (
                format!("[server.proxy]\n{header}addresses = [\"0.0.0.0/0\"]\n"),
                "trust_this_machine",
            ),
            (
                format!("[server.proxy]\n{header}addresses = [\"10.0.0.1/8\"]\n"),
                "no network such as",
            ),
            (format!("[server.proxy]\n{header}addresses = []\n"), "must name the proxy"),
            (
                format!(
                    "{token}[server.proxy]\naddresses = [\"127.0.0.1\"]\nforwarded_for = true\n"
                ),
                "trust_this_machine",
            ),
            ("[server.limits]\nleases_per_client = 0\n".to_owned(), "leases_per_client"),
            ("[[server.long_holds]]\n".repeat(2), "two entries have the prefix \"\""),
            (format!("{socket}mode = \"0777\"\n"), "such as \"0600\""),
            (format!("[server]\nlisten = \"127.0.0.1:1\"\n{socket}"), "past the mode"),
        ] {
            let error = ServerConfig::from_toml(&text).expect_err(&text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        for text in [
            String::new(),
            token.clone(),
            format!("{open}{tls}{token}"),
            // A proxy that ends TLS and passes tokens on.
            format!("{open}{token}[server.proxy]\naddresses = [\"10.0.0.0/8\"]\n"),
            format!("[server.proxy]\n{header}uids = [33]\n{socket}mode = \"0660\"\n"),
            format!("[server.proxy]\n{header}addresses = [\"::1\"]\ntrust_this_machine = true\n"),
            socket.to_owned(),
        ] {
            assert!(ServerConfig::from_toml(&text).is_ok(), "{text}");
        }
    }
}
