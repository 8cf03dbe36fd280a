//! The check `holds`: names that are held for longer than the operator expects.
//!
//! Renewal holds a lock for as long as its process lives, so a process that hangs and still renews
//! blocks all others. No store can distinguish such a hold from long work: the operator sets the
//! limit.

use std::time::Duration;

use holdline_core::snapshot::coarse;
use holdline_core::{Finding, HolderView, ListRequest, LockError, LockName, Snapshot};

use crate::config::Address;
use crate::failure::Failure;
use crate::open_store::{NoStore, OpenStore, StoreOptions};

const CHECK: &str = "holds";
const MATTERS: &str = "a holder that hangs and still renews blocks its name until somebody ends it";
/// How many names one request lists.
const PAGE: usize = 500;

/// Looks for holds that are longer than this.
pub(super) async fn check(address: Address, limit: Duration) -> Finding {
    match longest_of(address, limit).await {
        Ok(seen) => seen.finding(limit),
        Err(failure) => Finding::ok(CHECK, MATTERS, failure.message)
            .warn(format!("not checked: {}", failure.fix.unwrap_or_default())),
    }
}

/// Where another check has failed: a store that does not work lists nothing.
pub(super) fn not_checked() -> Finding {
    Finding::ok(CHECK, MATTERS, "not checked").warn("first repair what the errors name")
}

async fn longest_of(address: Address, limit: Duration) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    if NoStore::at(&address)?.is_some() {
        return Ok(seen);
    }
    let options = StoreOptions { read_only: true, ..StoreOptions::default() };
    let store = OpenStore::open(address, options).await?;
    let listed = list(&store, limit, &mut seen).await;
    store.flush().await;
    listed?;
    Ok(seen)
}

/// Reads all names, page by page.
async fn list(store: &OpenStore, limit: Duration, seen: &mut Seen) -> Result<(), LockError> {
    let mut request = ListRequest { prefix: String::new(), after: None, limit: PAGE };
    loop {
        let page = store.list(&request).await?;
        page.names.iter().for_each(|snapshot| seen.add(snapshot, limit));
        match page.after {
            // Pages are ordered by name, so each page ends after the one before.
            Some(after) if request.after.as_ref().is_none_or(|before| *before < after) => {
                request.after = Some(after);
            }
            _ => return Ok(()),
        }
    }
}

/// What the listing shows.
#[derive(Default)]
struct Seen {
    holds: usize,
    too_long: usize,
    /// Holds whose begin the store does not record.
    undated: usize,
    longest: Option<(LockName, HolderView, Duration)>,
}

impl Seen {
    fn add(&mut self, snapshot: &Snapshot, limit: Duration) {
        self.holds += snapshot.holder_count;
        for holder in &snapshot.holders {
            let Some(held_for) = holder.summary.held_for else {
                self.undated += 1;
                continue;
            };
            self.too_long += usize::from(held_for > limit);
            if self.longest.as_ref().is_none_or(|(_, _, longest)| held_for > *longest) {
                self.longest = Some((snapshot.name.clone(), holder.clone(), held_for));
            }
        }
    }

    fn finding(&self, limit: Duration) -> Finding {
        let mut found = match (&self.longest, self.holds) {
            (_, 0) => "nothing is held".to_owned(),
            (None, holds) => format!("{holds} held"),
            (Some((name, holder, _)), holds) => {
                format!("{holds} held; the longest: {name} by {}", holder.summary)
            }
        };
        if self.undated > 0 {
            found = format!("{found}; of {} the store does not record since when", self.undated);
        }
        let finding = Finding::ok(CHECK, MATTERS, found);
        if self.too_long == 0 {
            return finding;
        }
        finding.warn(format!(
            "{} held for more than {}: see whether it still works (`holdline who NAME`), or \
             `holdline revoke NAME`; --max-hold limits a hold in advance",
            self.too_long,
            coarse(limit),
        ))
    }
}
