//! Servers for a person: `cargo xtask services redis` runs this.
//!
//! Prints one URL a line, then waits for the end of its input, ^C or a polite signal, and stops
//! what it started.

use holdline_services::{Flavour, RedisConfig, RedisServer};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

const USAGE: &str = "\
usage: services redis [--count N] [--flavour debian|valkey|redis8]

  Starts N servers (1 unless said otherwise, at most 100) on free loopback ports, with no
  persistence, prints their URLs, and stops them at the end of the input or at ^C.";

const MOST: usize = 100;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (count, flavour) = match parse(&words) {
        Ok(wanted) => wanted,
        Err(says) => {
            eprintln!("{says}\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    match serve(count, flavour) {
        Ok(()) => ExitCode::SUCCESS,
        Err(says) => {
            eprintln!("services: {says}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[&str]) -> Result<(usize, Flavour), String> {
    let ["redis", options @ ..] = words else { return Err("which services?".to_owned()) };
    let (mut count, mut flavour) = (1, Flavour::default());
    for pair in options.chunks(2) {
        match *pair {
            ["--count", number] => {
                let read = number.parse().ok().filter(|n| (1..=MOST).contains(n));
                let says = || format!("--count takes 1 to {MOST}, not `{number}`");
                count = read.ok_or_else(says)?;
            }
            ["--flavour", name] => flavour = name.parse::<Flavour>().map_err(|f| f.to_string())?,
            _ => return Err(format!("what is `{}`?", pair.join(" "))),
        }
    }
    Ok((count, flavour))
}

fn serve(count: usize, flavour: Flavour) -> Result<(), String> {
    let cannot = |why: io::Error| format!("cannot wait for the end: {why}");
    // From here on a signal is told instead of killing us before we have cleaned up.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(cannot)?;
    let (end, ended) = sync_channel(2);
    let by_signal = end.clone();
    std::thread::spawn(move || {
        signals.forever().next();
        let _ = by_signal.send(());
    });
    let servers = (0..count)
        .map(|_| RedisServer::try_start(RedisConfig::default().with_flavour(flavour)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|failure| failure.to_string())?;
    let urls: String = servers.iter().map(|server| server.url() + "\n").collect();
    // A reader that has gone is the end as well.
    if io::stdout().write_all(urls.as_bytes()).and_then(|()| io::stdout().flush()).is_err() {
        return Ok(());
    }
    eprintln!("services: {count} running; the end of the input or ^C stops them");
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = end.send(());
    });
    let _ = ended.recv();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_understood_or_refused() {
        assert_eq!(parse(&["redis"]), Ok((1, Flavour::Debian)));
        let words = ["redis", "--count", "5", "--flavour", "valkey"];
        assert_eq!(parse(&words), Ok((5, Flavour::Valkey)));
        for bad in [
            &["mongo"][..],
            &[],
            &["redis", "--count"],
            &["redis", "--count", "0"],
            &["redis", "--count", "101"],
            &["redis", "--flavour", "vanilla"],
            &["redis", "5"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
