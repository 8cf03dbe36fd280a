//! `holdline fence`: fencing at the resource for scripts, and the operator's step after a restore.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use holdline::fence::{FenceError, FileMark, Proof};
use holdline_core::{Escaped, FencingToken, Mode, Operation, TokenError};
use serde_json::json;

use crate::child::LaunchError;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{OpenStore, StoreOptions};
use crate::outer_locks::OuterLocks;
use crate::verb::{StoreUse, Verb};

/// The variable in which a job of `run` finds its fencing token.
const TOKEN: &str = "HOLDLINE_FENCING_TOKEN";
/// The variable in which a job of `run` finds the lock name.
const NAME: &str = "HOLDLINE_NAME";

/// Check fencing tokens at a resource, or raise them after a restore
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  holdline fence check site.mark -- rsync -a build/ www/\n  \
    holdline fence bump --to 2000000")]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct FenceArgs {
    #[command(subcommand)]
    verb: FenceVerb,
}

/// Describes `fence`.
pub(crate) fn verb() -> Verb {
    Verb::new("fence", |arguments: FenceArgs, invocation| match &arguments.verb {
        FenceVerb::Seal(SealArgs { mark }) => mark.seal(&invocation.console),
        FenceVerb::Check(arguments) => arguments.check(&invocation.console),
        FenceVerb::Bump(bump) => {
            let options = StoreOptions::default();
            invocation.on_store(bump, options, &StoreUse::Makes, BumpArgs::run)
        }
    })
}

#[derive(Debug, Subcommand)]
enum FenceVerb {
    /// Raise the mark in FILE to the token: older tokens are refused from now on
    Seal(SealArgs),
    /// Refuse a token that is older than the mark in FILE; with COMMAND raise the mark and run
    /// COMMAND while the mark is locked
    Check(FenceCheckArgs),
    /// Make all later tokens of the engine larger than N, after its store was restored from an old
    /// copy
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
struct FenceCheckArgs {
    #[command(flatten)]
    mark: MarkArgs,
    /// The work that the mark guards, and its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct MarkArgs {
    /// The fencing token [default: HOLDLINE_FENCING_TOKEN]
    #[arg(long, value_name = "N")]
    token: Option<FencingToken>,
    /// How long to wait while other commands run under the mark
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(default_value = "10s", value_parser = duration::any)]
    wait: Duration,
    /// The file of the mark, beside the data that it guards
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Take N from the largest token that a resource or a log has seen.\n\n\
    Example:\n  holdline fence bump --to 2000000")]
struct BumpArgs {
    /// The largest token that may have been granted
    #[arg(long, value_name = "N")]
    to: FencingToken,
}

impl FenceCheckArgs {
    fn check(&self, console: &Console) -> Outcome {
        let FenceCheckArgs { mark, command } = self;
        if let Some((program, arguments)) = command.split_first() {
            return Err(become_command(mark, program, arguments));
        }
        let shown = mark.shown()?;
        // Every holder may check the mark; a shared holder may do nothing else.
        let proof = Proof::shared(shown.token);
        mark.open()?.check(&proof).map_err(|error| refused(&error))?;
        shown.print(console)
    }
}

/// Raises and locks the mark and executes the command; returns only if that failed.
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
        return Failure::from(LaunchError::NotFound { program: program.clone() });
    }
    let program = program.to_string_lossy();
    let failure = Failure::internal(format_args!("cannot run \"{}\": {error}", Escaped(&program)));
    failure.kind("cannot_run").exit(Exit::CannotRun)
}

impl MarkArgs {
    fn seal(&self, console: &Console) -> Outcome {
        let shown = self.shown()?;
        let proof = shown.exclusive("seal")?;
        self.open()?.seal(&proof).map_err(|error| refused(&error))?;
        shown.print(console)
    }

    fn open(&self) -> Result<FileMark, Failure> {
        let mark = FileMark::at(&self.file).map_err(|error| refused(&error))?;
        Ok(mark.with_lock_wait(self.wait))
    }

    /// Returns the token of the flag, or of the environment together with the mode of the lock. The
    /// user is responsible for a token of the flag.
    ///
    /// # Errors
    /// There is no token, or it belongs to permits, whose tokens have no order.
    fn shown(&self) -> Result<Shown, Failure> {
        if let Some(token) = self.token {
            return Ok(Shown { token, mode: Mode::Exclusive });
        }
        let text = std::env::var(TOKEN).map_err(|_| {
            Failure::usage("--token: is missing")
                .fix(format_args!("give the holder's token, or run this inside `holdline run`"))
        })?;
        let token = text
            .parse()
            .map_err(|error: TokenError| Failure::usage(format_args!("{TOKEN}: {error}")))?;
        let name = std::env::var(NAME).unwrap_or_default();
        // A variable that was set by hand, without the list of locks, counts as the flag.
        let mode = OuterLocks::from_environment()?.mode_of(&name).unwrap_or(Mode::Exclusive);
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

/// The token that is compared with the mark.
#[derive(Clone, Copy, Debug)]
struct Shown {
    token: FencingToken,
    mode: Mode,
}

impl Shown {
    /// Returns the proof that the holder may raise the mark.
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

    fn print(self, console: &Console) -> Outcome {
        console.only_object(&json!({ "fencing_token": self.token, "accepted": true }))
    }
}

fn refused(error: &FenceError) -> Failure {
    let failure = Failure::internal(error).certainty(error.certainty());
    match error {
        FenceError::Stale(_) => failure.kind("stale").exit(Exit::Refused),
        FenceError::Foreign { .. } => failure.kind("foreign").exit(Exit::Foreign),
        FenceError::Busy { .. } => failure.kind("busy").exit(Exit::Busy),
        FenceError::Failed { source, .. } => {
            use std::io::ErrorKind as Io;
            match source.downcast_ref().map(std::io::Error::kind) {
                Some(Io::NotFound | Io::NotADirectory | Io::InvalidInput | Io::InvalidFilename) => {
                    let failure = failure.kind("usage").exit(Exit::Usage);
                    failure.fix("name a file in a directory that exists")
                }
                Some(Io::PermissionDenied | Io::ReadOnlyFilesystem) => {
                    let failure = failure.kind("refused").exit(Exit::Refused);
                    failure.fix("let this user read and write the file and its directory")
                }
                _ => failure.kind("unavailable").exit(Exit::Unavailable),
            }
        }
        _ => failure.kind("refused").exit(Exit::Refused),
    }
}

impl BumpArgs {
    async fn run(&self, store: &OpenStore, console: &Console) -> Outcome {
        let to = self.to;
        store.operate(&Operation::RaiseFence { to }, console).await?;
        let message = format!("all later tokens are larger than {to}");
        console.done(&json!({ "above": to }), &message)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_mark_without_write_permission_is_refused_and_not_unavailable() {
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
