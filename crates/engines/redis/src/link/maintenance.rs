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
use super::{Shared, master_term};
use crate::error::refusal;

/// How soon a subscription that failed is requested again.
const SUBSCRIBE_RETRY: Duration = Duration::from_millis(100);

/// Keeps the subscriptions of a connection up to date until the router has something to do.
pub(super) async fn maintain_connection(shared: &Arc<Shared>, connection: &Arc<Connection>) {
    let changes = async {
        if connection.facts().resp == 2 {
            return std::future::pending().await;
        }
        if !apply_changes(shared, connection).await {
            let end = shared.clock.now().after(SUBSCRIBE_RETRY);
            return shared.clock.sleep_until(end).await;
        }
        shared.subscriptions.changed().await;
    };
    tokio::select! {
        biased;
        () = shared.router.needs_supervisor() => {}
        () = changes => {}
        () = report_quarantine(shared, connection) => {}
    }
}

/// Reports how much of a quarantine has passed, while it lasts. Never ends.
async fn report_quarantine(shared: &Shared, connection: &Arc<Connection>) {
    let facts = connection.facts();
    while facts.quarantined_until().is_some()
        && let Some(quarantine) = facts.quarantine
        && let Some(next) = master_term::next_report(quarantine, shared.clock.now())
    {
        shared.clock.sleep_until(next).await;
        if let Some(args) = master_term::report(&shared.options, facts, shared.clock.now())
            && let Ok(reply) = reply_to(shared, connection, Request::Command(&args)).await
        {
            master_term::handle_report_reply(facts, &reply);
        }
    }
    std::future::pending::<()>().await;
}

/// Sends the subscriptions that have changed; false when that must be repeated.
pub(super) async fn apply_changes(shared: &Shared, connection: &Arc<Connection>) -> bool {
    let changes = shared.subscriptions.changes(Form::Plain, connection.id());
    apply_shard_changes(shared, connection).await;
    if changes.is_empty() {
        return true;
    }
    if !changes.unsubscribe.is_empty() {
        // A failure does not matter: the messages have no subscriber.
        drop(request(shared, connection, Request::Unsubscribe(&changes.unsubscribe)).await);
    }
    if changes.subscribe.is_empty() {
        return true;
    }
    match request(shared, connection, Request::Subscribe(&changes.subscribe)).await {
        Ok(()) => shared.subscriptions.confirmed(Form::Plain, &changes.subscribe, connection.id()),
        Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
            tracing::warn!(%error, "no subscription: waiters rely on their heartbeat");
            shared.subscriptions.refused(Form::Plain, &changes.subscribe, connection.id());
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
async fn apply_shard_changes(shared: &Shared, connection: &Arc<Connection>) {
    let changes = shared.subscriptions.changes(Form::Sharded, connection.id());
    for channel in &changes.unsubscribe {
        drop(request(shared, connection, Request::ShardUnsubscribe(channel)).await);
    }
    for channel in changes.subscribe {
        let reply = request(shared, connection, Request::ShardSubscribe(&channel)).await;
        let names = std::slice::from_ref(&channel);
        match reply {
            Ok(()) => shared.subscriptions.confirmed(Form::Sharded, names, connection.id()),
            Err(error) => {
                tracing::debug!(%error, "no subscription to a sharded channel");
                shared.subscriptions.refused(Form::Sharded, names, connection.id());
            }
        }
    }
}

async fn request(
    shared: &Shared,
    connection: &Arc<Connection>,
    request: Request<'_>,
) -> Result<(), LockError> {
    reply_to(shared, connection, request).await.map(drop)
}

async fn reply_to(
    shared: &Shared,
    connection: &Arc<Connection>,
    request: Request<'_>,
) -> Result<Value, LockError> {
    let asked = shared.options.command_timeout();
    let limit = Limit { end: shared.clock.now().after(asked), asked };
    match PendingReply::enqueue(connection.clone(), request, None, limit) {
        Ok(reply) => reply.await?.map_err(refusal),
        Err(rejected) => Err(rejected.into()),
    }
}
