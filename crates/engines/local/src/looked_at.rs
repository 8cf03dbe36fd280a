//! A watch that begins with a look: how its lease id stands is told before what is to come.
//!
//! Of what this process has queued, hints are kept until the watch opens. Nothing is kept for a
//! holder, which may never open one; so a revoke that came before is found here (rule G4 of the
//! contract).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use holdline_core::hints::WatchStream;
use holdline_core::{Answer, Hint, LockError};

/// The answer to the look.
type Look = Answer<'static, Result<Option<Hint>, LockError>>;

/// The hints of a watch whose lease id was looked at when it opened.
pub(crate) struct LookedAt {
    look: Option<Look>,
    stream: WatchStream,
}

impl LookedAt {
    /// The look must have begun after the stream was opened, or something falls in between.
    pub(crate) fn new(look: Look, stream: WatchStream) -> LookedAt {
        LookedAt { look: Some(look), stream }
    }
}

impl Stream for LookedAt {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        if let Some(look) = &mut self.look {
            let found = ready!(Pin::new(look).poll(context));
            self.look = None;
            match found {
                Ok(Some(hint)) => return Poll::Ready(Some(hint)),
                Ok(None) => {}
                // Whatever is wrong, the holder's next renewal meets it too.
                Err(error) => tracing::debug!(%error, "a lease was not looked at"),
            }
        }
        Pin::new(&mut self.stream).poll_next(context)
    }
}
