//! What libpq knows and a URL of Holdline may contain: parameters that need no setting here, those
//! that are refused with their replacement, and the password file.
//!
//! - Invariant P1: no message shows a password, or a line of the password file.

use std::net::IpAddr;
use std::path::PathBuf;

use holdline_core::LockError;
use holdline_net::files::read_short;
use holdline_net::secret::MAX_SECRET_SIZE;
use tokio_postgres::config::ChannelBinding;

use super::url::Address;
use super::{URL, bad};

/// Parameters that this engine has no use for, and what to do about each.
const REFUSED: &[(&str, &str)] = &[
    ("client_encoding", UNNEEDED),
    ("connection_limit", UNNEEDED),
    ("fallback_application_name", "write `application_name`"),
    ("gssencmode", UNNEEDED),
    ("keepalives", UNNEEDED),
    ("keepalives_count", UNNEEDED),
    ("keepalives_idle", UNNEEDED),
    ("keepalives_interval", UNNEEDED),
    ("krbsrvname", "GSS is not supported: use a password or a client certificate"),
    ("load_balance_hosts", "hosts are tried in their order: leave it out"),
    ("passfile", "set the variable PGPASSFILE, or write `password_file`"),
    ("password", "write it before the `@`, or use `password_file` or `password_env`"),
    ("pgbouncer", "a pooler is recognised: leave it out"),
    ("pool_timeout", UNNEEDED),
    ("replication", UNNEEDED),
    ("require_auth", "the server's method is used: leave it out"),
    ("service", "service files are not read: write the host, user and database into the URL"),
    ("ssl", "write `sslmode=verify-full`"),
    ("sslcompression", UNNEEDED),
    ("sslcrl", "revocation lists are not supported: leave it out"),
    ("sslcrldir", "revocation lists are not supported: leave it out"),
    ("sslnegotiation", UNNEEDED),
    ("sslpassword", "an encrypted key is not supported: store it decrypted, of mode 0600"),
    ("sslsni", UNNEEDED),
    ("tcp_user_timeout", UNNEEDED),
];
const UNNEEDED: &str = "this engine chooses that itself: leave it out";

/// Returns the error for a parameter of libpq, or of a driver, that this engine does not have.
pub(super) fn refusal(key: &str) -> Option<LockError> {
    let (known, advice) = REFUSED.iter().find(|(known, _)| *known == key)?;
    Some(bad(format_args!("has `{known}`: {advice}")))
}

/// Reads `channel_binding`.
pub(super) fn channel_binding(value: &str) -> Result<ChannelBinding, LockError> {
    match value {
        "disable" => Ok(ChannelBinding::Disable),
        "prefer" => Ok(ChannelBinding::Prefer),
        "require" => Ok(ChannelBinding::Require),
        _ => Err(bad("has a `channel_binding` that must be `disable`, `prefer` or `require`")),
    }
}

/// Checks `target_session_attrs`. Locks are writes, so a standby is skipped with each of them.
pub(super) fn session_attributes(value: &str) -> Result<(), LockError> {
    match value {
        "any" | "primary" | "read-write" => Ok(()),
        _ => Err(bad(
            "has a `target_session_attrs` for a server without writes: locks need a primary, \
             write `read-write`",
        )),
    }
}

/// Reads `hostaddr`.
pub(super) fn host_address(value: &str) -> Result<IpAddr, LockError> {
    value.parse().map_err(|_| {
        if value.contains('@') {
            URL.at_in_query()
        } else {
            bad("has a `hostaddr` that is no IP address")
        }
    })
}

#[cfg(unix)]
fn is_open_to_others(file: &std::fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(file) & 0o077 != 0
}

/// As libpq, which checks no mode where files have none.
#[cfg(not(unix))]
fn is_open_to_others(_: &std::fs::Metadata) -> bool {
    false
}

/// Returns the password for a server in the password file of libpq.
pub(super) fn password(address: &Address, database: &str, user: &str) -> Option<String> {
    let named = std::env::var_os("PGPASSFILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    let usual = || {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(".pgpass"))
    };
    let file = named.or_else(usual)?;
    let about = std::fs::metadata(&file).ok().filter(std::fs::Metadata::is_file)?;
    if is_open_to_others(&about) {
        let path = file.display();
        tracing::warn!(%path, "the password file is ignored: others may use it; chmod 600 it");
        return None;
    }
    let bytes = read_short(&file, MAX_SECRET_SIZE).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (host, port) = match address {
        Address::Tcp { host, port } => (host.clone(), *port),
        Address::Unix(directory, port) => (directory.to_string_lossy().into_owned(), *port),
    };
    // libpq writes `localhost` for the usual directory of sockets.
    let hosts = match host.as_str() {
        "/tmp" | "/var/run/postgresql" | "/run/postgresql" => vec!["localhost", &host],
        _ => vec![host.as_str()],
    };
    hosts.iter().find_map(|host| password_in(&text, [host, &port.to_string(), database, user]))
}

/// Returns the password of the first line whose fields match: host, port, database, user.
fn password_in(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        for wanted in wanted {
            let (written, escaped) = fields.next()?;
            let matches = written == wanted || (written == "*" && !escaped);
            if !matches {
                return None;
            }
        }
        fields.next().map(|(password, _)| password).filter(|password| !password.is_empty())
    })
}

/// Splits a line at its colons; a backslash escapes a colon and a backslash. With each field:
/// whether a character of it was escaped.
fn fields(line: &str) -> Vec<(String, bool)> {
    let mut fields = vec![(String::new(), false)];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            ':' => fields.push((String::new(), false)),
            '\\' => {
                fields[last].1 = true;
                fields[last].0.extend(characters.next());
            }
            other => fields[last].0.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_the_password_file_that_matches_counts() {
        let text = "# host:port:database:user:password\n\
                    db:5432:orders:ann:first\n\
                    db:*:orders:ann:second\n\
                    \\*:*:*:ann:star\n\
                    [::1]:5432:*:ann:bracket\n\
                    fe80\\:\\:1:5432:*:ann:co\\:lon\\\\\n\
                    too:few:fields\n\
                    *:*:*:bob:any\n";
        for (wanted, password) in [
            (["db", "5432", "orders", "ann"], Some("first")),
            (["db", "5433", "orders", "ann"], Some("second")),
            (["fe80::1", "5432", "x", "ann"], Some("co:lon\\")),
            (["*", "1", "x", "ann"], Some("star")),
            (["other", "1", "x", "bob"], Some("any")),
            (["other", "1", "x", "ann"], None),
            (["too", "few", "fields", ""], None),
        ] {
            assert_eq!(password_in(text, wanted).as_deref(), password, "{wanted:?}");
        }
    }

    #[test]
    fn each_refused_parameter_names_what_to_do() {
        for (key, advice) in REFUSED {
            let error = refusal(key).expect("known").to_string();
            assert!(error.contains(key) && error.contains(advice), "{error}");
        }
        assert!(refusal("shema").is_none());
    }
}
