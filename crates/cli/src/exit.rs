//! The exit codes, which are API: scripts branch on them.
//!
//! `run` returns the job's own code unchanged; all others are listed here, in `docs/cli.md` and in
//! the help of the program, and a test compares the three. A code never changes its meaning. What a
//! verb makes of one, such as `doctor` of 1, is in the help and the section of that verb too.

use std::process::ExitCode;

use holdline_core::ErrorKind;

use crate::child;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done. For `who`: the name is held; for `check`: the lease is valid.
    Success,
    /// `who` found the name free; `revoke` and `unfreeze` found nothing to act on; `latch` is set
    /// already; `doctor` has a warning; `torture` saw a promise broken.
    Negative,
    /// `doctor` has found an error; `torture` has shown nothing.
    Unhealthy,
    /// The command line is wrong.
    Usage,
    /// The data under the name is not ours.
    Foreign,
    /// The engine did not answer, has no quorum, is quarantined or was never set up.
    Unavailable,
    /// Somebody else holds the name, or the wait ran out.
    Busy,
    /// The store gave an answer that violates its protocol.
    Protocol,
    /// The store refused: rights, read-only, full. For `fence`: the token is too old.
    Refused,
    /// The configuration or URL is wrong, or the engine does not support the request.
    Config,
    /// The lease was lost.
    Lost,
    /// The job ran longer than `--max-hold`.
    MaxHold,
    /// Our own failure.
    Internal,
    /// The job's program is there and cannot be run.
    CannotRun,
    /// The job's program was not found.
    NotFound,
    /// The code that the caller chose with `-E`.
    Code(u8),
    /// The job's own exit, or the exit by the signal that ended the wait.
    Job(child::JobExit),
}

impl Exit {
    /// Returns the number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Negative => 1,
            Exit::Unhealthy => 2,
            Exit::Usage => 64,
            Exit::Foreign => 65,
            Exit::Unavailable => 69,
            Exit::Busy => 75,
            Exit::Protocol => 76,
            Exit::Refused => 77,
            Exit::Config => 78,
            Exit::Lost => 79,
            Exit::MaxHold => 124,
            Exit::Internal => 125,
            Exit::CannotRun => 126,
            Exit::NotFound => 127,
            Exit::Code(code) => code,
            Exit::Job(exit) => exit.code(),
        }
    }

    /// Ends the process, by the job's own signal where a shell must see it. Do not rely on anything
    /// after this call.
    pub(crate) fn leave(self) -> ExitCode {
        match self {
            Exit::Job(exit) => exit.leave(),
            other => ExitCode::from(other.code()),
        }
    }

    /// Returns the code for a failure of an engine.
    pub(crate) fn of(kind: &ErrorKind) -> Exit {
        match kind {
            ErrorKind::Busy { .. }
            | ErrorKind::TimedOut { .. }
            | ErrorKind::TooManyWaiters { .. } => Exit::Busy,
            ErrorKind::Lost { .. } => Exit::Lost,
            ErrorKind::NoQuorum { .. }
            | ErrorKind::Quarantined { .. }
            | ErrorKind::NotInitialised
            | ErrorKind::Unavailable { .. } => Exit::Unavailable,
            // It is unknown which of the two modes is wrong; each command line is valid by itself.
            // The URL is wrong, although that was found only when the store was used.
            ErrorKind::Unsupported { .. } | ErrorKind::Invalid { field: "mode" | "url", .. } => {
                Exit::Config
            }
            ErrorKind::Foreign { .. } => Exit::Foreign,
            ErrorKind::Refused { .. } => Exit::Refused,
            ErrorKind::Protocol { .. } => Exit::Protocol,
            ErrorKind::Invalid { .. } => Exit::Usage,
            // `Cancelled` never reaches a caller of ours, and a kind of a later version has no
            // code yet: both are our own failure.
            _ => Exit::Internal,
        }
    }
}

/// Returns what to do about a failure that only the command line can name.
pub(crate) fn fix(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NoQuorum { .. } => {
            Some("`holdline doctor` shows the state of each server, and what to do")
        }
        ErrorKind::NotInitialised => Some("`holdline quorum init` makes the servers one set"),
        ErrorKind::Quarantined { .. } => Some(
            "wait; `holdline doctor` shows why. If you know that no earlier lock is still held: on \
             redis:// and with Sentinels, docs/keys.md says how to end it; on redlock://, \
             `holdline quorum vouch` ends a wait that began because no majority has its data",
        ),
        ErrorKind::Invalid { field: "mode", .. } => Some(
            "all who use one name must agree on --shared, on --permits and on its N; `holdline \
             who NAME` shows how it is held now",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;
    use holdline_core::LostReason;
    use rustix::process::Signal;

    use super::*;

    /// Every exit with a code of its own.
    const NAMED: [Exit; 15] = [
        Exit::Success,
        Exit::Negative,
        Exit::Unhealthy,
        Exit::Usage,
        Exit::Foreign,
        Exit::Unavailable,
        Exit::Busy,
        Exit::Protocol,
        Exit::Refused,
        Exit::Config,
        Exit::Lost,
        Exit::MaxHold,
        Exit::Internal,
        Exit::CannotRun,
        Exit::NotFound,
    ];

    #[test]
    fn the_codes_are_api() {
        let codes = NAMED.map(Exit::code);
        assert_eq!(codes, [0, 1, 2, 64, 65, 69, 75, 76, 77, 78, 79, 124, 125, 126, 127]);
        assert_eq!(Exit::Code(3).code(), 3);
        assert_eq!(Exit::Job(child::JobExit::before_start(Signal::TERM)).code(), 143);
    }

    /// Returns whether a text has a number that stands by itself.
    fn has_number(text: &str, number: u8) -> bool {
        text.split(|c: char| !c.is_ascii_digit()).any(|one| one == number.to_string())
    }

    #[test]
    fn page_and_help_list_every_code() {
        let page = include_str!("../../../docs/cli.md");
        let section = page.split("### Exit codes").nth(1).expect("the section");
        let section = section.split("### ").next().expect("its text");
        let help = crate::global::Global::command().get_after_help().expect("codes").to_string();
        for exit in NAMED {
            let code = exit.code();
            assert!(has_number(section, code), "docs/cli.md has no exit code {code}");
            // Codes below 3 belong to single verbs, whose help has them.
            assert!(code < 3 || has_number(&help, code), "the help has no exit code {code}");
        }
    }

    #[test]
    fn every_kind_of_failure_has_its_code_and_word() {
        let text = String::new;
        for (kind, code, named) in [
            (ErrorKind::Busy { holder: None }, 75, "busy"),
            (ErrorKind::TimedOut { waited: Duration::ZERO, holder: None }, 75, "timed_out"),
            (ErrorKind::TooManyWaiters { limit: 1 }, 75, "too_many_waiters"),
            (ErrorKind::Lost { reason: LostReason::Expired }, 79, "lost"),
            (ErrorKind::NoQuorum { nodes: Vec::new() }, 69, "no_quorum"),
            (ErrorKind::Quarantined { left: Duration::ZERO }, 69, "quarantined"),
            (ErrorKind::NotInitialised, 69, "not_initialised"),
            (ErrorKind::Unavailable { message: text() }, 69, "unavailable"),
            (ErrorKind::Unsupported { feature: "x" }, 78, "unsupported"),
            (ErrorKind::Foreign { found: text() }, 65, "foreign"),
            (ErrorKind::Refused { message: text() }, 77, "refused"),
            (ErrorKind::Protocol { message: text() }, 76, "protocol"),
            (ErrorKind::Invalid { field: "x", message: text() }, 64, "invalid"),
            (ErrorKind::Invalid { field: "mode", message: text() }, 78, "invalid"),
            (ErrorKind::Invalid { field: "url", message: text() }, 78, "invalid"),
            (ErrorKind::Cancelled, 125, "cancelled"),
        ] {
            assert_eq!((Exit::of(&kind).code(), kind.word()), (code, named), "{kind:?}");
        }
    }
}
