//! `holdline fence`: the resource's side of fencing for scripts, and what an operator does after
//! a restore.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand};
use holdline::fence::{FenceError, FileMark, Proof};
use holdline_core::{Escaped, FencingToken, Operation, TokenError};
use serde_json::json;

use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::session::Session;

/// The variable in which `run` hands its job the token.
const TOKEN: &str = "HOLDLINE_FENCING_TOKEN";

/// What `fence` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  holdline fence check site.mark -- rsync -a build/ www/\n  \
    holdline fence bump --to 2000000")]
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
    #[arg(last = true, value_name = "COMMAND")]
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
    #[arg(value_name = "FILE")]
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
            let (file, proof) = mark.open()?;
            file.seal(&proof).map_err(|error| refused(&error))?;
            mark.tell(console)
        }
        FenceVerb::Check(CheckArgs { mark, command }) => match command.split_first() {
            None => {
                let (file, proof) = mark.open()?;
                file.check(&proof).map_err(|error| refused(&error))?;
                mark.tell(console)
            }
            Some((program, arguments)) => Err(become_command(mark, program, arguments)),
        },
        FenceVerb::Bump(_) => Err(Failure::internal("a verb went the wrong way")),
    }
}

/// Raises and locks the mark and becomes the command; returns only if that failed.
fn become_command(mark: &MarkArgs, program: &OsString, arguments: &[OsString]) -> Failure {
    let held = mark.open().and_then(|(file, proof)| {
        let held = file.hold(&proof).map_err(|error| refused(&error))?;
        held.let_children_inherit()?;
        Ok(held)
    });
    let _held = match held {
        Ok(held) => held,
        Err(failure) => return failure,
    };
    let error = Command::new(program).args(arguments).exec();
    let program = program.to_string_lossy();
    let failure = Failure::internal(format_args!("cannot run \"{}\": {error}", Escaped(&program)));
    match error.kind() {
        std::io::ErrorKind::NotFound => failure.kind("not_found").exit(Exit::NotFound),
        _ => failure.kind("cannot_run").exit(Exit::CannotRun),
    }
}

impl MarkArgs {
    fn open(&self) -> Result<(FileMark, Proof), Failure> {
        let mark = FileMark::at(&self.file).map_err(|error| refused(&error))?;
        Ok((mark.with_lock_wait(self.wait), Proof::exclusive(self.token()?)))
    }

    fn token(&self) -> Result<FencingToken, Failure> {
        if let Some(token) = self.token {
            return Ok(token);
        }
        let text = std::env::var(TOKEN).map_err(|_| {
            Failure::usage("--token: is missing")
                .fix(format_args!("give the holder's token, or run this inside `holdline run`"))
        })?;
        token(&text).map_err(|error| Failure::usage(format_args!("{TOKEN}: {error}")))
    }

    fn tell(&self, console: &Console) -> Outcome {
        if console.is_json() {
            console.object(&json!({ "fencing_token": self.token()?, "accepted": true }))?;
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
        FenceError::Failed { .. } => failure.kind("unavailable").exit(Exit::Unavailable),
        _ => failure.kind("refused").exit(Exit::Refused),
    }
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
