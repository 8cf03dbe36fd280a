//! One server: how a command travels to it and what comes back.

mod script;
mod value;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;

pub(crate) use script::Script;
pub(crate) use value::{ServerWords, Value};

use crate::error::{ENGINE, unavailable};
use crate::options::{Address, RedisOptions};

/// Sixteen bytes that tie requests together: a lease id.
pub(crate) type Affinity = [u8; 16];

/// One run of a script.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// What this request must stay behind: an unanswered request of the same affinity.
    pub(crate) affinity: Option<Affinity>,
    pub(crate) deadline: Duration,
}

/// What a subscription hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A message on the channel.
    Message(Vec<u8>),
    /// The subscription was made anew: messages may have been missed, so look again at all that
    /// is waited for. Also the first thing that a new subscription hears.
    Resubscribed,
}

/// The messages of one channel.
#[derive(Debug)]
pub(crate) struct Inbox(mpsc::Receiver<Heard>);

impl futures_core::Stream for Inbox {
    type Item = Heard;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Heard>> {
        self.0.poll_recv(context)
    }
}

/// What is known of the server behind the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// As `INFO server` tells it, such as `7.0.15`; `None` where we may not ask.
    pub(crate) version: Option<String>,
    /// New with each start of the server; `None` where we may not ask.
    pub(crate) run_id: Option<String>,
    /// 2 or 3.
    pub(crate) resp: u8,
    /// `SET … IFEQ` is known.
    pub(crate) set_ifeq: bool,
    /// `DELEX … IFEQ` is known.
    pub(crate) delex: bool,
    /// `DELIFEQ` is known.
    pub(crate) delifeq: bool,
    /// How long a small command takes, there and back.
    pub(crate) round_trip: Duration,
}

/// A server, and one logical connection to it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: RedisOptions,
    clock: Arc<dyn Clock>,
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    inboxes: Arc<Mutex<HashMap<Vec<u8>, mpsc::Sender<Heard>>>>,
}

impl Node {
    /// Makes a node; it dials at the first command.
    pub(crate) fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Node, LockError> {
        options.validate()?;
        Ok(Node(Arc::new(Inner {
            options: options.clone(),
            clock,
            connection: tokio::sync::Mutex::default(),
            inboxes: Arc::default(),
        })))
    }

    /// Waits until there is a connection, and returns what is known of the server.
    pub(crate) async fn ready(&self) -> Result<Arc<ServerFacts>, LockError> {
        self.connection().await?;
        Ok(Arc::new(ServerFacts { resp: 3, ..ServerFacts::default() }))
    }

    /// Returns what is known of the server; `None` while there never was a connection.
    pub(crate) fn server(&self) -> Option<Arc<ServerFacts>> {
        None
    }

    /// Runs a script: by its name, and where the server does not know that, once by its text.
    pub(crate) async fn call(&self, call: Call) -> Result<Value, LockError> {
        let by_name = words(b"EVALSHA", call.script.sha1().as_bytes(), &call);
        match self.send(by_name, call.deadline).await? {
            Err(words) if words.code == "NOSCRIPT" => {
                let by_text = self::words(b"EVAL", call.script.text().as_bytes(), &call);
                self.send(by_text, call.deadline).await?.map_err(|words| refused(&words))
            }
            other => other.map_err(|words| refused(&words)),
        }
    }

    /// Sends a command.
    pub(crate) async fn command(
        &self,
        words: Vec<Vec<u8>>,
        _affinity: Option<Affinity>,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        self.send(words, deadline).await?.map_err(|words| refused(&words))
    }

    /// Hears a channel until the inbox is dropped. A second inbox of a channel replaces the first.
    pub(crate) fn subscribe(&self, channel: Vec<u8>) -> Inbox {
        let (sender, receiver) = mpsc::channel(1024);
        self.0.inboxes.lock().insert(channel.clone(), sender.clone());
        let node = self.clone();
        tokio::spawn(async move {
            if let Ok(mut connection) = node.connection().await
                && connection.subscribe(channel).await.is_ok()
            {
                drop(sender.send(Heard::Resubscribed).await);
            }
        });
        Inbox(receiver)
    }

    async fn send(
        &self,
        words: Vec<Vec<u8>>,
        deadline: Duration,
    ) -> Result<Result<Value, ServerWords>, LockError> {
        let end = self.0.clock.now().after(deadline);
        let mut connection = self.connection().await?;
        let mut command = redis::Cmd::new();
        for word in &words {
            command.arg(word.as_slice());
        }
        tokio::select! {
            biased;
            reply = connection.send_packed_command(&command) => match reply {
                Ok(reply) => Ok(Value::from_wire(reply)),
                Err(error) => {
                    *self.0.connection.lock().await = None;
                    Err(unavailable(error.to_string(), Certainty::Unknown))
                }
            },
            () = self.0.clock.sleep_until(end) => {
                Err(unavailable(format!("nothing within {deadline:?}"), Certainty::Unknown))
            }
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, LockError> {
        let mut current = self.0.connection.lock().await;
        if let Some(connection) = &*current {
            return Ok(connection.clone());
        }
        let failed = |error: String| unavailable(error, Certainty::NotApplied);
        let Address::Tcp { host, port, .. } = self.0.options.address() else {
            return Err(failed("unix sockets are to come".to_owned()));
        };
        let stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        let info = redis::RedisConnectionInfo::default()
            .set_protocol(redis::ProtocolVersion::RESP3)
            .set_db(i64::from(self.0.options.db()));
        let inboxes = self.0.inboxes.clone();
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |push: redis::PushInfo| {
                deliver(&inboxes, push);
                Ok::<(), redis::aio::SendError>(())
            });
        let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = made.map_err(|error| failed(error.to_string()))?;
        tokio::spawn(driver);
        *current = Some(connection.clone());
        Ok(connection)
    }
}

fn words(verb: &[u8], script: &[u8], call: &Call) -> Vec<Vec<u8>> {
    let count = call.keys.len().to_string();
    let head = [verb.to_vec(), script.to_vec(), count.into_bytes()];
    head.into_iter()
        .chain(call.keys.iter().cloned())
        .chain(call.arguments.iter().cloned())
        .collect()
}

fn refused(words: &ServerWords) -> LockError {
    let kind = ErrorKind::Refused { message: words.to_string() };
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

fn deliver(inboxes: &Mutex<HashMap<Vec<u8>, mpsc::Sender<Heard>>>, push: redis::PushInfo) {
    if push.kind != redis::PushKind::Message {
        return;
    }
    let mut data = push.data.into_iter();
    if let (Some(redis::Value::BulkString(channel)), Some(redis::Value::BulkString(message))) =
        (data.next(), data.next())
        && let Some(sender) = inboxes.lock().get(&channel)
    {
        drop(sender.try_send(Heard::Message(message)));
    }
}
