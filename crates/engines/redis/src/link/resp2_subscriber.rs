//! Subscriptions with RESP2, which cannot push on a shared connection: they have one of their own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use holdline_core::{Certainty, ErrorKind, LockError};

use super::LinkParts;
use super::connect::{target, within};
use super::dial::{Stage, dial};
use super::facts::ServerFacts;
use super::handshake::auth;
use super::master_term::Run;
use super::resp::Frame;
use super::subscriptions::{Form, Subscriptions};
use super::value::Value;
use super::wire::{Wire, WireError};
use crate::error::{ServerError, refusal, unavailable};

/// Connects, subscribes and delivers messages until the connection ends. Each connection has its
/// own number.
pub(super) async fn run(parts: &Arc<LinkParts>) -> LockError {
    let stage = Stage::default();
    let Opened { mut wire, sender } = match within(parts, &stage, open(parts, &stage)).await {
        Ok(opened) => opened,
        Err(error) => return error,
    };
    let id = parts.next_id();
    let receiver = Receiver { parts, sender };
    let error = loop {
        if let Err(error) = apply_changes(&receiver, &stage, &mut wire, id).await {
            break error;
        }
        if let Err(error) = apply_shard_changes(&receiver, &stage, &mut wire, id).await {
            break error;
        }
        match next_frame(&mut wire, &parts.subscriptions).await {
            Ok(Some(frame)) => drop(handle_frame(&receiver, &frame)),
            // The subscriptions have changed.
            Ok(None) => {}
            Err(error) => break lock_error(&error),
        }
    };
    parts.subscriptions.lost(id);
    error
}

/// A connection for subscriptions, and the server at its other end as far as it lets us ask.
struct Opened {
    wire: Wire,
    sender: Option<Run>,
}

/// Where messages go, and who sends them.
struct Receiver<'a> {
    parts: &'a LinkParts,
    sender: Option<Run>,
}

impl Receiver<'_> {
    /// Returns what is known of the sender: what the connection for requests has shown, if that
    /// leads to the same run of the same server.
    fn sender(&self) -> Option<Arc<ServerFacts>> {
        let run = self.sender.as_ref()?;
        self.parts.router.facts().filter(|facts| run.is(facts.run_id.as_deref()))
    }
}

async fn open(parts: &LinkParts, stage: &Stage) -> Result<Opened, LockError> {
    let options = target(parts).await?;
    let dialled = dial(&options, stage).await?;
    let mut wire = Wire::new(dialled.stream);
    let password = options.password().read().await;
    if let Some(args) = auth(&options, password.as_deref()) {
        let answers = wire.request(&[args]).await.map_err(|error| lock_error(&error))?;
        answers.into_iter().try_for_each(|answer| answer.map(drop).map_err(refusal))?;
    }
    let mut sender = None;
    if parts.discovery.single.is_some() && parts.options.failover().quarantine() {
        let asked = Run::QUESTIONS.map(|words| words.to_vec());
        let answers = wire.request(&asked).await.map_err(|error| lock_error(&error))?;
        sender = Run::read(&answers);
    }
    Ok(Opened { wire, sender })
}

/// Waits for the next frame, or until the subscriptions change.
async fn next_frame(
    wire: &mut Wire,
    subscriptions: &Subscriptions,
) -> Result<Option<Frame>, WireError> {
    let mut changed = pin!(subscriptions.changed());
    let mut frame = pin!(wire.frame());
    poll_fn(|context| {
        if let Poll::Ready(frame) = frame.as_mut().poll(context) {
            return Poll::Ready(frame.map(Some));
        }
        changed.as_mut().poll(context).map(|()| Ok(None))
    })
    .await
}

/// Delivers a message; returns the kind of any other frame.
fn handle_frame<'a>(
    receiver: &Receiver<'_>,
    frame: &'a Frame,
) -> Result<Option<&'a str>, &'a ServerError> {
    let frame_parts = match frame {
        Frame::Reply(Ok(value)) => value.as_array().unwrap_or_default(),
        Frame::Reply(Err(args)) => return Err(args),
        Frame::Push(frame_parts) => frame_parts,
    };
    let sender = receiver.sender();
    receiver.parts.subscriptions.handle_push(frame_parts, sender.as_deref());
    Ok(frame_parts.first().and_then(Value::as_text))
}

async fn apply_changes(
    receiver: &Receiver<'_>,
    stage: &Stage,
    wire: &mut Wire,
    id: u64,
) -> Result<(), LockError> {
    let parts = receiver.parts;
    let subscriptions = &parts.subscriptions;
    let changes = subscriptions.changes(Form::Plain, id);
    if !changes.unsubscribe.is_empty() {
        // A refusal does not matter: the messages have no subscriber.
        let said = request(wire, receiver, "unsubscribe", &changes.unsubscribe);
        drop(within(parts, stage, said).await?);
    }
    if changes.subscribe.is_empty() {
        return Ok(());
    }
    let said = request(wire, receiver, "subscribe", &changes.subscribe);
    match within(parts, stage, said).await? {
        Ok(()) => subscriptions.confirmed(Form::Plain, &changes.subscribe, id),
        Err(args) => {
            let error = refusal(args);
            if !matches!(error.kind(), ErrorKind::Refused { .. }) {
                return Err(error);
            }
            tracing::warn!(%error, "no subscription: waiters rely on their heartbeat");
            subscriptions.refused(Form::Plain, &changes.subscribe, id);
        }
    }
    Ok(())
}

/// The same for sharded channels. One that is refused, as the node does not serve its slot, is
/// lost: its subscriber finds the right node.
async fn apply_shard_changes(
    receiver: &Receiver<'_>,
    stage: &Stage,
    wire: &mut Wire,
    id: u64,
) -> Result<(), LockError> {
    let parts = receiver.parts;
    let subscriptions = &parts.subscriptions;
    let changes = subscriptions.changes(Form::Sharded, id);
    for channel in &changes.unsubscribe {
        let said = request(wire, receiver, "sunsubscribe", std::slice::from_ref(channel));
        drop(within(parts, stage, said).await?);
    }
    for channel in &changes.subscribe {
        let names = std::slice::from_ref(channel);
        let said = request(wire, receiver, "ssubscribe", names);
        match within(parts, stage, said).await? {
            Ok(()) => subscriptions.confirmed(Form::Sharded, names, id),
            Err(_) => subscriptions.refused(Form::Sharded, names, id),
        }
    }
    Ok(())
}

/// Sends a command about channels, and waits until the server confirms each, or refuses.
async fn request(
    wire: &mut Wire,
    receiver: &Receiver<'_>,
    verb: &str,
    channels: &[Vec<u8>],
) -> Result<Result<(), ServerError>, LockError> {
    let command = verb.to_ascii_uppercase();
    let channel_words = channels.iter().map(Vec::as_slice);
    let args = [command.as_bytes()].into_iter().chain(channel_words).collect();
    wire.send(&[args]).await.map_err(|error| lock_error(&error))?;
    let mut missing = channels.len();
    while missing > 0 {
        let frame = wire.frame().await.map_err(|error| lock_error(&error))?;
        match handle_frame(receiver, &frame) {
            Ok(kind) => missing -= usize::from(kind == Some(verb)),
            Err(args) => return Ok(Err(args.clone())),
        }
    }
    Ok(Ok(()))
}

fn lock_error(error: &WireError) -> LockError {
    let why = match error {
        WireError::Io(error) => format!("the connection for subscriptions broke: {error}"),
        WireError::InvalidFrame => {
            "the connection for subscriptions broke: invalid reply".to_owned()
        }
    };
    unavailable(why, Certainty::Unknown)
}
