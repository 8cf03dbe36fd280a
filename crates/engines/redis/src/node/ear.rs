//! Subscriptions for servers that do not push: a second connection, with the older protocol.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use futures_core::Stream;
use holdline_core::{Certainty, ErrorKind, LockError};
use redis::RedisConnectionInfo;
use redis::aio::{PubSub, PubSubSink, PubSubStream};

use super::Shared;
use super::dial::{Stage, dial};
use super::hub::Hub;
use super::supervisor::within;
use crate::error::unavailable;
use crate::options::RedisOptions;

/// What the ear does next.
enum Next {
    Message(Option<redis::Msg>),
    Wishes,
}

/// Listens until the connection ends. Each connection has its own number.
pub(super) async fn listen(shared: &Arc<Shared>) -> LockError {
    let stage = Stage::default();
    let (mut sink, mut stream) = match within(shared, &stage, open(&shared.options, &stage)).await {
        Ok(open) => open,
        Err(error) => return error,
    };
    let hub = &shared.hub;
    let id = shared.next_id();
    let error = loop {
        if let Err(error) = fulfil(shared, &stage, &mut sink, id).await {
            break error;
        }
        match next(&mut stream, hub).await {
            Next::Message(Some(message)) => {
                hub.deliver(message.get_channel_name().as_bytes(), message.get_payload_bytes());
            }
            Next::Message(None) => {
                break unavailable("the subscriptions broke", Certainty::Unknown);
            }
            Next::Wishes => {}
        }
    };
    hub.lost(id);
    error
}

async fn open(
    options: &RedisOptions,
    stage: &Stage,
) -> Result<(PubSubSink, PubSubStream), LockError> {
    if tokio::runtime::Handle::try_current().is_err() {
        let message = "the older protocol needs tokio's runtime for its subscriptions";
        return Err(unavailable(message, Certainty::NotApplied));
    }
    let dialled = dial(options, stage).await?;
    let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(password) = options.password().expose() {
        info = info.set_password(password);
        if let Some(user) = options.user() {
            info = info.set_username(user);
        }
    }
    let made = PubSub::new(&info, dialled.stream).await;
    made.map(PubSub::split).map_err(|error| broken(&error))
}

async fn next(stream: &mut PubSubStream, hub: &Hub) -> Next {
    let mut changed = pin!(hub.changed());
    poll_fn(|context| {
        if let Poll::Ready(message) = Pin::new(&mut *stream).poll_next(context) {
            return Poll::Ready(Next::Message(message));
        }
        changed.as_mut().poll(context).map(|()| Next::Wishes)
    })
    .await
}

async fn fulfil(
    shared: &Arc<Shared>,
    stage: &Stage,
    sink: &mut PubSubSink,
    id: u64,
) -> Result<(), LockError> {
    let wishes = shared.hub.wishes(id);
    if !wishes.unsubscribe.is_empty() {
        let said =
            async { sink.unsubscribe(&wishes.unsubscribe).await.map_err(|error| broken(&error)) };
        within(shared, stage, said).await?;
    }
    if !wishes.subscribe.is_empty() {
        let said =
            async { sink.subscribe(&wishes.subscribe).await.map_err(|error| broken(&error)) };
        match within(shared, stage, said).await {
            Ok(()) => shared.hub.subscribed(&wishes.subscribe, id),
            Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
                tracing::warn!(%error, "no subscription: waiters are left to their heartbeat");
                shared.hub.refused(&wishes.subscribe, id);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn broken(error: &redis::RedisError) -> LockError {
    match super::value::words_in(error) {
        Some(words) => crate::error::refusal(words),
        None => unavailable(format!("the subscriptions broke: {error}"), Certainty::Unknown),
    }
}
