//! A pipe by which the new process reports that the kernel could not execute the command.
//!
//! The wrapper does not wait for the report: a process that is stopped before its `exec` would
//! block the wrapper for ever, where no signal is handled. So the report stays in the pipe until
//! the process has ended. The process opens the pipe through the wrapper's `/proc/PID/fd`, only for
//! writing. A descriptor that it inherited would be inherited by the command too.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::process::getpid;

use super::launch_error::LaunchError;

/// Far less than the capacity of a pipe without a reader.
const MAX_LENGTH: usize = 2048;

/// The wrapper's side.
#[derive(Debug)]
pub(super) struct ExecErrorPipe {
    program: OsString,
    reader: PipeReader,
    writer: PipeWriter,
}

impl ExecErrorPipe {
    /// `program` is what the user typed.
    pub(super) fn new(program: OsString) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { program, reader, writer })
    }

    /// The path by which [`send`] opens the pipe.
    pub(super) fn path(&self) -> OsString {
        format!("/proc/{}/fd/{}", getpid().as_raw_nonzero(), self.writer.as_raw_fd()).into()
    }

    /// Returns why the command was not executed, if that was reported. The process must have ended.
    pub(super) fn read(self) -> Option<LaunchError> {
        let Self { program, reader, writer } = self;
        // Nobody else has the writing end open, so reading ends.
        drop(writer);
        let mut text = Vec::new();
        reader.take(MAX_LENGTH as u64).read_to_end(&mut text).ok()?;
        let (code, why) = text.split_first()?;
        let why = String::from_utf8_lossy(why).into_owned();
        Some(match code {
            127 => LaunchError::NotFound { program },
            126 => LaunchError::Refused { program, why },
            _ => LaunchError::failed(io::Error::other(why)),
        })
    }
}

/// Reports to the wrapper why the command could not be executed.
pub(super) fn send(path: &OsStr, error: &LaunchError) -> io::Result<()> {
    let why = match error {
        LaunchError::NotFound { .. } | LaunchError::TooLate => String::new(),
        LaunchError::Refused { why, .. } => why.clone(),
        LaunchError::Failed { source } => source.to_string(),
    };
    let mut report = vec![error.exit_code()];
    report.extend(why.bytes().take(MAX_LENGTH - 1));
    OpenOptions::new().write(true).open(path)?.write_all(&report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec_error() -> ExecErrorPipe {
        ExecErrorPipe::new("p".into()).expect("a pipe")
    }

    #[test]
    fn a_report_is_read() {
        let failed = || LaunchError::failed(io::Error::other("no room"));
        for error in [
            LaunchError::NotFound { program: "p".into() },
            LaunchError::refused("p".as_ref(), "its interpreter is missing"),
            failed(),
        ] {
            let exec_error = exec_error();
            send(&exec_error.path(), &error).expect("the pipe is open");
            let read = exec_error.read().expect("a report");
            assert_eq!(
                (read.to_string(), read.exit_code()),
                (error.to_string(), error.exit_code())
            );
        }
    }

    #[test]
    fn a_command_that_ran_has_no_verdict() {
        assert!(exec_error().read().is_none());
    }

    #[test]
    fn long_reports_are_cut() {
        let exec_error = exec_error();
        let error = LaunchError::refused("p".as_ref(), "é".repeat(100_000));
        send(&exec_error.path(), &error).expect("the pipe takes it");
        assert!(exec_error.read().expect("a report").to_string().len() < 2 * MAX_LENGTH);
    }

    #[test]
    fn a_wrapper_that_is_gone_gets_no_report() {
        let mut wrapper = std::process::Command::new("true").spawn().expect("it starts");
        wrapper.wait().expect("it ends");
        let path = format!("/proc/{}/fd/1", wrapper.id());
        send(path.as_ref(), &LaunchError::TooLate).expect_err("no such process");
    }
}
