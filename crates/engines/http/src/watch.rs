//! Notifications: one open response for each watch, opened again when it breaks off.
//!
//! A hint that is lost with a connection costs one heartbeat. A connection that has gone silent is
//! noticed, because the server writes a byte every few seconds.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::{Hint, Hints, LeaseId, LockError, LockName};
use holdline_net::workplace::Workplace;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::keys::WATCH;
use crate::wire::{Watch, hint_of};

/// How many hints wait to be taken. Each means "ask now", so more of them say nothing new.
const UNTAKEN: usize = 16;
/// After how long without a byte the connection counts as broken.
const SILENCE: Duration = Duration::from_secs(15);
/// The pause before a watch is opened again: that of the heartbeat, which replaces it meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn open(
    executor: &Workplace,
    client: Arc<Client>,
    name: LockName,
    lease_id: LeaseId,
) -> Hints {
    let (hints, taken) = mpsc::channel(UNTAKEN);
    executor.spawn(async move {
        let request = Watch { name, lease_id };
        tokio::select! {
            biased;
            () = hints.closed() => {}
            () = follow(&client, &request, &hints) => {}
        }
    });
    Box::pin(Taken(taken))
}

/// Passes on hints until nobody takes them any more.
async fn follow(client: &Client, request: &Watch, hints: &mpsc::Sender<Hint>) {
    loop {
        match client.open(WATCH, request).await {
            Ok(body) => pass_on(body, hints).await,
            Err(error) => log(&error),
        }
        sleep(PAUSE).await;
    }
}

fn log(error: &LockError) {
    tracing::debug!(%error, "a watch could not be opened: the heartbeat replaces it");
}

/// Passes on what one response says, until it breaks off.
async fn pass_on(mut body: Incoming, hints: &mpsc::Sender<Hint>) {
    while let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await {
        let bytes = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
        for hint in bytes.iter().copied().filter_map(hint_of) {
            // Full of hints that were not taken yet: whoever takes them asks anyway.
            let _ = hints.try_send(hint);
        }
    }
}

struct Taken(mpsc::Receiver<Hint>);

impl Stream for Taken {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        self.0.poll_recv(context)
    }
}
