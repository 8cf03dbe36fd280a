//! Subscriptions for servers that do not push: a second connection, with the older protocol.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use holdline_core::{Certainty, ErrorKind, LockError};

use super::Shared;
use super::dial::{Stage, dial};
use super::greet::auth;
use super::hub::Hub;
use super::resp::Frame;
use super::supervisor::{aim, within};
use super::value::Value;
use super::wire::{Broke, Wire};
use crate::error::{ServerWords, refusal, unavailable};

/// Listens until the connection ends. Each connection has its own number.
pub(super) async fn listen(shared: &Arc<Shared>) -> LockError {
    let stage = Stage::default();
    let mut wire = match within(shared, &stage, open(shared, &stage)).await {
        Ok(wire) => wire,
        Err(error) => return error,
    };
    let id = shared.next_id();
    let error = loop {
        if let Err(error) = fulfil(shared, &stage, &mut wire, id).await {
            break error;
        }
        match next(&mut wire, &shared.hub).await {
            Ok(Some(frame)) => drop(heard(&shared.hub, &frame)),
            // Something else is wished for.
            Ok(None) => {}
            Err(broke) => break broken(&broke),
        }
    };
    shared.hub.lost(id);
    error
}

async fn open(shared: &Shared, stage: &Stage) -> Result<Wire, LockError> {
    let options = aim(shared).await?;
    let dialled = dial(&options, stage).await?;
    let mut wire = Wire::new(dialled.stream);
    if let Some(words) = auth(&options) {
        let answers = wire.ask(&[words]).await.map_err(|broke| broken(&broke))?;
        answers.into_iter().try_for_each(|answer| answer.map(drop).map_err(refusal))?;
    }
    Ok(wire)
}

/// Waits for what is said, or until other channels are wished for.
async fn next(wire: &mut Wire, hub: &Hub) -> Result<Option<Frame>, Broke> {
    let mut changed = pin!(hub.changed());
    let mut frame = pin!(wire.frame());
    poll_fn(|context| {
        if let Poll::Ready(frame) = frame.as_mut().poll(context) {
            return Poll::Ready(frame.map(Some));
        }
        changed.as_mut().poll(context).map(|()| Ok(None))
    })
    .await
}

/// Hands a message on; tells what else it is.
fn heard<'a>(hub: &Hub, frame: &'a Frame) -> Result<Option<&'a str>, &'a ServerWords> {
    let parts = match frame {
        Frame::Reply(Ok(value)) => value.as_array().unwrap_or_default(),
        Frame::Reply(Err(words)) => return Err(words),
        Frame::Push(parts) => parts,
    };
    if let [kind, Value::Bytes(channel), Value::Bytes(message)] = parts
        && kind.as_text() == Some("message")
    {
        hub.deliver(channel, message);
    }
    Ok(parts.first().and_then(Value::as_text))
}

async fn fulfil(
    shared: &Arc<Shared>,
    stage: &Stage,
    wire: &mut Wire,
    id: u64,
) -> Result<(), LockError> {
    let hub = &shared.hub;
    let wishes = hub.wishes(id);
    if !wishes.unsubscribe.is_empty() {
        // Whether it is refused does not matter: nobody reads what comes.
        let said = say(wire, hub, "unsubscribe", &wishes.unsubscribe);
        drop(within(shared, stage, said).await?);
    }
    if wishes.subscribe.is_empty() {
        return Ok(());
    }
    let said = say(wire, hub, "subscribe", &wishes.subscribe);
    match within(shared, stage, said).await? {
        Ok(()) => hub.subscribed(&wishes.subscribe, id),
        Err(words) => {
            let error = refusal(words);
            if !matches!(error.kind(), ErrorKind::Refused { .. }) {
                return Err(error);
            }
            tracing::warn!(%error, "no subscription: waiters are left to their heartbeat");
            hub.refused(&wishes.subscribe, id);
        }
    }
    Ok(())
}

/// Says something about channels, and waits until it is confirmed for each, or refused.
async fn say(
    wire: &mut Wire,
    hub: &Hub,
    verb: &str,
    channels: &[Vec<u8>],
) -> Result<Result<(), ServerWords>, LockError> {
    let command = verb.to_ascii_uppercase();
    let channel_words = channels.iter().map(Vec::as_slice);
    let words = [command.as_bytes()].into_iter().chain(channel_words).collect();
    wire.send(&[words]).await.map_err(|broke| broken(&broke))?;
    let mut left = channels.len();
    while left > 0 {
        let frame = wire.frame().await.map_err(|broke| broken(&broke))?;
        match heard(hub, &frame) {
            Ok(kind) => left -= usize::from(kind == Some(verb)),
            Err(words) => return Ok(Err(words.clone())),
        }
    }
    Ok(Ok(()))
}

fn broken(broke: &Broke) -> LockError {
    let why = match broke {
        Broke::Stream(error) => format!("the subscriptions broke: {error}"),
        Broke::Rubbish => "the subscriptions broke: what came is no reply".to_owned(),
    };
    unavailable(why, Certainty::Unknown)
}
