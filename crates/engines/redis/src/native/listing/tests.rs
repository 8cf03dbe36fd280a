//! Which names are kept for the next page.

use holdline_conformance::ManualTime;
use holdline_conformance::clock::ManualClock;

use super::*;

fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

fn next_names(names: &[&str]) -> NextNames {
    NextNames { names: names.iter().map(|text| name(text)).collect(), more: false }
}

#[test]
fn kept_names_are_taken_once_by_the_next_page_and_expire() {
    let clock = ManualClock::new();
    let listings = Listings::new(Arc::new(clock.clone()));
    let keep = |prefix: &str| listings.keep(prefix, &name("b"), next_names(&["a", "b", "c", "d"]));
    keep("");
    for (prefix, after) in [("", None), ("x", Some("b")), ("", Some("c"))] {
        let after = after.map(name);
        assert_eq!(listings.take(prefix, after.as_ref()), None, "{prefix} {after:?}");
    }
    let taken = listings.take("", Some(&name("b")));
    assert_eq!(taken, Some(next_names(&["c", "d"])));
    assert_eq!(listings.take("", Some(&name("b"))), None);
    keep("");
    clock.advance(KEEP_FOR);
    assert_eq!(listings.take("", Some(&name("b"))), None, "too old");
    for number in 0..=MAX_LISTINGS {
        keep(&number.to_string());
    }
    assert_eq!(listings.take("0", Some(&name("b"))), None, "too many");
    assert!(listings.take("1", Some(&name("b"))).is_some());
}

#[test]
fn of_too_many_names_the_first_are_kept() {
    let mut next_names = NextNames::default();
    for number in (0..=MAX_NAMES).rev() {
        assert!(!next_names.more);
        next_names.add(name(&format!("{number:06}")));
    }
    assert!(next_names.more);
    assert_eq!(
        (next_names.names.len(), next_names.names.first()),
        (MAX_NAMES, Some(&name("000000")))
    );
}
