//! Counts what a store holds: holds that last too long, the locks of other libraries, and the keys
//! that never end.
//!
//! The store knows all holds, also those of a program that hangs and whose metrics nobody gets. A
//! listing reads all keys of the store, so the server counts rarely.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_core::{
    Capabilities, HolderSummary, HolderView, ListRequest, LockError, LockName, ShortLeaseId,
};

use crate::app::App;
use crate::config::LongHoldsConfig;
use crate::metrics::SharedKeys;

/// How often the server counts.
const INTERVAL: Duration = Duration::from_secs(60);
/// A count begins not before the last one is so many times as old as it took.
const REST: u32 = 20;
/// How many pages of names are read if nobody asked for long holds.
const MAX_PAGES: usize = 10;

/// Counts again, as long as the server runs. A store that does not answer keeps its last numbers.
pub(crate) async fn watch(app: &App) {
    let capabilities = app.client.capabilities();
    if !capabilities.list {
        if !app.long_holds.read().is_empty() {
            tracing::warn!(store = %app.store, "long holds are not counted: the store has no list");
        }
        return;
    }
    let is_shared = is_shared(capabilities);
    let mut limits: Arc<[LongHoldsConfig]> = Arc::default();
    let mut logged = HashSet::new();
    loop {
        let began = Instant::now();
        let before = std::mem::replace(&mut limits, app.long_holds.read().clone());
        for ended in before.iter().filter(|one| !limits.contains(one)) {
            app.metrics.forget_long_holds(&app.store, &ended.prefix);
        }
        if is_shared || !limits.is_empty() {
            match count(app, &limits).await {
                Ok(counts) => {
                    if is_shared {
                        app.metrics.shared_keys(&app.store, &counts.keys);
                    }
                    report(app, &limits, &counts.long, &mut logged);
                }
                Err(error) => tracing::debug!(store = %app.store, %error, "nothing was counted"),
            }
        }
        tokio::time::sleep(INTERVAL.max(REST * began.elapsed())).await;
    }
}

/// Returns whether other libraries may hold names of the store: their holders have no tokens, so
/// only there are holders revoked by their id.
fn is_shared(capabilities: &Capabilities) -> bool {
    capabilities.revoke_holder
}

async fn count(app: &App, limits: &[LongHoldsConfig]) -> Result<Counts, LockError> {
    let mut counts = Counts { long: vec![Vec::new(); limits.len()], ..Counts::default() };
    let mut request = ListRequest::default();
    let mut pages = 0;
    loop {
        let page = app.client.admin().list(&request).await?;
        for snapshot in &page.names {
            let limit = LongHoldsConfig::of(limits, &snapshot.name);
            for holder in &snapshot.holders {
                counts.add(&snapshot.name, holder, limit);
            }
        }
        pages += 1;
        let goes_on = page.after > request.after;
        request.after = page.after;
        // Pages are ordered by name, so each ends after the one before.
        if !goes_on || (limits.is_empty() && pages == MAX_PAGES) {
            return Ok(counts);
        }
    }
}

/// A hold that lasts too long.
#[derive(Clone)]
struct LongHold {
    name: LockName,
    holder: HolderSummary,
}

/// What one count found.
#[derive(Default)]
struct Counts {
    keys: SharedKeys,
    /// Of each limit, in their order.
    long: Vec<Vec<LongHold>>,
}

impl Counts {
    /// `limit` is the one of the name, and its place.
    fn add(
        &mut self,
        name: &LockName,
        holder: &HolderView,
        limit: Option<(usize, &LongHoldsConfig)>,
    ) {
        let held_for = holder.summary.held_for;
        // A holder of ours has the time of its grant in its key.
        self.keys.foreign += usize::from(held_for.is_none());
        self.keys.without_expiry += usize::from(holder.summary.no_expiry);
        let Some((at, limit)) = limit else { return };
        let Some(after) = limit.after() else { return };
        if held_for.is_some_and(|held_for| held_for > after) {
            self.long[at].push(LongHold { name: name.clone(), holder: holder.summary.clone() });
        }
    }
}

/// Sets the metrics, and writes each hold to the log that was not there the last time.
fn report(
    app: &App,
    limits: &[LongHoldsConfig],
    found: &[Vec<LongHold>],
    logged: &mut HashSet<(LockName, ShortLeaseId)>,
) {
    let store = &app.store;
    for (limit, holds) in limits.iter().zip(found) {
        app.metrics.long_holds(store, &limit.prefix, holds.len());
    }
    let mut found_now = HashSet::new();
    for LongHold { name, holder } in found.iter().flatten() {
        let hold = (name.clone(), holder.lease_id);
        if !logged.contains(&hold) {
            tracing::warn!(%store, %name, %holder, "a lock is held for longer than its limit");
        }
        found_now.insert(hold);
    }
    *logged = found_now;
}
