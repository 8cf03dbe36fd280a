//! The arguments of `run`, and the checks of how they combine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use holdline_core::LockName;

use super::super::common::{self, AboutArgs, ModeArgs, WaitArgs};
use super::any_of::AnyOfArgs;
use super::metrics_file::MetricsArgs;
use super::slot::SlotArgs;
use super::supervise::OnLost;
use crate::duration;
use crate::failure::Failure;

/// What `run` takes.
#[derive(Debug, Args)]
#[command(override_usage = "holdline run [OPTIONS] NAME [--] COMMAND...\n       \
    holdline run [OPTIONS] --any-of NAME,... -- COMMAND...")]
#[command(
    after_help = "The job's terminal, input, output and signals are its own. Without --lease, \
    on local: the grant lives as long as the job, even if this program is killed. Otherwise it is \
    a lease, renewed meanwhile, and a job whose lease cannot be renewed is stopped before anybody \
    else can get NAME.\n\nExamples:\n  holdline run nightly-backup -- backup.sh --full\n  \
    holdline run deploy --try -E 0 -- ./deploy\n  holdline run gpu --permits 1/4 -- train.py\n  \
    holdline run report --once-per 15m -- report.sh\n  \
    holdline run --any-of gpu/0,gpu/1 -- train.py"
)]
pub(crate) struct RunArgs {
    /// Hold NAME by a lease of this length instead of a live grant [default where the engine has no
    /// live grants: @default_lease@, or the longest that it keeps]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(value_parser = duration::lease)]
    pub(crate) lease: Option<Duration>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// If NAME is busy, or --wait runs out, do nothing and exit with 0; without --wait, do not wait
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub(crate) skip: bool,
    /// Exit with N instead of 75 if NAME is busy or the wait runs out
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    /// How long the job may take to end after TERM, before KILL [default: 5s; less where the engine
    /// keeps no lease of @default_lease@]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(value_parser = duration::any)]
    pub(crate) grace: Option<Duration>,
    /// Stop the job after this long and exit with 124
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(value_parser = duration::positive)]
    pub(crate) max_hold: Option<Duration>,
    /// Hold NAME at least this long, even if the job ends sooner
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    #[arg(value_parser = duration::positive)]
    pub(crate) min_hold: Option<Duration>,
    /// What to do with the job when the lease is lost: term, kill or warn
    #[arg(long, value_name = "WHAT", default_value = "term", hide_possible_values = true)]
    pub(crate) on_lost: OnLost,
    /// Do not let the job inherit the descriptor that keeps a live grant: processes that it leaves
    /// behind do not hold NAME
    #[arg(long)]
    pub(crate) close: bool,
    #[command(flatten)]
    pub(crate) any: AnyOfArgs,
    #[command(flatten)]
    pub(crate) slot: SlotArgs,
    #[command(flatten)]
    pub(crate) about: AboutArgs,
    /// Write what happened to FILE, as one JSON object
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// The lock name
    #[arg(value_parser = common::name)]
    pub(crate) name: LockName,
    /// The program to run and its arguments
    #[arg(required_unless_present = "any_of", trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// Whether NAME is requested only once. `--skip` without `--wait` does not wait, since a wait
    /// without a limit never ends.
    pub(crate) fn only_tries(&self) -> bool {
        self.wait.only_try || (self.skip && self.wait.wait.is_none())
    }

    /// Whether the job runs once for each slot of a schedule.
    pub(crate) fn is_once_per_slot(&self) -> bool {
        self.slot.once_per.is_some()
    }

    /// Checks that NAME comes before the first `--`. After a `--`, NAME is really the beginning of
    /// the command, as in `run $name -- backup` with an empty `name`.
    ///
    /// # Errors
    /// NAME comes after the `--`, does not begin with `-`, and no second `--` follows.
    pub(crate) fn check_dashes(&mut self, words: &[OsString]) -> Result<(), Failure> {
        let Some(first) = self.any.any_of.first().cloned() else {
            return check_dashes("run", &self.name, &mut self.command, words);
        };
        // The names stand behind the flag, so what was read as NAME begins the command.
        let dashes = words.iter().position(|word| word == "--");
        let behind = dashes.map(|at| words.len() - at - 1);
        if behind == Some(self.command.len()) {
            let message = format!("NAME: {} is one too many beside --any-of", self.name);
            let fix = "write holdline run --any-of NAME,NAME -- COMMAND";
            return Err(Failure::usage(message).fix(fix));
        }
        let program = std::mem::replace(&mut self.name, first);
        self.command.insert(0, program.as_str().into());
        Ok(())
    }

    /// The names of which one is to be held.
    pub(crate) fn names(&self) -> &[LockName] {
        match self.any.any_of.as_slice() {
            [] => std::slice::from_ref(&self.name),
            names => names,
        }
    }
}

/// The check of [`RunArgs::check_dashes`] for a verb.
pub(super) fn check_dashes(
    verb: &str,
    name: &LockName,
    command: &mut Vec<OsString>,
    words: &[OsString],
) -> Result<(), Failure> {
    let dashes = words.iter().position(|word| word == "--");
    let behind = dashes.map_or(0, |at| words.len() - at - 1);
    if behind != command.len() + 1 {
        return Ok(());
    }
    if command.first().is_some_and(|word| word == "--") {
        command.remove(0);
        let missing = || Failure::usage("COMMAND: is missing behind the second `--`");
        return if command.is_empty() { Err(missing()) } else { Ok(()) };
    }
    if name.as_str().starts_with('-') {
        return Ok(());
    }
    let message = format!("NAME: is missing before `--`, and {name} would be it");
    Err(Failure::usage(message).fix(format_args!("write holdline {verb} NAME -- COMMAND")))
}
