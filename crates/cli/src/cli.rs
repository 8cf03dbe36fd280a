//! The command line, as clap parses it. Each verb's arguments are defined in the verb's own file.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use holdline_core::{ContractTimes, Escaped};

use crate::console::{Color, Console};
use crate::duration;
use crate::failure::Failure;
use crate::global::Global;
use crate::holder::cut;
use crate::open_store::install;
use crate::verb::Start;
use crate::verbs;

/// The longest part of a wrong argument that is shown, in bytes; names have at most 512.
const MAX_TYPED: usize = 600;

/// A command line that was read.
pub(crate) struct Cli {
    pub(crate) global: Global,
    pub(crate) start: Start,
}

/// The outcome of a command line without a verb to carry out.
pub(crate) enum Unparsed {
    /// Help or version was asked for.
    Shown(String),
    /// The command line is wrong.
    Wrong(Failure),
}

/// Reads the command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, Unparsed> {
    matched(arguments).map_err(unparsed)
}

fn matched(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    read(&mut matches).map_err(|error| error.format(&mut command))
}

fn read(matches: &mut ArgMatches) -> Result<Cli, clap::Error> {
    let global = Global::from_arg_matches_mut(matches)?;
    let missing = || clap::Error::new(ErrorKind::MissingSubcommand);
    let (name, mut arguments) = matches.remove_subcommand().ok_or_else(missing)?;
    let verb = verbs::all().into_iter().find(|verb| verb.name == name).ok_or_else(missing)?;
    Ok(Cli { global, start: (verb.read)(&mut arguments)? })
}

fn unparsed(mut error: clap::Error) -> Unparsed {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return Unparsed::Shown(error.render().to_string());
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = error.render().to_string();
            let message = format_args!("no verb was given\n\n{}", help.trim_end());
            return Unparsed::Wrong(Failure::usage(message));
        }
        _ => {}
    }
    escape(&mut error);
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    // Clap's own reference to the help becomes the fix.
    let (message, _) =
        text.split_once("\n\nFor more information, try '--help'.").unwrap_or((text, ""));
    Unparsed::Wrong(Failure::usage(message).fix(fix(&error)))
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
pub(crate) fn plain(arguments: &[OsString]) -> Console {
    let own = arguments.iter().take_while(|argument| *argument != "--");
    let json = own.into_iter().any(|argument| argument == "--json");
    Console::new(json, false, false, Color::Auto)
}

/// Returns the whole command, for completions and the manual.
pub(crate) fn command() -> clap::Command {
    with_times(without_times(), &ContractTimes::DEFAULT)
}

fn without_times() -> clap::Command {
    let verbs = verbs::all().into_iter();
    let verbs = verbs.map(|verb| (verb.define)(clap::Command::new(verb.name)));
    Global::command().subcommand_required(true).subcommands(verbs)
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

    fn refused(line: &[&str]) -> Failure {
        let words: Vec<OsString> = ["holdline"].iter().chain(line).map(OsString::from).collect();
        match parse(&words) {
            Err(Unparsed::Wrong(failure)) => failure,
            Err(Unparsed::Shown(text)) => panic!("{text}"),
            Ok(_) => panic!("{line:?} is accepted"),
        }
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
        let help = help_of(with_times(without_times(), &times)).replace(example, "");
        let old = duration::written(ContractTimes::DEFAULT.default_lease);
        let places = usual.replace(example, "").matches(&old).count();
        assert!(places >= 5, "{places}");
        assert_eq!((help.matches(&old).count(), help.matches("17s").count()), (0, places));
        assert!(!usual.contains("_lease@"), "{usual}");
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
            let failure = refused(line);
            assert_eq!(failure.exit.code(), 64, "{failure:?}");
            let odd = |c: char| c.is_control() && c != '\n';
            assert!(!failure.message.contains(odd), "{:?}", failure.message);
        }
    }
}
