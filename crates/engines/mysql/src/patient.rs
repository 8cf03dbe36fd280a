//! Renewals that wait for a row which another session has locked.
//!
//! They wait in the server, in the order in which they came, on a connection of their own, so that
//! no other command is behind them. The connection is made when it is needed first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, LockError, Moment};
use tokio::sync::oneshot;

use crate::error::unavailable;
use crate::link::{Answer, Link};
use crate::options::MysqlOptions;

pub(crate) struct Patient {
    options: MysqlOptions,
    clock: Arc<dyn Clock>,
    link: OnceLock<Link>,
    busy: Arc<AtomicBool>,
}

/// Frees the connection for the next renewal.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Patient {
    pub(crate) fn new(options: &MysqlOptions, clock: Arc<dyn Clock>) -> Patient {
        Patient { options: options.clone(), clock, link: OnceLock::new(), busy: Arc::default() }
    }

    /// Sends a renewal of one name and waits for its answer until `end`; the renewal goes on after
    /// that. `None`: another one waits.
    pub(crate) async fn ask(&self, call: String, end: Moment) -> Option<Result<Answer, LockError>> {
        if self.busy.swap(true, Ordering::SeqCst) {
            return None;
        }
        let turn = Turn(self.busy.clone());
        let link = match self.link() {
            Ok(link) => link,
            Err(error) => return Some(Err(error)),
        };
        let (sender, mut answer) = oneshot::channel();
        let asker = link.clone();
        link.spawn(Box::pin(async move {
            let told = asker.ask(&call).await;
            drop(turn);
            // Whoever asked may have gone.
            let _ = sender.send(told);
        }));
        let in_doubt = || {
            let message = "the row of the name is locked by another session";
            Err(unavailable(message, Certainty::Unknown))
        };
        Some(tokio::select! {
            biased;
            told = &mut answer => told.unwrap_or_else(|_| in_doubt()),
            () = self.clock.sleep_until(end) => in_doubt(),
        })
    }

    fn link(&self) -> Result<Link, LockError> {
        if let Some(link) = self.link.get() {
            return Ok(link.clone());
        }
        // Nobody watches here: the first connection has the inbox.
        let watches = Arc::new(Watches::default());
        let link = Link::new(&self.options, self.clock.clone(), watches, false)?;
        Ok(self.link.get_or_init(|| link).clone())
    }
}
