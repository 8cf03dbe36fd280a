//! The settings of the engine, in code or in a URL.
//!
//! `http://host[:port][/path]` and `https://host[:port][/path]`, and for a socket of this machine
//! `http+unix://%2Frun%2Fholdline.sock[/path]`; with the parameters
//! `token_file`, `token_env`, `token_command`, `ca`, `cert`, `key`, `connect_timeout_ms` and
//! `command_timeout_ms`. No token is ever shown: not by `Debug`, not in a message.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use holdline_core::{LockError, accept_url};
use holdline_net::secret::Secret;
use holdline_net::tls::TlsFiles;
use holdline_net::url::{Reader, Server};

use crate::error::ENGINE;

const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);
const PARAMETERS: [&str; 8] = [
    "ca",
    "cert",
    "command_timeout_ms",
    "connect_timeout_ms",
    "key",
    "token_command",
    "token_env",
    "token_file",
];

/// The example of a message about the URL of a socket.
const SOCKET_EXAMPLE: &str = "`http+unix://%2Frun%2Fholdline.sock`";

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Network(Server),
    /// A socket of this machine.
    Socket(PathBuf),
}

impl Place {
    pub(crate) fn is_here(&self) -> bool {
        match self {
            Place::Network(server) => server.is_here(),
            Place::Socket(_) => true,
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Network(server) => server.fmt(f),
            Place::Socket(path) => path.display().fmt(f),
        }
    }
}

/// The settings of an HTTP engine.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    pub(crate) place: Place,
    /// What precedes the paths of the API, without a final slash.
    pub(crate) base: String,
    pub(crate) token: Secret,
    /// The files of TLS; `None` for `http://` and `http+unix://`.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
}

impl HttpOptions {
    /// Reads the settings of a URL.
    ///
    /// # Errors
    /// `Invalid`: the URL names no server, has an unknown parameter, or would send a token to
    /// another machine in clear text.
    pub fn from_url(url: &str) -> Result<HttpOptions, LockError> {
        let url = &*accept_url(url).map_err(|why| reader(false).bad(why))?;
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let tls = match scheme {
            "http" | "http+unix" => None,
            "https" => Some(TlsFiles::default()),
            _ => {
                let known = "`http://`, `https://` or `http+unix://`";
                return Err(reader(false).bad(format_args!("must begin with {known}")));
            }
        };
        let reader = reader(tls.is_some());
        let (credentials, parameters) = reader.split(rest)?;
        if credentials.user.is_some() || credentials.password.is_some() {
            return Err(reader.bad("has a user or a password: use `token_file` or `token_env`"));
        }
        let (written, base) = match credentials.rest.find('/') {
            Some(at) => credentials.rest.split_at(at),
            None => (credentials.rest, ""),
        };
        let place = match scheme {
            "http+unix" => Place::Socket(socket(reader, written)?),
            _ => Place::Network(reader.server(written)?),
        };
        let base = base.trim_end_matches('/').to_owned();
        let is_path = |c: char| c.is_ascii_alphanumeric() || "/-._~%".contains(c);
        if !base.chars().all(is_path) {
            return Err(reader.bad("has a path with characters that must be percent-encoded"));
        }
        let mut options = HttpOptions {
            place,
            base,
            token: Secret::default(),
            tls,
            connect_timeout: Duration::from_secs(3),
            command_timeout: Duration::from_secs(10),
        };
        for (key, value) in &parameters {
            options.set(reader, key, value)?;
        }
        options.validate()?;
        Ok(options)
    }

    fn set(&mut self, reader: Reader, key: &str, value: &str) -> Result<(), LockError> {
        match (key, &mut self.tls) {
            ("token_command" | "token_env" | "token_file", _) => {
                self.token = Secret::from_parameter(ENGINE, key, value)?;
            }
            ("connect_timeout_ms", _) => self.connect_timeout = reader.millis(key, value)?,
            ("command_timeout_ms", _) => self.command_timeout = reader.millis(key, value)?,
            ("ca" | "cert" | "key", Some(tls)) => tls.set(key, value),
            ("ca" | "cert" | "key", None) => {
                return Err(reader.bad(format_args!("has a `{key}`, which needs `https://`")));
            }
            _ => return Err(reader.unknown(key, PARAMETERS, &PARAMETERS)),
        }
        Ok(())
    }

    /// Sets the bearer token, which then need not be in a file.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> HttpOptions {
        self.token = Secret::new(Some(token.into()));
        self
    }

    /// Sets the time limit of one request; the default is 10 s.
    #[must_use]
    pub fn with_command_timeout(mut self, limit: Duration) -> HttpOptions {
        self.command_timeout = limit;
        self
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the setting and what it may be.
    pub fn validate(&self) -> Result<(), LockError> {
        let limits =
            [("connect_timeout", self.connect_timeout), ("command_timeout", self.command_timeout)];
        for (field, value) in limits {
            if !TIMEOUTS.contains(&value) {
                let message = format!("must be from 10ms to 60s, not {value:?}");
                return Err(LockError::invalid(ENGINE, field, message));
            }
        }
        let printable = |token: &str| token.bytes().all(|byte| byte.is_ascii_graphic());
        if self.token.last().is_some_and(|token| !printable(&token)) {
            let message = "has characters that no HTTP header can carry";
            return Err(LockError::invalid(ENGINE, "token", message));
        }
        if let Some(TlsFiles { cert, key, .. }) = &self.tls
            && cert.is_some() != key.is_some()
        {
            return Err(LockError::invalid(ENGINE, "cert", "needs `key`, and `key` needs `cert`"));
        }
        if self.tls.is_none() && self.token.is_set() && !self.place.is_here() {
            let message = "would be sent to another machine in clear text: use `https://`";
            return Err(LockError::invalid(ENGINE, "token", message));
        }
        Ok(())
    }

    /// Returns the value of the header `Host`; the port of the scheme is left out. A server knows
    /// itself as `localhost`, also on its socket.
    pub(crate) fn host(&self) -> String {
        let server = match &self.place {
            Place::Network(server) => server,
            Place::Socket(_) => return "localhost".to_owned(),
        };
        let port = if self.tls.is_some() { 443 } else { 80 };
        let whole = server.to_string();
        if server.port == port {
            whole.strip_suffix(&format!(":{port}")).unwrap_or(&whole).to_owned()
        } else {
            whole
        }
    }
}

/// Reads the path of a socket, which stands in the place of the host.
fn socket(reader: Reader, written: &str) -> Result<PathBuf, LockError> {
    let path = PathBuf::from(reader.text(written)?);
    if path.is_absolute() {
        return Ok(path);
    }
    let message = "must have the absolute path of the socket in the place of the host, with each \
                   slash of it as `%2F`";
    Err(reader.bad(format_args!("{message}: {SOCKET_EXAMPLE}")))
}

fn reader(tls: bool) -> Reader {
    Reader { engine: ENGINE, port: if tls { 443 } else { 7654 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server_and_a_path() {
        for (url, shown) in [
            ("http://localhost", "localhost:7654 localhost:7654 "),
            ("http://127.0.0.1:80/", "127.0.0.1:80 127.0.0.1 "),
            ("https://[::1]", "[::1]:443 [::1] "),
            ("https://[::1]:80", "[::1]:80 [::1]:80 "),
            ("https://locks.example/a/b/", "locks.example:443 locks.example /a/b"),
            ("http+unix://%2Frun%2Fh%20l.sock", "/run/h l.sock localhost "),
            ("http+unix://%2Frun%2Fs/stores/b/", "/run/s localhost /stores/b"),
        ] {
            let options = HttpOptions::from_url(url).expect("a good URL");
            assert_eq!(format!("{} {} {}", options.place, options.host(), options.base), shown);
            assert_eq!(options.tls.is_some(), url.starts_with("https"), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_without_a_secret() {
        for (url, says) in [
            ("ftp://h", "must begin with"),
            ("http://ann:s3cret@h", "token_file"),
            ("http://h?ca=/x", "needs `https://`"),
            ("http://h?tokn_file=/x", "did you mean `token_file`?"),
            ("https://h?cert=/x", "needs `key`"),
            ("http://h?command_timeout_ms=1", "from 10ms to 60s"),
            ("http://h/a b", "has white space inside"),
            ("http://h/a\"b", "percent-encoded"),
            ("http://h?token_env=HOLDLINE_NO_SUCH_VARIABLE", "is not set"),
            ("http+unix:///run/s", "as `%2F`: `http+unix://%2Frun%2Fholdline.sock`"),
            ("http+unix://", "absolute path of the socket"),
            ("http+unix://run%2Fs", "absolute path of the socket"),
            ("http+unix:/run/s", "must begin with"),
            ("http+unix://%2Frun%2Fs?ca=/x", "needs `https://`"),
            ("https+unix://%2Frun%2Fs", "or `http+unix://`"),
            ("http+unix://ann:s3cret@%2Frun%2Fs", "token_file"),
        ] {
            let error = HttpOptions::from_url(url).expect_err(url).to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{url}: {error}");
        }
    }

    #[test]
    fn a_token_leaves_this_machine_only_encrypted() {
        let with = |url: &str| {
            HttpOptions::from_url(url).expect("a good URL").with_token("s3cret").validate()
        };
        assert!(with("http://127.0.0.1").is_ok() && with("https://h").is_ok());
        assert!(with("http+unix://%2Frun%2Fs").is_ok());
        let error = with("http://h").expect_err("refused").to_string();
        assert!(error.contains("clear text") && !error.contains("s3cret"), "{error}");
        let options = HttpOptions::from_url("http://h").expect("good").with_token("s3cret");
        assert!(!format!("{options:?}").contains("s3cret"));
    }
}
