//! Which rows the tables show: filtered and sorted. Pure.

use std::cmp::Ordering;
use std::time::Duration;

use holdline_core::{HolderFields, HolderView, Metadata, Snapshot, WaiterView};

use super::stores::{NamePosition, Stores};

/// The key that a table is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// The lock name, in byte order.
    #[default]
    Name,
    /// The store, in the order of the command line.
    Store,
    /// The longest held, or the longest waiting, first.
    Since,
    /// The least left of the lease first; grants without a lease last.
    Left,
    /// The most waiters first.
    Waiters,
}

impl SortKey {
    /// Returns the word for the screen.
    pub(crate) fn word(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::Store => "store",
            SortKey::Since => "time",
            SortKey::Left => "left",
            SortKey::Waiters => "waiters",
        }
    }
}

/// How a table is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sort {
    /// By what.
    pub(crate) key: SortKey,
    /// The other way round.
    pub(crate) reversed: bool,
}

/// A row: a name, and one of its holders or waiters, by its position in the list of the snapshot. A
/// frozen name without holders has a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Which name.
    pub(crate) name: NamePosition,
    /// Which holder or waiter of it.
    pub(crate) entry: Option<usize>,
}

/// Returns the rows of the table of holders.
pub(crate) fn held(stores: &Stores, filter: &str, sort: Sort) -> Vec<Row> {
    let filters = Filter::of_stores(filter, stores);
    let mut rows = Vec::new();
    for (name, snapshot) in stores.names() {
        let filter = &filters[name.store];
        let matched = |holder: &HolderView| filter.matches(snapshot, &holder.summary.metadata);
        let holders = snapshot.holders.iter().enumerate().filter(|(_, holder)| matched(holder));
        rows.extend(holders.map(|(entry, _)| Row { name, entry: Some(entry) }));
        let frozen = snapshot.freeze.is_some() && snapshot.holders.is_empty();
        if frozen && filter.matches_name(snapshot) {
            rows.push(Row { name, entry: None });
        }
    }
    let holder = |row: &Row| row.entry.map(|entry| &stores.at(row.name).holders[entry].summary);
    sorted(&mut rows, stores, sort, |key, one, other| match key {
        SortKey::Since => {
            let since = |row| holder(row).and_then(|holder| holder.held_for);
            since(other).cmp(&since(one))
        }
        SortKey::Left => {
            let left = |row| holder(row).and_then(|holder| holder.left).unwrap_or(Duration::MAX);
            left(one).cmp(&left(other))
        }
        SortKey::Name | SortKey::Store | SortKey::Waiters => Ordering::Equal,
    });
    rows
}

/// Returns the rows of the table of waiters.
pub(crate) fn waiting(stores: &Stores, filter: &str, sort: Sort) -> Vec<Row> {
    let filters = Filter::of_stores(filter, stores);
    let mut rows = Vec::new();
    for (name, snapshot) in stores.names() {
        let filter = &filters[name.store];
        let matched = |waiter: &WaiterView| filter.matches(snapshot, &waiter.metadata);
        let waiters = snapshot.queue.iter().enumerate().filter(|(_, waiter)| matched(waiter));
        rows.extend(waiters.map(|(entry, _)| Row { name, entry: Some(entry) }));
    }
    let waited = |row: &Row| row.entry.and_then(|entry| stores.at(row.name).queue[entry].waited);
    sorted(&mut rows, stores, sort, |key, one, other| match key {
        SortKey::Since => waited(other).cmp(&waited(one)),
        SortKey::Name | SortKey::Store | SortKey::Left | SortKey::Waiters => Ordering::Equal,
    });
    rows
}

/// Sorts by the key; rows that are equal are in the order of names, stores and entries, so that
/// they do not move from round to round.
fn sorted(
    rows: &mut [Row],
    stores: &Stores,
    sort: Sort,
    by: impl Fn(SortKey, &Row, &Row) -> Ordering,
) {
    let name = |row: &Row| &stores.at(row.name).name;
    rows.sort_by(|one, other| {
        let queue = |row: &Row| stores.at(row.name).queue_length;
        let order = match sort.key {
            SortKey::Name => name(one).cmp(name(other)),
            SortKey::Store => one.name.store.cmp(&other.name.store),
            SortKey::Waiters => queue(other).cmp(&queue(one)),
            key => by(key, one, other),
        };
        let order = if sort.reversed { order.reverse() } else { order };
        let rest = || (one.name.store, one.entry).cmp(&(other.name.store, other.entry));
        order.then_with(|| name(one).cmp(name(other))).then_with(rest)
    });
}

/// Text that a row must contain, in any of its columns and in any case.
pub(crate) struct Filter(String);

impl Filter {
    /// Makes a filter; the empty text matches everything.
    pub(crate) fn new(text: &str) -> Filter {
        Filter(text.to_lowercase())
    }

    /// Makes the filter of each store: the name of a store is a column of its rows.
    pub(crate) fn of_stores(text: &str, stores: &Stores) -> Vec<Filter> {
        let all = |store| Filter::new(text).is_in(stores.label(store));
        let of = |store| Filter::new(if all(store) { "" } else { text });
        (0..stores.0.len()).map(of).collect()
    }

    /// Returns whether a name matches by itself.
    pub(crate) fn matches_name(&self, snapshot: &Snapshot) -> bool {
        let reason = snapshot.freeze.as_ref().map(|freeze| freeze.reason.as_str());
        self.is_in(snapshot.name.as_str()) || reason.is_some_and(|reason| self.is_in(reason))
    }

    /// Returns whether a holder or waiter of a name matches.
    pub(crate) fn matches(&self, snapshot: &Snapshot, metadata: &Metadata) -> bool {
        if self.0.is_empty() || self.matches_name(snapshot) {
            return true;
        }
        let HolderFields { host, pid, user, program, reason, labels, .. } = metadata.fields();
        [host, user, program, reason].iter().any(|text| self.is_in(text))
            || pid.is_some_and(|pid| pid.to_string() == self.0)
            || labels.iter().any(|(key, value)| self.is_in(&format!("{key}={value}")))
    }

    fn is_in(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{holder, snapshot, stores, waiter};
    use super::super::stores::Counts;
    use super::*;

    fn names(stores: &Stores, rows: &[Row]) -> Vec<String> {
        let name = |row: &Row| {
            let name = stores.at(row.name).name.as_str();
            stores.labelled(row.name.store, name)
        };
        rows.iter().map(name).collect()
    }

    #[test]
    fn rows_are_sorted_by_each_key_and_the_other_way_round() {
        let mut a = snapshot("a", vec![holder(1, "make", 5)], vec![waiter(2, "w", 9)]);
        a.holders[0].summary.left = Some(Duration::from_secs(30));
        let mut b = snapshot("b", vec![holder(3, "tar", 50)], vec![]);
        b.holders[0].summary.left = None;
        let mut c = snapshot("c", vec![holder(4, "cc", 20)], vec![waiter(5, "x", 1)]);
        c.holders[0].summary.left = Some(Duration::from_secs(3));
        c.queue_length = 7;
        let stores = stores(vec![vec![a, b, c]]);
        for (key, expected) in [
            (SortKey::Name, ["a", "b", "c"]),
            (SortKey::Since, ["b", "c", "a"]),
            (SortKey::Left, ["c", "a", "b"]),
            (SortKey::Waiters, ["c", "a", "b"]),
        ] {
            let rows = held(&stores, "", Sort { key, reversed: false });
            assert_eq!(names(&stores, &rows), expected, "{key:?}");
            let mut reversed = expected;
            reversed.reverse();
            let rows = held(&stores, "", Sort { key, reversed: true });
            assert_eq!(names(&stores, &rows), reversed, "{key:?} reversed");
        }
        let longest = Sort { key: SortKey::Since, reversed: false };
        assert_eq!(names(&stores, &waiting(&stores, "", longest)), ["a", "c"]);
    }

    #[test]
    fn a_filter_matches_any_column_in_any_case() {
        let stores = stores(vec![vec![
            snapshot("Deploy/eu", vec![holder(1, "make", 5)], vec![]),
            snapshot("other", vec![holder(2, "terraform", 5)], vec![waiter(71, "x", 1)]),
        ]]);
        for (filter, expected) in [
            ("", &["Deploy/eu", "other"][..]),
            ("deploy", &["Deploy/eu"]),
            ("TERRA", &["other"]),
            ("nothing", &[]),
        ] {
            let rows = held(&stores, filter, Sort::default());
            assert_eq!(names(&stores, &rows), expected, "{filter}");
        }
        assert_eq!(waiting(&stores, "71", Sort::default()).len(), 1, "a process id in full");
        assert_eq!(waiting(&stores, "7", Sort::default()).len(), 0);
    }

    #[test]
    fn a_frozen_name_without_holders_has_a_row() {
        let mut frozen = snapshot("f", vec![], vec![]);
        frozen.freeze = Some(holdline_core::FreezeView {
            reason: "moving".into(),
            left: Duration::from_secs(60),
            active: true,
            token: None,
        });
        let stores = stores(vec![vec![frozen]]);
        assert_eq!(
            held(&stores, "moving", Sort::default()),
            [Row { name: NamePosition { store: 0, name: 0 }, entry: None }]
        );
        assert_eq!(stores.counts(), Counts { held: 1, waiting: 0, frozen: 1 });
    }

    #[test]
    fn rows_of_several_stores_are_sorted_and_filtered_together() {
        let one = |name: &str, held| snapshot(name, vec![holder(1, "make", held)], vec![]);
        let stores = stores(vec![vec![one("a", 5), one("c", 7)], vec![one("a", 6), one("b", 9)]]);
        for (key, filter, expected) in [
            (SortKey::Name, "", &["0: a", "1: a", "1: b", "0: c"][..]),
            (SortKey::Store, "", &["0: a", "0: c", "1: a", "1: b"]),
            (SortKey::Since, "", &["1: b", "0: c", "1: a", "0: a"]),
            (SortKey::Name, "b", &["1: b"]),
            (SortKey::Name, "MAKE", &["0: a", "1: a", "1: b", "0: c"]),
            // A store's name is a column of its rows.
            (SortKey::Name, "0", &["0: a", "0: c"]),
        ] {
            let rows = held(&stores, filter, Sort { key, reversed: false });
            assert_eq!(names(&stores, &rows), expected, "{key:?} {filter}");
        }
    }
}
