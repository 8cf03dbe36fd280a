//! Plays the world of one seed and prints what happened:
//!
//! ```text
//! cargo run -p holdline-sim --example holdline-sim -- --world quorum --seed 7 [--bug NoFloor]
//! ```
//!
//! It is an example and no program of its own, since the worlds belong to the tests: they see the
//! engines, which what we ship of the simulation does not.

#[expect(dead_code, reason = "the tests look at more of a story than its lines")]
#[path = "../tests/redis/quorum/mod.rs"]
mod quorum;
#[expect(dead_code, reason = "the tests look at more of a story than its lines")]
#[path = "../tests/redis/world/mod.rs"]
mod world;

use std::process::ExitCode;

const USAGE: &str = "usage: holdline-sim --seed N [--world quorum|redis] [--bug NAME] [--hot NAME]";

/// What was asked for.
struct Arguments {
    seed: u64,
    world: String,
    bug: Option<String>,
    /// The sort of hot world, if not that of the bug.
    hot: Option<String>,
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut seed = None;
    let mut world = "quorum".to_owned();
    let mut bug = None;
    let mut hot = None;
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        match word.as_str() {
            "--seed" => {
                let number = value.parse().map_err(|_| format!("--seed {value}: not a number"))?;
                seed = Some(number);
            }
            "--world" => world = value,
            "--bug" => bug = Some(value),
            "--hot" => hot = Some(value),
            _ => return Err(format!("{word} is not known")),
        }
    }
    Ok(Arguments { seed: seed.ok_or("--seed is missing")?, world, bug, hot })
}

/// Returns the story of a seed, and whether a promise was broken in it.
fn play(arguments: &Arguments) -> Result<(String, bool), String> {
    let unknown = |named: &str, known: String| format!("--bug {named}: known are {known}");
    match arguments.world.as_str() {
        "quorum" => {
            let all = quorum::bugs::Bug::ALL;
            let covered = quorum::bugs::Bug::COVERED;
            let find = |named: &String| {
                let mut known = all.into_iter().chain(covered);
                let found = known.find(|bug| format!("{bug:?}") == *named);
                found.ok_or_else(|| unknown(named, format!("{all:?}")))
            };
            let bug = arguments.bug.as_ref().map(find).transpose()?;
            let mut scenario = match bug {
                Some(bug) => bug.scenario(arguments.seed),
                None => quorum::run::Scenario::of(arguments.seed),
            };
            if let Some(named) = &arguments.hot {
                let all = quorum::stress::ALL;
                let found = all.into_iter().find(|stress| stress.name == named);
                let known = || all.map(|stress| stress.name).join(", ");
                let hot = found.ok_or_else(|| format!("--hot {named}: known are {}", known()))?;
                scenario.stress = Some(hot);
            }
            let result = scenario.play(true);
            Ok((result.log, result.violation.is_some()))
        }
        "redis" => {
            let all = world::bugs::Bug::ALL;
            let find = |named: &String| {
                let found = all.into_iter().find(|bug| format!("{bug:?}") == *named);
                found.ok_or_else(|| unknown(named, format!("{all:?}")))
            };
            let result =
                world::run::play(arguments.seed, arguments.bug.as_ref().map(find).transpose()?);
            Ok((result.log, result.violation.is_some()))
        }
        other => Err(format!("--world {other}: known are quorum and redis")),
    }
}

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)).and_then(|arguments| play(&arguments)) {
        Ok((log, violation)) => {
            print!("{log}");
            ExitCode::from(u8::from(violation))
        }
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
