//! The seeds of every run.

use super::bugs::Bug;
use super::run::{WorldResult, play};

/// How many worlds are played.
const SEEDS: u64 = 60;
/// Set to play more of them, for a longer search.
const MORE: &str = "HOLDLINE_SIM_SEEDS";
/// Set to play the world of one seed and print what happened.
const SEED: &str = "HOLDLINE_SIM_SEED";
/// Set beside it to plant one bug.
const BUG: &str = "HOLDLINE_SIM_BUG";

fn seeds() -> std::ops::RangeInclusive<u64> {
    let more = std::env::var(MORE).ok().and_then(|text| text.parse().ok());
    1..=more.unwrap_or(SEEDS)
}

fn replay(seed: u64, bug: Option<Bug>) -> String {
    let bug = bug.map_or(String::new(), |bug| format!("{BUG}={bug:?} "));
    format!("{SEED}={seed} {bug}cargo test -p holdline-sim --test redis one_seed -- --nocapture")
}

fn describe(seed: u64, result: &WorldResult, bug: Option<Bug>) -> Option<String> {
    let violation = result.violation.as_ref()?;
    let tail: Vec<&str> = result.log.lines().rev().take(40).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    Some(format!(
        "seed {seed}: {} {}\n{}\nreplay: {}",
        violation.promise,
        violation.what,
        tail.join("\n"),
        replay(seed, bug)
    ))
}

/// What must have happened in some world, or the worlds show less than they seem to.
const SOMETIMES: [&str; 22] = [
    "is paused",
    "is killed",
    "is cut off",
    "is cut off during a hand-off",
    "stalls",
    "the server freezes",
    "clients pause",
    "is back",
    "is back, empty",
    "is back, with old data",
    "the data are copied",
    "FLUSHALL",
    "the network is slow",
    "messages are lost",
    "is set forward",
    "is set back",
    "receives: Notified",
    "receives: Done",
    "receives: NothingThere",
    "revoked by an operator",
    "not renewed in time",
    "TimedOut",
];

#[test]
fn the_promises_hold_in_every_world() {
    let mut grants = 0;
    let mut seen = [0; SOMETIMES.len()];
    for seed in seeds() {
        let result = play(seed, None);
        grants += result.grants;
        for (count, what) in seen.iter_mut().zip(SOMETIMES) {
            *count += result.log.lines().filter(|line| line.contains(what)).count();
        }
        if let Some(report) = describe(seed, &result, None) {
            panic!("{report}");
        }
    }
    println!("seeds {:?}: {grants} grants", seeds());
    for (count, what) in seen.iter().zip(SOMETIMES) {
        println!("{count:>6} {what}");
        assert!(*count > 0, "never seen: {what}");
    }
    assert!(grants > SEEDS * 20, "a world in which nobody holds anything shows nothing");
}

#[test]
fn the_same_seed_repeats_the_world() {
    for seed in [1, 7] {
        let (first, second) = (play(seed, None), play(seed, None));
        assert!(first.log.len() > 10_000);
        let differ = first.log.lines().zip(second.log.lines()).position(|(a, b)| a != b);
        let around = |log: &str| {
            let lines = log.lines().skip(differ.unwrap_or(0).saturating_sub(5)).take(8);
            lines.collect::<Vec<_>>().join("\n")
        };
        let (one, other) = (around(&first.log), around(&second.log));
        assert_eq!(differ, None, "seed {seed} differs:\n{one}\n-- and --\n{other}");
        assert_eq!(first.log, second.log, "seed {seed}");
    }
    assert_ne!(play(1, None).log, play(2, None).log);
}

/// Plays what the environment names; without it there is nothing to do.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var(SEED).ok().and_then(|text| text.parse().ok()) else { return };
    let named = std::env::var(BUG).unwrap_or_default();
    let bug = Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == named);
    let result = play(seed, bug);
    println!("{}", result.log);
    assert_eq!(describe(seed, &result, bug), None);
}

#[test]
fn planted_bugs_are_found() {
    let mut missed = Vec::new();
    println!("{:<26} {:<4} {:>4}  how", "bug", "by", "seed");
    for bug in Bug::ALL {
        let mut was_there = false;
        let found = (1..=SEEDS).find_map(|seed| {
            let result = play(seed, Some(bug));
            was_there |= result.planted;
            result.violation.map(|violation| (seed, violation))
        });
        assert!(was_there, "{bug:?}: its place in the scripts was not found");
        match found {
            Some((seed, violation)) => {
                let name = format!("{bug:?}");
                println!("{name:<26} {:<4} {seed:>4}  {}", violation.promise, violation.what);
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
