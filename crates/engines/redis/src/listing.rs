//! Listings that are under way. Keys have no order and pages do: so a page looks at all keys, and
//! the names that it finds behind its own are kept for the pages that follow.
//!
//! - Invariant I1: at most [`MOST_NAMES`] names of each of [`MOST_LISTINGS`] listings are kept, and
//!   for [`FRESH`] only. Without them a page looks at all keys again.
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
use crate::keys::Layout;
use crate::native;
use crate::node::Node;

/// The longest page of a listing.
const MAX_PAGE: usize = 1_000;
/// How many keys one step of a scan looks at.
const SCAN_COUNT: &str = "1000";
/// How many names of a listing are looked at in one call.
const SHOWN_AT_ONCE: usize = 32;

/// How many names one look at all keys brings home.
pub(crate) const MOST_NAMES: usize = 32_768;
const MOST_LISTINGS: usize = 4;
/// How many steps of a scan one page takes at most: those of a thousand million keys.
const MOST_STEPS: u32 = if cfg!(test) { 100 } else { 1_000_000 };
const FRESH: Duration = Duration::from_secs(30);

/// The steps that a page may still take: a server whose scan does not end is not asked for ever.
pub(crate) struct Steps(u32);

impl Steps {
    pub(crate) fn of_a_page() -> Steps {
        Steps(MOST_STEPS)
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
pub(crate) struct Ahead {
    pub(crate) names: BTreeSet<LockName>,
    /// There may be more behind them.
    pub(crate) more: bool,
}

impl Ahead {
    /// Adds a name; of too many, the last go.
    pub(crate) fn add(&mut self, name: LockName) {
        if self.names.insert(name) && self.names.len() > MOST_NAMES {
            self.names.pop_last();
            self.more = true;
        }
    }
}

/// What listings under way have in common: they are of one prefix, and behind one name.
#[derive(Debug)]
struct Kept {
    prefix: String,
    after: LockName,
    ahead: Ahead,
    since: Moment,
}

/// What is shown of a name.
pub(crate) type Shown = Result<Snapshot, LockError>;

/// Where the names of a listing are found.
pub(crate) trait Shelf: Sync {
    /// Looks at all keys, and returns the first names behind `after`.
    fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        steps: &mut Steps,
    ) -> impl Future<Output = Result<Ahead, LockError>> + Send;

    /// Shows these names.
    fn show(
        &self,
        names: &[LockName],
    ) -> impl Future<Output = Result<Vec<Shown>, LockError>> + Send;
}

/// How the keys of one server are looked at.
pub(crate) struct Scan<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) deadline: Duration,
}

impl Scan<'_> {
    /// Looks at all keys of a server, and hands on the names that begin with the prefix and come
    /// behind the other.
    pub(crate) async fn names_after(
        &self,
        node: &Node,
        (prefix, after): (&str, Option<&LockName>),
        steps: &mut Steps,
        found: &mut (dyn FnMut(LockName) + Send),
    ) -> Result<(), LockError> {
        let pattern = self.layout.pattern(prefix);
        let mut cursor = b"0".to_vec();
        loop {
            steps.take()?;
            let words = [
                b"SCAN".to_vec(),
                cursor,
                b"MATCH".to_vec(),
                pattern.clone(),
                b"COUNT".to_vec(),
                SCAN_COUNT.into(),
            ];
            let reply = node.command(words.to_vec(), None, self.deadline).await?;
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

/// The listings under way.
pub(crate) struct Listings {
    clock: Arc<dyn Clock>,
    kept: Mutex<Vec<Kept>>,
}

impl Listings {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Listings {
        Listings { clock, kept: Mutex::default() }
    }

    /// Lists a page: of the names that an earlier page has found, or of all keys.
    pub(crate) async fn page(
        &self,
        request: &ListRequest,
        shelf: &impl Shelf,
    ) -> Result<ListPage, LockError> {
        let limit = request.limit.clamp(1, MAX_PAGE);
        let mut page = ListPage::default();
        let mut after = request.after.clone();
        let mut kept = self.take(&request.prefix, after.as_ref());
        let mut steps = Steps::of_a_page();
        loop {
            let ahead = match kept.take() {
                Some(ahead) => ahead,
                None => shelf.names_after(&request.prefix, after.as_ref(), &mut steps).await?,
            };
            let next: Vec<LockName> = ahead.names.iter().cloned().collect();
            for part in next.chunks(SHOWN_AT_ONCE) {
                if fill(&mut page, shelf.show(part).await?, limit)? {
                    page.after = page.names.last().map(|last| last.name.clone());
                    if let Some(last) = &page.after {
                        self.keep(&request.prefix, last, ahead);
                    }
                    return Ok(page);
                }
            }
            if !ahead.more {
                return Ok(page);
            }
            after = next.into_iter().next_back();
        }
    }

    /// Takes what was kept for the page behind `after`.
    fn take(&self, prefix: &str, after: Option<&LockName>) -> Option<Ahead> {
        let after = after?;
        let now = self.clock.now();
        let mut kept = self.kept.lock();
        kept.retain(|one| now < one.since.after(FRESH));
        let place = kept.iter().position(|one| one.prefix == prefix && one.after == *after)?;
        Some(kept.remove(place).ahead)
    }

    /// Keeps what lies behind `after`.
    fn keep(&self, prefix: &str, after: &LockName, mut ahead: Ahead) {
        ahead.names.retain(|name| name > after);
        let (prefix, after, since) = (prefix.to_owned(), after.clone(), self.clock.now());
        let mut kept = self.kept.lock();
        if kept.len() >= MOST_LISTINGS {
            kept.remove(0);
        }
        kept.push(Kept { prefix, after, ahead, since });
    }
}

/// Adds those of the names that are listed; tells whether the page is full before the last.
fn fill(page: &mut ListPage, shown: Vec<Shown>, limit: usize) -> Result<bool, LockError> {
    for snapshot in shown {
        // A name that holds what is not ours is stepped over: whoever asks for it by name is told.
        let snapshot = match snapshot {
            Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => continue,
            other => other?,
        };
        if !is_listed(&snapshot) {
            continue;
        }
        if page.names.len() == limit {
            return Ok(true);
        }
        page.names.push(snapshot);
    }
    Ok(false)
}

/// Tells whether a listing shows the name: it is held, waited for, or frozen.
fn is_listed(snapshot: &Snapshot) -> bool {
    snapshot.is_held() || snapshot.queue_length > 0 || snapshot.freeze.is_some()
}

#[cfg(test)]
mod tests {
    use holdline_conformance::HandDriven;
    use holdline_conformance::clock::HandClock;

    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a good name")
    }

    fn ahead(names: &[&str]) -> Ahead {
        Ahead { names: names.iter().map(|text| name(text)).collect(), more: false }
    }

    #[test]
    fn what_is_kept_is_taken_once_by_the_page_that_follows_and_soon() {
        let clock = HandClock::new();
        let listings = Listings::new(Arc::new(clock.clone()));
        let keep = |prefix: &str| listings.keep(prefix, &name("b"), ahead(&["a", "b", "c", "d"]));
        keep("");
        for (prefix, after) in [("", None), ("x", Some("b")), ("", Some("c"))] {
            let after = after.map(name);
            assert_eq!(listings.take(prefix, after.as_ref()), None, "{prefix} {after:?}");
        }
        let taken = listings.take("", Some(&name("b")));
        assert_eq!(taken, Some(ahead(&["c", "d"])));
        assert_eq!(listings.take("", Some(&name("b"))), None);
        keep("");
        clock.advance(FRESH);
        assert_eq!(listings.take("", Some(&name("b"))), None, "too old");
        for number in 0..=MOST_LISTINGS {
            keep(&number.to_string());
        }
        assert_eq!(listings.take("0", Some(&name("b"))), None, "too many");
        assert!(listings.take("1", Some(&name("b"))).is_some());
    }

    #[test]
    fn of_too_many_names_the_first_are_kept() {
        let mut ahead = Ahead::default();
        for number in (0..=MOST_NAMES).rev() {
            assert!(!ahead.more);
            ahead.add(name(&format!("{number:06}")));
        }
        assert!(ahead.more);
        assert_eq!((ahead.names.len(), ahead.names.first()), (MOST_NAMES, Some(&name("000000"))));
    }
}
