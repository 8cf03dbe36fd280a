//! Listings in pages. `SCAN` returns keys in no order, and pages are ordered. So a page scans all
//! keys, and the names that follow those of the page are kept for the next pages.
//!
//! - Invariant I1: at most [`MAX_NAMES`] names of each of [`MAX_LISTINGS`] listings are kept, and
//!   only for [`KEEP_FOR`]. Without them a page scans all keys again.
//! - Invariant I2: a name that is held or waited for from the first page to the last is listed.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{
    Clock, ErrorKind, ListPage, ListRequest, LockError, LockName, Moment, Snapshot,
};
use parking_lot::Mutex;

use crate::error::protocol;
use crate::in_flight::InFlight;
use crate::keys::Layout;
use crate::link::Link;
use crate::native;

/// How many keys one `SCAN` visits.
const SCAN_COUNT: &str = "1000";
/// How many names one call inspects.
const INSPECT_AT_ONCE: usize = 32;

/// How many names one scan of all keys returns.
pub(crate) const MAX_NAMES: usize = 32_768;
const MAX_LISTINGS: usize = 4;
/// How many `SCAN`s one page may take: enough for a thousand million keys.
const MAX_SCANS: u32 = if cfg!(test) { 100 } else { 1_000_000 };
const KEEP_FOR: Duration = Duration::from_secs(30);

/// How many `SCAN`s a page may still take, in case a server's scan does not end.
pub(crate) struct ScanBudget(u32);

impl ScanBudget {
    pub(crate) fn for_page() -> ScanBudget {
        ScanBudget(MAX_SCANS)
    }

    /// Counts one.
    pub(crate) fn take(&mut self) -> Result<(), LockError> {
        let left = self.0.checked_sub(1);
        self.0 = left.ok_or_else(|| protocol("the scan of the server's keys does not end"))?;
        Ok(())
    }
}

/// The names that come next in a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NextNames {
    pub(crate) names: BTreeSet<LockName>,
    /// There may be more after them.
    pub(crate) more: bool,
}

impl NextNames {
    /// Adds a name; of too many, the last go.
    pub(crate) fn add(&mut self, name: LockName) {
        if self.names.insert(name) && self.names.len() > MAX_NAMES {
            self.names.pop_last();
            self.more = true;
        }
    }
}

/// The names kept for the page of this prefix that follows this name.
#[derive(Debug)]
struct KeptListing {
    prefix: String,
    after: LockName,
    next_names: NextNames,
    since: Moment,
}

/// The state of a name.
pub(crate) type Shown = Result<Snapshot, LockError>;

/// Finds the names of a listing.
pub(crate) trait NameSource: Sync {
    /// Scans all keys, and returns the first names after `after`.
    fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        budget: &mut ScanBudget,
    ) -> impl Future<Output = Result<NextNames, LockError>> + Send;

    /// Inspects these names.
    fn show(
        &self,
        names: &[LockName],
    ) -> impl Future<Output = Result<Vec<Shown>, LockError>> + Send;
}

/// Inspects names one by one, all at the same time.
pub(crate) async fn each<'a, F: Future<Output = Shown> + Send>(
    names: &'a [LockName],
    inspect: impl Fn(&'a LockName) -> F,
) -> Vec<Shown> {
    let mut in_flight = InFlight::with_capacity(names.len());
    names.iter().enumerate().for_each(|(at, name)| in_flight.push(at, inspect(name)));
    let missing = || Err(protocol("a requested name is not in the reply"));
    let mut shown: Vec<Shown> = names.iter().map(|_| missing()).collect();
    while let Some((at, one)) = in_flight.next().await {
        shown[at] = one;
    }
    shown
}

/// Scans the keys of one server.
pub(crate) struct Scan<'a> {
    pub(crate) layout: &'a Layout,
    /// The type of the keys; `None` for all types.
    pub(crate) kind: Option<&'static str>,
    pub(crate) deadline: Duration,
}

impl Scan<'_> {
    /// Scans all keys of a server, and passes on the names with this prefix that come after
    /// `after`.
    pub(crate) async fn names_after(
        &self,
        link: &Link,
        prefix: &str,
        after: Option<&LockName>,
        budget: &mut ScanBudget,
        found: &mut (dyn FnMut(LockName) + Send),
    ) -> Result<(), LockError> {
        let pattern = self.layout.names_beginning(prefix);
        let mut cursor = b"0".to_vec();
        loop {
            budget.take()?;
            let mut args = vec![
                b"SCAN".to_vec(),
                cursor,
                b"MATCH".to_vec(),
                pattern.clone(),
                b"COUNT".to_vec(),
                SCAN_COUNT.into(),
            ];
            if let Some(kind) = self.kind {
                args.extend([b"TYPE".to_vec(), kind.into()]);
            }
            let reply = link.command(args, None, self.deadline).await?;
            let (next, keys) = native::listed(&reply)?;
            for key in keys {
                let name = key.as_bytes().and_then(|key| self.layout.name_of(key));
                let behind = |name: &LockName| after.is_none_or(|after| name > after);
                name.filter(|name| name.as_str().starts_with(prefix) && behind(name))
                    .into_iter()
                    .for_each(&mut *found);
            }
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }
}

/// The listings in progress.
pub(crate) struct Listings {
    clock: Arc<dyn Clock>,
    kept: Mutex<Vec<KeptListing>>,
}

impl Listings {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Listings {
        Listings { clock, kept: Mutex::default() }
    }

    /// Lists a page, from the kept names of an earlier page or from a scan.
    pub(crate) async fn page(
        &self,
        request: &ListRequest,
        source: &impl NameSource,
    ) -> Result<ListPage, LockError> {
        let limit = request.limit();
        let mut page = ListPage::default();
        let mut after = request.after.clone();
        let mut kept = self.take(&request.prefix, after.as_ref());
        let mut budget = ScanBudget::for_page();
        loop {
            let next_names = match kept.take() {
                Some(next_names) => next_names,
                None => source.names_after(&request.prefix, after.as_ref(), &mut budget).await?,
            };
            let next: Vec<LockName> = next_names.names.iter().cloned().collect();
            for part in next.chunks(INSPECT_AT_ONCE) {
                if fill(&mut page, source.show(part).await?, limit)? {
                    page.after = page.names.last().map(|last| last.name.clone());
                    if let Some(last) = &page.after {
                        self.keep(&request.prefix, last, next_names);
                    }
                    return Ok(page);
                }
            }
            if !next_names.more {
                return Ok(page);
            }
            after = next.into_iter().next_back();
        }
    }

    /// Takes the names that were kept for the page after `after`.
    fn take(&self, prefix: &str, after: Option<&LockName>) -> Option<NextNames> {
        let after = after?;
        let now = self.clock.now();
        let mut kept = self.kept.lock();
        kept.retain(|one| now < one.since.after(KEEP_FOR));
        let index = kept.iter().position(|one| one.prefix == prefix && one.after == *after)?;
        Some(kept.remove(index).next_names)
    }

    /// Keeps the names after `after`.
    fn keep(&self, prefix: &str, after: &LockName, mut next_names: NextNames) {
        next_names.names.retain(|name| name > after);
        let prefix = prefix.to_owned();
        let after = after.clone();
        let since = self.clock.now();
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_LISTINGS {
            kept.remove(0);
        }
        kept.push(KeptListing { prefix, after, next_names, since });
    }
}

/// Adds the names that are in use; returns whether the page is full before the last one.
fn fill(page: &mut ListPage, shown: Vec<Shown>, limit: usize) -> Result<bool, LockError> {
    for snapshot in shown {
        // A name with foreign data is skipped: inspecting it by name returns the error.
        let snapshot = match snapshot {
            Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => continue,
            other => other?,
        };
        if !snapshot.is_used() {
            continue;
        }
        if page.names.len() == limit {
            return Ok(true);
        }
        page.names.push(snapshot);
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
