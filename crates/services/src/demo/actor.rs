//! A `holdline run` that is started again each time it ends.

use super::scene::Store;
use crate::server_process::ServerProcess;
use crate::{Failure, Scratch, spawner};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long an actor may take to end: a job that ignores the signal is killed after 5 s.
pub(super) const END: Duration = Duration::from_secs(15);

/// The exit code of a command line that cannot be carried out.
const USAGE_ERROR: i32 = 64;

/// The program `holdline` and the URLs of the stores, the database's first.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    pub(super) urls: [String; 2],
}

impl Program {
    pub(super) fn new(path: &Path, urls: [String; 2]) -> Self {
        Self { path: path.to_owned(), urls }
    }

    /// A command that reads nothing of the user's, in `directory`.
    pub(super) fn command(&self, directory: &Path) -> Command {
        let mut command = spawner::mortal(&self.path);
        command.env_clear().current_dir(directory).env("HOME", directory).env("USER", "demo");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // ^C in a terminal is for us: we end the actors in order.
        command.process_group(0);
        command
    }

    fn url(&self, store: Store) -> &str {
        let [database, quorum] = &self.urls;
        match store {
            Store::Database => database,
            Store::Quorum => quorum,
        }
    }

    /// Runs a command that must succeed.
    pub(super) fn run(&self, store: Store, arguments: &[&str]) -> Result<(), Failure> {
        let directory = Scratch::new("demo")?;
        let mut command = self.command(directory.path());
        let done = command.args(["--url", self.url(store)]).args(arguments).output();
        let shown = format!("holdline {}", arguments.join(" "));
        let done =
            done.map_err(|why| Failure::because(format!("`{shown}` does not start"), why))?;
        if done.status.success() {
            Ok(())
        } else {
            let says = String::from_utf8_lossy(&done.stderr).into_owned();
            Err(Failure::because(format!("`{shown}` failed ({})", done.status), says))
        }
    }

    /// Starts an actor.
    pub(super) fn actor(&self, store: Store, arguments: &[&str]) -> Result<Actor, Failure> {
        let url = self.url(store).to_owned();
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let process = ServerProcess::new(Scratch::new("demo")?);
        let actor = Actor { program: self.clone(), url, arguments, process, held_since: None };
        actor.start()?;
        Ok(actor)
    }
}

/// One `holdline` process, and how to start it again.
#[derive(Debug)]
pub(super) struct Actor {
    program: Program,
    url: String,
    arguments: Vec<String>,
    process: ServerProcess,
    held_since: Option<Instant>,
}

impl Actor {
    fn start(&self) -> Result<(), Failure> {
        let mut command = self.program.command(self.process.directory());
        self.process.launch({
            command.args(["--url", &self.url]).args(&self.arguments);
            command
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.process.child().as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// # Errors
    /// It does not start, or its command is refused: it would be for ever.
    pub(super) fn start_again(&mut self) -> Result<(), Failure> {
        if self.has_ended() {
            let status = self.process.child().as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = status
                && status.code() == Some(USAGE_ERROR)
            {
                let shown = self.arguments.join(" ");
                let refused = format!("`holdline {shown}` is refused");
                return Err(Failure::because(refused, self.process.log()));
            }
            self.held_since = None;
            // What one run says is enough to explain a failure.
            let _ = std::fs::remove_file(self.process.directory().join("server.log"));
            self.start()?;
        }
        Ok(())
    }

    /// Returns whether its job has run so long. The job prints a line when it begins.
    pub(super) fn has_held_for(&mut self, duration: Duration) -> bool {
        if self.held_since.is_none() && !self.has_ended() && self.process.log().contains("begins") {
            self.held_since = Some(Instant::now());
        }
        self.held_since.is_some_and(|since| since.elapsed() > duration) && !self.has_ended()
    }

    pub(super) fn forget_hold(&mut self) {
        self.held_since = None;
        let _ = std::fs::remove_file(self.process.directory().join("server.log"));
    }

    pub(super) fn pid(&self) -> Option<u32> {
        (!self.has_ended()).then(|| self.process.pid())
    }

    /// Sends a signal; a process that has ended needs none.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.has_ended() {
            self.process.signal(signal);
        }
    }
}
