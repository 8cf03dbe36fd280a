//! Makes one connection: dials the right server, performs the handshake, and subscribes.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdline_core::{Certainty, LockError, Moment};

use super::connection::{Connection, ConnectionCallbacks};
use super::connection_task::ConnectionTask;
use super::dial::{Stage, dial};
use super::facts::{Role, ServerFacts};
use super::handshake::{Established, HandshakeError, handshake};
use super::master_term::Term;
use super::wire::Wire;
use super::{LinkParts, maintenance, master_term};
use crate::error::unavailable;
use crate::options::RedisOptions;

/// Returns the settings of the server to dial: of the one in the options, of the master that the
/// sentinels name, or of the next node of a cluster.
pub(super) async fn target(parts: &LinkParts) -> Result<Cow<'_, RedisOptions>, LockError> {
    if let Some(seed_list) = &parts.discovery.seed_list {
        let (host, port) = seed_list.next();
        return Ok(Cow::Owned(parts.options.at(&host, port)));
    }
    let Some(source) = &parts.discovery.master_source else {
        return Ok(Cow::Borrowed(&parts.options));
    };
    let (host, port) = source.query().await?;
    Ok(Cow::Owned(parts.options.at(&host, port)))
}

/// Makes a connection and hands it to the router.
pub(super) async fn connect(parts: &Arc<LinkParts>) -> Result<(), LockError> {
    let resp3 = parts.options.resp3() && !parts.resp2_only.load(Ordering::Relaxed);
    let stage = Stage::default();
    let established = match within(parts, &stage, open(parts, resp3, &stage)).await {
        Ok(Ok(established)) => established,
        Ok(Err(Resp2Only)) => {
            let established =
                within(parts, &stage, open(parts, false, &stage)).await?.map_err(|Resp2Only| {
                    unavailable("the server speaks no known protocol", Certainty::NotApplied)
                })?;
            parts.resp2_only.store(true, Ordering::Relaxed);
            established
        }
        Err(error) => return Err(error),
    };
    let Established { wire, facts, reset } = established;
    let address = parts.options.address();
    tracing::debug!(%address, ?facts, "connected");
    if parts.router.facts().is_some_and(|before| facts.is_another_than(&before)) {
        tracing::warn!(%address, "another server than before, or restarted: is its data kept?");
        if parts.discovery.single.is_some() {
            // What the former run still sends must not be taken for messages of this one.
            parts.router.close_other_runs(facts.run_id.as_deref());
        }
    }
    let callbacks = ConnectionCallbacks { observer: parts.router.clone(), reset };
    let connection =
        Connection::new(parts.next_id(), facts, parts.clock.clone(), callbacks, Some(wire));
    let connection = NewConnection(Some(Arc::new(connection)));
    if let Some(connection) = &connection.0 {
        let task = ConnectionTask::new(connection.clone(), parts.subscriptions.clone());
        parts.runtime.spawn(Box::pin(task));
        // Before any request: a waiter with our inbox then always has a subscriber.
        if connection.facts().resp == 3 {
            maintenance::apply_changes(parts, connection).await;
        }
    }
    connection.add(parts);
    // The sentinels may have named another master while this one was dialled.
    if let Some(source) = &parts.discovery.master_source {
        parts.close_others(source.master().borrow().as_ref());
    }
    Ok(())
}

/// A connection that is closed unless the router takes it over.
struct NewConnection(Option<Arc<Connection>>);

impl NewConnection {
    fn add(mut self, parts: &LinkParts) {
        self.0.take().into_iter().for_each(|connection| parts.router.add(connection));
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
    parts: &LinkParts,
    resp3: bool,
    stage: &Stage,
) -> Result<Result<Established, Resp2Only>, LockError> {
    let options = target(parts).await?;
    let dialled = dial(&options, stage).await?;
    let reset = dialled.reset.clone();
    // Until the handshake is complete, dropping the stream resets it.
    reset.store(true, Ordering::Release);
    let established = handshake(dialled, &options, resp3, &*parts.clock).await;
    match established {
        Ok(mut established) => {
            let Established { wire, facts, .. } = &mut established;
            let term = term_of(parts, wire, facts).await?;
            facts.run_id = term.run_id.or(facts.run_id.take());
            facts.quarantine = term.quarantine;
            facts.no_grants = term.no_grants;
            let discovery = &parts.discovery;
            if discovery.master_source.is_some() || discovery.seed_list.is_some() {
                facts.host_port = options.host_port();
            }
            reset.store(false, Ordering::Release);
            Ok(Ok(established))
        }
        Err(HandshakeError::Resp2Only) => Ok(Err(Resp2Only)),
        Err(HandshakeError::Failed(error)) => Err(error),
    }
}

/// Asks the server whether it is a master, and since when it may grant.
async fn term_of(
    parts: &LinkParts,
    wire: &mut Wire,
    facts: &ServerFacts,
) -> Result<Term, LockError> {
    if parts.discovery.master_source.is_some() {
        return master_term::query_group(wire, &parts.options, &*parts.clock).await;
    }
    let Some(single) = &parts.discovery.single else { return Ok(Term::default()) };
    let rules = parts.options.failover();
    let mut term = Term::default();
    if facts.role == Some(Role::Replica) {
        term = Term::of_replica();
    } else if rules.quarantine() && !rules.read_only() && !facts.in_cluster {
        let known = single.known_run.lock().clone();
        let known = known.as_deref();
        term = master_term::query_single(wire, &parts.options, known, &*parts.clock).await?;
    }
    if term.is_replica && single.was_master.load(Ordering::Relaxed) {
        let message = "a switchover is under way: the server was the master, and is a replica";
        return Err(unavailable(message, Certainty::NotApplied));
    }
    if facts.role == Some(Role::Master) {
        single.was_master.store(true, Ordering::Relaxed);
    }
    if let Some(run) = term.run_id.as_ref().or(facts.run_id.as_ref()) {
        *single.known_run.lock() = Some(run.clone());
    }
    Ok(term)
}

/// Limits a step of connecting to the time that a connection may take.
pub(super) async fn within<T>(
    parts: &LinkParts,
    stage: &Stage,
    work: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let limit = parts.options.connect_timeout();
    let end: Moment = parts.clock.now().after(limit);
    tokio::select! {
        biased;
        done = work => done,
        () = parts.clock.sleep_until(end) => {
            let address = parts.options.address();
            let message = format!("{address}: {} within {limit:?}", stage.describe());
            Err(unavailable(message, Certainty::NotApplied))
        }
    }
}
