//! The handshake on a new connection: protocol, user, database, client name, server facts.
//!
//! Commands that a strict ACL may refuse, or that old servers do not know, are optional.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};

use super::ServerFacts;
use super::dial::Dialled;
use super::dial::TLS;
use super::facts::Role;
use super::resp::Reply;
use super::value::Value;
use super::wire::{Wire, WireError};
use crate::error::{ENGINE, refusal, unavailable};
use crate::options::{Address, RedisOptions};

/// A connection whose handshake is complete.
pub(super) struct Established {
    pub(super) wire: Wire,
    pub(super) facts: ServerFacts,
    pub(super) reset: Arc<AtomicBool>,
}

/// Why there is no connection.
pub(super) enum HandshakeError {
    /// The server, or its ACL, does not allow `HELLO 3`: try RESP2.
    Resp2Only,
    /// Any other error.
    Failed(LockError),
}

impl From<LockError> for HandshakeError {
    fn from(error: LockError) -> HandshakeError {
        HandshakeError::Failed(error)
    }
}

/// Performs the handshake on a stream.
pub(super) async fn handshake(
    dialled: Dialled,
    options: &RedisOptions,
    resp3: bool,
    clock: &dyn Clock,
) -> Result<Established, HandshakeError> {
    let mut wire = Wire::new(dialled.stream);
    let password = options.password().read().await;
    let password = password.as_deref();
    let mut role = None;
    if resp3 {
        role = role_of(&hello(&mut wire, options, password).await?);
    }
    let sent = clock.now();
    let db = options.db().to_string();
    let name = client_name(options);
    let (commands, required) = commands(options, resp3, password, db.as_bytes(), name.as_bytes());
    let replies =
        wire.request(&commands).await.map_err(|error| connection_broke(error, options))?;
    let round_trip = sent.until(clock.now());
    let (required, optional) = replies.split_at(required.min(replies.len()));
    if let Some(Err(error)) = required.iter().find(|reply| reply.is_err()) {
        return Err(refusal(error.clone()).into());
    }
    if let Some(Err(error)) = optional.first()
        && matches!(error.code.as_str(), "BUSY" | "LOADING" | "MASTERDOWN")
    {
        // `INFO` is allowed, but not now: the run id must not stay unknown because of that.
        return Err(refusal(error.clone()).into());
    }
    let resp = if resp3 { 3 } else { 2 };
    let facts = ServerFacts { resp, round_trip, role, ..facts(optional) };
    Ok(Established { wire, facts, reset: dialled.reset })
}

/// Requests RESP3, and authenticates; returns what the server says of itself.
async fn hello(
    wire: &mut Wire,
    options: &RedisOptions,
    password: Option<&str>,
) -> Result<Value, HandshakeError> {
    let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if let Some(password) = password {
        let user = options.user().unwrap_or("default");
        hello.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
    }
    let replies = wire.request(&[hello]).await.map_err(|error| connection_broke(error, options))?;
    let error = match replies.into_iter().next() {
        Some(Ok(reply)) => return Ok(reply),
        Some(Err(error)) => error,
        None => return Ok(Value::Nil),
    };
    let unknown = error.rest.contains("'hello'") || error.rest.contains("unknown command");
    Err(if error.code == "NOPROTO" || unknown {
        HandshakeError::Resp2Only
    } else {
        refusal(error).into()
    })
}

/// Returns what the server calls itself in its reply to `HELLO`.
fn role_of(reply: &Value) -> Option<Role> {
    let pairs = reply.as_array().unwrap_or_default();
    let role = pairs.chunks(2).find(|pair| pair.first().and_then(Value::as_text) == Some("role"));
    match role.and_then(|pair| pair.get(1)?.as_text()) {
        Some("master") => Some(Role::Master),
        Some("replica" | "slave") => Some(Role::Replica),
        _ => None,
    }
}

fn client_name(options: &RedisOptions) -> String {
    match options.client_name() {
        Some(name) => name.to_owned(),
        None => format!("holdline-{}", std::process::id()),
    }
}

/// Returns the commands of the handshake, and how many at the start must succeed.
fn commands<'a>(
    options: &'a RedisOptions,
    resp3: bool,
    password: Option<&'a str>,
    db: &'a [u8],
    name: &'a [u8],
) -> (Vec<Vec<&'a [u8]>>, usize) {
    let mut commands = Vec::new();
    if !resp3 {
        commands.extend(auth(options, password));
    }
    if options.db() != 0 {
        commands.push(vec![&b"SELECT"[..], db]);
    }
    let required = commands.len();
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    commands.push(vec![b"INFO", b"server"]);
    commands.push(vec![b"COMMAND", b"INFO", b"DELEX", b"DELIFEQ", b"SPUBLISH"]);
    commands.push(vec![b"CLIENT", b"SETNAME", name]);
    commands.push(vec![b"CLIENT", b"SETINFO", b"LIB-NAME", b"holdline"]);
    commands.push(vec![b"CLIENT", b"SETINFO", b"LIB-VER", version]);
    (commands, required)
}

/// Returns the `AUTH` command of RESP2, if there is a password.
pub(super) fn auth<'a>(
    options: &'a RedisOptions,
    password: Option<&'a str>,
) -> Option<Vec<&'a [u8]>> {
    let password = password?;
    let user = options.user().map(str::as_bytes);
    Some([&b"AUTH"[..]].into_iter().chain(user).chain([password.as_bytes()]).collect())
}

/// Reads the replies to the optional commands; what was refused stays unknown.
fn facts(replies: &[Reply]) -> ServerFacts {
    let reply = |place: usize| replies.get(place).and_then(|reply| reply.as_ref().ok());
    let info = reply(0).and_then(Value::as_text).unwrap_or_default();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let commands = reply(1).and_then(Value::as_array).unwrap_or_default();
    let known = |place: usize| commands.get(place).is_some_and(|command| *command != Value::Nil);
    ServerFacts {
        run_id: run_id.map(|run_id| run_id.trim().to_owned()),
        delex: known(0),
        delifeq: known(1),
        spublish: known(2),
        in_cluster: info.lines().any(|line| line.trim() == "redis_mode:cluster"),
        ..ServerFacts::default()
    }
}

/// Explains a stream that broke during the handshake.
fn connection_broke(error: WireError, options: &RedisOptions) -> LockError {
    let address = options.address();
    let error = match error {
        WireError::Io(error) => error,
        WireError::InvalidFrame => {
            let message = format!("{address}: no Redis server answers there");
            let kind = ErrorKind::Protocol { message };
            return LockError::new(ENGINE, kind, Certainty::NotApplied);
        }
    };
    match address {
        Address::Tcp { host, tls: true, .. } => TLS.failure(&error, host, options.tls()),
        Address::Tcp { .. } => {
            let hint = "is it a TLS port? Then write `rediss://`";
            let message = format!("{address}: the handshake broke off: {hint} ({error})");
            unavailable(message, Certainty::NotApplied)
        }
        Address::Unix(_) | Address::Service { .. } | Address::Cluster { .. } => {
            let message = format!("{address}: the handshake broke off ({error})");
            unavailable(message, Certainty::NotApplied)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ServerError;

    fn text(text: &str) -> Reply {
        Ok(Value::Bytes(text.as_bytes().to_vec()))
    }

    #[test]
    fn knownare_read_from_the_replies_and_unknown_where_refused() {
        let info = text("# Server\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\nrun_id:abc\r\n");
        let commands = Ok(Value::Array(vec![Value::Array(vec![]), Value::Nil]));
        let known = facts(&[info, commands]);
        assert_eq!(known.run_id.as_deref(), Some("abc"));
        assert_eq!((known.delex, known.delifeq, known.in_cluster), (true, false, true));
        let refused = || Err(ServerError::new("NOPERM", "no"));
        assert_eq!(facts(&[refused(), refused()]), ServerFacts::default());
        assert_eq!(facts(&[]), ServerFacts::default());
    }
}
