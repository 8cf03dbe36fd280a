//! The command line, as clap parses it. Each verb's arguments are defined in the verb's own file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use holdline_core::{ContractTimes, Escaped};

use crate::console::{Color, Console};
use crate::duration;
use crate::failure::Failure;
use crate::holder::cut;
use crate::session::install;
use crate::verbs;

/// The longest part of a wrong argument that is shown, in bytes; names have at most 512.
const MAX_TYPED: usize = 600;

/// Hold a lock, run a program, release.
///
/// `holdline run NAME -- COMMAND` waits for NAME, runs COMMAND while it holds it, and ends with
/// COMMAND's own exit code. Without --url, locks are local to this machine and user; no server is
/// needed.
#[derive(Debug, Parser)]
#[command(name = "holdline", version, max_term_width = 100, arg_required_else_help = true)]
#[command(infer_subcommands = false)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
#[command(
    after_help = "Exit codes: COMMAND's own, 128+n when signal n ended it, 75 busy, 79 lease \
    lost, 69 engine unreachable, 64 usage, 77 refused, 78 configuration, 65 foreign data, 76 \
    protocol, 124 --max-hold, 125 our failure, 126 cannot run, 127 not found."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The arguments of every verb.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The engine: local:, local:///directory, redis://host:port,
    /// redis+sentinel://host,host/SERVICE, redis-cluster://host,host,
    /// redlock://host,host,host, postgres://user@host/database, mysql://user@host/database
    /// (MariaDB; MySQL is not tested), etcd://host,host,host, zk://host,host,host or
    /// https://host (a Holdline server)
    /// [default: HOLDLINE_URL, a configuration file, or local:]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) url: Vec<String>,
    /// Read this configuration file instead of ./holdline.toml, the user's and the system's
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Refuse local: and memory:, so that a missing URL is an error; HOLDLINE_REQUIRE_SERVER=1 and
    /// require_server = true in a configuration file do the same
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) require_server: bool,
    /// Print JSON: data on stdout, messages on stderr, one object per line
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(hide_possible_values = true, help_heading = "Global options")]
    #[arg(help = "When to use colours: auto, always or never")]
    pub(crate) color: Color,
    /// Print nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    #[arg(help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Print more
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,
}

impl Global {
    pub(crate) fn console(&self) -> Console {
        Console::new(self.json, self.quiet, self.verbose, self.color)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Hold NAME, run COMMAND, release
    Run(Box<verbs::run::RunArgs>),
    /// Run COMMAND while this candidate leads the election NAME, or watch who leads
    Elect(verbs::run::elect::ElectArgs),
    /// Acquire NAME for a while without a process that holds it, and print the lease
    Acquire(verbs::acquire::AcquireArgs),
    /// Renew a lease of `acquire`
    Renew(verbs::renew::RenewArgs),
    /// Release a lease of `acquire`
    Release(verbs::release::ReleaseArgs),
    /// Check whether a lease of `acquire` is still held: exit 0 if so, 79 if not
    Check(verbs::check::CheckArgs),
    /// Show who holds NAME and who waits for it: exit 0 if held, 1 if free
    Who(verbs::who::WhoArgs),
    /// List the names that are held or waited for
    Ls(verbs::ls::LsArgs),
    /// Print what changes: grants, ends, waits, freezes
    Watch(verbs::watch::WatchArgs),
    /// Show what is held and waited for, who blocks whom, and what changes, on one screen
    #[cfg(feature = "top")]
    Top(verbs::top::TopArgs),
    /// Wait until NAME is free, without taking it
    Wait(verbs::wait::WaitVerbArgs),
    /// Set the count-down latch NAME, count it down, wait for zero, or show its count
    Latch(verbs::latch::LatchArgs),
    /// Take NAME away from its holder
    Revoke(verbs::revoke::RevokeArgs),
    /// Let nobody acquire NAME for a while
    Freeze(verbs::freeze::FreezeArgs),
    /// End a freeze
    Unfreeze(verbs::freeze::UnfreezeArgs),
    /// Show what operators did: who, from where, when and why
    Audit(verbs::audit::AuditArgs),
    /// Show what an engine guarantees, in plain words
    Explain(verbs::explain::ExplainArgs),
    /// Check the health of an engine: exit 0 if healthy, 1 with warnings, 2 with errors
    Doctor(verbs::doctor::DoctorArgs),
    /// Show what goes wrong with locks that expire, and what fencing tokens do about it
    Demo(verbs::demo::DemoArgs),
    /// Check fencing tokens at a resource, or raise them after a restore
    Fence(verbs::fence::FenceArgs),
    /// Stop, kill and cut off holders on a real store, and check the promises: exit 0 if all were
    /// kept, 1 if not, 2 if the run shows nothing
    #[cfg(feature = "torture")]
    Torture(verbs::torture::TortureArgs),
    /// Serve the locks of the engine over HTTP
    #[cfg(feature = "server")]
    Serve(verbs::serve::ServeArgs),
    /// Serve locks of files and branches to a coding agent, by the Model Context Protocol
    #[cfg(feature = "mcp")]
    Mcp(verbs::mcp::McpArgs),
    /// Set up, inspect or repair a quorum of Redis servers (redlock://)
    Quorum(verbs::quorum::QuorumArgs),
    /// Print a completion script for a shell
    Completions(verbs::completions::CompletionsArgs),
    /// Print the manual page
    Man(verbs::man::ManArgs),
}

/// The outcome of a command line without a verb to carry out.
#[derive(Debug)]
pub(crate) enum Unparsed {
    /// Help or version was asked for.
    Shown(String, Console),
    /// The command line is wrong.
    Wrong {
        /// The failure.
        failure: Failure,
        /// Where to print it.
        console: Console,
    },
}

/// Reads the command line.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Unparsed> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut cli = matched(&arguments).map_err(|error| unparsed(error, &arguments))?;
    let checked = match &mut cli.verb {
        Verb::Run(run) => run.check_dashes(&arguments),
        Verb::Elect(elect) => elect.check_dashes(&arguments),
        _ => Ok(()),
    };
    match checked {
        Ok(()) => Ok(cli),
        Err(failure) => Err(Unparsed::Wrong { failure, console: cli.global.console() }),
    }
}

fn matched(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn unparsed(mut error: clap::Error, arguments: &[OsString]) -> Unparsed {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return Unparsed::Shown(error.render().to_string(), plain(arguments));
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = error.render().to_string();
            let failure = Failure::usage(format_args!("no verb was given\n\n{}", help.trim_end()));
            return Unparsed::Wrong { failure, console: plain(arguments) };
        }
        _ => {}
    }
    escape(&mut error);
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    // Clap's own reference to the help becomes the fix.
    let (message, _) =
        text.split_once("\n\nFor more information, try '--help'.").unwrap_or((text, ""));
    let failure = Failure::usage(message).fix(fix(&error));
    Unparsed::Wrong { failure, console: plain(arguments) }
}

/// The verbs that a build may lack. `serve` has the cargo feature `server`; the others are called
/// as their features.
const OPTIONAL_VERBS: [&str; 4] = ["mcp", "serve", "top", "torture"];

fn fix(error: &clap::Error) -> String {
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && OPTIONAL_VERBS.contains(&verb.as_str())
    {
        let feature = if verb == "serve" { "server" } else { verb };
        return format!("this build lacks the verb; {}", install(feature));
    }
    let fix = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing))
            if missing.iter().any(|argument| argument.contains("--if-fencing-token")) =>
        {
            "`holdline who NAME` shows the token; see --help"
        }
        _ => "see --help",
    };
    fix.to_owned()
}

/// Escapes the user's input in clap's messages.
fn escape(error: &mut clap::Error) {
    // Of a text that is much too long, only the beginning is shown.
    let escaped = |text: &String| match cut(text, MAX_TYPED) {
        part if part.len() < text.len() => format!("{}…", Escaped(&part)),
        part => Escaped(&part).to_string(),
    };
    let typed: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, ContextValue::String(escaped(text)))),
            ContextValue::Strings(texts) => {
                Some((kind, ContextValue::Strings(texts.iter().map(escaped).collect())))
            }
            _ => None,
        })
        .collect();
    for (kind, value) in typed {
        error.insert(kind, value);
    }
}

/// The console for a command line that could not be parsed: JSON if `--json` is among the
/// arguments.
fn plain(arguments: &[OsString]) -> Console {
    let own = arguments.iter().take_while(|argument| *argument != "--");
    let json = own.into_iter().any(|argument| argument == "--json");
    Console::new(json, false, false, Color::Auto)
}

/// Returns the whole command, for completions and the manual.
pub(crate) fn command() -> clap::Command {
    with_times(Cli::command(), &ContractTimes::DEFAULT)
}

/// Writes the times of the contract into the help texts, where `@default_lease@` and the like
/// stand.
fn with_times(command: clap::Command, times: &ContractTimes) -> clap::Command {
    let filled = |text: &clap::builder::StyledStr| {
        let text = text.to_string();
        text.contains('@').then(|| times.fill(&text, duration::written))
    };
    let command = command.mut_args(|mut arg| {
        if let Some(text) = arg.get_help().and_then(filled) {
            arg = arg.help(text);
        }
        match arg.get_long_help().and_then(filled) {
            Some(text) => arg.long_help(text),
            None => arg,
        }
    });
    command.mut_subcommands(|verb| with_times(verb, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<Cli, Failure> {
        let arguments = std::iter::once("holdline").chain(line.iter().copied());
        parse(arguments.map(OsString::from)).map_err(|unparsed| match unparsed {
            Unparsed::Shown(text, _) => panic!("{text}"),
            Unparsed::Wrong { failure, .. } => failure,
        })
    }

    #[test]
    fn the_definitions_are_consistent() {
        command().debug_assert();
    }

    fn help_of(mut command: clap::Command) -> String {
        let mut text = command.render_long_help().to_string();
        for verb in command.get_subcommands().cloned() {
            text += &help_of(verb);
        }
        text
    }

    /// No number of a time stands in a help text, but in examples of how to type one.
    #[test]
    fn the_help_has_the_times_of_the_contract() {
        let usual = help_of(command());
        let example = "500ms, 30s, 5m or 2h";
        let default_lease = std::time::Duration::from_secs(17);
        let times = ContractTimes { default_lease, ..ContractTimes::DEFAULT };
        let help = help_of(with_times(Cli::command(), &times)).replace(example, "");
        let old = duration::written(ContractTimes::DEFAULT.default_lease);
        let places = usual.replace(example, "").matches(&old).count();
        assert!(places >= 5, "{places}");
        assert_eq!((help.matches(&old).count(), help.matches("17s").count()), (0, places));
        assert!(!usual.contains("_lease@"), "{usual}");
    }

    #[test]
    fn the_job_gets_its_own_flags() {
        for line in [
            &["run", "a", "--", "ls", "--json", "-q", "--", "x"][..],
            &["run", "a", "ls", "--json", "-q", "--", "x"],
            &["run", "a", "--try", "ls", "--json", "-q", "--", "x"],
            &["run", "--try", "a", "--", "ls", "--json", "-q", "--", "x"],
        ] {
            let cli = parsed(line).expect("good");
            let Verb::Run(run) = cli.verb else { panic!("run") };
            assert_eq!(run.command, ["ls", "--json", "-q", "--", "x"], "{line:?}");
            assert!(!cli.global.json);
        }
        assert!(parsed(&["run", "a", "--json", "--", "ls"]).expect("good").global.json);
    }

    #[test]
    fn a_build_without_torture_says_how_to_enable_it() {
        let without = clap::Command::new("holdline").subcommand(clap::Command::new("run"));
        let typed = |verb| without.clone().try_get_matches_from(["holdline", verb]);
        let fix = |verb| fix(&typed(verb).expect_err("no such verb"));
        assert!(fix("torture").contains("--features torture"));
        assert_eq!(fix("tortures"), "see --help");
    }

    #[test]
    fn wrong_arguments_are_shown_escaped() {
        for line in [
            &["run", "--\u{1b}[31m", "a", "ls"][..],
            &["\u{1b}]0;x\u{7}"],
            &["run", "--wait", "\u{1b}[2J", "a", "ls"],
            &["who", "a", "\u{9b}31m"],
            &["run", "a\u{1b}[31mb", "ls"],
        ] {
            let failure = parsed(line).expect_err("wrong");
            assert_eq!(failure.exit.code(), 64, "{failure:?}");
            let odd = |c: char| c.is_control() && c != '\n';
            assert!(!failure.message.contains(odd), "{:?}", failure.message);
        }
    }
}
