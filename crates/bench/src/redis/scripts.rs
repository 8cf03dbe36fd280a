//! The server's time: what each script costs it, in µs, by its own slow log.
//!
//! The server measures the time of a call, so neither the network nor the client is included. Other
//! load on the machine disturbs some calls, so the slowest tenth of all calls is left out.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use holdline_services::{Raw as Observer, Reply};

use super::raw::{Raw, keys};
use super::{NATIVE, World};
use crate::rounds::Failure;

const TIME: Duration = Duration::from_millis(600);
/// How many calls of a phase are kept.
const LOG: usize = 20_000;

/// Microseconds of each call, by what it did.
type Costs = BTreeMap<&'static str, Vec<i64>>;

pub(crate) fn section(world: &World) -> Result<(), Failure> {
    let mut observer = world.server.raw();
    observer.send(&["CONFIG", "SET", "slowlog-max-len", &LOG.to_string()])?;
    println!("redis server: us of each call, mean of all but the slowest tenth");
    let floor = during(&mut observer, || {
        world.runtime.block_on(async {
            let mut raw = Raw::connect(world.server.address()).await?;
            raw.cycles(&keys(64), TIME).await.map(drop)
        })
    })?;
    report("floor: SET NX PX, compare-and-delete", &floor, &["set", "compare-and-delete"]);
    let alone = during(&mut observer, || world.runtime.block_on(contend(world, 64, 1)))?;
    report("64 names, each of one task", &alone, &["acquire", "release"]);
    for contenders in [2, 16, 128] {
        let work = || world.runtime.block_on(contend(world, 1, contenders));
        let costs = during(&mut observer, work)?;
        let title = format!("a hand-off among {contenders}");
        report(&title, &costs, &["release", "acquire"]);
    }
    observer.send(&["CONFIG", "SET", "slowlog-log-slower-than", "10000"])?;
    Ok(())
}

/// Lets this many tasks acquire and release each of this many names.
async fn contend(world: &World, names: usize, contenders: usize) -> Result<(), Failure> {
    let client = Rc::new(world.client(&NATIVE).await?);
    let deadline = Instant::now() + TIME;
    let tasks = (0..names * contenders).map(|task| {
        let client = client.clone();
        async move {
            let lock = client.mutex(format!("scripts/{contenders}/{}", task % names))?;
            while Instant::now() < deadline {
                let _ = lock.lock().await?.release().await;
            }
            Ok::<_, Failure>(())
        }
    });
    try_join_all(tasks).await?;
    Ok(())
}

/// Returns what the calls of this work cost the server.
fn during(
    observer: &mut Observer,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<Costs, Failure> {
    observer.send(&["SLOWLOG", "RESET"])?;
    observer.send(&["CONFIG", "SET", "slowlog-log-slower-than", "0"])?;
    work()?;
    observer.send(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"])?;
    let log = observer.send(&["SLOWLOG", "GET", "-1"])?;
    let mut costs = Costs::new();
    for entry in log.items().unwrap_or_default() {
        let Some([_, _, spent, words, ..]) = entry.items() else { continue };
        let words: Vec<String> =
            words.items().unwrap_or_default().iter().filter_map(Reply::text).collect();
        if let (Some(what), Some(spent)) = (what(&words), spent.integer()) {
            costs.entry(what).or_default().push(spent);
        }
    }
    Ok(costs)
}

/// How much of a record a release names: whose it is, and its state.
const BEGINNING: usize = 34;

fn is_record(word: &str) -> bool {
    word.get(BEGINNING - 2..BEGINNING) == Some("g-")
}

/// Classifies a call: a release names the beginning of a record, an acquire more of it.
fn what(words: &[String]) -> Option<&'static str> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["SET", ..] => Some("set"),
        ["EVALSHA", _, "1", _, record, ..] if is_record(record) => match record.len() {
            BEGINNING => Some("release"),
            _ => Some("acquire"),
        },
        ["EVALSHA", _, "1", ..] => Some("compare-and-delete"),
        _ => None,
    }
}

fn report(title: &str, costs: &Costs, order: &[&'static str]) {
    let parts: Vec<(&str, f64)> = order
        .iter()
        .map(|what| (*what, most(costs.get(what).cloned().unwrap_or_default())))
        .collect();
    let sum: f64 = parts.iter().map(|(_, spent)| spent).sum();
    let parts: Vec<String> =
        parts.iter().map(|(what, spent)| format!("{what} {spent:.1}")).collect();
    println!("    {title:<40} {}, together {sum:.1}", parts.join(", "));
}

/// Returns the mean of all but the slowest tenth: the server counts whole microseconds.
#[allow(clippy::cast_precision_loss)]
fn most(mut spent: Vec<i64>) -> f64 {
    spent.sort_unstable();
    spent.truncate(spent.len() - spent.len() / 10);
    spent.iter().sum::<i64>() as f64 / spent.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_tenth_does_not_count() {
        assert!((most(vec![900, 1, 1, 1, 1, 2, 2, 2, 2, 6]) - 2.0).abs() < 1e-9);
        assert!((most(vec![3]) - 3.0).abs() < 1e-9);
        assert!(most(Vec::new()).is_nan());
    }

    #[test]
    fn calls_are_distinguished() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (text, reply) in [
            ("SET a b NX PX 1", Some("set")),
            ("EVALSHA s 1 k v", Some("compare-and-delete")),
            ("EVALSHA s 1 k 00112233445566778899aabbccddeeffg-", Some("release")),
            ("EVALSHA s 1 k 00112233445566778899aabbccddeeffg-l01 9x;{} 30000", Some("acquire")),
            ("EVALSHA s 1 k 00112233445566778899aabbccddeeff", Some("compare-and-delete")),
            ("PING", None),
        ] {
            assert_eq!(what(&words(text)), reply, "{text}");
        }
    }
}
