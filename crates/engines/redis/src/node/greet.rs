//! The first words on a new connection: protocol, user, database, who we are, who the server is.
//!
//! What a strict ACL may refuse, and what old servers do not know, is asked without insisting.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo};

use super::dial::Dialled;
use super::hub::Hub;
use super::lane::MOST_PENDING;
use super::value::{Value, words_in};
use super::watched::{Trouble, Watched};
use super::{ServerFacts, tls};
use crate::error::{ENGINE, ServerWords, refusal, unavailable};
use crate::options::{Address, RedisOptions};
use crate::surroundings::Task;

/// A connection that has said its first words.
pub(super) struct Greeted {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Task<()>,
    pub(super) facts: ServerFacts,
    pub(super) reset: Arc<AtomicBool>,
    pub(super) trouble: Trouble,
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
    hub: &Arc<Hub>,
) -> Result<Greeted, Refused> {
    let trouble = Trouble::default();
    let stream = Watched::new(dialled.stream, trouble.clone());
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(MOST_PENDING);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let (info, config) =
        if resp3 { with_resp3(info, config, options, hub) } else { (info, config) };
    let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (mut connection, driver) =
        made.map_err(|error| not_greeted(&error, &trouble, options, resp3))?;
    let mut driver: Task<()> = Box::pin(driver);
    let sent = clock.now();
    let questions = questions(options, resp3);
    let mut ended = false;
    let answers = {
        let asked = connection.send_packed_commands(&questions.pipeline, 0, questions.count);
        let mut asked = pin!(asked);
        // Nobody else drives the connection yet.
        let drive = poll_fn(|context| match asked.as_mut().poll(context) {
            Poll::Pending if driver.as_mut().poll(context).is_ready() => {
                ended = true;
                asked.as_mut().poll(context)
            }
            polled => polled,
        });
        drive.await
    };
    if ended {
        // It may have ended right behind its last answer, and must not be driven again.
        driver = Box::pin(std::future::ready(()));
    }
    let answers = answers.map_err(|error| not_greeted(&error, &trouble, options, resp3))?;
    let round_trip = sent.until(clock.now());
    let answers: Vec<_> = answers.into_iter().map(Value::from_wire).collect();
    let (needed, asked) = answers.split_at(questions.needed.min(answers.len()));
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
    Ok(Greeted { connection, driver, facts, reset: dialled.reset, trouble })
}

fn with_resp3(
    info: RedisConnectionInfo,
    config: AsyncConnectionConfig,
    options: &RedisOptions,
    hub: &Arc<Hub>,
) -> (RedisConnectionInfo, AsyncConnectionConfig) {
    let mut info = info.set_protocol(ProtocolVersion::RESP3);
    if let Some(password) = options.password().expose() {
        info = info.set_username(options.user().unwrap_or("default")).set_password(password);
    }
    let hub = hub.clone();
    let config = config.set_push_sender(move |push: PushInfo| {
        if let (
            PushKind::Message,
            [redis::Value::BulkString(channel), redis::Value::BulkString(message)],
        ) = (push.kind, push.data.as_slice())
        {
            hub.deliver(channel, message);
        }
        Ok::<(), redis::aio::SendError>(())
    });
    (info, config)
}

struct Questions {
    pipeline: redis::Pipeline,
    count: usize,
    /// How many at the start must be answered well.
    needed: usize,
}

fn questions(options: &RedisOptions, resp3: bool) -> Questions {
    let mut pipeline = redis::pipe();
    let mut needed = 0;
    if let Some(password) = options.password().expose().filter(|_| !resp3) {
        let auth = pipeline.cmd("AUTH");
        match options.user() {
            Some(user) => auth.arg(user).arg(password),
            None => auth.arg(password),
        };
        needed += 1;
    }
    if options.db() != 0 {
        pipeline.cmd("SELECT").arg(options.db());
        needed += 1;
    }
    pipeline.cmd("INFO").arg("server");
    pipeline.cmd("COMMAND").arg("INFO").arg("DELEX").arg("DELIFEQ");
    pipeline.cmd("COMMAND").arg("DOCS").arg("SET");
    let name = match options.client_name() {
        Some(name) => name.to_owned(),
        None => format!("holdline-{}", std::process::id()),
    };
    pipeline.cmd("CLIENT").arg("SETNAME").arg(name);
    pipeline.cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("holdline");
    pipeline.cmd("CLIENT").arg("SETINFO").arg("LIB-VER").arg(env!("CARGO_PKG_VERSION"));
    let count = pipeline.len();
    Questions { pipeline, count, needed }
}

type Answer = Result<Value, ServerWords>;

/// Reads what the server told about itself; what it did not tell stays unknown.
fn facts(answers: &[Answer]) -> ServerFacts {
    let answer = |place: usize| answers.get(place).and_then(|answer| answer.as_ref().ok());
    let info = answer(0).and_then(Value::as_text).unwrap_or_default();
    let line = |key: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned())
    };
    let commands = answer(1).and_then(Value::as_array).unwrap_or_default();
    let known = |place: usize| commands.get(place).is_some_and(|command| *command != Value::Nil);
    ServerFacts {
        version: line("redis_version"),
        run_id: line("run_id"),
        set_ifeq: answer(2).is_some_and(|docs| mentions(docs, "ifeq")),
        delex: known(0),
        delifeq: known(1),
        ..ServerFacts::default()
    }
}

/// Tells whether a word stands anywhere in a reply.
fn mentions(value: &Value, word: &str) -> bool {
    match value {
        Value::Array(parts) => parts.iter().any(|part| mentions(part, word)),
        other => other.as_text().is_some_and(|text| text.eq_ignore_ascii_case(word)),
    }
}

fn not_greeted(
    error: &redis::RedisError,
    trouble: &Trouble,
    options: &RedisOptions,
    resp3: bool,
) -> Refused {
    if error.kind() == redis::ErrorKind::RESP3NotSupported && resp3 {
        return Refused::OldProtocol;
    }
    if let Some(words) = words_in(error) {
        let hello = words.rest.contains("'hello'") || words.rest.contains("unknown command");
        if resp3 && (words.code == "NOPROTO" || hello) {
            return Refused::OldProtocol;
        }
        return refusal(words).into();
    }
    let address = options.address();
    if error.kind() == redis::ErrorKind::Parse {
        let message = format!("{address}: no Redis server answers there");
        let kind = ErrorKind::Protocol { message };
        return LockError::new(ENGINE, kind, Certainty::NotApplied).into();
    }
    let Some(broke) = trouble.take() else {
        return unavailable(format!("{address}: {error}"), Certainty::NotApplied).into();
    };
    match address {
        Address::Tcp { host, tls: true, .. } => tls::failure(&broke, host, options.tls()).into(),
        Address::Tcp { .. } => {
            let hint = "is it a TLS port? Then write `rediss://`";
            let message = format!("{address}: broke off at the first words: {hint} ({broke})");
            unavailable(message, Certainty::NotApplied).into()
        }
        Address::Unix(_) => {
            let message = format!("{address}: broke off at the first words ({broke})");
            unavailable(message, Certainty::NotApplied).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Answer {
        Ok(Value::Bytes(text.as_bytes().to_vec()))
    }

    #[test]
    fn what_the_server_tells_is_read_and_what_it_refuses_is_unknown() {
        let info = text("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n");
        let commands = Ok(Value::Array(vec![Value::Array(vec![]), Value::Nil]));
        let docs = Ok(Value::Array(vec![Value::Array(vec![Value::Bytes(b"IFEQ".to_vec())])]));
        let told = facts(&[info, commands, docs]);
        assert_eq!(told.version.as_deref(), Some("7.0.15"));
        assert_eq!(told.run_id.as_deref(), Some("abc"));
        assert_eq!((told.delex, told.delifeq, told.set_ifeq), (true, false, true));
        let refused = || Err(ServerWords::new("NOPERM", "no"));
        assert_eq!(facts(&[refused(), refused(), refused()]), ServerFacts::default());
        assert_eq!(facts(&[]), ServerFacts::default());
    }
}
