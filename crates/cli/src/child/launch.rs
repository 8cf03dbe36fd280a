//! Starts the command.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::getpid;
use rustix::thread::gettid;

use super::exec_error::ExecErrorPipe;
use super::job::Job;
use super::launch_error::LaunchError;
use super::program::Program;
use super::shim;
use super::signals::Signals;
use super::terminal::Terminal;
use crate::idle::Idle;

/// A command to start.
pub(crate) struct Launch<'a> {
    /// Searched in the command's own `PATH` unless it contains a slash.
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Variables that are set (`Some`) and removed (`None`); all others are inherited.
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
    /// Descriptors that the command inherits under their present numbers. In this process they
    /// become close-on-exec again as soon as the command runs.
    pub(crate) inherit: Vec<BorrowedFd<'a>>,
    /// The kernel kills the command when this process dies, for any reason.
    ///
    /// The kernel kills only the command, and not the processes that it started. The setting is
    /// cleared when the command executes a set-user-id program or one with file capabilities.
    pub(crate) death_signal: bool,
    /// At a stop, also stops the processes of the command's group that ignore `^Z`. A stopped
    /// wrapper can neither renew a lease nor kill in time.
    pub(crate) freeze_on_stop: bool,
    /// The command starts only if this condition holds after a `^Z` before the start.
    pub(crate) condition: &'a dyn Fn() -> bool,
}

impl Launch<'_> {
    /// Starts the command in a process group of its own.
    ///
    /// `signals` must already be listening. With a death signal, call this on the main thread: the
    /// kernel watches the thread that started the command.
    ///
    /// The command may still fail to execute. [`Job::finish`] reports what only the kernel
    /// can detect.
    ///
    /// # Errors
    /// - `NotFound`, `Refused`: the command cannot be run.
    /// - `Failed`: no process could be created.
    /// - `TooLate`: the condition does not hold.
    ///
    /// Nothing is running after an error. A `^Z` that [`Signals::next`] has not yet returned may
    /// stop this process here.
    pub(crate) fn spawn(&self, signals: &Signals, idle: &Idle) -> Result<Job, LaunchError> {
        if self.death_signal && gettid() != getpid() {
            let why = "a death signal can only be tied to the main thread";
            return Err(LaunchError::Failed { source: io::Error::other(why) });
        }
        let program = Program::find(&self.program, self.search_path().as_deref())?;
        let mut terminal = Terminal::find();
        let hand_over = terminal.as_ref().is_some_and(Terminal::is_wanted);
        let exec_error = ExecErrorPipe::new(program.typed.clone()).map_err(LaunchError::failed)?;
        let setup = shim::ExecSetup {
            death_signal: self.death_signal,
            terminal: hand_over,
            stops: signals.blocks_stops(),
        };
        let mut command = shim::command(setup, &exec_error, &program);
        // A stop after the start would leave a command behind that nobody watches.
        signals.with_stops_unblocked(idle, || ());
        let child = self.start(command.args(&self.arguments))?;
        if let Some(terminal) = terminal.as_mut().filter(|_| hand_over) {
            terminal.mark_given();
        }
        Ok(Job::new(child, exec_error, terminal, self.freeze_on_stop))
    }

    fn start(&self, command: &mut Command) -> Result<Child, LaunchError> {
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let _open = OpenAcrossExec::new(&self.inherit).map_err(LaunchError::failed)?;
        command.process_group(0);
        if (self.condition)() {
            command.spawn().map_err(LaunchError::failed)
        } else {
            Err(LaunchError::TooLate)
        }
    }

    /// The `PATH` that the command will have.
    fn search_path(&self) -> Option<OsString> {
        let changed = self.environment.iter().rev().find(|(name, _)| name == "PATH");
        changed.map_or_else(|| std::env::var_os("PATH"), |(_, value)| value.clone())
    }
}

/// Makes descriptors survive `exec` until dropped.
struct OpenAcrossExec<'a> {
    before: Vec<(BorrowedFd<'a>, FdFlags)>,
}

impl<'a> OpenAcrossExec<'a> {
    fn new(descriptors: &[BorrowedFd<'a>]) -> io::Result<Self> {
        let mut open = Self { before: Vec::with_capacity(descriptors.len()) };
        for descriptor in descriptors {
            let flags = fcntl_getfd(descriptor)?;
            fcntl_setfd(descriptor, flags - FdFlags::CLOEXEC)?;
            open.before.push((*descriptor, flags));
        }
        Ok(open)
    }
}

impl Drop for OpenAcrossExec<'_> {
    fn drop(&mut self) {
        // In reverse order: a descriptor given twice has its original flags in the first entry.
        for (descriptor, flags) in self.before.iter().rev() {
            // Fails only for a descriptor that is not open; a borrowed one is open.
            let _ = fcntl_setfd(descriptor, *flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn descriptors_are_open_only_around_the_start() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        let flags = || fcntl_getfd(&file).expect("flags");
        assert!(flags().contains(FdFlags::CLOEXEC));
        let open = OpenAcrossExec::new(&[file.as_fd(), file.as_fd()]).expect("both are open");
        assert!(!flags().contains(FdFlags::CLOEXEC));
        drop(open);
        assert!(flags().contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn the_program_is_searched_in_the_path_that_it_will_have() {
        let path = |changes: &[(&str, Option<&str>)]| {
            let owned = |(name, value): &(&str, Option<&str>)| {
                (OsString::from(name), value.map(OsString::from))
            };
            let launch = Launch {
                program: "x".into(),
                arguments: Vec::new(),
                environment: changes.iter().map(owned).collect(),
                inherit: Vec::new(),
                death_signal: false,
                freeze_on_stop: false,
                condition: &|| true,
            };
            launch.search_path()
        };
        let ours = std::env::var_os("PATH");
        assert!(ours.is_some());
        assert_eq!(path(&[("OTHER", Some("/a"))]), ours);
        assert_eq!(path(&[("PATH", Some("/a"))]), Some("/a".into()));
        assert_eq!(path(&[("PATH", Some("/a")), ("PATH", None)]), None);
    }
}
