//! The future of one reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdline_core::{Certainty, LockError};

use super::Affinity;
use super::connection::{Connection, Rejected};
use super::pending::{Limit, ReplyPoll, Ticket};
use super::request::Request;
use super::resp::Reply;
use crate::error::unavailable;

/// The reply of a server, which may be an error reply; or the reason that there is none.
pub(crate) type Outcome = Result<Reply, LockError>;

/// The reply to one request, which is under way.
pub(super) struct PendingReply {
    connection: Arc<Connection>,
    /// `None` once the future has resolved.
    ticket: Option<Ticket>,
    limit: Limit,
}

impl PendingReply {
    /// Puts a request on a connection. The future waits for the reply until the deadline; dropping
    /// it loses the reply only.
    pub(super) fn enqueue(
        connection: Arc<Connection>,
        request: Request<'_>,
        affinity: Option<Affinity>,
        limit: Limit,
    ) -> Result<PendingReply, Rejected> {
        let ticket = connection.enqueue(request, affinity, limit)?;
        Ok(PendingReply { connection, ticket: Some(ticket), limit })
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
