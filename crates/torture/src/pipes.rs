//! The pipes of a worker process: orders on standard input, messages on standard output, one JSON
//! value a line.

use std::io::{BufRead, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Sends one message. If the parent has gone, nothing is left to do, and the process ends.
pub fn send(message: &impl Serialize) {
    let Ok(line) = serde_json::to_string(message) else { return };
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Returns the orders until the parent is gone. Each call of `next` blocks. An error is an order
/// that makes no sense.
pub fn orders<O: DeserializeOwned>() -> impl Iterator<Item = serde_json::Result<O>> {
    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
    lines.map(|line| serde_json::from_str(&line))
}
