//! The tests: seeds of every run, replays, planted bugs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::bugs::Bug;
use super::recorder::Violation;
use super::run::{Scenario, ScenarioKind};
use super::stress;

/// The number of worlds.
const SEEDS: u64 = 180;
/// The least total of acquisitions and scripts.
const ACQUISITIONS: u64 = 300_000;
const SCRIPTS: u64 = 3_000_000;
/// The number of worlds searched for a planted bug, from its first known seed on.
const SEARCH_LIMIT: u64 = 40;
/// The seeds whose replay is tested.
const REPLAYED: [u64; 2] = [3, 8];
/// Set it to play more worlds, for a longer search.
const MORE: &str = "HOLDLINE_SIM_SEEDS";
/// Set it to the name of a bug, or to `all`, to search for a world that detects it.
const BUG: &str = "HOLDLINE_SIM_BUG";

fn number(of: &str) -> Option<u64> {
    std::env::var(of).ok().and_then(|text| text.parse().ok())
}

/// Does the work for all items, on all cores, and returns the results in order.
fn in_parallel<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: BTreeMap<usize, R> = BTreeMap::new();
    std::thread::scope(|scope| {
        let some = || {
            let mut own = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(one) = all.get(at) else { return own };
                own.push((at, work(one)));
            }
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        for thread in threads {
            done.extend(thread.join().expect("a world does not panic"));
        }
    });
    done.into_values().collect()
}

fn describe(scenario: Scenario) -> String {
    let result = scenario.play(true);
    let violation = result.violation.expect("the same seed repeats the world");
    let tail: Vec<&str> = result.log.lines().rev().take(60).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    let (seed, kind) = (scenario.seed, result.kind);
    let hot = scenario.stress.map_or(String::new(), |_| format!(" --hot {}", scenario.name()));
    format!(
        "seed {seed} ({kind:?}): {} {}\n{}\nreplay: cargo run -p holdline-sim --example \
         holdline-sim -- --world quorum --seed {seed}{hot}",
        violation.promise,
        violation.what,
        tail.join("\n"),
    )
}

/// Events that must happen in some world; otherwise the worlds test less than they seem to.
const SOMETIMES: [&str; 38] = [
    "a client is killed",
    "a client is paused",
    "a clock is set",
    "a fence is raised",
    "a file is switched off",
    "a link stalls",
    "a server crashes",
    "a server in quarantine loses its data again",
    "a survivor is silent in a quarantine",
    "all servers but one lose their data",
    "an address leads elsewhere",
    "an address of a server in quarantine leads elsewhere",
    "an address of a server that votes leads elsewhere",
    "another server loses its data in a quarantine",
    "a server is back as it was",
    "a server is back empty",
    "a server is back with an old snapshot",
    "a server is back with another set's dump",
    "a server is replaced",
    "a server is stopped",
    "a replaced server comes back",
    "a snapshot is taken",
    "an operator revokes",
    "an operator initialises",
    "an operator readmits",
    "connections are cut",
    "FLUSHALL",
    "messages are lost",
    "more lost their data than allowed",
    "reads refused by the fence",
    "replies stall",
    "requests stall",
    "steps with two excused holders",
    "the network is slow",
    "packets in flight are lost",
    "writes acknowledged",
    "acquisitions",
    "guards",
];

/// All worlds without bugs: the random ones, and those that detect a planted bug, without it.
fn scenarios() -> Vec<Scenario> {
    let last = number(MORE).unwrap_or(SEEDS);
    let mut scenarios: Vec<Scenario> = (1..=last).map(Scenario::of).collect();
    let found =
        Bug::ALL.into_iter().map(|bug| Scenario { bug: None, ..bug.scenario(bug.seen_at()) });
    for one in found {
        let same = |other: &Scenario| other.seed == one.seed && other.name() == one.name();
        if !scenarios.iter().any(same) {
            scenarios.push(one);
        }
    }
    if let Some(more) = number(MORE) {
        let hot = |stress| {
            (1..=more).map(move |seed| Scenario { stress: Some(stress), ..Scenario::of(seed) })
        };
        scenarios.extend(stress::ALL.into_iter().flat_map(hot));
    }
    scenarios
}

#[test]
fn the_promises_of_a_quorum_hold_in_every_world() {
    let began = Instant::now();
    let scenarios = scenarios();
    let last = scenarios.len();
    let stories = in_parallel(&scenarios, |scenario| scenario.play(false));
    let took = began.elapsed();
    let violation: Vec<&Scenario> = scenarios
        .iter()
        .zip(&stories)
        .filter(|(_, result)| result.violation.is_some())
        .map(|(scenario, _)| scenario)
        .collect();
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut scripts, mut passed) = (0, Duration::ZERO);
    for result in &stories {
        scripts += result.scripts;
        passed += result.passed;
        result.counts.iter().for_each(|(what, count)| *counts.entry(*what).or_default() += count);
    }
    let of = |what: &str| counts.get(what).copied().unwrap_or(0);
    println!("{last} worlds in {took:.1?}: {} acquisitions, {scripts} scripts", of("acquisitions"));
    let hours = passed.as_secs_f64() / 3_600.0;
    println!("{hours:.2} h simulated, {:.4} h in a second", hours / took.as_secs_f64());
    for (what, count) in &counts {
        println!("{count:>9} {what}");
    }
    if let Some(first) = violation.first() {
        let all: Vec<_> =
            violation.iter().map(|scenario| (scenario.seed, scenario.name())).collect();
        panic!("broken in {all:?}\n{}", describe(**first));
    }
    for what in SOMETIMES {
        assert!(of(what) > 0, "never seen: {what}");
    }
    let enough = of("acquisitions") >= ACQUISITIONS && scripts >= SCRIPTS;
    assert!(enough || number(MORE).is_some(), "the worlds show too little: more seeds");
}

#[test]
fn the_same_seed_repeats_the_world_of_a_quorum() {
    for seed in REPLAYED {
        let scenario = Scenario::of(seed);
        let (first, second) = (scenario.play(true), scenario.play(true));
        assert!(first.log.len() > 10_000);
        let differ = first.log.lines().zip(second.log.lines()).position(|(a, b)| a != b);
        let around = |log: &str| {
            let lines = log.lines().skip(differ.unwrap_or(0).saturating_sub(5)).take(8);
            lines.collect::<Vec<_>>().join("\n")
        };
        let (one, other) = (around(&first.log), around(&second.log));
        assert_eq!(differ, None, "seed {seed} differs:\n{one}\n-- and --\n{other}");
        assert_eq!(first.log.len(), second.log.len(), "seed {seed}");
        // Writing a log changes no event.
        let unseen = scenario.play(false);
        assert_eq!([first.trace, second.trace], [unseen.trace; 2], "seed {seed}");
    }
    let [one, other] = REPLAYED.map(|seed| Scenario::of(seed).play(false).trace);
    assert_ne!(one, other);
}

/// The first world that detected a bug.
struct Found {
    seed: u64,
    violation: Violation,
    /// The number of acquisitions in it by then.
    acquisitions: u64,
}

/// Searches the worlds for one that detects a bug, from a seed on. Returns the first, the number of
/// worlds played, and whether the bug was injected at all.
fn search(bug: Bug, from: u64, most: u64) -> (Option<Found>, u64, bool) {
    let (mut was_there, mut played) = (false, 0);
    let shows = |seed: &u64| bug.shows_in().is_none_or(|kind| ScenarioKind::of(*seed) == kind);
    let found = (from..).filter(shows).take(most as usize).find_map(|seed| {
        played += 1;
        let result = bug.scenario(seed).play(false);
        was_there |= result.planted;
        let acquisitions = result.counts.get("acquisitions").copied().unwrap_or(0);
        result.violation.map(|violation| Found { seed, violation, acquisitions })
    });
    (found, played, was_there)
}

/// Each planted bug breaks a promise in some world. The environment may name one bug, and the
/// number of worlds to search.
#[test]
fn planted_bugs_of_a_quorum_are_detected() {
    let named = std::env::var(BUG).ok();
    let bugs: Vec<Bug> = match named.as_deref() {
        None | Some("all") => Bug::ALL.to_vec(),
        Some(named) => {
            let known = Bug::ALL.into_iter().chain(Bug::COVERED);
            known.filter(|bug| format!("{bug:?}") == named).collect()
        }
    };
    let more = number(MORE);
    let most = more.unwrap_or(SEARCH_LIMIT);
    println!(
        "{:<24} {:<3} {:<16} {:>4} {:>6} {:>6}  how",
        "rule left out", "by", "world", "seed", "worlds", "had"
    );
    let found = in_parallel(&bugs, |bug| {
        let name = format!("{bug:?}");
        let from = if more.is_some() { 1 } else { bug.seen_at() };
        let (found, played, was_there) = search(*bug, from, most);
        match &found {
            Some(Found { seed, violation: Violation { promise, what, .. }, acquisitions }) => {
                let world = bug.scenario(*seed).name();
                println!(
                    "{name:<24} {promise:<3} {world:<16} {seed:>4} {played:>6} {acquisitions:>6}  \
                     {what}"
                );
            }
            None => println!("{name:<24} --- its place was there in {played}: {was_there}"),
        }
        found.is_some()
    });
    let missed = bugs.iter().zip(found).filter(|(_, found)| !found).map(|(bug, _)| bug);
    let missed: Vec<&Bug> = missed.collect();
    assert!(missed.is_empty(), "not found within {most} worlds: {missed:?}");
}
