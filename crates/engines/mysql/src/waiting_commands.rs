//! Commands that wait for a row which another session has locked.
//!
//! One waits at a time. It waits in the server, where all clients are served in the order in which
//! they came, on a connection of its own, so that no other command waits behind it. The connection
//! is opened when it is first needed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, LockError, Moment};
use tokio::sync::oneshot;

use crate::error::unavailable;
use crate::link::Link;
use crate::options::MysqlOptions;
use crate::rows::Answer;

pub(crate) struct WaitingCommands {
    options: MysqlOptions,
    clock: Arc<dyn Clock>,
    link: OnceLock<Link>,
    busy: Arc<AtomicBool>,
}

/// Frees the connection for the next command.
struct BusyFlag(Arc<AtomicBool>);

impl Drop for BusyFlag {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl WaitingCommands {
    pub(crate) fn new(options: &MysqlOptions, clock: Arc<dyn Clock>) -> WaitingCommands {
        WaitingCommands {
            options: options.clone(),
            clock,
            link: OnceLock::new(),
            busy: Arc::default(),
        }
    }

    /// Sends a command about one name and waits for its reply until `end`; the command continues
    /// after that. `None`: another command is waiting.
    pub(crate) async fn ask(&self, call: String, end: Moment) -> Option<Result<Answer, LockError>> {
        if self.busy.swap(true, Ordering::SeqCst) {
            return None;
        }
        let turn = BusyFlag(self.busy.clone());
        let link = match self.link() {
            Ok(link) => link,
            Err(error) => return Some(Err(error)),
        };
        let (sender, mut answer) = oneshot::channel();
        let handle = link.clone();
        link.spawn(Box::pin(async move {
            let reply = handle.ask(&call).await;
            drop(turn);
            // The caller may be gone.
            let _ = sender.send(reply);
        }));
        let in_doubt = || {
            let message = "the row of the name is locked by another session";
            Err(unavailable(message, Certainty::Unknown))
        };
        Some(tokio::select! {
            biased;
            reply = &mut answer => reply.unwrap_or_else(|_| in_doubt()),
            () = self.clock.sleep_until(end) => in_doubt(),
        })
    }

    fn link(&self) -> Result<Link, LockError> {
        if let Some(link) = self.link.get() {
            return Ok(link.clone());
        }
        // No watches here: the first connection has the inbox.
        let watches = Arc::new(Watches::default());
        let link = Link::new(&self.options, self.clock.clone(), watches, false)?;
        Ok(self.link.get_or_init(|| link).clone())
    }
}
