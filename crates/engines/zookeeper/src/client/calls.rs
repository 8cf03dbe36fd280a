//! The requests that were not sent yet, in the order in which they were made.
//!
//! - C1: a request leaves this queue once, and then belongs to one connection. If the connection
//!   breaks, all requests that were made before the break fail. So nothing is sent again.
//! - C2: a caller that gives up takes its request back. If it is not in the queue any more, it may
//!   have been sent, and its outcome is unknown.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::jute::{Decoder, Malformed};
use crate::error::RequestError;

/// How many requests may wait. Beyond that the servers have not answered for long.
const MOST_WAITING: usize = 65_536;

/// Delivers the reply to the caller.
pub(super) type Deliver =
    Box<dyn FnOnce(Result<&mut Decoder<'_>, RequestError>) -> Result<(), Malformed> + Send>;

/// A request that was not sent yet.
pub(super) struct Call {
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
    pub(super) deliver: Deliver,
}

impl Call {
    /// Reports an error to the caller.
    fn fail(self, error: RequestError) {
        // There is nothing to decode.
        let _ = (self.deliver)(Err(error));
    }
}

/// The number of a request in the queue.
pub(super) type Ticket = u64;

/// The queue.
#[derive(Default)]
pub(super) struct Calls(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: Ticket,
    calls: BTreeMap<Ticket, Call>,
    /// The session has ended.
    ended: bool,
}

impl Calls {
    /// Appends a request.
    ///
    /// # Errors
    /// `SessionGone`: the session has ended. `NotSent`: too many requests wait.
    pub(super) fn push(&self, call: Call) -> Result<Ticket, RequestError> {
        let mut waiting = self.0.lock();
        if waiting.ended {
            return Err(RequestError::SessionGone);
        }
        if waiting.calls.len() >= MOST_WAITING {
            let message = format!("{MOST_WAITING} requests wait for the servers");
            return Err(RequestError::NotSent(message));
        }
        let ticket = waiting.next;
        waiting.next += 1;
        waiting.calls.insert(ticket, call);
        Ok(ticket)
    }

    /// Takes the oldest request, to send it.
    pub(super) fn pop(&self) -> Option<Call> {
        self.0.lock().calls.pop_first().map(|(_, call)| call)
    }

    /// Takes a request back; returns whether it was not sent.
    pub(super) fn take_back(&self, ticket: Ticket) -> bool {
        self.0.lock().calls.remove(&ticket).is_some()
    }

    /// Fails all requests that were made for a connection that has broken.
    pub(super) fn fail_all(&self, why: &str) {
        let calls = std::mem::take(&mut self.0.lock().calls);
        for call in calls.into_values() {
            call.fail(RequestError::NotSent(why.to_owned()));
        }
    }

    /// Fails all requests, and every later one: the session has ended.
    pub(super) fn end(&self) {
        let calls = {
            let mut waiting = self.0.lock();
            waiting.ended = true;
            std::mem::take(&mut waiting.calls)
        };
        for call in calls.into_values() {
            call.fail(RequestError::SessionGone);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().calls.len()
    }
}
