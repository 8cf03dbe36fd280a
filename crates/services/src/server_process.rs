//! A server's process, its directory and its log: what servers of all kinds share.

use crate::scratch::Scratch;
use crate::wait::{LIMIT, until};
use crate::{Failure, spawner, vdso};
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A process that may be started more than once, in one directory and with one log. Dropping it
/// kills the process and removes the directory.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Mutex<Option<Child>>,
    directory: Scratch,
}

impl ServerProcess {
    /// Nothing runs yet.
    pub(crate) fn new(directory: Scratch) -> Self {
        Self { child: Mutex::new(None), directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file into the directory and returns its path.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, Failure> {
        self.directory.write(name, text)
    }

    /// What the process has written since the first start.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.directory().join("server.log")
    }

    /// Waits until the log holds `text`, and panics if it does not.
    pub(crate) fn await_log(&self, text: &str) {
        if until(LIMIT, || self.log().contains(text).then_some(())).is_none() {
            panic!("the server's log does not hold `{text}`:\n{}", self.log());
        }
    }

    pub(crate) fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the process was started and not ended by this value.
    pub(crate) fn is_running(&self) -> bool {
        self.child().is_some()
    }

    fn running<T>(&self, act: impl FnOnce(&Child) -> T) -> T {
        self.child().as_ref().map(act).expect("the server runs")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running(Child::id)
    }

    /// Starts the program, which writes to the log; whether it serves is another question.
    pub(crate) fn launch(&self, mut command: Command) -> Result<(), Failure> {
        let open = File::options().create(true).append(true).open(self.log_path());
        let log = open.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|why| Failure::because("cannot write the log", why))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        *self.child() = Some(spawner::spawn(command)?);
        Ok(())
    }

    /// Starts the program and waits until it answers. One that does not is not left.
    pub(crate) fn start(
        &self,
        name: impl std::fmt::Display,
        command: Command,
        answers: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let before = self.log().len();
        self.launch(command)?;
        let Err(why) = self.await_that(answers) else {
            return Ok(());
        };
        self.kill_anyhow();
        let log = self.log();
        let reply = log.get(before..).unwrap_or(&log);
        Err(Failure::because(format!("{name} {why}"), reply))
    }

    /// Waits until the process `answers`, or has ended.
    pub(crate) fn await_that(&self, answers: impl Fn() -> bool) -> Result<(), String> {
        let answered = until(LIMIT, || {
            let state = self.child().as_mut().map(Child::try_wait);
            match state {
                Some(Ok(None)) => answers().then_some(Ok(())),
                Some(Ok(Some(status))) => Some(Err(format!("ended at once ({status})"))),
                Some(Err(why)) => Some(Err(format!("cannot be waited for ({why})"))),
                None => Some(Err("was ended".to_owned())),
            }
        });
        answered.unwrap_or_else(|| Err(format!("does not answer within {LIMIT:?}")))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Err(why) = self.running(|child| spawner::signal(child, signal)) {
            panic!("the server cannot be signalled: {why}\n{}", self.log());
        }
    }

    /// Stops the process (`SIGSTOP`), and returns when it stands.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        self.await_stopped(true);
    }

    /// Lets a stopped process go on.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
        self.await_stopped(false);
    }

    fn await_stopped(&self, stopped: bool) {
        if let Err(why) = self.running(|child| spawner::await_stopped(child, stopped)) {
            panic!("{why}");
        }
    }

    /// Sets the process's clock ahead by so many nanoseconds.
    pub(crate) fn step_clock(&self, ahead: i64) {
        let pid = self.pid();
        let stood = vdso::pause_outside_of_vdso(pid, || self.stop(), || self.cont());
        let set = stood.and_then(|()| vdso::set_ahead(pid, ahead));
        self.cont();
        set.unwrap_or_else(|why| panic!("{why}"));
    }

    /// Sends the signal that ends the process, and waits until it has ended.
    pub(crate) fn end_by(&self, signal: Signal) {
        self.signal(signal);
        let Some(mut child) = self.child().take() else {
            return;
        };
        if until(LIMIT, || child.try_wait().transpose()).is_none() {
            let pid = child.id();
            *self.child() = Some(child);
            panic!("server {pid} does not end\n{}", self.log());
        }
    }

    /// Kills the process, and waits until it has ended.
    pub(crate) fn kill(&self) {
        self.end_by(Signal::KILL);
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) fn shutdown(&self) {
        self.end_by(Signal::TERM);
    }

    fn kill_anyhow(&self) {
        if let Some(mut child) = self.child().take() {
            // Only a process that is gone already cannot be killed, and it still must be reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill_anyhow();
    }
}

/// Adds what a test asks of a server's process, which is in the field `process`, and of its clock,
/// which is in the field `clock` if it was started with one.
macro_rules! process_questions {
    ($server:ty) => {
        impl $server {
            /// The server's wall clock.
            ///
            /// # Panics
            /// It was started without a clock to be moved: see `with_clock` of its configuration.
            #[must_use]
            pub fn clock(&self) -> &$crate::ServerClock {
                self.clock.as_ref().expect("the server was started with a clock to be moved")
            }

            /// The directory in which the server keeps its files and its socket.
            #[must_use]
            pub fn directory(&self) -> &::std::path::Path {
                self.process.directory()
            }

            /// The number of the server's first process.
            ///
            /// # Panics
            /// The server does not run.
            #[must_use]
            pub fn pid(&self) -> u32 {
                self.process.pid()
            }

            /// What the server has written to its log since the first start.
            #[must_use]
            pub fn log(&self) -> String {
                self.process.log()
            }
        }
    };
}
pub(crate) use process_questions;

/// Adds what a test does to a server that is one process.
macro_rules! process_controls {
    ($server:ty) => {
        impl $server {
            /// Stops the server (`SIGSTOP`): connections stay, connecting works, nothing is
            /// answered. Returns when it stands.
            ///
            /// # Panics
            /// The server does not run.
            pub fn stop(&self) {
                self.process.stop();
            }

            /// Lets a stopped server go on.
            ///
            /// # Panics
            /// The server does not run.
            pub fn cont(&self) {
                self.process.cont();
            }

            /// Kills the server (`SIGKILL`) and waits until it is dead. What it had written to its
            /// files stays, all else is lost.
            ///
            /// # Panics
            /// The server does not run, or does not end.
            pub fn kill(&self) {
                self.process.kill();
            }

            /// Asks the server to end (`SIGTERM`) and waits until it has.
            ///
            /// # Panics
            /// The server does not run, or does not end.
            pub fn shutdown(&self) {
                self.process.shutdown();
            }

            /// Starts the server again in its directory and on its port; ends it first if it runs.
            ///
            /// # Panics
            /// The server does not start; the message says why.
            pub fn restart(&self) {
                if self.process.is_running() {
                    self.shutdown();
                }
                if let Err(why) = self.start_here() {
                    panic!("{why}");
                }
            }
        }
    };
}
pub(crate) use process_controls;
