//! A watch that starts with a check of its lease id, before later hints.
//!
//! For the queue entries of this process, hints are kept until the watch opens. For a holder, which
//! may never open a watch, none are kept, so the check finds an earlier revoke (rule G4 of the
//! contract).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use holdline_core::hints::WatchStream;
use holdline_core::{Answer, Hint, LockError};

/// The answer of the check.
type InitialCheck = Answer<'static, Result<Option<Hint>, LockError>>;

/// The hints of a watch whose lease id was checked when it opened.
pub(crate) struct CheckedWatch {
    look: Option<InitialCheck>,
    stream: WatchStream,
}

impl CheckedWatch {
    /// The check must start after the stream was opened, or an event in between is missed.
    pub(crate) fn new(look: InitialCheck, stream: WatchStream) -> CheckedWatch {
        CheckedWatch { look: Some(look), stream }
    }
}

impl Stream for CheckedWatch {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        if let Some(look) = &mut self.look {
            let found = ready!(Pin::new(look).poll(context));
            self.look = None;
            match found {
                Ok(Some(hint)) => return Poll::Ready(Some(hint)),
                Ok(None) => {}
                // The holder's next renewal gets the same error.
                Err(error) => tracing::debug!(%error, "a lease was not checked"),
            }
        }
        Pin::new(&mut self.stream).poll_next(context)
    }
}
