//! The first words on a new connection: protocol, user, database, who we are, who the server is.
//!
//! What a strict ACL may refuse, and what old servers do not know, is asked without insisting.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};

use super::ServerFacts;
use super::dial::Dialled;
use super::dial::SPEAKER;
use super::resp::Reply;
use super::value::Value;
use super::wire::{Broke, Wire};
use crate::error::{ENGINE, refusal, unavailable};
use crate::options::{Address, RedisOptions};

/// A connection that has said its first words.
pub(super) struct Greeted {
    pub(super) wire: Wire,
    pub(super) facts: ServerFacts,
    pub(super) reset: Arc<AtomicBool>,
}

/// Why there is no connection.
pub(super) enum Refused {
    /// The server, or its ACL, does not know `HELLO 3`: try with the older protocol.
    OldProtocol,
    /// All else.
    Error(LockError),
}

impl From<LockError> for Refused {
    fn from(error: LockError) -> Refused {
        Refused::Error(error)
    }
}

/// Says the first words on a stream.
pub(super) async fn greet(
    dialled: Dialled,
    options: &RedisOptions,
    resp3: bool,
    clock: &dyn Clock,
) -> Result<Greeted, Refused> {
    let mut wire = Wire::new(dialled.stream);
    if resp3 {
        hello(&mut wire, options).await?;
    }
    let sent = clock.now();
    let (db, name) = (options.db().to_string(), client_name(options));
    let (questions, needed) = questions(options, resp3, db.as_bytes(), name.as_bytes());
    let answers = wire.ask(&questions).await.map_err(|broke| broke_off(broke, options))?;
    let round_trip = sent.until(clock.now());
    let (needed, asked) = answers.split_at(needed.min(answers.len()));
    if let Some(Err(words)) = needed.iter().find(|answer| answer.is_err()) {
        return Err(refusal(words.clone()).into());
    }
    if let Some(Err(words)) = asked.first()
        && matches!(words.code.as_str(), "BUSY" | "LOADING" | "MASTERDOWN")
    {
        // It may be asked, but not now: who the server is must not stay unknown for that.
        return Err(refusal(words.clone()).into());
    }
    let resp = if resp3 { 3 } else { 2 };
    let facts = ServerFacts { resp, round_trip, ..facts(asked) };
    Ok(Greeted { wire, facts, reset: dialled.reset })
}

/// Asks for the newer protocol, as the user.
async fn hello(wire: &mut Wire, options: &RedisOptions) -> Result<(), Refused> {
    let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if let Some(password) = options.password().expose() {
        let user = options.user().unwrap_or("default");
        hello.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
    }
    let answers = wire.ask(&[hello]).await.map_err(|broke| broke_off(broke, options))?;
    let Some(Err(words)) = answers.into_iter().next() else { return Ok(()) };
    let unknown = words.rest.contains("'hello'") || words.rest.contains("unknown command");
    Err(match words.code == "NOPROTO" || unknown {
        true => Refused::OldProtocol,
        false => refusal(words).into(),
    })
}

fn client_name(options: &RedisOptions) -> String {
    match options.client_name() {
        Some(name) => name.to_owned(),
        None => format!("holdline-{}", std::process::id()),
    }
}

/// Makes the questions; tells how many at the start must be answered well.
fn questions<'a>(
    options: &'a RedisOptions,
    resp3: bool,
    db: &'a [u8],
    name: &'a [u8],
) -> (Vec<Vec<&'a [u8]>>, usize) {
    let mut questions = Vec::new();
    if !resp3 {
        questions.extend(auth(options));
    }
    if options.db() != 0 {
        questions.push(vec![&b"SELECT"[..], db]);
    }
    let needed = questions.len();
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    questions.push(vec![b"INFO", b"server"]);
    questions.push(vec![b"COMMAND", b"INFO", b"DELEX", b"DELIFEQ"]);
    questions.push(vec![b"CLIENT", b"SETNAME", name]);
    questions.push(vec![b"CLIENT", b"SETINFO", b"LIB-NAME", b"holdline"]);
    questions.push(vec![b"CLIENT", b"SETINFO", b"LIB-VER", version]);
    (questions, needed)
}

/// How the older protocol says who we are, if there is anything to say.
pub(super) fn auth(options: &RedisOptions) -> Option<Vec<&[u8]>> {
    let password = options.password().expose()?;
    let user = options.user().map(str::as_bytes);
    Some([&b"AUTH"[..]].into_iter().chain(user).chain([password.as_bytes()]).collect())
}

/// Reads what the server told about itself; what it did not tell stays unknown.
fn facts(answers: &[Reply]) -> ServerFacts {
    let answer = |place: usize| answers.get(place).and_then(|answer| answer.as_ref().ok());
    let info = answer(0).and_then(Value::as_text).unwrap_or_default();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let commands = answer(1).and_then(Value::as_array).unwrap_or_default();
    let known = |place: usize| commands.get(place).is_some_and(|command| *command != Value::Nil);
    ServerFacts {
        run_id: run_id.map(|run_id| run_id.trim().to_owned()),
        delex: known(0),
        delifeq: known(1),
        in_cluster: info.lines().any(|line| line.trim() == "redis_mode:cluster"),
        ..ServerFacts::default()
    }
}

/// What it means that the stream broke at the first words.
fn broke_off(broke: Broke, options: &RedisOptions) -> LockError {
    let address = options.address();
    let broke = match broke {
        Broke::Stream(error) => error,
        Broke::Rubbish => {
            let message = format!("{address}: no Redis server answers there");
            let kind = ErrorKind::Protocol { message };
            return LockError::new(ENGINE, kind, Certainty::NotApplied);
        }
    };
    match address {
        Address::Tcp { host, tls: true, .. } => SPEAKER.failure(&broke, host, options.tls()),
        Address::Tcp { .. } => {
            let hint = "is it a TLS port? Then write `rediss://`";
            let message = format!("{address}: broke off at the first words: {hint} ({broke})");
            unavailable(message, Certainty::NotApplied)
        }
        Address::Unix(_) | Address::Service { .. } | Address::Cluster { .. } => {
            let message = format!("{address}: broke off at the first words ({broke})");
            unavailable(message, Certainty::NotApplied)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ServerWords;

    fn text(text: &str) -> Reply {
        Ok(Value::Bytes(text.as_bytes().to_vec()))
    }

    #[test]
    fn what_the_server_tells_is_read_and_what_it_refuses_is_unknown() {
        let info = text("# Server\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\nrun_id:abc\r\n");
        let commands = Ok(Value::Array(vec![Value::Array(vec![]), Value::Nil]));
        let told = facts(&[info, commands]);
        assert_eq!(told.run_id.as_deref(), Some("abc"));
        assert_eq!((told.delex, told.delifeq, told.in_cluster), (true, false, true));
        let refused = || Err(ServerWords::new("NOPERM", "no"));
        assert_eq!(facts(&[refused(), refused()]), ServerFacts::default());
        assert_eq!(facts(&[]), ServerFacts::default());
    }
}
