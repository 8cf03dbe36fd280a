//! Reads one round, page by page, within its bounds.

use std::collections::BTreeMap;

use holdline_core::{ListRequest, LockError, LockName};

use super::Coverage;
use super::compare::{Names, WatchedName};
use super::options::WatchOptions;
use super::pattern::NamePattern;
use crate::client::Client;

/// How many names one request lists.
const PAGE: usize = 500;

/// The names of one round.
pub(super) struct Listing {
    pub(super) names: Names,
    pub(super) coverage: Coverage,
}

/// Reads all names that match, as far as the options allow.
pub(super) async fn read(
    client: &Client,
    pattern: &NamePattern,
    options: &WatchOptions,
) -> Result<Listing, LockError> {
    let clock = client.clock();
    if let Some(name) = pattern.exact() {
        let asked = clock.now();
        let snapshot = client.admin().inspect(name).await?;
        let names = if snapshot.is_used() {
            BTreeMap::from([(name.clone(), WatchedName::new(snapshot, asked, clock.now()))])
        } else {
            BTreeMap::new()
        };
        return Ok(Listing { names, coverage: Coverage::All });
    }
    let mut names = BTreeMap::new();
    let mut entries = 0;
    let mut listed = 0;
    let mut last: Option<LockName> = None;
    let mut request = ListRequest { prefix: pattern.prefix().to_owned(), after: None, limit: PAGE };
    loop {
        let asked = clock.now();
        let page = client.admin().list(&request).await?;
        let answered = clock.now();
        for snapshot in page.names {
            let here = snapshot.holders.len() + snapshot.queue.len();
            let is_over = listed == options.max_names() || entries + here > options.max_entries();
            // One name is always shown, however many wait for it.
            if let (true, Some(last)) = (is_over, &last) {
                return Ok(Listing { names, coverage: Coverage::UpTo(last.clone()) });
            }
            listed += 1;
            last = Some(snapshot.name.clone());
            if snapshot.is_used() && pattern.matches(&snapshot.name) {
                entries += here;
                let name = snapshot.name.clone();
                names.insert(name, WatchedName::new(snapshot, asked, answered));
            }
        }
        match page.after {
            // Pages are ordered by name, so each page ends after the one before.
            Some(after) if request.after.as_ref().is_none_or(|before| *before < after) => {
                request.after = Some(after);
            }
            _ => return Ok(Listing { names, coverage: Coverage::All }),
        }
    }
}
