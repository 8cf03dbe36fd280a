//! The dialects with the libraries that share their locks: real libraries, on the same keys of real
//! servers, in both directions. `docs/contributing/interop-tests.md` says how to run it.
//! `docs/redisson.md` has the dialect of the module `redisson`.

/// Fails a case unless a condition holds.
macro_rules! ensure {
    ($good:expr, $($words:tt)+) => {
        if !$good {
            return Err(format!($($words)+));
        }
    };
}

/// Runs the cases of a library in turn, each on a name of its own.
macro_rules! outcomes {
    ($this:ident: $($title:literal => $case:ident),+ $(,)?) => {
        vec![$(($title, $this.$case(&$this.row.name(stringify!($case))).await
            .unwrap_or_else(Outcome::Failed))),+]
    };
}

mod cases;
mod control;
mod driver;
mod guides;
mod observer;
mod ours;
mod peers;
mod quorum;
mod redisson;
mod storm;
mod table;

use std::sync::Mutex;

use holdline_services::{RedisConfig, RedisServer};

/// The number of libraries tested at once.
const AT_ONCE: usize = 4;

#[test]
fn every_library_both_ways() {
    let server = RedisServer::start(RedisConfig::default());
    let waiting: Mutex<Vec<_>> = Mutex::new(peers::rows().into_iter().rev().collect());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    // The guard must be dropped before the body.
                    let next = waiting.lock().expect("no panic holds it").pop();
                    let Some((at, row)) = next else { return };
                    let line = cases::run(&server, &row);
                    done.lock().expect("no panic holds it").push((at, line));
                }
            });
        }
    });
    let mut lines = done.into_inner().expect("no panic held it");
    lines.sort_by_key(|(at, _)| *at);
    let lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    table::conclude("interop", &lines);
}
