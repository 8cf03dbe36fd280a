//! Which rows the tables show: filtered and sorted. Pure.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use holdline_core::{HolderFields, HolderView, LockName, Metadata, Snapshot, WaiterView};

/// What one complete round has shown.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// When the round was complete; for display only.
    pub(crate) at: SystemTime,
    /// How long the store took for it.
    pub(crate) took: Duration,
    /// The last name that it covers, if there are more.
    pub(crate) left_out_after: Option<LockName>,
    /// The names that are held, waited for or frozen, in byte order.
    pub(crate) names: Vec<Snapshot>,
}

/// How many names and contenders a round has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The names that are held; those that are frozen count.
    pub(crate) held: usize,
    /// The waiters of all names.
    pub(crate) waiting: usize,
    /// The names with a freeze.
    pub(crate) frozen: usize,
}

impl Seen {
    /// Counts what was seen.
    pub(crate) fn counts(&self) -> Counts {
        self.names.iter().fold(Counts::default(), |counts, name| Counts {
            held: counts.held + usize::from(name.is_held()),
            waiting: counts.waiting + name.queue_length,
            frozen: counts.frozen + usize::from(name.freeze.is_some()),
        })
    }

    /// Finds a name.
    pub(crate) fn name(&self, name: &LockName) -> Option<&Snapshot> {
        let found = self.names.binary_search_by(|snapshot| snapshot.name.cmp(name));
        found.ok().map(|at| &self.names[at])
    }
}

/// The key that a table is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// The lock name, in byte order.
    #[default]
    Name,
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

/// A row: a name, and one of its holders or waiters. Both are positions in [`Seen::names`] and in
/// the lists of the snapshot. A frozen name without holders has a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Which name.
    pub(crate) name: usize,
    /// Which holder or waiter of it.
    pub(crate) entry: Option<usize>,
}

/// Returns the rows of the table of holders.
pub(crate) fn held(seen: &Seen, filter: &str, sort: Sort) -> Vec<Row> {
    let filter = Filter::new(filter);
    let mut rows = Vec::new();
    for (name, snapshot) in seen.names.iter().enumerate() {
        let matched = |holder: &HolderView| filter.matches(snapshot, &holder.summary.metadata);
        let holders = snapshot.holders.iter().enumerate().filter(|(_, holder)| matched(holder));
        rows.extend(holders.map(|(entry, _)| Row { name, entry: Some(entry) }));
        let frozen = snapshot.freeze.is_some() && snapshot.holders.is_empty();
        if frozen && filter.matches_name(snapshot) {
            rows.push(Row { name, entry: None });
        }
    }
    let holder = |row: &Row| row.entry.map(|entry| &seen.names[row.name].holders[entry].summary);
    sorted(&mut rows, seen, sort, |key, one, other| match key {
        SortKey::Since => {
            let since = |row| holder(row).and_then(|holder| holder.held_for);
            since(other).cmp(&since(one))
        }
        SortKey::Left => {
            let left = |row| holder(row).and_then(|holder| holder.left).unwrap_or(Duration::MAX);
            left(one).cmp(&left(other))
        }
        SortKey::Name | SortKey::Waiters => Ordering::Equal,
    });
    rows
}

/// Returns the rows of the table of waiters.
pub(crate) fn waiting(seen: &Seen, filter: &str, sort: Sort) -> Vec<Row> {
    let filter = Filter::new(filter);
    let mut rows = Vec::new();
    for (name, snapshot) in seen.names.iter().enumerate() {
        let matched = |waiter: &WaiterView| filter.matches(snapshot, &waiter.metadata);
        let waiters = snapshot.queue.iter().enumerate().filter(|(_, waiter)| matched(waiter));
        rows.extend(waiters.map(|(entry, _)| Row { name, entry: Some(entry) }));
    }
    let waited = |row: &Row| row.entry.and_then(|entry| seen.names[row.name].queue[entry].waited);
    sorted(&mut rows, seen, sort, |key, one, other| match key {
        SortKey::Since => waited(other).cmp(&waited(one)),
        SortKey::Name | SortKey::Left | SortKey::Waiters => Ordering::Equal,
    });
    rows
}

/// Sorts by the key; rows that are equal are in the order of names and entries, so that they do not
/// move from round to round.
fn sorted(rows: &mut [Row], seen: &Seen, sort: Sort, by: impl Fn(SortKey, &Row, &Row) -> Ordering) {
    rows.sort_by(|one, other| {
        let queue = |row: &Row| seen.names[row.name].queue_length;
        let order = match sort.key {
            SortKey::Name => one.name.cmp(&other.name),
            SortKey::Waiters => queue(other).cmp(&queue(one)),
            key => by(key, one, other),
        };
        let order = if sort.reversed { order.reverse() } else { order };
        order.then((one.name, one.entry).cmp(&(other.name, other.entry)))
    });
}

/// Text that a row must contain, in any of its columns and in any case.
pub(crate) struct Filter(String);

impl Filter {
    /// Makes a filter; the empty text matches everything.
    pub(crate) fn new(text: &str) -> Filter {
        Filter(text.to_lowercase())
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
    use super::super::samples::{holder, seen, snapshot, waiter};
    use super::*;

    fn names(seen: &Seen, rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| seen.names[row.name].name.as_str().to_owned()).collect()
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
        let seen = seen(vec![a, b, c]);
        for (key, expected) in [
            (SortKey::Name, ["a", "b", "c"]),
            (SortKey::Since, ["b", "c", "a"]),
            (SortKey::Left, ["c", "a", "b"]),
            (SortKey::Waiters, ["c", "a", "b"]),
        ] {
            let rows = held(&seen, "", Sort { key, reversed: false });
            assert_eq!(names(&seen, &rows), expected, "{key:?}");
            let mut reversed = expected;
            reversed.reverse();
            let rows = held(&seen, "", Sort { key, reversed: true });
            assert_eq!(names(&seen, &rows), reversed, "{key:?} reversed");
        }
        let longest = Sort { key: SortKey::Since, reversed: false };
        assert_eq!(names(&seen, &waiting(&seen, "", longest)), ["a", "c"]);
    }

    #[test]
    fn a_filter_matches_any_column_in_any_case() {
        let seen = seen(vec![
            snapshot("Deploy/eu", vec![holder(1, "make", 5)], vec![]),
            snapshot("other", vec![holder(2, "terraform", 5)], vec![waiter(71, "x", 1)]),
        ]);
        for (filter, expected) in [
            ("", &["Deploy/eu", "other"][..]),
            ("deploy", &["Deploy/eu"]),
            ("TERRA", &["other"]),
            ("nothing", &[]),
        ] {
            let rows = held(&seen, filter, Sort::default());
            assert_eq!(names(&seen, &rows), expected, "{filter}");
        }
        assert_eq!(waiting(&seen, "71", Sort::default()).len(), 1, "a process id in full");
        assert_eq!(waiting(&seen, "7", Sort::default()).len(), 0);
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
        let seen = seen(vec![frozen]);
        assert_eq!(held(&seen, "moving", Sort::default()), [Row { name: 0, entry: None }]);
        assert_eq!(seen.counts(), Counts { held: 1, waiting: 0, frozen: 1 });
    }
}
