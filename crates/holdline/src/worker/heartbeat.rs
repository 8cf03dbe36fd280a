//! The queue heartbeat: one batch a second for all queue entries of this client.
//!
//! The heartbeat is also the poll: its answers return the state of each entry. If the name is
//! granted to one, its waiter is woken and repeats its request.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::contract::{QUEUE_HEARTBEAT, QUEUE_SILENCE};
use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::renewal::MIN_RETRY;
use holdline_core::{Expiry, LockError, Moment, Purpose, RenewReply, RenewRequest};

use crate::core::ClientState;
use crate::core::queue_cell::QueueCell;
use crate::core::registry::{Key, Registry, Stage};

/// Returns how long the store keeps queue entries without a heartbeat; for sessions, the longest
/// duration of a session.
fn silence_limit(expiry: Expiry) -> Duration {
    match expiry {
        Expiry::Session => MAX_FIRST_LEASE,
        _ => QUEUE_SILENCE,
    }
}

/// Returns when an entry is polled next: with the others, or sooner if the store says so.
pub(crate) fn next_look(registry: &mut Registry, now: Moment, next_look: Duration) -> Moment {
    if registry.next_heartbeat <= now {
        registry.next_heartbeat = now.after(QUEUE_HEARTBEAT);
    }
    registry.next_heartbeat.min(now.after(next_look.max(MIN_RETRY)))
}

/// One entry of a heartbeat, and the cell of its waiter.
pub(crate) struct HeartbeatEntry {
    pub(crate) key: Key,
    pub(crate) cell: Arc<QueueCell>,
    /// The store had confirmed the queue entry when this heartbeat was sent.
    queued: bool,
}

impl HeartbeatEntry {
    pub(crate) fn new(key: Key, cell: &Arc<QueueCell>) -> HeartbeatEntry {
        HeartbeatEntry { key, cell: cell.clone(), queued: cell.queued_at().is_some() }
    }
}

/// Sends one heartbeat for all these entries and reports the state to each. The next one is sent a
/// second later, even if this one is unanswered: the store needs a heartbeat more often than an
/// answer may take.
pub(crate) async fn send_heartbeat(
    state: Arc<ClientState>,
    entries: Vec<HeartbeatEntry>,
    batch: Vec<RenewRequest>,
) {
    debug_assert!(batch.iter().all(|entry| entry.purpose == Purpose::Wait));
    let sent = state.clock.now();
    let replies = state.await_answer(state.engine.renew(&batch), state.limit()).await;
    let mut replies = replies.unwrap_or_default().into_iter();
    let now = state.clock.now();
    let mut wake = false;
    let silence_limit = silence_limit(state.engine.capabilities().expiry);
    for entry in entries {
        let reply = replies.next();
        if matches!(reply, Some(Ok(RenewReply::Queued { .. }))) {
            entry.cell.mark_queued(sent);
        }
        let next = handle_reply(&entry, now, silence_limit, reply);
        let mut registry = state.registry.lock();
        if registry.get(entry.key).is_some_and(|entry| matches!(entry.stage, Stage::Queued(_))) {
            // The next heartbeat is planned already, so a late answer does not delay it.
            wake |= match next {
                Some(next) => registry.bring_forward(entry.key, now.after(next.max(MIN_RETRY))),
                None => registry.schedule(entry.key, Moment::NEVER),
            };
        }
    }
    state.wake(wake);
}

/// Reports a reply to its waiter, and returns the time of the next poll; `None` if the id is gone.
fn handle_reply(
    entry: &HeartbeatEntry,
    now: Moment,
    silence_limit: Duration,
    reply: Option<Result<RenewReply, LockError>>,
) -> Option<Duration> {
    let cell = &entry.cell;
    match reply {
        Some(Ok(reply)) => {
            cell.record_success();
            match reply {
                RenewReply::Queued { position, next_look } => {
                    cell.update(|news| (news.position, news.dropped) = (position, false));
                    return Some(next_look);
                }
                RenewReply::Held { .. } | RenewReply::Renewed { .. } => {
                    cell.update(|news| news.held = true);
                }
                RenewReply::Unknown if !entry.queued => {}
                // The store's reply to the request has the operator's reason.
                RenewReply::Revoked { .. } => cell.update(|news| news.doubtful = true),
                RenewReply::Unknown => {
                    cell.update(|news| news.dropped = true);
                    return None;
                }
            }
        }
        Some(Err(error)) => cell.record_failure(now, silence_limit, Some(&error)),
        None => cell.record_failure(now, silence_limit, None),
    }
    Some(QUEUE_HEARTBEAT)
}

#[cfg(test)]
mod tests {
    use holdline_core::Certainty;

    use super::*;

    const SILENCE: Duration = Duration::from_secs(4);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(seconds))
    }

    fn gone() -> Option<Result<RenewReply, LockError>> {
        let kind = holdline_core::ErrorKind::Unavailable { message: "gone".to_owned() };
        Some(Err(LockError::new("e", kind, Certainty::Unknown)))
    }

    fn good() -> Option<Result<RenewReply, LockError>> {
        Some(Ok(RenewReply::Queued { position: Some(1), next_look: QUEUE_HEARTBEAT }))
    }

    #[test]
    fn a_doubt_does_not_outlive_a_good_heartbeat() {
        let cell = Arc::new(QueueCell::default());
        cell.mark_queued(at(1));
        let entry = HeartbeatEntry::new(Key::NONE, &cell);
        for second in 0..=4 {
            assert_eq!(handle_reply(&entry, at(second), SILENCE, gone()), Some(QUEUE_HEARTBEAT));
            assert_eq!(cell.pending().doubtful, second == 4);
        }
        assert!(!cell.pending().dropped, "failures alone prove nothing");
        handle_reply(&entry, at(5), SILENCE, good());
        assert!(!cell.pending().doubtful);
        handle_reply(&entry, at(6), SILENCE, None);
        assert!(!cell.pending().doubtful, "it counts from the first failure since");
    }

    /// It would queue anew, against the operator.
    #[test]
    fn a_place_that_an_operator_ended_is_asked_for_and_not_taken_again() {
        let cell = Arc::new(QueueCell::default());
        cell.mark_queued(at(1));
        let entry = HeartbeatEntry::new(Key::NONE, &cell);
        let revoked = RenewReply::Revoked { reason: "why".to_owned(), left: None };
        handle_reply(&entry, at(1), SILENCE, Some(Ok(revoked)));
        assert!(cell.pending().doubtful && !cell.pending().dropped);
    }

    #[test]
    fn unknown_proves_nothing_before_the_store_has_queued_the_id() {
        let cell = Arc::new(QueueCell::default());
        let early = HeartbeatEntry::new(Key::NONE, &cell);
        cell.mark_queued(at(1));
        let late = HeartbeatEntry::new(Key::NONE, &cell);
        let unknown = || Some(Ok(RenewReply::Unknown));
        assert_eq!(handle_reply(&early, at(1), SILENCE, unknown()), Some(QUEUE_HEARTBEAT));
        assert!(!cell.pending().dropped);
        assert_eq!(handle_reply(&late, at(1), SILENCE, unknown()), None);
        assert!(cell.pending().dropped);
    }
}
