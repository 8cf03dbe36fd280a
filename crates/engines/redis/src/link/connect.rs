//! Makes one connection: dials the right server, performs the handshake, and subscribes.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdline_core::{Certainty, LockError, Moment};

use super::connection::{Connection, ConnectionCallbacks};
use super::connection_task::ConnectionTask;
use super::dial::{Stage, dial};
use super::handshake::{Established, HandshakeError, handshake};
use super::{Shared, maintenance, master_term};
use crate::error::unavailable;
use crate::options::RedisOptions;

/// Returns the settings of the server to dial: of the one in the options, of the master that the
/// sentinels name, or of the next node of a cluster.
pub(super) async fn target(shared: &Shared) -> Result<Cow<'_, RedisOptions>, LockError> {
    if let Some(seed_list) = &shared.discovery.seed_list {
        let (host, port) = seed_list.next();
        return Ok(Cow::Owned(shared.options.at(&host, port)));
    }
    let Some(source) = &shared.discovery.master_source else {
        return Ok(Cow::Borrowed(&shared.options));
    };
    let (host, port) = source.query().await?;
    Ok(Cow::Owned(shared.options.at(&host, port)))
}

/// Makes a connection and hands it to the router.
pub(super) async fn connect(shared: &Arc<Shared>) -> Result<(), LockError> {
    let resp3 = shared.options.resp3() && !shared.resp2_only.load(Ordering::Relaxed);
    let stage = Stage::default();
    let established = match within(shared, &stage, open(shared, resp3, &stage)).await {
        Ok(Ok(established)) => established,
        Ok(Err(Resp2Only)) => {
            let established = within(shared, &stage, open(shared, false, &stage)).await?.map_err(
                |Resp2Only| {
                    unavailable("the server speaks no known protocol", Certainty::NotApplied)
                },
            )?;
            shared.resp2_only.store(true, Ordering::Relaxed);
            established
        }
        Err(error) => return Err(error),
    };
    let Established { wire, facts, reset } = established;
    let address = shared.options.address();
    tracing::debug!(%address, ?facts, "connected");
    if shared.router.facts().is_some_and(|before| facts.is_another_than(&before)) {
        tracing::warn!(%address, "another server than before, or restarted: is its data kept?");
    }
    let callbacks = ConnectionCallbacks { observer: shared.router.clone(), reset };
    let connection =
        Connection::new(shared.next_id(), facts, shared.clock.clone(), callbacks, Some(wire));
    let connection = NewConnection(Some(Arc::new(connection)));
    if let Some(connection) = &connection.0 {
        let task = ConnectionTask::new(connection.clone(), shared.subscriptions.clone());
        shared.runtime.spawn(Box::pin(task));
        // Before any request: a waiter with our inbox then always has a subscriber.
        if connection.facts().resp == 3 {
            maintenance::apply_changes(shared, connection).await;
        }
    }
    connection.add(shared);
    // The sentinels may have named another master while this one was dialled.
    if let Some(source) = &shared.discovery.master_source {
        shared.close_others(source.master().borrow().as_ref());
    }
    Ok(())
}

/// A connection that is closed unless the router takes it over.
struct NewConnection(Option<Arc<Connection>>);

impl NewConnection {
    fn add(mut self, shared: &Shared) {
        self.0.take().into_iter().for_each(|connection| shared.router.add(connection));
    }
}

impl Drop for NewConnection {
    fn drop(&mut self) {
        self.0.iter().for_each(|connection| connection.close("the connection is no longer needed"));
    }
}

/// The server does not allow `HELLO 3`.
struct Resp2Only;

async fn open(
    shared: &Shared,
    resp3: bool,
    stage: &Stage,
) -> Result<Result<Established, Resp2Only>, LockError> {
    let options = target(shared).await?;
    let dialled = dial(&options, stage).await?;
    let reset = dialled.reset.clone();
    // Until the handshake is complete, dropping the stream resets it.
    reset.store(true, Ordering::Release);
    let established = handshake(dialled, &options, resp3, &*shared.clock).await;
    match established {
        Ok(mut established) => {
            if shared.discovery.master_source.is_some() {
                let term =
                    master_term::query(&mut established.wire, &shared.options, &*shared.clock)
                        .await?;
                established.facts.run_id = term.run_id.or(established.facts.run_id);
                established.facts.quarantine = term.quarantine;
            }
            let discovery = &shared.discovery;
            if discovery.master_source.is_some() || discovery.seed_list.is_some() {
                established.facts.host_port = options.host_port();
            }
            if established.facts.is_master {
                shared.was_master.store(true, Ordering::Relaxed);
            }
            reset.store(false, Ordering::Release);
            Ok(Ok(established))
        }
        Err(HandshakeError::Resp2Only) => Ok(Err(Resp2Only)),
        Err(HandshakeError::Failed(error)) => Err(error),
    }
}

/// Limits a step of connecting to the time that a connection may take.
pub(super) async fn within<T>(
    shared: &Shared,
    stage: &Stage,
    work: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let limit = shared.options.connect_timeout();
    let end: Moment = shared.clock.now().after(limit);
    tokio::select! {
        biased;
        done = work => done,
        () = shared.clock.sleep_until(end) => {
            let address = shared.options.address();
            let message = format!("{address}: {} within {limit:?}", stage.describe());
            Err(unavailable(message, Certainty::NotApplied))
        }
    }
}
