//! What a healthy connection needs: its subscriptions, and reports about a quarantine.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{ErrorKind, LockError};

use super::connection::Connection;
use super::pending::Limit;
use super::pending_reply::PendingReply;
use super::request::Request;
use super::subscriptions::Form;
use super::value::Value;
use super::{LinkParts, master_term};
use crate::error::refusal;

/// How soon a subscription that failed is requested again.
const SUBSCRIBE_RETRY: Duration = Duration::from_millis(100);
/// How often a server that grants nothing is asked again.
const GRANTS_RETRY: Duration = Duration::from_secs(1);

/// Keeps the subscriptions of a connection up to date until the router has something to do.
pub(super) async fn maintain_connection(parts: &Arc<LinkParts>, connection: &Arc<Connection>) {
    let changes = async {
        if connection.facts().resp == 2 {
            return std::future::pending().await;
        }
        if !apply_changes(parts, connection).await {
            let end = parts.clock.now().after(SUBSCRIBE_RETRY);
            return parts.clock.sleep_until(end).await;
        }
        parts.subscriptions.changed().await;
    };
    tokio::select! {
        biased;
        () = parts.router.needs_supervisor() => {}
        () = changes => {}
        () = report_quarantine(parts, connection) => {}
        () = await_grants(parts, connection) => {}
    }
}

/// Asks a server that grants nothing whether that is still so, and closes the connection when it is
/// not: the next handshake finds out since when it may grant. Never ends otherwise.
async fn await_grants(parts: &LinkParts, connection: &Arc<Connection>) {
    let facts = connection.facts();
    let Some(args) = master_term::query_again(&parts.options, facts) else {
        return std::future::pending().await;
    };
    loop {
        parts.clock.sleep_until(parts.clock.now().after(GRANTS_RETRY)).await;
        let reply = reply_to(parts, connection, Request::Command(&args)).await;
        if reply.is_ok_and(|reply| master_term::is_of_master(&reply)) {
            connection.close("the server may grant now");
        }
    }
}

/// Reports how much of a quarantine has passed, while it lasts. Never ends.
async fn report_quarantine(parts: &LinkParts, connection: &Arc<Connection>) {
    let facts = connection.facts();
    while facts.quarantined_until().is_some()
        && let Some(quarantine) = facts.quarantine
        && let Some(next) = master_term::next_report(quarantine, parts.clock.now())
    {
        parts.clock.sleep_until(next).await;
        if let Some(args) = master_term::report(&parts.options, facts, parts.clock.now())
            && let Ok(reply) = reply_to(parts, connection, Request::Command(&args)).await
        {
            master_term::handle_report_reply(facts, &reply);
        }
    }
    std::future::pending::<()>().await;
}

/// Sends the subscriptions that have changed; false when that must be repeated.
pub(super) async fn apply_changes(parts: &LinkParts, connection: &Arc<Connection>) -> bool {
    let changes = parts.subscriptions.changes(Form::Plain, connection.id());
    apply_shard_changes(parts, connection).await;
    if changes.is_empty() {
        return true;
    }
    if !changes.unsubscribe.is_empty() {
        // A failure does not matter: the messages have no subscriber.
        drop(request(parts, connection, Request::Unsubscribe(&changes.unsubscribe)).await);
    }
    if changes.subscribe.is_empty() {
        return true;
    }
    match request(parts, connection, Request::Subscribe(&changes.subscribe)).await {
        Ok(()) => parts.subscriptions.confirmed(Form::Plain, &changes.subscribe, connection.id()),
        Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
            tracing::warn!(%error, "no subscription: waiters rely on their heartbeat");
            parts.subscriptions.refused(Form::Plain, &changes.subscribe, connection.id());
        }
        Err(error) => {
            tracing::debug!(%error, "no subscription yet");
            return false;
        }
    }
    true
}

/// The same for sharded channels. One that is refused, as the node does not serve its slot, is
/// lost: its subscriber finds the right node.
async fn apply_shard_changes(parts: &LinkParts, connection: &Arc<Connection>) {
    let changes = parts.subscriptions.changes(Form::Sharded, connection.id());
    for channel in &changes.unsubscribe {
        drop(request(parts, connection, Request::ShardUnsubscribe(channel)).await);
    }
    for channel in changes.subscribe {
        let reply = request(parts, connection, Request::ShardSubscribe(&channel)).await;
        let names = std::slice::from_ref(&channel);
        match reply {
            Ok(()) => parts.subscriptions.confirmed(Form::Sharded, names, connection.id()),
            Err(error) => {
                tracing::debug!(%error, "no subscription to a sharded channel");
                parts.subscriptions.refused(Form::Sharded, names, connection.id());
            }
        }
    }
}

async fn request(
    parts: &LinkParts,
    connection: &Arc<Connection>,
    request: Request<'_>,
) -> Result<(), LockError> {
    reply_to(parts, connection, request).await.map(drop)
}

async fn reply_to(
    parts: &LinkParts,
    connection: &Arc<Connection>,
    request: Request<'_>,
) -> Result<Value, LockError> {
    let asked = parts.options.command_timeout();
    let limit = Limit { end: parts.clock.now().after(asked), asked };
    match PendingReply::enqueue(connection.clone(), request, None, limit) {
        Ok(reply) => reply.await?.map_err(refusal),
        Err(rejected) => Err(rejected.into()),
    }
}
