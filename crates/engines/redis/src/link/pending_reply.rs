//! The future of one reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{Certainty, Moment};

use super::Outcome;
use super::connection::Connection;
use super::pending::{ReplyPoll, Ticket};
use crate::error::unavailable;

/// Until when a reply is waited for; `asked` is the duration that the caller gave, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) end: Moment,
    pub(super) asked: Duration,
}

impl Limit {
    /// Returns when half of the time is over.
    pub(super) fn half(&self) -> Moment {
        self.end.before(self.asked / 2)
    }

    /// Describes for people that it has passed. Names the round trip of the server if that is too
    /// long for the limit.
    fn describe(&self, round_trip: Duration) -> String {
        let asked = self.asked;
        if round_trip < asked / 2 {
            return format!("no reply within {asked:?}");
        }
        let millis = round_trip.as_millis();
        format!("no reply within {asked:?} (the last round trip took {millis} ms)")
    }
}

/// The reply to one request, which is under way.
pub(super) struct PendingReply {
    connection: Arc<Connection>,
    /// `None` once the future has resolved.
    ticket: Option<Ticket>,
    limit: Limit,
}

impl PendingReply {
    pub(super) fn new(connection: Arc<Connection>, ticket: Ticket, limit: Limit) -> PendingReply {
        PendingReply { connection, ticket: Some(ticket), limit }
    }

    #[cfg(test)]
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }
}

impl Future for PendingReply {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let PendingReply { connection, ticket, limit } = self.get_mut();
        let Some(current) = *ticket else { return Poll::Pending };
        let outcome = match connection.poll_reply(current, context.waker()) {
            Ok(ReplyPoll::Pending) => return Poll::Pending,
            Ok(ReplyPoll::Ready(reply)) => Ok(reply),
            Ok(ReplyPoll::Expired) => {
                Err(unavailable(limit.describe(connection.round_trip()), Certainty::Unknown))
            }
            Err(error) => Err(error),
        };
        *ticket = None;
        Poll::Ready(outcome)
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.connection.abandon(ticket);
        }
    }
}
