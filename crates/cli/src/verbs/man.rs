//! `holdline man`.

use clap::Args;

use crate::cli;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};

/// What `man` takes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline man | man -l -\n  holdline man run > holdline-run.1")]
pub(crate) struct ManArgs {
    /// The verb to describe; the whole program without it
    verb: Option<String>,
}

/// Prints the manual page.
pub(crate) fn run(arguments: &ManArgs, console: &Console) -> Outcome {
    let mut command = cli::command();
    command.build();
    let page = match &arguments.verb {
        None => command,
        Some(verb) => {
            let known: Vec<String> =
                command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
            command.find_subcommand(verb).cloned().ok_or_else(|| {
                let near = holdline_core::nearest(verb, known.iter().map(String::as_str))
                    .map_or_else(String::new, |near| format!("; did you mean {near}?"));
                let verb = holdline_core::Escaped(verb);
                Failure::usage(format_args!("VERB: there is no verb {verb}{near}"))
            })?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    console.data(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Success)
}
