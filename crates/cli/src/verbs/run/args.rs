//! The arguments of `run`, and the plan that they and those of `elect` come to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use holdline_core::LockName;

use super::super::common::{AboutArgs, ModeArgs, WaitArgs};
use super::any_of::AnyOfArgs;
use super::metrics_file::MetricsArgs;
use super::run;
use super::slot::SlotArgs;
use super::supervise::OnLost;
use crate::duration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::verb::{AtStake, EngineChoice, Verb};

/// What the flags of `run` or `elect` come to: what is held, and what runs meanwhile.
pub(super) struct RunPlan {
    pub(super) name: LockName,
    pub(super) command: Vec<OsString>,
    pub(super) about: AboutArgs,
    /// What a leader proclaims; empty for a lock.
    pub(super) value: String,
    /// `None`: a live grant, or the default where the engine has none.
    pub(super) lease: Option<Duration>,
    pub(super) grace: Option<Duration>,
    pub(super) run_only: RunOnly,
}

/// What only `run` can be asked for.
#[derive(Default)]
pub(super) struct RunOnly {
    /// The names of which the first free one is held, in place of the plan's.
    pub(super) any_of: Vec<LockName>,
    pub(super) slot: SlotArgs,
    pub(super) mode: ModeArgs,
    pub(super) wait: Option<Duration>,
    /// The name is requested only once.
    pub(super) only_try: bool,
    /// The exit if the name is busy, where it is not the usual one.
    pub(super) busy_exit: Option<Exit>,
    pub(super) max_hold: Option<Duration>,
    pub(super) min_hold: Option<Duration>,
    pub(super) on_lost: OnLost,
    /// The job does not inherit the descriptor of a live grant.
    pub(super) close: bool,
    pub(super) report: Option<PathBuf>,
    pub(super) metrics: MetricsArgs,
}

impl RunPlan {
    /// The names of which one is to be held.
    pub(super) fn names(&self) -> &[LockName] {
        match self.run_only.any_of.as_slice() {
            [] => std::slice::from_ref(&self.name),
            names => names,
        }
    }

    /// The name of the job's program, without its directory.
    pub(super) fn program(&self) -> String {
        let program = Path::new(&self.command[0]);
        let program = program.file_name().unwrap_or(program.as_os_str());
        program.to_string_lossy().into_owned()
    }
}

/// Hold NAME, run COMMAND, release
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
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::lease)]
    lease: Option<Duration>,
    #[command(flatten)]
    wait: WaitArgs,
    /// If NAME is busy, or --wait runs out, do nothing and exit with 0; without --wait, do not wait
    #[arg(long, conflicts_with = "conflict_exit_code")]
    skip: bool,
    /// Exit with N instead of 75 if NAME is busy or the wait runs out
    #[arg(short = 'E', long, value_name = "N")]
    conflict_exit_code: Option<u8>,
    #[command(flatten)]
    mode: ModeArgs,
    /// How long the job may take to end after TERM, before KILL [default: 5s; less where the engine
    /// keeps no lease of @default_lease@]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::any)]
    grace: Option<Duration>,
    /// Stop the job after this long and exit with 124
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::positive)]
    max_hold: Option<Duration>,
    /// Hold NAME at least this long, even if the job ends sooner
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_parser = duration::positive)]
    min_hold: Option<Duration>,
    /// What to do with the job when the lease is lost: term, kill or warn
    #[arg(long, value_name = "WHAT", default_value = "term", hide_possible_values = true)]
    on_lost: OnLost,
    /// Do not let the job inherit the descriptor that keeps a live grant: processes that it leaves
    /// behind do not hold NAME
    #[arg(long)]
    close: bool,
    #[command(flatten)]
    any: AnyOfArgs,
    #[command(flatten)]
    slot: SlotArgs,
    #[command(flatten)]
    about: AboutArgs,
    /// Write what happened to FILE, as one JSON object
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// The lock name
    name: LockName,
    /// The program to run and its arguments
    #[arg(required_unless_present = "any_of", trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Describes `run`.
pub(crate) fn verb() -> Verb {
    Verb::new("run", |mut arguments: RunArgs, invocation| {
        arguments.check_dashes(&invocation.words)?;
        let at_stake = match arguments.slot.once_per {
            Some(_) => AtStake::HoldAmongMachines("--once-per"),
            None => AtStake::Hold,
        };
        invocation.on_engine(&arguments.plan(), EngineChoice::Used, at_stake, run)
    })
}

impl RunArgs {
    fn plan(self) -> RunPlan {
        let busy_exit =
            if self.skip { Some(Exit::Success) } else { self.conflict_exit_code.map(Exit::Code) };
        let run_only = RunOnly {
            any_of: self.any.any_of,
            slot: self.slot,
            mode: self.mode,
            wait: self.wait.wait,
            // `--skip` without `--wait` does not wait: a wait without a limit never ends.
            only_try: self.wait.only_try || (self.skip && self.wait.wait.is_none()),
            busy_exit,
            max_hold: self.max_hold,
            min_hold: self.min_hold,
            on_lost: self.on_lost,
            close: self.close,
            report: self.report,
            metrics: self.metrics,
        };
        RunPlan {
            name: self.name,
            command: self.command,
            about: self.about,
            value: String::new(),
            lease: self.lease,
            grace: self.grace,
            run_only,
        }
    }

    /// Checks that NAME comes before the first `--`. After a `--`, NAME is really the beginning of
    /// the command, as in `run $name -- backup` with an empty `name`.
    ///
    /// # Errors
    /// NAME comes after the `--`, does not begin with `-`, and no second `--` follows.
    fn check_dashes(&mut self, words: &[OsString]) -> Result<(), Failure> {
        let Some(first) = self.any.any_of.first().cloned() else {
            return check_dashes("run", &self.name, &mut self.command, words);
        };
        // The names stand behind the flag, so what was read as NAME begins the command.
        if behind_dashes(words) == Some(self.command.len()) {
            let message = format!("NAME: {} is one too many beside --any-of", self.name);
            let fix = "write holdline run --any-of NAME,NAME -- COMMAND";
            return Err(Failure::usage(message).fix(fix));
        }
        let program = std::mem::replace(&mut self.name, first);
        self.command.insert(0, program.as_str().into());
        Ok(())
    }
}

/// Returns how many words stand behind the first `--`.
fn behind_dashes(words: &[OsString]) -> Option<usize> {
    let dashes = words.iter().position(|word| word == "--")?;
    Some(words.len() - dashes - 1)
}

/// The check of [`RunArgs::check_dashes`] for a verb.
pub(super) fn check_dashes(
    verb: &str,
    name: &LockName,
    command: &mut Vec<OsString>,
    words: &[OsString],
) -> Result<(), Failure> {
    if behind_dashes(words) != Some(command.len() + 1) {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::global::Global;

    /// A command line of `run` alone.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        global: Global,
        #[command(flatten)]
        run: RunArgs,
    }

    fn parsed(line: &[&str]) -> Line {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let mut line = Line::try_parse_from(&words).expect("good");
        line.run.check_dashes(&words).expect("good");
        line
    }

    #[test]
    fn the_job_gets_its_own_flags() {
        for line in [
            &["run", "a", "--", "ls", "--json", "-q", "--", "x"][..],
            &["run", "a", "ls", "--json", "-q", "--", "x"],
            &["run", "a", "--try", "ls", "--json", "-q", "--", "x"],
            &["run", "--try", "a", "--", "ls", "--json", "-q", "--", "x"],
        ] {
            let read = parsed(line);
            assert_eq!(read.run.plan().command, ["ls", "--json", "-q", "--", "x"], "{line:?}");
            assert!(!read.global.json);
        }
        assert!(parsed(&["run", "a", "--json", "--", "ls"]).global.json);
    }
}
