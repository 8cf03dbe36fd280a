//! The statements of the fast path, prepared on each connection when it first needs them.

use holdline_core::{Certainty, LockError};
use holdline_net::sql::link::Live;
use tokio::sync::OnceCell;

use super::{Database, Link, send_on, try_on, without_waiting};
use crate::connection::Statement;
use crate::error::{is_out_of_statements, of_handshake, protocol, unavailable};
use crate::keys::Value;

/// A statement of `sql/fast.sql`, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastStatement {
    Acquire,
    Release,
}

/// The numbers of the prepared statements of one connection; `None` if the server had no room for
/// them.
pub(super) type Prepared = OnceCell<Option<[u32; 2]>>;

impl Link {
    /// Executes a statement, and returns its number. `None` if it changed no row, if another
    /// session has locked the row, if a pooler is in between (the next statement may go to another
    /// session there), or if the server has no room for prepared statements.
    ///
    /// # Cancel safety
    /// As [`Link::ask`].
    pub(crate) async fn fast(
        &self,
        statement: FastStatement,
        values: &[Value<'_>],
    ) -> Result<Option<u64>, LockError> {
        let live = self.live().await?;
        if live.session.facts.pooled {
            return Ok(None);
        }
        let prepared = live.session.prepared.get_or_try_init(|| self.prepare(&live)).await?;
        let Some(numbers) = prepared else { return Ok(None) };
        let number = numbers[statement as usize];
        let Ok(answer) = try_on(self, &live, &Statement::execute(number, values)).await? else {
            return Ok(None);
        };
        if answer.in_transaction {
            live.close();
            let message = "the server stopped an earlier command, and left its transaction open";
            return Err(unavailable(message, Certainty::Unknown));
        }
        Ok((answer.changed > 0).then_some(answer.number))
    }

    async fn prepare(&self, live: &Live<Database>) -> Result<Option<[u32; 2]>, LockError> {
        let mut numbers = [0; 2];
        for (number, text) in std::iter::zip(&mut numbers, self.names().fast()) {
            let statement = Statement::Prepare(without_waiting(&live.session.facts, &text));
            let sent = send_on(self, live, &statement).await;
            let answer = match sent.map_err(|error| error.with_certainty(Certainty::NotApplied))? {
                Ok(answer) => answer,
                Err(failed) if is_out_of_statements(&failed) => return Ok(None),
                Err(failed) => return Err(of_handshake(&failed)),
            };
            *number = u32::try_from(answer.number).map_err(|_| protocol("a statement's number"))?;
        }
        Ok(Some(numbers))
    }
}
