//! How waiters are woken: a second connection sleeps in the server, and the command that hands a
//! name over ends that sleep.
//!
//! The connection holds a named lock of the server (`get_lock`). Its name is random, so other
//! sessions find the connection by it, and `kill query` never hits another one, even if the server
//! reuses connection ids. The sleep ends with an error that carries no data, so the client reads
//! the inbox again.
//!
//! - Invariant B1: look and sleep are one statement, and a wake-up kills it wherever it is, so no
//!   wake-up is lost between them. What was found arrives before the sleep. Each change is found
//!   again until it is dealt with, and delivered once.
//! - Invariant B2: no lock depends on the inbox. Without it, the heartbeat finds every change.
//! - Invariant B3: a grant that the inbox delivers is flushed. Other sessions see it before, so the
//!   session that hands over holds a lock named by the lease id until its commit has succeeded, and
//!   `listen` passes over the row meanwhile. The wake-up comes after that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::{Backoff, Certainty, LockError};
use holdline_net::sql::link::LinkState;
use tokio::sync::mpsc;

use super::Database;
use crate::connection::{self, ConnectionHandle, handshake, open};
use crate::error::{Failed, is_store_gone, of_handshake, unavailable};
use crate::keys::{Value, inbox_lock};
use crate::rows::{Row, Set, only};

/// How long it sleeps without a wake-up. An abandoned connection sleeps for this long.
const SLEEP: u32 = 5;
/// How much later a reply may come before the connection counts as lost.
const LATE: Duration = Duration::from_secs(5);
/// The pause while the tables are missing.
const UNMADE: Duration = Duration::from_millis(200);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Query execution was interrupted.
const WOKEN: u16 = 1317;

/// Starts listening, once.
pub(super) fn start(shared: &Arc<LinkState<Database>>) {
    if !shared.server.listen.swap(true, Ordering::SeqCst) {
        shared.runtime.spawn(Box::pin(listen_always(shared.clone())));
    }
}

async fn listen_always(shared: Arc<LinkState<Database>>) {
    let closed = shared.closed.clone();
    tokio::select! {
        biased;
        () = closed.cancelled() => {}
        () = keep_listening(&shared) => {}
    }
    shared.server.inbox.send_replace(0);
}

async fn keep_listening(shared: &Arc<LinkState<Database>>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let born = shared.clock.now();
        let error = listen(shared).await;
        let was_listening = shared.server.inbox.send_replace(0) != 0;
        // Callers that wait for the inbox continue without it.
        shared.server.closed_inboxes.send_modify(|times| *times += 1);
        tracing::debug!(%error, "no notifications: waiters rely on their heartbeat");
        if was_listening {
            shared.watches.notify_all();
        }
        if born.until(shared.clock.now()) >= LONGEST_PAUSE {
            backoff.reset();
        }
        let pause = backoff.next_pause(rand::random());
        shared.clock.sleep_until(shared.clock.now().after(pause)).await;
    }
}

/// Listens on a connection until its end, and returns the reason.
async fn listen(shared: &Arc<LinkState<Database>>) -> LockError {
    let opened = match shared.within(open(&shared.server.options)).await {
        Ok(opened) => opened,
        Err(error) => return error,
    };
    let (handle, mut driver) = connection::on(opened.stream);
    tokio::select! {
        biased;
        error = receive(shared, &handle, opened.number) => error,
        why = driver.run() => unavailable(why, Certainty::NotApplied),
    }
}

async fn receive(
    shared: &Arc<LinkState<Database>>,
    handle: &ConnectionHandle,
    number: u32,
) -> LockError {
    let began = async {
        let options = &shared.server.options;
        let took_writes = shared.took_writes();
        let facts = handshake(handle, number, options, &*shared.clock, took_writes).await?;
        if facts.pooled {
            return Err(unavailable("a pooler is in between", Certainty::NotApplied));
        }
        // Never zero, which stands for no inbox.
        let inbox = rand::random::<u64>() | 1;
        let ask = format!("select get_lock('{}', 0) as got", inbox_lock(inbox));
        let reply = handle.ask(ask).await.map_err(|failed| of_handshake(&failed))?;
        match only(&reply)?.maybe::<i64>("got")? {
            Some(1) => Ok(inbox),
            _ => Err(unavailable("the inbox is taken", Certainty::NotApplied)),
        }
    };
    let inbox = match shared.within(began).await {
        Ok(inbox) => inbox,
        Err(error) => return error,
    };
    shared.server.inbox.send_replace(inbox);
    shared.watches.notify_all();
    let id = inbox.to_be_bytes();
    let listen =
        shared.server.names.call("listen", &[Value::Bytes(&id), Value::Number(i64::from(SLEEP))]);
    let mut known = BTreeSet::new();
    loop {
        let (early, mut sets) = mpsc::channel(1);
        let asked = async {
            let reply = handle.ask_early(listen.as_str(), early);
            let deliver = async {
                while let Some(set) = sets.recv().await {
                    deliver(shared, &set, &mut known);
                }
            };
            tokio::join!(reply, deliver).0
        };
        let limit = Duration::from_secs(u64::from(SLEEP)).saturating_add(LATE);
        let end = shared.clock.now().after(limit);
        let reply = tokio::select! {
            biased;
            reply = asked => reply,
            () = shared.clock.sleep_until(end) => {
                return unavailable("no answer", Certainty::NotApplied);
            }
        };
        match reply {
            Ok(_) => {}
            Err(Failed::Server(words)) if words.code == WOKEN => {}
            // The tables may be created soon.
            Err(failed) if is_store_gone(&failed) => {
                shared.clock.sleep_until(shared.clock.now().after(UNMADE)).await;
            }
            Err(failed) => return of_handshake(&failed),
        }
    }
}

/// Delivers the changes of an inbox that are not known yet; those that are gone are forgotten.
fn deliver(shared: &LinkState<Database>, set: &Set, known: &mut BTreeSet<String>) {
    let messages: BTreeSet<String> =
        set.rows.iter().filter_map(|row| message(&Row::of(set, row)).ok()).collect();
    for message in messages.difference(known) {
        shared.watches.deliver(message.as_bytes());
    }
    *known = messages;
}

/// Writes a change as [`holdline_core::hints::Watches::deliver`] reads it.
fn message(row: &Row<'_>) -> Result<String, LockError> {
    let letter: &str = row.sure("letter")?;
    let id: &str = row.sure("id")?;
    Ok(match letter {
        "g" => granted(id, row.sure("token")?),
        _ => format!("{letter}{}", id.get(..8).unwrap_or(id)),
    })
}

/// Writes the message about a grant: the first half of its lease id, and its token.
pub(crate) fn granted(id: &str, token: i64) -> String {
    format!("g{id}{token:016}")
}
