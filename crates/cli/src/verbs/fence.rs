//! `holdline fence`: the resource's side of fencing for scripts, and what an operator does after
//! a restore.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use holdline::fence::{FenceError, FileMark, Proof};
use holdline_core::{Escaped, FencingToken, Mode, Operation, TokenError};
use serde_json::json;

use super::run::launch_failure;
use crate::child::LaunchError;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::held::Held;
use crate::session::Session;

/// The variable in which `run` hands its job the token.
const TOKEN: &str = "HOLDLINE_FENCING_TOKEN";
/// The variable in which `run` hands its job the lock name.
const NAME: &str = "HOLDLINE_NAME";

/// What `fence` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  holdline fence check site.mark -- rsync -a build/ www/\n  \
    holdline fence bump --to 2000000")]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct FenceArgs {
    #[command(subcommand)]
    verb: FenceVerb,
}

#[derive(Debug, Subcommand)]
enum FenceVerb {
    /// Raise the mark in FILE to the token: nobody with an older one passes from now on
    Seal(SealArgs),
    /// Refuse an older token than the mark in FILE; with COMMAND raise the mark and run COMMAND
    /// while it is locked
    Check(CheckArgs),
    /// Make all later tokens of the engine larger than N: after its store was restored from an
    /// old copy
    Bump(BumpArgs),
}

#[derive(Debug, Args)]
struct SealArgs {
    #[command(flatten)]
    mark: MarkArgs,
}

#[derive(Debug, Args)]
#[command(override_usage = "holdline fence check [OPTIONS] FILE [-- COMMAND...]")]
#[command(
    after_help = "With COMMAND the mark is raised and on the disk before COMMAND begins, and \
    locked until it and all that inherited the lock have ended. COMMAND takes the place of this \
    process, so its exit code is its own.\n\nExample:\n  holdline run site -- holdline fence \
    check site.mark -- rsync -a build/ www/"
)]
struct CheckArgs {
    #[command(flatten)]
    mark: MarkArgs,
    /// The work that the mark guards, and its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct MarkArgs {
    /// The fencing token [default: HOLDLINE_FENCING_TOKEN]
    #[arg(long, value_name = "N", value_parser = token)]
    token: Option<FencingToken>,
    /// How long to wait while others are at work under the mark
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(default_value = "10s")]
    #[arg(value_parser = duration::any)]
    wait: Duration,
    /// The file of the mark, beside what it guards
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Take N from the largest token that a resource or a log has seen.\n\n\
    Example:\n  holdline fence bump --to 2000000")]
struct BumpArgs {
    /// The largest token that may have been given
    #[arg(long, value_name = "N", value_parser = token)]
    to: FencingToken,
}

/// Reads a fencing token.
pub(crate) fn token(text: &str) -> Result<FencingToken, String> {
    text.parse().map_err(|error: TokenError| error.to_string())
}

impl FenceArgs {
    /// Tells whether this is about an engine, not about a resource.
    pub(crate) fn needs_engine(&self) -> bool {
        matches!(self.verb, FenceVerb::Bump(_))
    }
}

/// Carries out what concerns a resource.
pub(crate) fn at_resource(arguments: &FenceArgs, console: &Console) -> Outcome {
    match &arguments.verb {
        FenceVerb::Seal(SealArgs { mark }) => {
            let shown = mark.shown()?;
            let proof = shown.exclusive("seal")?;
            mark.open()?.seal(&proof).map_err(|error| refused(&error))?;
            shown.tell(console)
        }
        FenceVerb::Check(CheckArgs { mark, command }) => match command.split_first() {
            None => {
                let shown = mark.shown()?;
                // To look is all that a shared holder may do, and what every other may do too.
                let proof = Proof::shared(shown.token);
                mark.open()?.check(&proof).map_err(|error| refused(&error))?;
                shown.tell(console)
            }
            Some((program, arguments)) => Err(become_command(mark, program, arguments)),
        },
        FenceVerb::Bump(_) => Err(Failure::internal("a verb went the wrong way")),
    }
}

/// Raises and locks the mark and becomes the command; returns only if that failed.
fn become_command(mark: &MarkArgs, program: &OsString, arguments: &[OsString]) -> Failure {
    let held = mark.shown().and_then(|shown| {
        let proof = shown.exclusive("check FILE -- COMMAND")?;
        let held = mark.open()?.hold(&proof).map_err(|error| refused(&error))?;
        held.let_children_inherit()?;
        Ok(held)
    });
    let _held = match held {
        Ok(held) => held,
        Err(failure) => return failure,
    };
    let error = Command::new(program).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return launch_failure(&LaunchError::NotFound { program: program.clone() });
    }
    let program = program.to_string_lossy();
    let failure = Failure::internal(format_args!("cannot run \"{}\": {error}", Escaped(&program)));
    failure.kind("cannot_run").exit(Exit::CannotRun)
}

impl MarkArgs {
    fn open(&self) -> Result<FileMark, Failure> {
        let mark = FileMark::at(&self.file).map_err(|error| refused(&error))?;
        Ok(mark.with_lock_wait(self.wait))
    }

    /// Returns the token of the flag, whose giver answers for it, or of the environment with the
    /// mode in which it is held.
    ///
    /// # Errors
    /// There is no token, or it is that of permits, which have no order.
    fn shown(&self) -> Result<Shown, Failure> {
        if let Some(token) = self.token {
            return Ok(Shown { token, mode: Mode::Exclusive });
        }
        let text = std::env::var(TOKEN).map_err(|_| {
            Failure::usage("--token: is missing")
                .fix(format_args!("give the holder's token, or run this inside `holdline run`"))
        })?;
        let token =
            token(&text).map_err(|error| Failure::usage(format_args!("{TOKEN}: {error}")))?;
        let name = std::env::var(NAME).unwrap_or_default();
        // Set by hand, without a list of what is held, it is as good as one of the flag.
        let mode = Held::from_environment()?.mode_of(&name).unwrap_or(Mode::Exclusive);
        if let Mode::Permits { .. } = mode {
            let message = format!(
                "fence: {} is held by permits, whose holders work side by side: their tokens \
                 keep no late writer out",
                Escaped(&name)
            );
            return Err(Failure::usage(message).fix("hold it exclusively to fence by its tokens"));
        }
        Ok(Shown { token, mode })
    }
}

/// What is shown to the mark.
#[derive(Clone, Copy, Debug)]
struct Shown {
    token: FencingToken,
    mode: Mode,
}

impl Shown {
    /// Returns the proof of a holder that may raise the mark.
    fn exclusive(self, verb: &str) -> Result<Proof, Failure> {
        if self.mode == Mode::Exclusive {
            return Ok(Proof::exclusive(self.token));
        }
        let message = format!(
            "fence {verb}: the name is held with --shared, which may check a mark and never \
             raise it: other shared holders with smaller tokens are still at work"
        );
        Err(Failure::usage(message).fix("hold the name exclusively, or use `fence check FILE`"))
    }

    fn tell(self, console: &Console) -> Outcome {
        if console.is_json() {
            console.object(&json!({ "fencing_token": self.token, "accepted": true }))?;
        }
        Ok(Exit::Success)
    }
}

fn refused(error: &FenceError) -> Failure {
    let failure = Failure::internal(error).certainty(error.certainty());
    match error {
        FenceError::Stale(_) => failure.kind("stale").exit(Exit::Refused),
        FenceError::Foreign { .. } => failure.kind("foreign").exit(Exit::Foreign),
        FenceError::Busy { .. } => failure.kind("busy").exit(Exit::Busy),
        FenceError::Failed { source, .. } if is_no_place(source.as_ref()) => {
            let failure = failure.kind("usage").exit(Exit::Usage);
            failure.fix("name a file in a directory that is there")
        }
        FenceError::Failed { source, .. } if is_forbidden(source.as_ref()) => {
            let failure = failure.kind("refused").exit(Exit::Refused);
            failure.fix("let this user read and write the file and its directory")
        }
        FenceError::Failed { .. } => failure.kind("unavailable").exit(Exit::Unavailable),
        _ => failure.kind("refused").exit(Exit::Refused),
    }
}

/// Tells whether an error says that this user may not.
fn is_forbidden(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem))
}

/// Tells whether an error says that the path can lead to no file.
fn is_no_place(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    error.downcast_ref::<std::io::Error>().is_some_and(|error| {
        matches!(error.kind(), NotFound | NotADirectory | InvalidInput | InvalidFilename)
    })
}

/// Carries out what concerns the engine.
pub(crate) async fn bump(arguments: &FenceArgs, session: &Session, console: &Console) -> Outcome {
    let FenceVerb::Bump(BumpArgs { to }) = &arguments.verb else {
        return Err(Failure::internal("a verb went the wrong way"));
    };
    session.operate(&Operation::RaiseFence { to: *to }).await?;
    if console.is_json() {
        console.object(&json!({ "above": to }))?;
    } else {
        console.info(&format!("all later tokens are larger than {to}"));
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_mark_that_this_user_may_not_write_is_refused_and_not_unreachable() {
        for (kind, exit) in [
            (io::ErrorKind::PermissionDenied, Exit::Refused),
            (io::ErrorKind::ReadOnlyFilesystem, Exit::Refused),
            (io::ErrorKind::NotFound, Exit::Usage),
            (io::ErrorKind::StorageFull, Exit::Unavailable),
        ] {
            let error = FenceError::failed("opening mark", io::Error::from(kind));
            assert_eq!(refused(&error).exit, exit, "{kind}");
        }
    }
}
