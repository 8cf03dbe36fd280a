//! A library behind its driver: one request per line, one answer per line.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::peers::{Peer, Runtime};

/// The time limit of an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A running driver; killed when dropped.
pub(crate) struct Driver {
    child: Child,
    input: ChildStdin,
    answers: mpsc::UnboundedReceiver<String>,
    /// The version of the library.
    pub(crate) version: String,
}

impl Driver {
    /// Starts the driver of a library, and names its connections if the library can.
    ///
    /// # Panics
    /// The libraries are not installed.
    pub(crate) async fn start(
        peer: &Peer,
        urls: &[String],
        client: &str,
    ) -> Result<Driver, String> {
        let mut command = command(peer, urls, client);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            panic!("{program}: {error}. `./check interop` installs and fetches what is needed")
        });
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for")
        };
        let (sender, answers) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.into_iter().try_for_each(|line| sender.send(line))
        });
        let mut driver = Driver { child, input, answers, version: String::new() };
        let ready = driver.answer().await?;
        let version = ready.strip_prefix("ready ").ok_or_else(|| format!("began with {ready}"))?;
        driver.version = version.trim_start_matches('v').to_owned();
        Ok(driver)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<String, String> {
        self.send(line)?;
        self.answer().await
    }

    /// Sends a request whose answer comes later.
    pub(crate) fn send(&mut self, line: &str) -> Result<(), String> {
        let sent = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        sent.map_err(|error| format!("cannot be asked: {error}"))
    }

    /// Waits for the answer to the oldest request.
    pub(crate) async fn answer(&mut self) -> Result<String, String> {
        match tokio::time::timeout(LIMIT, self.answers.recv()).await {
            Ok(Some(answer)) if answer.starts_with("error ") => Err(answer),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err("the driver has ended".to_owned()),
            Err(_) => Err(format!("no answer within {LIMIT:?}")),
        }
    }

    /// Waits for the answer to a `wait` that was sent before.
    pub(crate) async fn gets_it(&mut self, limit: Duration) -> Result<(), String> {
        let answer = tokio::time::timeout(limit, self.answer()).await;
        let answer = answer.map_err(|_| format!("it still waits after {limit:?}"))??;
        ensure!(answer.starts_with("held "), "its wait ended with `{answer}`");
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A process that has already ended must still be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory of `cargo xtask interop prepare`.
pub(crate) fn ground() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("cargo's own directory has a parent").join("interop")
}

fn command(peer: &Peer, urls: &[String], client: &str) -> Command {
    // The marker of a completely installed family.
    let stamp = ground().join(match peer.runtime {
        Runtime::Python => "python/made-of.stamp",
        Runtime::Node => "node/node_modules/made-of.stamp",
        Runtime::Rust => "rust/made-of.stamp",
    });
    assert!(stamp.is_file(), "{} is not there: run `cargo xtask interop prepare`", peer.name);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../interop");
    let mut command = match peer.runtime {
        Runtime::Python => {
            let mut python = Command::new(ground().join("python/bin/python"));
            python.arg(here.join("python/driver.py"));
            python
        }
        Runtime::Node => {
            let mut node = Command::new("node");
            node.env("NODE_PATH", ground().join("node/node_modules"));
            node.arg(here.join("node/driver.cjs"));
            node
        }
        Runtime::Rust => Command::new(ground().join("rust/debug/holdline-interop-peers")),
    };
    command.arg(peer.name);
    match peer.runtime {
        Runtime::Python => {
            command.args(urls.iter().map(|url| format!("{url}?client_name={client}")))
        }
        Runtime::Node | Runtime::Rust => command.args(urls),
    };
    command
}
