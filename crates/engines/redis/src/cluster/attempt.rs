//! One attempt at a request: sent to one master, or to the node to which that one redirects it.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, LockError, Moment};

use super::nodes::Nodes;
use super::redirect::Redirect;
use crate::error::{NOREPLICAS, refusal, too_few_replicas, unavailable};
use crate::link::{Call, HostPort, Link, Outcome, Value};

/// A request about one name.
pub(crate) struct SlotRequest<'a> {
    pub(crate) slot: u16,
    pub(crate) deadline: Duration,
    /// The script that uses all keys of the name.
    pub(crate) full: &'a (dyn Fn() -> Call + Send + Sync),
    /// The script that uses the lock key only, where one can do the same.
    pub(crate) lock_key_only: &'a (dyn Fn() -> Option<Call> + Send + Sync),
}

/// The result of one attempt.
pub(super) enum Attempt {
    Done(Value),
    Moved,
    /// It was not carried out, for this reason.
    Retry(LockError),
}

/// What follows a call that was not carried out.
enum Rejection {
    /// Another node serves the slot now.
    Moved,
    /// The node that imports the slot may have the key.
    Importing(HostPort),
    /// The keys are on two nodes.
    Split,
    Retry(LockError),
}

impl Nodes {
    fn retry(&self, error: LockError) -> Attempt {
        Attempt::Retry(self.between_masters(error))
    }

    /// Sends a call to a node, and interprets its reply.
    pub(super) async fn try_full(
        self: &Arc<Nodes>,
        request: &SlotRequest<'_>,
        host_port: &HostPort,
        node: &Link,
        end: Moment,
    ) -> Result<Attempt, LockError> {
        let left = self.clock.now().until(end);
        let outcome = node.outcome(|| (request.full)().within(left), false).await;
        match self.handle_reply(outcome, host_port, node)? {
            Ok(value) => Ok(Attempt::Done(value)),
            Err(Rejection::Moved) => Ok(Attempt::Moved),
            Err(Rejection::Retry(error)) => Ok(Attempt::Retry(error)),
            // Some keys are not here. The key that never exists is on neither node, so servers
            // before 7.0.3 answer only this, even where the lock key is still here.
            Err(Rejection::Importing(_) | Rejection::Split) => {
                self.try_lock_key_only(request, host_port, end).await
            }
        }
    }

    /// Sends the call for the lock key only, to this node or to the one that imports the slot.
    async fn try_lock_key_only(
        self: &Arc<Nodes>,
        request: &SlotRequest<'_>,
        host_port: &HostPort,
        end: Moment,
    ) -> Result<Attempt, LockError> {
        let slot = request.slot;
        let mut host_port = host_port.clone();
        let mut asking = false;
        loop {
            let Some(call) = (request.lock_key_only)() else {
                return Ok(self.retry(migrating(slot)));
            };
            let node = self.node(&host_port).await?;
            let call = call.within(self.clock.now().until(end));
            let outcome = node.outcome(|| call.clone(), asking).await;
            match self.handle_reply(outcome, &host_port, &node)? {
                Ok(Value::Nil) | Err(Rejection::Split) => return Ok(self.retry(migrating(slot))),
                Ok(value) => return Ok(Attempt::Done(value)),
                Err(Rejection::Importing(to)) if !asking => {
                    host_port = to;
                    asking = true;
                }
                Err(Rejection::Importing(_)) => {
                    return Ok(self.retry(redirected_in_a_circle(slot)));
                }
                Err(Rejection::Moved) => return Ok(Attempt::Moved),
                Err(Rejection::Retry(error)) => return Ok(Attempt::Retry(error)),
            }
        }
    }

    /// Interprets the outcome of a call: a value, a rejection before execution, or a failure.
    fn handle_reply(
        self: &Arc<Nodes>,
        outcome: Outcome,
        host_port: &HostPort,
        node: &Link,
    ) -> Result<Result<Value, Rejection>, LockError> {
        let reply = match outcome {
            Ok(Ok(value)) => return Ok(Ok(value)),
            Ok(Err(reply)) => reply,
            Err(error) => {
                self.request_refresh();
                let transient = error.is_unavailable();
                let error = if node.is_without_answers(&error) {
                    self.between_masters(error)
                } else {
                    error
                };
                return if transient && error.certainty() == Certainty::NotApplied {
                    Ok(Err(Rejection::Retry(error)))
                } else {
                    Err(error)
                };
            }
        };
        // The server refuses every write so, including the first one of a script.
        if reply.code == NOREPLICAS {
            return Ok(Err(Rejection::Retry(too_few_replicas(reply))));
        }
        Ok(Err(match Redirect::parse(&reply, host_port) {
            Some(Redirect::Moved(slot, to)) => {
                tracing::debug!(slot, host = to.0, port = to.1, "a slot has moved");
                self.update_table(|table| table.with_moved(slot, to));
                self.request_refresh();
                Rejection::Moved
            }
            Some(Redirect::Ask(to)) => Rejection::Importing(to),
            Some(Redirect::TryAgain) => Rejection::Split,
            // The node answers, and another client's script keeps it busy.
            Some(Redirect::Unavailable) if reply.code == "BUSY" => Rejection::Retry(refusal(reply)),
            Some(Redirect::Unavailable) => Rejection::Retry(self.between_masters(refusal(reply))),
            None => return Err(refusal(reply)),
        }))
    }
}

fn migrating(slot: u16) -> LockError {
    let message = format!(
        "slot {slot}, to which the name's keys belong, is being moved to another node: if that \
         does not end, complete it (redis-cli --cluster fix)"
    );
    unavailable(message, Certainty::NotApplied)
}

pub(super) fn redirected_in_a_circle(slot: u16) -> LockError {
    let message = format!("the nodes redirect to each other for slot {slot}");
    unavailable(message, Certainty::NotApplied)
}
