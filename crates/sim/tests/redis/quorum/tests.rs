//! The seeds of every run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::book::Broken;
use super::heat;
use super::planted::Bug;
use super::run::{Kind, Scene};

/// How many worlds are played.
const SEEDS: u64 = 180;
/// What they come to at least.
const ACQUISITIONS: u64 = 300_000;
const SCRIPTS: u64 = 3_000_000;
/// How many are searched for what a planted bug breaks, from the one on where it was seen first.
const SEARCHED: u64 = 40;
/// Of which of them it is shown that they replay.
const SAME: [u64; 2] = [3, 8];
/// Set to play more of them, for a longer search.
const MORE: &str = "HOLDLINE_SIM_SEEDS";
/// Set to the name of a rule, or to `all`, to search for the world that misses it.
const BUG: &str = "HOLDLINE_SIM_BUG";

fn number(of: &str) -> Option<u64> {
    std::env::var(of).ok().and_then(|text| text.parse().ok())
}

/// Does the same for all, on all cores, and returns what came of it in the order of what was asked.
fn on_all_cores<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
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

fn tell(scene: Scene) -> String {
    let story = scene.play(true);
    let broken = story.broken.expect("the same seed tells the same story");
    let tail: Vec<&str> = story.log.lines().rev().take(60).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    let (seed, kind) = (scene.seed, story.kind);
    let hot = scene.heat.map_or(String::new(), |_| format!(" --hot {}", scene.name()));
    format!(
        "seed {seed} ({kind:?}): {} {}\n{}\nreplay: cargo run -p holdline-sim --example \
         holdline-sim -- --world quorum --seed {seed}{hot}",
        broken.promise,
        broken.what,
        tail.join("\n"),
    )
}

/// What must have happened in some world, or the worlds show less than they seem to.
const SOMETIMES: [&str; 31] = [
    "a client is killed",
    "a client stands still",
    "a clock is set",
    "a fence is raised",
    "a file is switched off",
    "a line stalls",
    "a server crashes",
    "a server is back as it was",
    "a server is back empty",
    "a server is back with an old snapshot",
    "a server is back with another set's dump",
    "a server is replaced",
    "a server stands still",
    "a server that was replaced comes back",
    "a snapshot is taken",
    "an operator revokes",
    "an operator sets up",
    "an operator takes in again",
    "connections are cut",
    "FLUSHALL",
    "messages are lost",
    "more forgot than may",
    "reads refused by the fence",
    "replies stall",
    "requests stall",
    "steps in which two held, as may be",
    "the network is slow",
    "what was under way is lost",
    "writes acknowledged",
    "acquisitions",
    "guards",
];

/// All worlds in which nothing is left out: those that are drawn, and those where a planted bug is
/// found, without it.
fn scenes() -> Vec<Scene> {
    let last = number(MORE).unwrap_or(SEEDS);
    let mut scenes: Vec<Scene> = (1..=last).map(Scene::of).collect();
    let found = Bug::ALL.into_iter().map(|bug| Scene { bug: None, ..bug.scene(bug.seen_at()) });
    for one in found {
        let same = |other: &Scene| other.seed == one.seed && other.name() == one.name();
        if !scenes.iter().any(same) {
            scenes.push(one);
        }
    }
    if let Some(more) = number(MORE) {
        let hot = |heat| (1..=more).map(move |seed| Scene { heat: Some(heat), ..Scene::of(seed) });
        scenes.extend(heat::ALL.into_iter().flat_map(hot));
    }
    scenes
}

#[test]
fn the_promises_of_a_quorum_hold_in_every_world() {
    let began = Instant::now();
    let scenes = scenes();
    let last = scenes.len();
    let stories = on_all_cores(&scenes, |scene| scene.play(false));
    let took = began.elapsed();
    let broken: Vec<&Scene> = scenes
        .iter()
        .zip(&stories)
        .filter(|(_, story)| story.broken.is_some())
        .map(|(scene, _)| scene)
        .collect();
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut scripts, mut passed) = (0, Duration::ZERO);
    for story in &stories {
        scripts += story.scripts;
        passed += story.passed;
        story.counts.iter().for_each(|(what, count)| *counts.entry(*what).or_default() += count);
    }
    let of = |what: &str| counts.get(what).copied().unwrap_or(0);
    println!("{last} worlds in {took:.1?}: {} acquisitions, {scripts} scripts", of("acquisitions"));
    let hours = passed.as_secs_f64() / 3_600.0;
    println!("{hours:.2} h simulated, {:.4} h in a second", hours / took.as_secs_f64());
    for (what, count) in &counts {
        println!("{count:>9} {what}");
    }
    if let Some(first) = broken.first() {
        let all: Vec<_> = broken.iter().map(|scene| (scene.seed, scene.name())).collect();
        panic!("broken in {all:?}\n{}", tell(**first));
    }
    for what in SOMETIMES {
        assert!(of(what) > 0, "never seen: {what}");
    }
    let enough = of("acquisitions") >= ACQUISITIONS && scripts >= SCRIPTS;
    assert!(enough || number(MORE).is_some(), "the worlds show too little: more seeds");
}

#[test]
fn the_same_seed_tells_the_same_story_of_a_quorum() {
    for seed in SAME {
        let scene = Scene::of(seed);
        let (first, second) = (scene.play(true), scene.play(true));
        assert!(first.log.len() > 10_000);
        let differ = first.log.lines().zip(second.log.lines()).position(|(a, b)| a != b);
        let around = |log: &str| {
            let lines = log.lines().skip(differ.unwrap_or(0).saturating_sub(5)).take(8);
            lines.collect::<Vec<_>>().join("\n")
        };
        let (one, other) = (around(&first.log), around(&second.log));
        assert_eq!(differ, None, "seed {seed} differs:\n{one}\n-- and --\n{other}");
        assert_eq!(first.log.len(), second.log.len(), "seed {seed}");
        // Nobody who reads along changes what happens.
        let unseen = scene.play(false);
        assert_eq!([first.trace, second.trace], [unseen.trace; 2], "seed {seed}");
    }
    let [one, other] = SAME.map(|seed| Scene::of(seed).play(false).trace);
    assert_ne!(one, other);
}

/// The first world that missed a rule.
struct Found {
    seed: u64,
    broken: Broken,
    /// How many there were in it by then.
    acquisitions: u64,
}

/// Searches the worlds for one that misses a rule, from a seed on. Tells which was the first, how
/// many were played, and whether the rule's place was found at all.
fn search(bug: Bug, from: u64, most: u64) -> (Option<Found>, u64, bool) {
    let (mut was_there, mut played) = (false, 0);
    let shows = |seed: &u64| bug.shows_in().is_none_or(|kind| Kind::of(*seed) == kind);
    let found = (from..).filter(shows).take(most as usize).find_map(|seed| {
        played += 1;
        let story = bug.scene(seed).play(false);
        was_there |= story.planted;
        let acquisitions = story.counts.get("acquisitions").copied().unwrap_or(0);
        story.broken.map(|broken| Found { seed, broken, acquisitions })
    });
    (found, played, was_there)
}

/// Without a rule, some world breaks a promise. The environment may name one rule, and how many
/// worlds to search from the first on.
#[test]
fn a_rule_of_a_quorum_left_out_is_found() {
    let named = std::env::var(BUG).ok();
    let bugs: Vec<Bug> = match named.as_deref() {
        None | Some("all") => Bug::ALL.to_vec(),
        Some(named) => {
            let known = Bug::ALL.into_iter().chain(Bug::COVERED).chain(Bug::UNSEEN);
            known.filter(|bug| format!("{bug:?}") == named).collect()
        }
    };
    let more = number(MORE);
    let most = more.unwrap_or(SEARCHED);
    println!(
        "{:<24} {:<3} {:<16} {:>4} {:>6} {:>6}  how",
        "rule left out", "by", "world", "seed", "worlds", "had"
    );
    let found = on_all_cores(&bugs, |bug| {
        let name = format!("{bug:?}");
        let from = if more.is_some() { 1 } else { bug.seen_at() };
        let (found, played, was_there) = search(*bug, from, most);
        match &found {
            Some(Found { seed, broken: Broken { promise, what, .. }, acquisitions }) => {
                let world = bug.scene(*seed).name();
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
