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
struct Asked {
    seed: u64,
    world: String,
    bug: Option<String>,
    /// The sort of hot world, if not that of the bug.
    hot: Option<String>,
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut seed, mut world, mut bug, mut hot) = (None, "quorum".to_owned(), None, None);
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
    Ok(Asked { seed: seed.ok_or("--seed is missing")?, world, bug, hot })
}

/// Returns the story of a seed, and whether a promise was broken in it.
fn played(asked: &Asked) -> Result<(String, bool), String> {
    let unknown = |named: &str, known: String| format!("--bug {named}: known are {known}");
    match asked.world.as_str() {
        "quorum" => {
            let all = quorum::planted::Bug::ALL;
            let covered = quorum::planted::Bug::COVERED;
            let find = |named: &String| {
                let mut known = all.into_iter().chain(covered);
                let found = known.find(|bug| format!("{bug:?}") == *named);
                found.ok_or_else(|| unknown(named, format!("{all:?}")))
            };
            let bug = asked.bug.as_ref().map(find).transpose()?;
            let mut scene = match bug {
                Some(bug) => bug.scene(asked.seed),
                None => quorum::run::Scene::of(asked.seed),
            };
            if let Some(named) = &asked.hot {
                let all = quorum::heat::ALL;
                let found = all.into_iter().find(|heat| heat.name == named);
                let known = || all.map(|heat| heat.name).join(", ");
                let hot = found.ok_or_else(|| format!("--hot {named}: known are {}", known()))?;
                scene.heat = Some(hot);
            }
            let story = scene.play(true);
            Ok((story.log, story.broken.is_some()))
        }
        "redis" => {
            let all = world::planted::Bug::ALL;
            let find = |named: &String| {
                let found = all.into_iter().find(|bug| format!("{bug:?}") == *named);
                found.ok_or_else(|| unknown(named, format!("{all:?}")))
            };
            let story = world::run::play(asked.seed, asked.bug.as_ref().map(find).transpose()?);
            Ok((story.log, story.broken.is_some()))
        }
        other => Err(format!("--world {other}: known are quorum and redis")),
    }
}

fn main() -> ExitCode {
    match asked(std::env::args().skip(1)).and_then(|asked| played(&asked)) {
        Ok((log, broken)) => {
            print!("{log}");
            ExitCode::from(u8::from(broken))
        }
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
