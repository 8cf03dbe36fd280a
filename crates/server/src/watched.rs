//! What a stream shows of the store itself: how locks stand, whichever program changed them.
//!
//! - O1: a `state` is the whole state of one lock. A reader that missed some has the last one, and
//!   the fencing token says whether there were grants in between.
//! - O2: only what changed is sent: renewals, ages and remaining times alone are no change.
//! - O3: `gap` says from which name on a prefix has more locks than one look covers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use holdline::watch::{Coverage, LockEvent, NamePattern, Round, StoreWatch, WatchOptions};
use holdline_core::json::LockJson;
use holdline_core::{LockName, Snapshot};
use serde_json::json;

use crate::app::App;
use crate::problem::Problem;

/// How often a stream without events writes a comment, so that a broken connection is noticed.
pub(crate) const STILL_HERE: Duration = Duration::from_secs(10);

/// How often the store is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How many names, and how many holders and waiters together, one look covers.
const MOST: usize = 5_000;
/// A stream that lists the store each second counts as so many: it costs so much more.
pub(crate) const COUNTS_AS: usize = 10;

/// Which locks a stream is about.
pub(crate) enum WatchScope {
    Name(LockName),
    Prefix(String),
}

impl WatchScope {
    /// Returns the name or the prefix, for which the reader needs the right.
    pub(crate) fn text(&self) -> &str {
        match self {
            WatchScope::Name(name) => name.as_str(),
            WatchScope::Prefix(prefix) => prefix,
        }
    }
}

/// How the locks of a stream stand in the store.
pub(crate) struct Watched {
    watch: StoreWatch,
    /// The only name. Its first state is sent in any case.
    name: Option<LockName>,
    has_begun: bool,
    /// What the last look covered.
    coverage: Coverage,
    last_sent: Instant,
}

impl Watched {
    pub(crate) fn new(app: &App, scope: &WatchScope) -> Result<Watched, Problem> {
        let (pattern, name) = match scope {
            WatchScope::Name(name) => (NamePattern::of_name(name), Some(name.clone())),
            WatchScope::Prefix(prefix) => (NamePattern::of_prefix(prefix), None),
        };
        let options =
            WatchOptions::default().with_interval(LOOK).with_max_names(MOST).with_max_entries(MOST);
        let watch = StoreWatch::new(app.client.clone(), pattern, options)?;
        let last_sent = Instant::now();
        Ok(Watched { watch, name, has_begun: false, coverage: Coverage::All, last_sent })
    }

    /// Resolves when it is time to look at the store.
    pub(crate) async fn until_due(&self) {
        self.watch.until_due().await;
    }

    /// Looks at the store; returns the events of the locks that have changed. While the store does
    /// not answer there is none. `may_see` says whether the reader may see a name.
    pub(crate) async fn look(&mut self, may_see: impl Fn(&LockName) -> bool) -> Option<String> {
        let round = self.watch.next_round().await;
        if let Some(failing) = &round.failing {
            tracing::debug!(error = %failing.error, "watched names are not seen");
            return None;
        }
        let mut changed = changed_names(&round);
        if !self.has_begun {
            changed.extend(&self.name);
        }
        self.has_begun = true;
        let mut text = String::new();
        for name in changed.into_iter().filter(|name| may_see(name)) {
            let free = || Snapshot::free(name.clone());
            let seen = self.watch.name(name).map(|seen| seen.snapshot().clone());
            let state = LockJson::from(&seen.unwrap_or_else(free));
            // Strings and numbers always encode.
            let data = serde_json::to_string(&state).unwrap_or_default();
            text += &format!("event: state\ndata: {data}\n\n");
        }
        if let Some(coverage) = round.coverage.filter(|coverage| *coverage != self.coverage) {
            if let Coverage::UpTo(last) = &coverage {
                let data = json!({ "seen_up_to": last.as_str() });
                text += &format!("event: gap\ndata: {data}\n\n");
            }
            self.coverage = coverage;
        }
        if text.is_empty() {
            return None;
        }
        self.last_sent = Instant::now();
        Some(text)
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

/// Returns the names of which a round has shown a change.
fn changed_names(round: &Round) -> BTreeSet<&LockName> {
    let is_change = |event: &LockEvent| !matches!(event, LockEvent::Renewed { .. });
    let changes = round.changes.iter().filter(|change| is_change(&change.event));
    changes.map(|change| &change.name).collect()
}
