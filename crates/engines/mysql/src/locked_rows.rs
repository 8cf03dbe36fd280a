//! Commands that find a row of their name locked by another session.
//!
//! All commands of an engine share one connection, and the server carries them out one after the
//! other: while one waits for a row, all later ones wait too. So there the server refuses a command
//! at once (`Link::ask_now`). The first refused command waits on a connection of its
//! own (`waiting_commands`); others are sent again, one at a time, after pauses.
//!
//! Commands on several names skip the locked ones instead, and are not sent by this.
//!
//! - Invariant R1: a command is sent again only if the server has refused it for a lock. A refused
//!   command was rolled back, so it is carried out at most once.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Backoff, Clock, LockError};
use tokio::sync::Semaphore;

use crate::link::Link;
use crate::options::MysqlOptions;
use crate::rows::Answer;
use crate::waiting_commands::WaitingCommands;

/// Pauses before a command is sent again.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

pub(crate) struct LockedRows {
    waiting: WaitingCommands,
    /// One command at a time is sent again.
    repeats: Semaphore,
}

impl LockedRows {
    pub(crate) fn new(options: &MysqlOptions, clock: Arc<dyn Clock>) -> LockedRows {
        LockedRows { waiting: WaitingCommands::new(options, clock), repeats: Semaphore::new(1) }
    }

    /// Sends a command. If another session has locked a row, it waits for a part of the limit.
    ///
    /// # Cancel safety
    /// Dropping the future loses only the reply: the command may be carried out.
    pub(crate) async fn ask(&self, link: &Link, call: &str) -> Result<Answer, LockError> {
        let clock = &*link.shared().clock;
        let start = clock.now();
        let limit = link.limits().command_timeout;
        let end = start.after(limit);
        let row_end = start.after(limit * 6 / 10);
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut repeats = None;
        loop {
            let refused = match link.ask_now(call).await? {
                Ok(answer) => return Ok(answer),
                Err(refused) => refused,
            };
            drop(repeats.take());
            if let Some(answer) = self.waiting.ask(call.to_owned(), end).await {
                return answer;
            }
            let next = clock.now().after(pauses.next_pause(rand::random()));
            if next >= row_end {
                return Err(refused);
            }
            clock.sleep_until(next).await;
            repeats = tokio::select! {
                biased;
                permit = self.repeats.acquire() => permit.ok(),
                () = clock.sleep_until(row_end) => return Err(refused),
            };
        }
    }
}
