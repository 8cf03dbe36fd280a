//! A stream for one lock name: how the lock stands in the store, whichever program changed it.
//!
//! - O1: a `state` is the whole state. A reader that missed some has the last one, and the fencing
//!   token says whether there were grants in between.
//! - O2: only what changed is sent: ages and remaining times alone are no change.

use std::time::{Duration, Instant};

use holdline_core::{LockName, Snapshot};

use crate::app::App;
use crate::events::STILL_HERE;
use crate::views::LockBody;

/// How often the store is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// What a stream for one name has sent.
pub(crate) struct Watched {
    name: LockName,
    sent: Option<State>,
    last_sent: Instant,
}

/// What of a lock's state is a change.
#[derive(PartialEq, Eq)]
struct State(String);

impl State {
    fn of(snapshot: &Snapshot) -> State {
        let mut text = String::new();
        for holder in &snapshot.holders {
            let summary = &holder.summary;
            text += &format!("{} {:?} {:?};", summary.lease_id, summary.token, holder.state);
        }
        for waiter in &snapshot.queue {
            text += &format!("{};", waiter.lease_id);
        }
        if let Some(freeze) = &snapshot.freeze {
            text += &format!("{} {:?}", freeze.active, freeze.token);
        }
        text += &format!("{} {}", snapshot.holder_count, snapshot.queue_length);
        State(text)
    }
}

impl Watched {
    pub(crate) fn new(name: LockName) -> Watched {
        Watched { name, sent: None, last_sent: Instant::now() }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// Looks at the store; returns the event if the lock has changed. While the store does not
    /// answer there is none.
    pub(crate) async fn look(&mut self, app: &App) -> Option<String> {
        let snapshot = match app.client.admin().inspect(&self.name).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::debug!(%error, "a watched name is not seen");
                return None;
            }
        };
        let state = State::of(&snapshot);
        if self.sent.as_ref() == Some(&state) {
            return None;
        }
        self.sent = Some(state);
        self.last_sent = Instant::now();
        // Strings and numbers always encode.
        let data = serde_json::to_string(&LockBody::of(&snapshot)).unwrap_or_default();
        Some(format!("event: state\ndata: {data}\n\n"))
    }

    /// Returns whether it is time for a comment, so that a broken connection is noticed.
    pub(crate) fn is_still_here_due(&mut self) -> bool {
        let is_due = self.last_sent.elapsed() >= STILL_HERE;
        if is_due {
            self.last_sent = Instant::now();
        }
        is_due
    }
}
