//! `elect` on real stores, whose leaders are stopped past their lease, cut off and killed.
//!
//! The command of a leader writes down its term and the time again and again. Two commands at once
//! would have written times that overlap.

use std::cell::RefCell;

use holdline_services::steady;
use rustix::process::Signal;
use serde_json::Value;

use crate::stores::{Kind, Store, on_stores};
use crate::world::{Running, eventually, is_alive};

on_stores! {
    at_most_one_command_runs_whatever_happens_to_the_leaders:
        redis, redlock, sentinel, postgres, mysql, etcd_cluster, zookeeper;
    a_leader_whose_store_goes_away_stops_its_command_and_campaigns_until_it_is_back:
        redis, redlock, postgres, mysql, etcd, zookeeper;
    a_candidate_that_starts_in_an_outage_leads_when_the_store_is_back:
        redis, postgres;
}

/// Writes its term and the time, which all processes share, until it is stopped.
const JOB: &str = "echo term $HOLDLINE_FENCING_TOKEN; echo up $$; while :; do
    read now rest </proc/uptime; echo $HOLDLINE_FENCING_TOKEN $now >>beliefs; sleep 0.02; done";

/// Candidates of one election, and somebody who observes it.
struct Election {
    store: Store,
    observer: Running,
    seen: RefCell<Vec<u64>>,
}

impl Election {
    fn start(kind: Kind) -> Election {
        let store = Store::start(kind);
        // A store that only looks are made at need not be there yet.
        let made = store.run(&["run", "other", "--lease", "4s", "--grace", "300ms", "true"]);
        assert_eq!(made.code, 0, "{made:?}");
        let observer = store.begin(&["elect", "e", "--observe"]);
        Election { store, observer, seen: RefCell::default() }
    }

    fn line(value: &str) -> Vec<&str> {
        let flags = ["--lease", "4s", "--grace", "300ms", "--resign-on", "USR1", "--value", value];
        [&["elect", "e"][..], &flags, &["--", "sh", "-c", JOB]].concat()
    }

    /// Waits until a candidate's command writes, and the observer sees it; returns the term.
    fn leads(&self, candidate: &Running, value: &str) -> u64 {
        let term = term_of(candidate);
        let mut seen = self.seen.borrow_mut();
        assert!(seen.last().is_none_or(|last| *last < term), "term {term} after {seen:?}");
        while seen.last() != Some(&term) {
            let leader: Value = serde_json::from_str(&self.observer.line()).expect("JSON");
            let next = leader["term"].as_u64().expect("a term");
            assert!(seen.last().is_none_or(|last| *last < next), "{next} after {seen:?}");
            assert!(next != term || leader["value"] == value, "{leader}");
            seen.push(next);
        }
        let mine = format!("{term} ");
        eventually("it writes", || self.beliefs().lines().any(|line| line.starts_with(&mine)));
        term
    }

    fn beliefs(&self) -> String {
        std::fs::read_to_string(self.store.world.path("beliefs")).unwrap_or_default()
    }

    /// No command ran beside another, or after one of a later term.
    fn judge(&self, terms: &[u64]) {
        let mut spans: Vec<(u64, u64, u64)> = Vec::new();
        for line in self.beliefs().lines() {
            let (term, now) = line.split_once(' ').expect("a term and a time");
            let term: u64 = term.parse().expect("a term");
            let now: u64 = now.replace('.', "").parse().expect("hundredths of a second");
            match spans.iter_mut().find(|(of, _, _)| *of == term) {
                Some((_, first, last)) => (*first, *last) = (now.min(*first), now.max(*last)),
                None => spans.push((term, now, now)),
            }
        }
        spans.sort_unstable();
        let ran: Vec<u64> = spans.iter().map(|(term, _, _)| *term).collect();
        assert!(terms.iter().all(|term| ran.contains(term)), "{ran:?} of {terms:?}");
        for pair in spans.windows(2) {
            assert!(pair[0].2 <= pair[1].1, "two commands ran at once: {pair:?}");
        }
    }
}

fn term_of(candidate: &Running) -> u64 {
    let line = candidate.line();
    let term = line.strip_prefix("term ").unwrap_or_else(|| panic!("{line}"));
    let term = term.parse().expect("a term");
    assert!(candidate.line().starts_with("up "));
    term
}

fn at_most_one_command_runs_whatever_happens_to_the_leaders(kind: Kind) {
    steady(|| {
        let election = Election::start(kind);
        let store = &election.store;
        let one = store.begin(&Election::line("one"));
        let first = election.leads(&one, "one");
        let two = store.begin_behind(&Election::line("two"));
        two.says("waiting for e");

        // Stopped past its lease. It leads no more when it continues, and its command is gone.
        let stopped = one.job.get();
        one.pause();
        let second = election.leads(&two, "two");
        one.signal(Signal::CONT);
        one.says("campaigning again");
        assert!(!is_alive(stopped));

        // Cut off, while another server of the store takes over.
        let cut = two.job.get();
        if store.can_cut() {
            store.cut();
        } else {
            two.pause();
        }
        store.fail_over();
        let third = election.leads(&one, "one");
        assert!(!store.can_cut() || !is_alive(cut), "its command is stopped before the next one");
        store.heal();
        two.signal(Signal::CONT);
        two.says("campaigning again");
        assert!(!is_alive(cut));

        // The wrapper alone is killed: its command dies with it.
        one.signal(Signal::KILL);
        eventually("its command dies with it", || !is_alive(one.job.get()));
        let fourth = election.leads(&two, "two");

        // Resigned: the next one leads, without the end of any lease.
        let three = store.begin(&Election::line("three"));
        three.says("waiting for e");
        two.signal(Signal::USR1);
        let fifth = election.leads(&three, "three");
        election.judge(&[first, second, third, fourth, fifth]);
    });
}

fn a_leader_whose_store_goes_away_stops_its_command_and_campaigns_until_it_is_back(kind: Kind) {
    let election = Election::start(kind);
    let one = election.store.begin(&Election::line("one"));
    let first = election.leads(&one, "one");
    election.store.kill();
    one.says("campaigning again");
    assert!(!is_alive(one.job.get()), "its command is stopped before that");
    election.store.restart();
    let second = election.leads(&one, "one");
    election.judge(&[first, second]);
}

fn a_candidate_that_starts_in_an_outage_leads_when_the_store_is_back(kind: Kind) {
    let store = Store::start(kind);
    store.kill();
    let once = [&["elect", "e", "--once"][..], &["--", "sh", "-c", JOB]].concat();
    assert_eq!(store.run(&once).code, 69, "as `run`");
    let one = store.begin(&Election::line("one"));
    one.says("waiting to connect");
    store.restart();
    term_of(&one);
}
