//! What only the kernel can tell about a program, told by the process that was to become it.
//!
//! The wrapper does not wait for it: a process that is stopped before it became the command would
//! stop the wrapper for good, where no signal reaches. So the words lie in a pipe until the process
//! has ended. That process opens the pipe by the wrapper's number for it, and only to write; a
//! descriptor that it inherited would be the command's too.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::process::getpid;

use super::launch::LaunchError;

/// Far less than a pipe takes without a reader.
const LONGEST: usize = 2048;

/// The wrapper's side.
#[derive(Debug)]
pub(super) struct Verdict {
    program: OsString,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Verdict {
    /// `program` is what the user typed.
    pub(super) fn new(program: OsString) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { program, reader, writer })
    }

    /// Where [`tell`] finds it.
    pub(super) fn place(&self) -> OsString {
        format!("/proc/{}/fd/{}", getpid().as_raw_nonzero(), self.writer.as_raw_fd()).into()
    }

    /// Returns why there was no command, if that was told. The process must have ended.
    pub(super) fn read(self) -> Option<LaunchError> {
        let Self { program, reader, writer } = self;
        // Nobody else has it open, so the pipe has an end.
        drop(writer);
        let mut told = Vec::new();
        reader.take(LONGEST as u64).read_to_end(&mut told).ok()?;
        let (code, why) = told.split_first()?;
        let why = String::from_utf8_lossy(why).into_owned();
        Some(match code {
            127 => LaunchError::NotFound { program },
            126 => LaunchError::Refused { program, why },
            _ => LaunchError::failed(io::Error::other(why)),
        })
    }
}

/// Tells the wrapper why there is no command.
pub(super) fn tell(place: &OsStr, error: &LaunchError) -> io::Result<()> {
    let why = match error {
        LaunchError::NotFound { .. } | LaunchError::TooLate => String::new(),
        LaunchError::Refused { why, .. } => why.clone(),
        LaunchError::Failed { source } => source.to_string(),
    };
    let mut words = vec![error.exit_code()];
    words.extend(why.bytes().take(LONGEST - 1));
    OpenOptions::new().write(true).open(place)?.write_all(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> Verdict {
        Verdict::new("p".into()).expect("a pipe")
    }

    #[test]
    fn what_was_told_is_read() {
        let failed = || LaunchError::failed(io::Error::other("no room"));
        for error in [
            LaunchError::NotFound { program: "p".into() },
            LaunchError::refused("p".as_ref(), "its interpreter is missing"),
            failed(),
        ] {
            let verdict = verdict();
            tell(&verdict.place(), &error).expect("the pipe is open");
            let read = verdict.read().expect("words");
            assert_eq!(
                (read.to_string(), read.exit_code()),
                (error.to_string(), error.exit_code())
            );
        }
    }

    #[test]
    fn a_command_that_ran_has_no_verdict() {
        assert!(verdict().read().is_none());
    }

    #[test]
    fn endless_words_are_cut() {
        let verdict = verdict();
        let error = LaunchError::refused("p".as_ref(), "é".repeat(100_000));
        tell(&verdict.place(), &error).expect("the pipe takes it");
        assert!(verdict.read().expect("words").to_string().len() < 2 * LONGEST);
    }

    #[test]
    fn who_is_gone_cannot_be_told() {
        let place = verdict().place();
        tell(&place, &LaunchError::TooLate).expect_err("the pipe is closed");
    }
}
