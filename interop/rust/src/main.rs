//! Drives one lock crate by lines on standard input, with the words of
//! `docs/contributing/interop-tests.md`.
//!
//! Usage: `holdline-interop-peers PEER URL…`, where PEER is `rslock` or `redlock`.

mod observer;
mod peers;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use observer::Observer;
use peers::{Held, Peer};

type Answer = Result<String, String>;

struct Driver {
    peer: Arc<dyn Peer>,
    held: HashMap<String, Held>,
}

impl Driver {
    fn obey(&mut self, words: &[&str]) -> Answer {
        match words {
            ["acquire", name, ms] => self.acquire(name, lease(ms)?, false),
            ["wait", name, ms] => self.acquire(name, lease(ms)?, true),
            ["extend", name, ms] => {
                let held = self.held.get(*name).ok_or("nothing is held under this name")?;
                Ok(match self.peer.extend(held, lease(ms)?)? {
                    Some(true) => "extended",
                    Some(false) => "lost",
                    None => "unsupported",
                }
                .to_owned())
            }
            ["release", name] => {
                let held = self.held.remove(*name).ok_or("nothing is held under this name")?;
                self.peer.release(&held);
                // Neither crate reports whether there was anything to release.
                Ok("done".to_owned())
            }
            ["contend", name, ms, contenders, rounds, port] => {
                let port = number(port)?;
                self.contend(name, lease(ms)?, number(contenders)?, number(rounds)?, port)
            }
            _ => Err(format!("no such request: {}", words.join(" "))),
        }
    }

    fn acquire(&mut self, name: &str, lease: Duration, wait: bool) -> Answer {
        let Some(held) = self.peer.acquire(name, lease, wait)? else {
            return Ok("busy".to_owned());
        };
        let hex: String = held.value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.held.insert(name.to_owned(), held);
        Ok(format!("held {hex}"))
    }

    fn contend(
        &self,
        name: &str,
        lease: Duration,
        contenders: u64,
        rounds: u64,
        port: u64,
    ) -> Answer {
        let port = u16::try_from(port).map_err(|_| "this is no port")?;
        let one = |peer: Arc<dyn Peer>| -> Result<(), String> {
            let mut observer = Observer::connect(port)?;
            for _ in 0..rounds {
                let held = peer.acquire(name, lease, true)?.ok_or("a wait without an end ended")?;
                observer.report("enter")?;
                observer.report("leave")?;
                peer.release(&held);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let start = |_| scope.spawn(|| one(self.peer.clone()));
            let running: Vec<_> = (0..contenders).map(start).collect();
            running.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| "a contender panicked".to_owned())?
            })
        })?;
        Ok(format!("done {}", contenders * rounds))
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

fn lease(word: &str) -> Result<Duration, String> {
    number(word).map(Duration::from_millis)
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(name), Some(urls @ [_, ..])) = (arguments.first(), arguments.get(1..)) else {
        return Err("usage: holdline-interop-peers PEER URL…".to_owned());
    };
    let (peer, version) = peers::open(name, urls)?;
    let mut driver = Driver { peer, held: HashMap::new() };
    let say = |line: &str| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
    };
    say(&format!("ready {version}"))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["quit"] {
            break;
        }
        say(&driver.obey(&words).unwrap_or_else(|error| format!("error {error}")))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdline-interop-peers: {error}");
            ExitCode::FAILURE
        }
    }
}
